//! The tree of text files in which libibverbs looks for devices, in place of /sys; and the device's place in /dev.
//!
//! The tree is the same for every process of a user, so that it is written once and stays; its name tells what is in
//! it, so that a library of another version has another.

use std::fs::{DirBuilder, Permissions, set_permissions};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs, io, process};

use crate::device_file;

/// What libibverbs reads instead of `/sys`.
const VARIABLE: &str = "SYSFS_PATH";

/// Each file and its text. ConnectX-5, port 1 on Ethernet.
const FILES: &[(&str, &str)] = &[
    ("class/infiniband_verbs/abi_version", "6"),
    ("class/infiniband_verbs/uverbs0/ibdev", "mlx5_0"),
    (
        "class/infiniband_verbs/uverbs0/dev",
        device_file::STAND_IN_NUMBER,
    ),
    ("class/infiniband_verbs/uverbs0/abi_version", "1"),
    ("class/infiniband/mlx5_0/node_type", "1: CA"),
    ("class/infiniband/mlx5_0/node_guid", "0200:00ff:fe00:0001"),
    (
        "class/infiniband/mlx5_0/sys_image_guid",
        "0200:00ff:fe00:0001",
    ),
    ("class/infiniband/mlx5_0/fw_ver", "0.0.0"),
    ("class/infiniband/mlx5_0/hca_type", "MT4119"),
    ("class/infiniband/mlx5_0/board_id", "WARPBELL"),
    ("class/infiniband/mlx5_0/device/vendor", "0x15b3"),
    ("class/infiniband/mlx5_0/device/device", "0x1017"),
    (
        "class/infiniband/mlx5_0/device/modalias",
        "pci:v000015B3d00001017sv000015B3sd00000000bc02sc00i00",
    ),
    (
        "class/infiniband/mlx5_0/ports/1/gids/0",
        "fe80:0000:0000:0000:0000:00ff:fe00:0001",
    ),
    (
        "class/infiniband/mlx5_0/ports/1/gid_attrs/types/0",
        "RoCE v2",
    ),
    ("class/infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "lo"),
    ("class/infiniband/mlx5_0/ports/1/pkeys/0", "0xffff"),
];

/// Each link and where it leads. The device's place on PCI is one that no machine has: programs look there for a GPU's
/// neighbour.
const LINKS: &[(&str, &str)] = &[
    ("dev/infiniband/uverbs0", "/dev/null"),
    (
        "class/infiniband/mlx5_0",
        "../../devices/ffff:00:00.0/infiniband/mlx5_0",
    ),
    ("class/infiniband/mlx5_0/device", "../.."),
];

/// Where the tree is.
static ROOT: OnceLock<PathBuf> = OnceLock::new();

/// Where the tree is, once it is announced.
pub fn root() -> Option<&'static Path> {
    ROOT.get().map(PathBuf::as_path)
}

/// Writes the tree if it is not there, and points libibverbs at it. Says why not, where it cannot.
pub fn announce() {
    match tree() {
        Ok(path) => {
            let path = ROOT.get_or_init(|| path);
            // SAFETY: this runs before `main`, when the process has no other thread.
            unsafe { env::set_var(VARIABLE, path) };
        }
        Err(error) => eprintln!("warpbell: no sysfs tree for the device: {error}"),
    }
}

/// The tree of this user, written now if it was not before.
fn tree() -> io::Result<PathBuf> {
    // SAFETY: the call has no requirements.
    let user = unsafe { libc::geteuid() };
    let content = BuildHasherDefault::<DefaultHasher>::default().hash_one((FILES, LINKS));
    let name = format!("warpbell-sysfs-{user}-{content:016x}");
    let path = env::temp_dir().join(&name);
    if !path.exists() {
        let draft = env::temp_dir().join(format!("{name}-{}", process::id()));
        write(&draft)?;
        // Another process may have been first: then its tree is as good.
        if let Err(error) = fs::rename(&draft, &path) {
            fs::remove_dir_all(&draft)?;
            if !path.exists() {
                return Err(error);
            }
        }
    }
    // The folder of temporary files is everybody's.
    if fs::symlink_metadata(&path)?.uid() != user {
        let text = format!("{} belongs to somebody else", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(path)
}

fn write(root: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(root)?;
    for (name, target) in LINKS {
        let path = root.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
            if Path::new(target).is_relative() {
                fs::create_dir_all(folder.join(target))?;
            }
        }
        symlink(target, path)?;
    }
    for (name, text) in FILES {
        let path = root.join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, format!("{text}\n"))?;
        set_permissions(&path, Permissions::from_mode(0o444))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_written_whole() {
        let root = env::temp_dir().join(format!("warpbell-sysfs-test-{}", process::id()));
        write(&root).unwrap();
        for (name, text) in FILES {
            assert_eq!(
                fs::read_to_string(root.join(name)).unwrap(),
                format!("{text}\n")
            );
        }
        assert!(
            write(&root).is_err(),
            "a tree that is there is not written over"
        );
        fs::remove_dir_all(&root).unwrap();
    }
}
