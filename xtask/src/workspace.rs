//! What the workspace holds, as `cargo metadata` tells it.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use crate::run::{self, RunError};

/// How long `cargo metadata` may take; it may have to fetch the registry's index.
const DEADLINE: Duration = Duration::from_secs(300);

/// Why the workspace could not be read.
#[derive(Debug, Error)]
pub enum WorkspaceError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("cargo metadata failed:\n{0}")]
    Metadata(String),
    #[error("cargo metadata printed something unexpected: {0}")]
    Json(#[from] serde_json::Error),
}

/// A Cargo workspace: its packages and where it is built.
#[derive(Debug, Deserialize)]
pub struct Workspace {
    #[serde(rename = "workspace_root")]
    pub root: PathBuf,
    #[serde(rename = "target_directory")]
    pub target: PathBuf,
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    /// The registries that it may go to; none stands for any.
    #[serde(default)]
    publish: Option<Vec<String>>,
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

impl Workspace {
    /// Reads the workspace that a folder belongs to.
    pub fn load(folder: &Path) -> Result<Self, WorkspaceError> {
        let mut command = cargo(folder);
        command.args(["metadata", "--no-deps", "--format-version", "1"]);
        let finished = run::capture(command, DEADLINE, |_| {})?;
        if !finished.success() {
            return Err(WorkspaceError::Metadata(finished.account()));
        }
        Ok(serde_json::from_str(&finished.stdout)?)
    }

    /// One without packages, built in a folder.
    #[cfg(test)]
    pub fn empty(folder: &Path) -> Self {
        Self {
            root: folder.into(),
            target: folder.into(),
            packages: Vec::new(),
        }
    }

    /// A call of cargo, with the toolchain of rust-toolchain.toml, in the workspace's root.
    pub fn cargo(&self) -> Command {
        cargo(&self.root)
    }

    /// The names of all packages.
    pub fn packages(&self) -> impl Iterator<Item = &str> {
        self.packages.iter().map(|package| package.name.as_str())
    }

    /// The names of the packages that are published.
    pub fn published(&self) -> impl Iterator<Item = &str> {
        let published = self.packages.iter().filter(|package| {
            let registries = package.publish.as_ref();
            registries.is_none_or(|registries| !registries.is_empty())
        });
        published.map(|package| package.name.as_str())
    }

    /// The names of a package's targets of one kind (`bin`, `test`), sorted; none if there is no
    /// such package.
    pub fn targets(&self, package: &str, kind: &str) -> Vec<&str> {
        let mut names: Vec<_> = self
            .packages
            .iter()
            .filter(|candidate| candidate.name == package)
            .flat_map(|package| &package.targets)
            .filter(|target| target.kind.iter().any(|candidate| candidate == kind))
            .map(|target| target.name.as_str())
            .collect();
        names.sort_unstable();
        names
    }
}

/// A call of cargo in a folder. It compiles for this run, not for a next one, which takes a fifth less.
fn cargo(folder: &Path) -> Command {
    let mut command = clean_command("cargo", folder);
    command.env("CARGO_INCREMENTAL", "0");
    command
}

/// A command that does not see what `cargo run` has set for this process.
///
/// CARGO would pin nested calls to the toolchain that runs this program.
pub fn clean_command(program: impl AsRef<OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(folder)
        .env_remove("CARGO")
        .env_remove("CARGO_MANIFEST_DIR")
        .env_remove("CARGO_MANIFEST_PATH")
        .env("CARGO_TERM_COLOR", "never")
        .env("CARGO_TERM_PROGRESS_WHEN", "never");
    command
}

/// The folder in which Cargo keeps the packages that it downloaded.
pub fn cargo_home() -> Option<PathBuf> {
    let own = env::var_os("CARGO_HOME").map(PathBuf::from);
    own.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Workspace {
        serde_json::from_str(
            r#"{
                "workspace_root": "/a",
                "target_directory": "/b",
                "packages": [
                    {"name": "x", "targets": [
                        {"name": "x", "kind": ["lib"]},
                        {"name": "second", "kind": ["bin"]},
                        {"name": "first", "kind": ["bin"]}
                    ]},
                    {"name": "y", "publish": [], "targets": [{"name": "other", "kind": ["bin"]}]}
                ],
                "version": 1
            }"#,
        )
        .unwrap()
    }

    #[test]
    fn finds_targets_by_package_and_kind() {
        let workspace = sample();
        assert_eq!(workspace.targets("x", "bin"), ["first", "second"]);
        assert_eq!(workspace.targets("x", "lib"), ["x"]);
        assert!(workspace.targets("z", "bin").is_empty());
    }

    #[test]
    fn knows_its_packages() {
        assert_eq!(sample().packages().collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(sample().published().collect::<Vec<_>>(), ["x"]);
    }
}
