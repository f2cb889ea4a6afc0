//! What Cargo says of a build by `--message-format=json`: where it put the programs, and the PTX of kernels.

use std::fs;
use std::path::PathBuf;

use serde::Deserialize;

/// A line that names a program.
#[derive(Deserialize)]
struct Artifact {
    target: ArtifactTarget,
    executable: PathBuf,
}

/// What it was built from: `bin` or `example`, and its name.
#[derive(Deserialize)]
pub struct ArtifactTarget {
    pub name: String,
    #[serde(default)]
    pub kind: Vec<String>,
}

/// Finds where Cargo has put a binary.
pub fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    executable_of(messages, |target| target.name == name)
}

/// Finds the first binary of such a target.
pub fn executable_of(messages: &str, is_it: impl Fn(&ArtifactTarget) -> bool) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Artifact>(line).ok())
        .find(|artifact| is_it(&artifact.target))
        .map(|artifact| artifact.executable)
}

/// Leaves the JSON lines out of Cargo's output.
pub fn without_json(output: &str) -> String {
    let lines = output.lines().filter(|line| !line.starts_with('{'));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// What Cargo says of a build script that ran.
#[derive(Deserialize)]
struct ScriptRan {
    package_id: String,
    out_dir: PathBuf,
}

/// The PTX that the build script of a crate made, by what Cargo says of the build.
pub fn ptx_of(messages: &str, package: &str) -> Result<String, String> {
    let ran = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<ScriptRan>(line).ok())
        .find(|ran| ran.package_id.contains(package));
    let folder = ran.ok_or("no build script ran")?.out_dir;
    let list = folder.join("warpbell_kernels.rs");
    let list = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
    let path = list.split('"').nth(1).ok_or("no kernel was compiled")?;
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn finds_the_executable_among_cargos_messages() {
        let messages = r#"
{"reason":"compiler-artifact","target":{"name":"rdma_write"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"other"},"executable":"/a/other"}
{"reason":"compiler-artifact","target":{"name":"rdma_write"},"executable":"/a/rdma_write"}
{"reason":"build-finished","success":true}
"#;
        let found = executable(messages, "rdma_write");
        assert_eq!(found.as_deref(), Some(Path::new("/a/rdma_write")));
        assert_eq!(executable(messages, "rdma_read"), None);
    }

    #[test]
    fn hides_only_json_lines() {
        assert_eq!(
            without_json("error: a\n{\"reason\":1}\n  b\n"),
            "error: a\n  b\n"
        );
    }
}
