//! The tree of text files in which libibverbs looks for devices, in place of /sys; and the device's place in /dev.
//!
//! The tree is the same for every process of a user with the same port and the same wires, so that it is written once and stays; its name tells what is in
//! it, so that a library of another version has another.

use std::fs::{DirBuilder, Permissions, set_permissions};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::net::Ipv6Addr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{env, fs, io, process};

use crate::device_file;
use crate::machine::roce_gid;
use crate::port::{Port, port};
use crate::wires::{Wires, wires};

/// What libibverbs reads instead of `/sys`.
const VARIABLE: &str = "SYSFS_PATH";

/// The device's name, its firmware's version, and the network interface that it belongs to.
pub const NAME: &str = "mlx5_0";
pub const FIRMWARE: &str = "0.0.0";
pub const NET_DEVICE: &str = "lo";

/// Each file and its text. ConnectX-5, port 1 on Ethernet.
const FILES: &[(&str, &str)] = &[
    ("class/infiniband_verbs/abi_version", "6"),
    ("class/infiniband_verbs/uverbs0/ibdev", NAME),
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
    ("class/infiniband/mlx5_0/fw_ver", FIRMWARE),
    ("class/infiniband/mlx5_0/hw_rev", "0"),
    ("class/infiniband/mlx5_0/hca_type", "MT4119"),
    ("class/infiniband/mlx5_0/board_id", "WARPBELL"),
    ("class/infiniband/mlx5_0/device/vendor", "0x15b3"),
    ("class/infiniband/mlx5_0/device/device", "0x1017"),
    (
        "class/infiniband/mlx5_0/device/modalias",
        "pci:v000015B3d00001017sv000015B3sd00000000bc02sc00i00",
    ),
    ("class/infiniband/mlx5_0/ports/1/pkeys/0", "0xffff"),
    (
        "class/infiniband/mlx5_0/ports/1/rate",
        "100 Gb/sec (4X EDR)",
    ),
    ("class/infiniband/mlx5_0/ports/1/sm_lid", "0x0"),
    ("class/infiniband/mlx5_0/ports/1/sm_sl", "0"),
    ("class/infiniband/mlx5_0/ports/1/lid_mask_count", "0"),
    ("class/infiniband/mlx5_0/ports/1/cap_mask", "0x00000000"),
];

/// The same of files that tell what the port is.
fn of_port() -> [(&'static str, &'static str); 4] {
    let (state, physical) = match port() {
        Port::Ethernet | Port::InfiniBand => ("4: ACTIVE", "5: LinkUp"),
        Port::Down => ("1: DOWN", "3: Disabled"),
    };
    let (layer, lid) = match port() {
        Port::Ethernet | Port::Down => ("Ethernet", "0x0"),
        Port::InfiniBand => ("InfiniBand", "0x1"),
    };
    [
        ("class/infiniband/mlx5_0/ports/1/state", state),
        ("class/infiniband/mlx5_0/ports/1/phys_state", physical),
        ("class/infiniband/mlx5_0/ports/1/link_layer", layer),
        ("class/infiniband/mlx5_0/ports/1/lid", lid),
    ]
}

/// The files of the GIDs of these wires. They show GIDs as far as those are known before the device is opened: the HCA's
/// own is another in each process, and RoCE takes the next address if another process has the first.
fn of_gids(wires: Option<&Wires>) -> Vec<(String, String)> {
    let own = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 1);
    let own = wires
        .is_none_or(|wires| wires.shared)
        .then(|| (own, NET_DEVICE.to_owned()));
    let roce = wires.into_iter().flat_map(Wires::first);
    let roce = roce.map(|address| (roce_gid(address.ip).into(), address.interface.clone()));
    let mut files = Vec::new();
    for (index, (gid, interface)) in own.into_iter().chain(roce).enumerate() {
        let groups = gid.segments().map(|group| format!("{group:04x}"));
        let texts = [
            ("gids", groups.join(":")),
            ("gid_attrs/types", "RoCE v2".into()),
            ("gid_attrs/ndevs", interface),
        ];
        files.extend(texts.map(|(folder, text)| {
            let path = format!("class/infiniband/mlx5_0/ports/1/{folder}/{index}");
            (path, text)
        }));
    }
    files
}

/// All files of this process's tree, and their texts.
fn files() -> Vec<(String, String)> {
    let fixed = FILES.iter().copied().chain(of_port());
    let fixed = fixed.map(|(path, text)| (path.to_owned(), text.to_owned()));
    fixed.chain(of_gids(wires().as_ref().ok())).collect()
}

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
    let files = files();
    let content = BuildHasherDefault::<DefaultHasher>::default().hash_one((&files, LINKS));
    let name = format!("warpbell-sysfs-{user}-{content:016x}");
    let path = env::temp_dir().join(&name);
    if !path.exists() {
        let draft = env::temp_dir().join(format!("{name}-{}", process::id()));
        write(&draft, &files)?;
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

fn write(root: &Path, files: &[(String, String)]) -> io::Result<()> {
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
    for (name, text) in files {
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
    use warpbell_soft_hca::shell::roce::LocalAddress;

    #[test]
    fn the_tree_is_written_whole() {
        let root = env::temp_dir().join(format!("warpbell-sysfs-test-{}", process::id()));
        let files = files();
        write(&root, &files).unwrap();
        for (name, text) in &files {
            assert_eq!(
                fs::read_to_string(root.join(name)).unwrap(),
                format!("{text}\n")
            );
        }
        assert!(
            write(&root, &files).is_err(),
            "a tree that is there is not written over"
        );
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn gids_are_the_own_one_and_one_of_each_kind_of_address() {
        let address = |ip: &str| LocalAddress {
            ip: ip.parse().unwrap(),
            prefix: 16,
            interface: "eth0".into(),
            index: 2,
        };
        let roce = [
            vec![address("10.77.0.1"), address("10.77.0.2")],
            vec![address("fd77::1")],
        ];
        let mut wires = Wires { shared: true, roce };
        let texts = |wires: Option<&Wires>, folder: &str| -> Vec<String> {
            let files = of_gids(wires).into_iter();
            let files = files.filter(|(path, _)| path.contains(folder));
            files.map(|(_, text)| text).collect()
        };
        let own = "fe80:0000:0000:0000:0000:00ff:fe00:0001";
        let v4 = "0000:0000:0000:0000:0000:ffff:0a4d:0001";
        let v6 = "fd77:0000:0000:0000:0000:0000:0000:0001";
        assert_eq!(texts(None, "gids"), [own]);
        assert_eq!(texts(Some(&wires), "gids"), [own, v4, v6]);
        assert_eq!(texts(Some(&wires), "ndevs"), ["lo", "eth0", "eth0"]);
        assert_eq!(texts(Some(&wires), "types"), ["RoCE v2"; 3]);
        wires.shared = false;
        assert_eq!(texts(Some(&wires), "gids"), [v4, v6]);
    }
}
