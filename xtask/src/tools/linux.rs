//! Debian's kernel, unpacked and not installed: what a virtual machine boots.

use std::path::PathBuf;

use super::{tools_folder, unpacked};
use crate::run;
use crate::workspace::{Workspace, clean_command};

/// The package that depends on the newest kernel.
const NEWEST: &str = "linux-image-amd64";

/// Where it is unpacked.
pub fn folder(workspace: &Workspace) -> PathBuf {
    tools_folder(workspace).join("linux-image")
}

/// Downloads the package and unpacks it.
pub fn unpack(workspace: &Workspace) -> Result<(), String> {
    let mut depends = clean_command("apt-cache", &workspace.root);
    depends.args(["depends", NEWEST]);
    let listed = run::capture(depends, super::PROBE_DEADLINE, |_| {});
    let listed = listed.map_err(|error| error.to_string())?.stdout;
    let package = dependency(&listed).ok_or("apt-cache knows no kernel")?;
    unpacked::unpack(&folder(workspace), &[package])
}

/// The package that another one depends on, of the lines that `apt-cache depends` prints.
fn dependency(listed: &str) -> Option<&str> {
    let mut lines = listed.lines().map(str::trim);
    lines.find_map(|line| line.strip_prefix("Depends: "))
}

#[cfg(test)]
mod tests {
    use super::dependency;

    #[test]
    fn the_kernel_is_what_the_newest_depends_on() {
        let listed = "linux-image-amd64\n  Depends: linux-image-6.1.0-47-amd64\n";
        assert_eq!(dependency(listed), Some("linux-image-6.1.0-47-amd64"));
        assert_eq!(dependency("linux-image-amd64\n"), None);
    }
}
