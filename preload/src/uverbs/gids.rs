//! The port's GIDs, which differ from process to process and so cannot come from sysfs.

use zerocopy::IntoBytes;

use super::context::GIDS;
use crate::abi::{GidEntry, ioctl as abi};
use crate::attributes::{Errno, Request};
use crate::machine::{Machine, PortGid, machine};
use crate::port::{Port, port};

/// `IB_UVERBS_GID_TYPE_IB`.
const INFINIBAND: u32 = 0;
/// `IB_UVERBS_GID_TYPE_ROCE_V2`.
const ROCE_V2: u32 = 2;

/// The entry at an index.
pub fn entry(request: &mut Request<'_>) -> Result<(), Errno> {
    let machine = find()?;
    if request.number(abi::GID_ENTRY_PORT) != Some(1) {
        return Err(Errno(libc::EINVAL));
    }
    let index = request.number(abi::GID_ENTRY_INDEX).unwrap_or(u64::MAX);
    let entry = at(machine.gids(), index)?;
    request.answer(abi::GID_ENTRY, described(index as u32, entry).as_bytes());
    Ok(())
}

/// All entries.
pub fn table(request: &mut Request<'_>) -> Result<(), Errno> {
    let entries: Vec<_> = (0..)
        .zip(find()?.gids())
        .map(|(index, entry)| described(index, entry))
        .collect();
    if request.room(abi::GID_TABLE) < size_of_val(&entries[..]) {
        return Err(Errno(libc::EINVAL));
    }
    request.answer(abi::GID_TABLE, entries.as_bytes());
    let count = entries.len() as u64;
    request.answer(abi::GID_TABLE_LENGTH, &count.to_ne_bytes());
    Ok(())
}

/// The GID at an index of the table, which has more room than GIDs.
fn at(gids: &[PortGid], index: u64) -> Result<&PortGid, Errno> {
    let found = usize::try_from(index).ok().and_then(|at| gids.get(at));
    found.ok_or(match index < u64::from(GIDS) {
        true => Errno(libc::ENODATA),
        false => Errno(libc::EINVAL),
    })
}

/// Refuses a path by a port that is not there, without a global route, or from a GID that is not there. There is no
/// other way than by GID.
pub fn check_path(gids: &[PortGid], port: u8, is_global: u8, index: u8) -> Result<(), Errno> {
    if port != 1 || is_global == 0 {
        return Err(Errno(libc::EINVAL));
    }
    at(gids, index.into()).map(drop)
}

/// Without an engine nobody is reached: what sysfs says is enough.
fn find() -> Result<&'static Machine, Errno> {
    machine()?.ok_or(Errno(libc::EPROTONOSUPPORT))
}

fn described(gid_index: u32, entry: &PortGid) -> GidEntry {
    GidEntry {
        gid: entry.gid,
        gid_index,
        netdev_ifindex: entry.interface,
        port_num: 1,
        gid_type: match port() {
            Port::Ethernet | Port::Down => ROCE_V2,
            Port::InfiniBand => INFINIBAND,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_a_port_and_a_gid() {
        let entry = PortGid {
            gid: [0; 16],
            interface: 0,
        };
        assert_eq!(check_path(&[entry], 1, 1, 0), Ok(()));
        assert_eq!(check_path(&[entry; 3], 1, 1, 2), Ok(()));
        assert_eq!(check_path(&[entry; 3], 1, 1, 3), Err(Errno(libc::ENODATA)));
        for (path, errno) in [
            ((0, 1, 0), libc::EINVAL),
            ((2, 1, 0), libc::EINVAL),
            ((1, 0, 0), libc::EINVAL),
            ((1, 1, 1), libc::ENODATA),
            ((1, 1, 15), libc::ENODATA),
            ((1, 1, 16), libc::EINVAL),
            ((1, 1, 255), libc::EINVAL),
        ] {
            let (port, is_global, index) = path;
            assert_eq!(
                check_path(&[entry], port, is_global, index),
                Err(Errno(errno)),
                "{path:?}"
            );
        }
    }
}
