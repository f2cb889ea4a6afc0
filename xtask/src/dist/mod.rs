//! `cargo xtask dist`: all programs in one folder, one archive and one Debian package, for machines without Rust.
//!
//! Two builds of a commit give the same bytes, in whatever folders they are made: compilers see no path of this machine,
//! and files have the time of the commit.

mod archive;
mod debian;
mod floor;
mod licences;
pub mod manifest;
mod programs;
mod target;

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use indicatif::ProgressBar;
use thiserror::Error;

use crate::run::{self, RunError};
use crate::workspace::{Workspace, clean_command};
use floor::{Floor, FloorError};
use manifest::{Manifest, ManifestError};
pub use programs::{build, check};
pub use target::Target;

/// What the archive's name, its folder and the Debian package begin with.
const NAME: &str = "warpbell";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Ubuntu 22.04 has this glibc; Debian 12 has a newer one.
const OLDEST: Floor = Floor::new(2, 35);

/// How long one of the tools may take, such as xz.
const TOOL_DEADLINE: Duration = Duration::from_secs(60 * 60);

/// Files that lie in the folder as they are.
const TEXTS: [(&str, &str); 3] = [
    ("README.md", include_str!("README.md")),
    ("Containerfile", include_str!("Containerfile")),
    (
        "measure.sh",
        include_str!("../../../papers/measurements/measure.sh"),
    ),
];

/// Why there is no distribution.
#[derive(Debug, Error)]
pub enum DistError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    #[error(transparent)]
    Floor(#[from] FloorError),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the build failed:\n{0}")]
    Build(String),
    #[error("Cargo did not say where it built {0}")]
    Unbuilt(String),
    #[error("the gallery was built without PTX: {0}")]
    NoPtx(String),
    #[error("{tool} failed:\n{output}")]
    Tool { tool: String, output: String },
    #[error("{tool} printed something unexpected: {output}")]
    Unexpected { tool: &'static str, output: String },
    #[error("{} has {bytes} bytes; the most is {most}", path.display())]
    TooLarge {
        path: PathBuf,
        bytes: u64,
        most: u64,
    },
}

/// The commit that is distributed.
#[derive(Debug)]
struct Commit {
    /// Its hash; `-dirty` stands behind it if files have changed since.
    name: String,
    /// Its time, in seconds since 1970: that of all files.
    time: String,
}

/// What was made.
#[derive(Debug)]
pub struct Made {
    pub folder: PathBuf,
    pub archive: PathBuf,
    pub package: PathBuf,
}

impl Made {
    /// What was made, in lines: each with its size in bytes.
    pub fn lines(&self) -> Result<[String; 3], DistError> {
        let manifest = Manifest::read(&self.folder)?;
        let size = |path: &PathBuf| {
            let known = fs::metadata(path).map_err(at(path))?;
            Ok::<_, DistError>(known.len())
        };
        let line = |path: &PathBuf, bytes: u64| format!("{bytes:>11} {}", path.display());
        Ok([
            line(&self.folder, manifest.bytes()),
            line(&self.archive, size(&self.archive)?),
            line(&self.package, size(&self.package)?),
        ])
    }
}

/// Builds all programs, and makes folder, archive and Debian package.
///
/// # Errors
/// As [`stage`], and tools that fail.
pub fn make(
    workspace: &Workspace,
    target: Target,
    spinner: &ProgressBar,
) -> Result<Made, DistError> {
    let folder = stage(workspace, target, spinner)?;
    let commit = Commit::find(&workspace.root)?;
    spinner.set_message("packing");
    // Each takes one thread for a minute or two.
    let (archive, package) = thread::scope(|scope| {
        let archive = scope.spawn(|| archive::pack(&folder, &commit));
        let package = debian::pack(&folder, target, &commit);
        let archive = archive.join().unwrap_or_else(|panic| resume_unwind(panic));
        (archive, package)
    });
    Ok(Made {
        archive: archive?,
        package: package?,
        folder,
    })
}

/// Builds all programs and fills a folder, which is [check](Manifest::check)ed by its manifest. Gives its path.
///
/// # Errors
/// A build that fails; a program that is missing, or that a supported machine cannot start; a full disk.
pub fn stage(
    workspace: &Workspace,
    target: Target,
    spinner: &ProgressBar,
) -> Result<PathBuf, DistError> {
    let commit = Commit::find(&workspace.root)?;
    let programs = programs::build(workspace, target, |line| {
        spinner.set_message(line.to_owned())
    })?;
    let folder = folder(workspace).join(format!("{NAME}-{VERSION}-{}", target.machine()));
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(at(&folder))?;
    }
    let mut floor = Floor::new(0, 0);
    for program in &programs {
        floor = floor.max(floor::of(&program.built, target, OLDEST)?);
        copy(&program.built, &folder.join(&program.path), 0o755)?;
    }
    let prebuilt = workspace.root.join("ptx/prebuilt");
    for file in list(&prebuilt)? {
        if file.extension().is_some_and(|kind| kind == "gz") {
            let name = file.file_name().unwrap_or_default();
            copy(&file, &folder.join("share/warpbell").join(name), 0o644)?;
        }
    }
    for (name, text) in TEXTS {
        let text = text.replace("{version}", VERSION);
        let text = text.replace("{machine}", target.machine());
        write(
            &folder.join(name),
            &text.replace("{glibc}", &floor.to_string()),
        )?;
    }
    licences::gather(workspace, target, &folder.join("licences"))?;
    let manifest = Manifest {
        schema: manifest::SCHEMA,
        name: NAME.into(),
        version: VERSION.into(),
        commit: commit.name,
        target: target.triple(),
        glibc: floor.to_string(),
        files: manifest::files(&folder)?,
    };
    manifest.write(&folder)?;
    Ok(folder)
}

