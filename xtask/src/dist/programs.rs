//! The programs of a distribution: which there are, and their build.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::{DistError, Target};
use crate::built::{executable_of, ptx_of, without_json};
use crate::launch::RANKS;
use crate::run;
use crate::steps::{EXAMPLES, PROOFS};
use crate::workspace::{Workspace, cargo_home};

/// Packages whose programs run beside sources alone.
const LEFT_OUT: [&str; 2] = ["xtask", PROOFS];
/// Packages whose programs have a folder of their own below `bin`: two of these programs have the same name.
const FOLDERS: [(&str, &str); 3] = [
    (EXAMPLES, "gallery"),
    ("warpbell-papers", "papers"),
    ("warpbell-cluster", "papers"),
];
const PROFILE: &str = "dist";
/// How long building all of it may take.
const BUILD_DEADLINE: Duration = Duration::from_secs(2 * 60 * 60);
/// Between flags in `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\x1f";

/// A program that is built.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// Where it is built.
    pub built: PathBuf,
    /// Where it belongs in a distribution.
    pub path: PathBuf,
}

/// A program to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Source<'w> {
    package: &'w str,
    kind: &'static str,
    name: &'w str,
}

/// Builds all programs of the workspace that do something without its sources: `bin` targets, and the gallery.
pub fn build(
    workspace: &Workspace,
    target: Target,
    on_line: impl FnMut(&str),
) -> Result<Vec<Program>, DistError> {
    let sources = sources(workspace);
    let mut cargo = workspace.cargo();
    cargo.args(["build", "--message-format=json-render-diagnostics"]);
    cargo.args(["--profile", PROFILE, "--target", &target.triple()]);
    cargo.envs(target.linker());
    // With flags of its own, it shares nothing with other builds.
    cargo.arg("--target-dir").arg(build_folder(workspace));
    cargo.args(options(&sources));
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags(workspace).join(SEPARATOR));
    let built = run::capture(cargo, BUILD_DEADLINE, on_line)?;
    if !built.success() {
        return Err(DistError::Build(without_json(&built.account())));
    }
    ptx_of(&built.stdout, EXAMPLES).map_err(DistError::NoPtx)?;
    let find = |source: &Source<'_>| find(&built.stdout, source);
    sources.iter().map(find).collect()
}

/// The compiler's look at all programs for a target, without the kernels of the gallery.
pub fn check(workspace: &Workspace, target: Target) -> Command {
    let mut cargo = workspace.cargo();
    cargo.args(["check", "--target", &target.triple()]);
    cargo.arg("--target-dir").arg(build_folder(workspace));
    cargo.args(["--features", &format!("{RANKS}/launch")]);
    let (_, packages) = features_and_packages(workspace);
    cargo.args(packages.iter().flat_map(|package| ["-p", package]));
    cargo.args(["--bins", "--examples"]);
    cargo
}

fn build_folder(workspace: &Workspace) -> PathBuf {
    super::folder(workspace).join("build")
}

/// The features that are on, and the packages.
pub fn features_and_packages(workspace: &Workspace) -> (String, Vec<&str>) {
    let mut packages = Vec::from_iter(sources(workspace).iter().map(|source| source.package));
    packages.dedup();
    (features(), packages)
}

fn features() -> String {
    format!("{EXAMPLES}/gpu,{RANKS}/launch")
}

fn sources(workspace: &Workspace) -> Vec<Source<'_>> {
    let packages = workspace
        .packages()
        .filter(|package| !LEFT_OUT.contains(package));
    let of = |package| {
        let kind = if package == EXAMPLES {
            "example"
        } else {
            "bin"
        };
        let names = workspace.targets(package, kind).into_iter();
        names.map(move |name| Source {
            package,
            kind,
            name,
        })
    };
    packages.flat_map(of).collect()
}

fn options(sources: &[Source<'_>]) -> Vec<String> {
    let mut options = vec!["--features".into(), features()];
    for Source {
        package,
        kind,
        name,
    } in sources
    {
        options.extend([
            "-p".into(),
            (*package).into(),
            format!("--{kind}"),
            (*name).into(),
        ]);
    }
    options
}

/// The compiler's flags: PTX is shared, and no program knows where it was built.
fn flags(workspace: &Workspace) -> Vec<String> {
    let mut flags = vec!["--cfg=warpbell_dist".into()];
    let homes = [
        (cargo_home(), "/cargo"),
        (Some(workspace.root.clone()), "/warpbell"),
    ];
    for (folder, name) in homes {
        flags.extend(
            folder.map(|folder| format!("--remap-path-prefix={}={name}", folder.display())),
        );
    }
    flags
}

/// Finds a program in what Cargo said of the build.
fn find(messages: &str, source: &Source<'_>) -> Result<Program, DistError> {
    let built = executable_of(messages, |target| {
        target.name == source.name && target.kind == [source.kind]
    });
    let built = built.ok_or_else(|| DistError::Unbuilt(source.name.into()))?;
    let folder = FOLDERS
        .iter()
        .find(|(package, _)| *package == source.package);
    let path = PathBuf::from("bin")
        .join(folder.map_or("", |(_, folder)| folder))
        .join(source.name);
    Ok(Program { built, path })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_programs_are_those_that_need_no_sources() {
        let workspace = Workspace::load(Path::new(".")).unwrap();
        let sources = sources(&workspace);
        let has = |package, kind, name| {
            sources.contains(&Source {
                package,
                kind,
                name,
            })
        };
        assert!(has("warpbell-doctor", "bin", "warpbell-doctor"));
        assert!(
            has(EXAMPLES, "example", "allreduce") && has("warpbell-papers", "bin", "allreduce")
        );
        assert!(
            sources
                .iter()
                .all(|source| !LEFT_OUT.contains(&source.package))
        );
        let places = sources.iter().map(|source| {
            let folder = FOLDERS
                .iter()
                .find(|(package, _)| *package == source.package);
            (folder.map(|(_, folder)| folder), source.name)
        });
        assert_eq!(
            HashSet::<_>::from_iter(places).len(),
            sources.len(),
            "two programs lie in one place"
        );
    }

    #[test]
    fn two_programs_of_one_name_are_told_apart_and_a_missing_one_is_named() {
        let messages = r#"
{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"papers"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["example"],"name":"allreduce"},"executable":"/t/examples/allreduce"}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"allreduce"},"executable":"/t/allreduce"}
"#;
        let find = |package, kind, name| {
            find(
                messages,
                &Source {
                    package,
                    kind,
                    name,
                },
            )
        };
        for (package, kind, built, path) in [
            (
                EXAMPLES,
                "example",
                "/t/examples/allreduce",
                "bin/gallery/allreduce",
            ),
            (
                "warpbell-papers",
                "bin",
                "/t/allreduce",
                "bin/papers/allreduce",
            ),
            ("warpbell-bench", "bin", "/t/allreduce", "bin/allreduce"),
        ] {
            let (built, path) = (built.into(), path.into());
            assert_eq!(
                find(package, kind, "allreduce").unwrap(),
                Program { built, path }
            );
        }
        let error = find("warpbell-papers", "bin", "kv").unwrap_err();
        assert_eq!(error.to_string(), "Cargo did not say where it built kv");
    }
}
