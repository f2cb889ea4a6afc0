//! Debian's packages, unpacked into a folder and not installed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{finish, tools_folder};
use crate::workspace::{Workspace, clean_command};

/// The packages of a machine with nothing but the C library, and GCC's, which unwinds.
const BARE: [&str; 2] = ["libc6", "libgcc-s1"];

/// Where such a machine's files are, once they are unpacked.
pub fn bare_folder(workspace: &Workspace) -> PathBuf {
    tools_folder(workspace).join("bare-debian")
}

/// Unpacks the files of a bare machine.
pub fn unpack_bare(workspace: &Workspace) -> Result<(), String> {
    unpack(&bare_folder(workspace), &BARE)
}

fn prometheus_folder(workspace: &Workspace) -> PathBuf {
    tools_folder(workspace).join("prometheus")
}

/// Where Prometheus' checker is, once it is unpacked.
pub fn promtool(workspace: &Workspace) -> PathBuf {
    prometheus_folder(workspace).join("usr/bin/promtool")
}

/// Unpacks Prometheus.
pub fn unpack_prometheus(workspace: &Workspace) -> Result<(), String> {
    unpack(&prometheus_folder(workspace), &["prometheus"])
}

/// Downloads packages and unpacks them into a folder, which is there only once all of them are in it.
pub fn unpack(folder: &Path, packages: &[&str]) -> Result<(), String> {
    let said = |error: io::Error| error.to_string();
    let draft = folder.with_extension("draft");
    if draft.exists() {
        fs::remove_dir_all(&draft).map_err(said)?;
    }
    fs::create_dir_all(&draft).map_err(said)?;
    let mut download = clean_command("apt-get", &draft);
    download.arg("download").args(packages);
    finish(download)?;
    let files = fs::read_dir(&draft).map_err(said)?.flatten();
    let archives = files.map(|entry| entry.path());
    let is_package = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "deb");
    let archives = Vec::from_iter(archives.filter(is_package));
    if archives.len() < packages.len() {
        return Err(format!(
            "apt-get did not download all of {}",
            packages.join(", ")
        ));
    }
    for archive in archives {
        let mut unpack = clean_command("dpkg", &draft);
        unpack.arg("-x").arg(&archive).arg(&draft);
        finish(unpack)?;
        fs::remove_file(archive).map_err(said)?;
    }
    fs::rename(draft, folder).map_err(said)
}
