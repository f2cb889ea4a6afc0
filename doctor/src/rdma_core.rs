//! rdma-core: which version of libibverbs and libmlx5 the loader would find.

use std::env;
use std::path::{Path, PathBuf};

use super::finding::{Check, Finding, Subject};
use super::system::System;

/// The first version that registers dmabufs as umems.
const OLDEST: u32 = 43;
/// The first version with UAR pages of one queue alone.
const DEDICATED_UAR: u32 = 45;

/// How many folders are searched at most.
const FOLDERS_LIMIT: usize = 256;

const INSTALL: &str = "sudo apt install ibverbs-providers  # or: sudo dnf install libibverbs";

/// What is there of libibverbs and libmlx5.
pub fn examine(system: &System) -> Finding {
    let check = Check::RdmaCore;
    let folders = folders(system);
    let find = |name| {
        folders
            .iter()
            .find_map(|folder| version(system, folder, name))
    };
    match (find("libibverbs.so.1"), find("libmlx5.so.1")) {
        (None, _) => Subject::Node.missing(check, "no libibverbs.so.1", INSTALL),
        (_, None) => Subject::Node.missing(check, "no libmlx5.so.1", INSTALL),
        (Some(Some(verbs)), Some(Some(mlx5))) => judge(&verbs, &mlx5),
        _ => Subject::Node.unknown(
            check,
            "libibverbs and libmlx5 are there, but their versions are not in their names",
            "dpkg -l ibverbs-providers  # or: rpm -q libibverbs",
        ),
    }
}

fn judge(verbs: &Version, mlx5: &Version) -> Finding {
    let check = Check::RdmaCore;
    let text = format!("rdma-core {mlx5}");
    if verbs != mlx5 {
        let text = format!("libibverbs of {verbs}, libmlx5 of {mlx5}: their versions differ");
        return Subject::Node.missing(check, text, INSTALL);
    }
    match mlx5.0 {
        ..OLDEST => Subject::Node.missing(
            check,
            format!("{text}; {OLDEST} or newer is needed"),
            INSTALL,
        ),
        OLDEST..DEDICATED_UAR => Subject::Node.ok(
            check,
            format!(
                "{text}; without UAR pages for a single queue, which came with {DEDICATED_UAR}"
            ),
        ),
        _ => Subject::Node.ok(check, text),
    }
}

/// A version of the package, such as 44.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version(u32, u32);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl Version {
    /// Reads the file that the library's name leads to, such as `libmlx5.so.1.24.44.0`: after the two
    /// numbers of the interface come those of the package.
    fn of_file(name: &str) -> Option<Self> {
        let (_, numbers) = name.split_once(".so.")?;
        let mut numbers = numbers.split('.').map(str::parse).skip(2);
        Some(Self(numbers.next()?.ok()?, numbers.next()?.ok()?))
    }
}

/// The version of a library in a folder; None where it is not there.
fn version(system: &System, folder: &Path, name: &str) -> Option<Option<Version>> {
    Some(Version::of_file(&system.leads_to(folder.join(name))?))
}

/// The folders that the loader searches, near enough.
fn folders(system: &System) -> Vec<PathBuf> {
    let mut folders = system.libraries().to_vec();
    let configured = system.names("/etc/ld.so.conf.d").unwrap_or_default();
    for name in configured {
        let text = system.text(Path::new("/etc/ld.so.conf.d").join(name));
        let text = text.unwrap_or_default();
        folders.extend(text.lines().map(|line| PathBuf::from(line.trim())));
    }
    let triple = format!("{}-linux-gnu", env::consts::ARCH);
    for folder in ["/lib", "/usr/lib"] {
        folders.push(Path::new(folder).join(&triple));
        folders.push(format!("{folder}64").into());
        folders.push(folder.into());
    }
    folders.push("/usr/local/lib".into());
    folders.retain(|folder| folder.is_absolute());
    folders.truncate(FOLDERS_LIMIT);
    folders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;
    use crate::tree::Tree;

    fn install(tree: &Tree, folder: &str, verbs: &str, mlx5: &str) {
        for (name, version) in [("libibverbs", verbs), ("libmlx5", mlx5)] {
            tree.file(&format!("{folder}/{name}.so.{version}"), "");
            tree.link(
                &format!("{folder}/{name}.so.1"),
                &format!("{name}.so.{version}"),
            );
        }
    }

    fn state(verbs: &str, mlx5: &str) -> State {
        let tree = Tree::empty();
        install(&tree, "usr/lib64", verbs, mlx5);
        examine(&tree.system()).state
    }

    #[test]
    fn the_version_stands_in_the_name() {
        assert_eq!(
            Version::of_file("libmlx5.so.1.24.44.0"),
            Some(Version(44, 0))
        );
        assert_eq!(Version::of_file("libmlx5.so.1"), None);
        assert_eq!(Version::of_file("libmlx5.so.1.24.x.0"), None);
        assert_eq!(Version::of_file("libmlx5"), None);
    }

    #[test]
    fn old_versions_and_mixtures_are_refused() {
        assert_eq!(state("1.14.44.0", "1.24.44.0"), State::Ok);
        assert_eq!(state("1.14.43.0", "1.24.43.0"), State::Ok);
        assert_eq!(state("1.14.42.0", "1.24.42.0"), State::Missing);
        assert_eq!(state("1.14.44.0", "1.25.58.0"), State::Missing);
        assert_eq!(state("1.14", "1.24"), State::Unknown);
        assert_eq!(examine(&Tree::empty().system()).state, State::Missing);
    }

    #[test]
    fn configured_folders_are_searched() {
        let tree = Tree::empty();
        install(&tree, "opt/rdma/lib", "1.14.52.0", "1.24.52.0");
        assert_eq!(examine(&tree.system()).state, State::Missing);
        tree.file("etc/ld.so.conf.d/rdma.conf", "# ours\n/opt/rdma/lib\n");
        let found = examine(&tree.system());
        assert_eq!(
            (found.state, found.value.as_str()),
            (State::Ok, "rdma-core 52.0")
        );
    }
}
