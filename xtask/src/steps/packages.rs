//! The step that packages what is published, and builds each package from what is in it.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{BUILD_DEADLINE, Report, StepError, Steps};
use crate::workspace::cargo_home;

/// Files that each package has beside its sources.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

impl Steps<'_> {
    pub(super) fn packages(&self, report: &mut Report) -> Result<(), StepError> {
        let published: Vec<&str> = self.workspace.published().collect();
        // In a folder of its own, because others build at the same time.
        let target = self.workspace.target.join("packages");
        let home = fresh_cargo_home(&target)?;
        forget_builds(&target.join("debug/.fingerprint"), &published)?;
        let cargo = |args: &[&str]| {
            let mut command = self.workspace.cargo();
            // What is not committed yet is tested, too.
            command.args(["package", "--allow-dirty"]).args(args);
            command.env("CARGO_TARGET_DIR", &target);
            command.env("CARGO_HOME", &home);
            self.capture(command, BUILD_DEADLINE)
        };
        for package in &published {
            let listed = cargo(&["--list", "--package", package])?;
            let lacks = LICENCES.iter();
            let lacks = lacks.filter(|file| !listed.stdout.lines().any(|line| line == **file));
            let lacks: Vec<_> = lacks
                .map(|file| format!("{package} lacks {file}"))
                .collect();
            report.list(package, &lacks);
        }
        let each = published.iter().flat_map(|package| ["--package", package]);
        let packaged = cargo(&each.collect::<Vec<_>>())?;
        if report.check("cargo package", &packaged) {
            // Cargo warns of metadata that a registry's page lacks.
            let warnings = packaged.output.lines();
            let warnings = warnings.filter(|line| line.starts_with("warning: manifest"));
            let warnings: Vec<_> = warnings.map(str::to_owned).collect();
            report.list("the packages' metadata", &warnings);
        }
        Ok(())
    }
}

/// A home of Cargo's own in a folder, with the user's downloads and settings but nothing unpacked.
///
/// Cargo unpacks a package of ours once for each checkout's folder and version, and would build the others against
/// that copy however the sources have changed since.
fn fresh_cargo_home(folder: &Path) -> io::Result<PathBuf> {
    let home = folder.join("cargo-home");
    match fs::remove_dir_all(&home) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => fs::create_dir_all(home.join("registry"))?,
    }
    if let Some(users) = cargo_home() {
        for kept in ["config.toml", "git", "registry/index", "registry/cache"] {
            let source = users.join(kept);
            if source.exists() {
                symlink(source.canonicalize()?, home.join(kept))?;
            }
        }
    }
    Ok(home)
}

/// Has Cargo build these packages again. It takes a package of a registry for one that never changes, so it would build the
/// others with what it built of an older one.
fn forget_builds(fingerprints: &Path, packages: &[&str]) -> io::Result<()> {
    let Ok(builds) = fs::read_dir(fingerprints) else {
        // There are none yet.
        return Ok(());
    };
    for build in builds {
        let build = build?;
        let name = build.file_name().to_string_lossy().into_owned();
        if packages
            .iter()
            .any(|package| name.rsplit_once('-').is_some_and(|(of, _)| of == *package))
        {
            fs::remove_dir_all(build.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_of_our_packages_are_forgotten_and_others_kept() {
        let folder = tempfile::tempdir().unwrap();
        for build in [
            "mlx5-wqe-0a1b",
            "warpbell-0a1b",
            "warpbell-gpu-0a1b",
            "libc-0a1b",
        ] {
            fs::create_dir(folder.path().join(build)).unwrap();
        }
        forget_builds(folder.path(), &["mlx5-wqe", "warpbell"]).unwrap();
        let left = fs::read_dir(folder.path()).unwrap();
        let mut left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["libc-0a1b", "warpbell-gpu-0a1b"]);
        forget_builds(&folder.path().join("none"), &["mlx5-wqe"]).unwrap();
    }

    #[test]
    fn fresh_home_has_nothing_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let home = fresh_cargo_home(folder.path()).unwrap();
        let unpacked = home.join("registry/src/-0/mlx5-wqe-0.1.0");
        fs::create_dir_all(&unpacked).unwrap();
        assert_eq!(fresh_cargo_home(folder.path()).unwrap(), home);
        assert!(!unpacked.exists());
        let downloads = cargo_home().unwrap().join("registry/cache");
        let linked = fs::read_link(home.join("registry/cache")).unwrap();
        assert_eq!(linked, downloads.canonicalize().unwrap());
    }
}