/// Where all of it is made.
pub fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("dist")
}

impl Commit {
    fn find(root: &Path) -> Result<Self, DistError> {
        let git = |arguments: &[&str]| {
            let mut git = clean_command("git", root);
            git.args(arguments);
            call(git)
        };
        let log = git(&["log", "-1", "--format=%H %ct"])?;
        let changed = !git(&["status", "--porcelain"])?.trim().is_empty();
        Self::read(&log, changed).ok_or(DistError::Unexpected {
            tool: "git",
            output: log,
        })
    }

    /// Reads what git says: hash and time.
    fn read(log: &str, changed: bool) -> Option<Self> {
        let (hash, time) = log.trim().split_once(' ')?;
        time.parse::<u64>().ok()?;
        Some(Self {
            name: format!("{hash}{}", if changed { "-dirty" } else { "" }),
            time: time.into(),
        })
    }
}

/// Runs a tool to its end, and gives what it printed.
fn call(command: Command) -> Result<String, DistError> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let finished = run::capture(command, TOOL_DEADLINE, |_| {})?;
    match finished.success() {
        true => Ok(finished.stdout),
        false => Err(DistError::Tool {
            tool,
            output: finished.account(),
        }),
    }
}

/// The files and folders in a folder, sorted.
fn list(folder: &Path) -> Result<Vec<PathBuf>, DistError> {
    let entries = fs::read_dir(folder).map_err(at(folder))?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    let mut paths: Vec<_> = paths.collect::<io::Result<_>>().map_err(at(folder))?;
    paths.sort();
    Ok(paths)
}

/// Copies a file, and makes the folders that it lies in.
fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), DistError> {
    make_folder_of(to)?;
    fs::copy(from, to).map_err(at(to))?;
    fs::set_permissions(to, PermissionsExt::from_mode(mode)).map_err(at(to))
}

/// Writes a text, and makes the folders that it lies in.
fn write(path: &Path, text: &str) -> Result<(), DistError> {
    make_folder_of(path)?;
    fs::write(path, text).map_err(at(path))?;
    fs::set_permissions(path, PermissionsExt::from_mode(0o644)).map_err(at(path))
}

fn make_folder_of(path: &Path) -> Result<(), DistError> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(at(folder))
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> DistError {
    let path = path.to_owned();
    |source| DistError::Io { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_has_a_hash_and_a_time() {
        let clean = Commit::read("0123abc 1795781286\n", false).unwrap();
        assert_eq!((&*clean.name, &*clean.time), ("0123abc", "1795781286"));
        assert_eq!(
            Commit::read("0123abc 1\n", true).unwrap().name,
            "0123abc-dirty"
        );
        for wrong in ["", "0123abc", "0123abc yesterday"] {
            assert!(Commit::read(wrong, false).is_none(), "accepted: {wrong}");
        }
    }

    #[test]
    fn a_full_disk_is_named() {
        let error = write(Path::new("/dev/full"), "text")
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("/dev/full: No space left on device"),
            "{error}"
        );
    }

    #[test]
    fn a_tool_that_fails_is_named_with_its_words() {
        let mut tool = Command::new("sh");
        tool.args(["-c", "echo no >&2; exit 3"]);
        let error = call(tool).unwrap_err().to_string();
        assert!(error.starts_with("sh failed:\nno\n"), "{error}");
        let missing = call(Command::new("no-such-tool")).unwrap_err().to_string();
        assert!(missing.contains("no-such-tool"), "{missing}");
    }
}
