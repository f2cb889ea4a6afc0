//! The licences of what is in the programs: the project's own, and those of the crates that they are linked from.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{DistError, Target, at, call, copy, list, programs, write};
use crate::workspace::{Workspace, clean_command};

/// The project's own.
const OWN: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];
/// How the names of other projects' files begin, in capitals.
const OTHERS: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "UNLICENSE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
];
/// Rust's own notice on its standard library, below the folder of the toolchain.
const LIBRARY: &str = "share/doc/rust/COPYRIGHT-library.html";

/// A crate from a registry.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Crate {
    name: String,
    version: String,
    #[serde(default)]
    license: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Crate>,
}

/// Fills a folder with licences.
pub(super) fn gather(
    workspace: &Workspace,
    target: Target,
    folder: &Path,
) -> Result<(), DistError> {
    for name in OWN {
        copy(&workspace.root.join(name), &folder.join(name), 0o644)?;
    }
    let mut rustc = clean_command("rustc", &workspace.root);
    rustc.args(["--print", "sysroot"]);
    let library = Path::new(call(rustc)?.trim()).join(LIBRARY);
    copy(&library, &folder.join("rust-standard-library.html"), 0o644)?;
    let linked = linked(workspace, target)?;
    let mut metadata = workspace.cargo();
    metadata.args([
        "metadata",
        "--format-version",
        "1",
        "--filter-platform",
        &target.triple(),
    ]);
    let output = call(metadata)?;
    let Ok(Metadata { packages }) = serde_json::from_str(&output) else {
        let tool = "cargo metadata";
        return Err(DistError::Unexpected { tool, output });
    };
    let mut crates = packages;
    crates.retain(|package| linked.contains(&(package.name.clone(), package.version.clone())));
    crates.sort_unstable();
    write(&folder.join("other-crates.txt"), &of_all(&crates)?)
}

/// The crates of registries that the programs are linked from: names and versions.
fn linked(workspace: &Workspace, target: Target) -> Result<BTreeSet<(String, String)>, DistError> {
    let mut tree = workspace.cargo();
    tree.args([
        "tree",
        "--prefix",
        "none",
        "--edges",
        "normal,no-proc-macro",
    ]);
    tree.args(["--target", &target.triple(), "--format", "{p}"]);
    let (options, packages) = programs::features_and_packages(workspace);
    tree.args(["--features", &options]);
    tree.args(packages.iter().flat_map(|package| ["-p", package]));
    Ok(of_registries(&call(tree)?))
}

/// Reads lines such as `libc v0.2.191`; behind a crate of the workspace stands its folder.
fn of_registries(tree: &str) -> BTreeSet<(String, String)> {
    let lines = tree.lines().map(|line| line.trim_end_matches(" (*)"));
    let read = |line: &str| {
        let (name, version) = line.split_once(" v")?;
        (!version.contains(' ')).then(|| (name.into(), version.into()))
    };
    lines.filter_map(read).collect()
}

/// One text with the licences of all crates, each text once.
fn of_all(crates: &[Crate]) -> Result<String, DistError> {
    let mut texts = BTreeMap::<String, Vec<String>>::new();
    let mut all = String::from("The programs contain these crates, under these licences:\n\n");
    for one in crates {
        let name = format!("{} {}", one.name, one.version);
        let licence = one.license.as_deref().unwrap_or("in a file of its own");
        // Writing to a String cannot fail.
        let _ = writeln!(all, "{name}: {licence}");
        for file in list(one.manifest_path.parent().unwrap_or(&one.manifest_path))? {
            let upper = file
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .to_uppercase();
            if file.is_file() && OTHERS.iter().any(|begin| upper.starts_with(begin)) {
                let text = fs::read(&file).map_err(at(&file))?;
                let text = String::from_utf8_lossy(&text).replace("\r\n", "\n");
                texts
                    .entry(text.trim().into())
                    .or_default()
                    .push(name.clone());
            }
        }
    }
    for (text, mut names) in texts {
        names.dedup();
        let _ = write!(
            all,
            "\n{}\n{}\n\n{text}\n",
            "=".repeat(100),
            names.join(", ")
        );
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_registries_are_read_and_others_are_not() {
        let tree =
            "demo v0.1.0 (/w/examples/demo)\nlibc v0.2.191\nlibc v0.2.191 (*)\n\nclap v4.6.7 (*)\n";
        let found = of_registries(tree).into_iter();
        let found = Vec::from_iter(found.map(|(name, version)| format!("{name} {version}")));
        assert_eq!(found, ["clap 4.6.7", "libc 0.2.191"]);
    }

    #[test]
    fn a_text_stands_once_with_all_its_crates() {
        let folder = tempfile::tempdir().unwrap();
        let one = |name: &str, texts: &[(&str, &str)]| {
            let folder = folder.path().join(name);
            fs::create_dir(&folder).unwrap();
            for (file, text) in texts {
                fs::write(folder.join(file), text).unwrap();
            }
            Crate {
                name: name.into(),
                version: "1.0.0".into(),
                license: Some("MIT".into()),
                manifest_path: folder.join("Cargo.toml"),
            }
        };
        let crates = [
            one(
                "a",
                &[
                    ("LICENSE-MIT", "mine\n"),
                    ("license.txt", "shared\nwords\n"),
                ],
            ),
            one(
                "b",
                &[
                    ("COPYING", "shared\r\nwords\r\n"),
                    ("README.md", "no licence"),
                ],
            ),
        ];
        let all = of_all(&crates).unwrap();
        assert!(all.contains("\na 1.0.0: MIT\nb 1.0.0: MIT\n"), "{all}");
        assert!(all.contains("\na 1.0.0\n\nmine\n"), "{all}");
        assert!(
            all.contains("\na 1.0.0, b 1.0.0\n\nshared\nwords\n"),
            "{all}"
        );
        assert_eq!(all.matches("shared").count(), 1);
        assert!(!all.contains("no licence"), "{all}");
    }
}
