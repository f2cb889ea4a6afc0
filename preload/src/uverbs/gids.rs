//! The port's one GID, which differs from process to process and so cannot come from sysfs.

use zerocopy::IntoBytes;

use super::context::GIDS;
use crate::abi::{GidEntry, ioctl as abi};
use crate::attributes::{Errno, Request};
use crate::machine::machine;
use crate::port::{Port, port};

/// `IB_UVERBS_GID_TYPE_IB`.
const INFINIBAND: u32 = 0;
/// `IB_UVERBS_GID_TYPE_ROCE_V2`.
const ROCE_V2: u32 = 2;

/// The entry at an index.
pub fn entry(request: &mut Request<'_>) -> Result<(), Errno> {
    let found = find()?;
    if request.number(abi::GID_ENTRY_PORT) != Some(1) {
        return Err(Errno(libc::EINVAL));
    }
    check_index(request.number(abi::GID_ENTRY_INDEX).unwrap_or(u64::MAX))?;
    request.answer(abi::GID_ENTRY, found.as_bytes());
    Ok(())
}

/// All entries.
pub fn table(request: &mut Request<'_>) -> Result<(), Errno> {
    let found = find()?;
    if request.room(abi::GID_TABLE) < size_of::<GidEntry>() {
        return Err(Errno(libc::EINVAL));
    }
    request.answer(abi::GID_TABLE, found.as_bytes());
    request.answer(abi::GID_TABLE_LENGTH, &1_u64.to_ne_bytes());
    Ok(())
}

/// Refuses an index of the table of GIDs at which there is none.
fn check_index(index: u64) -> Result<(), Errno> {
    match index {
        0 => Ok(()),
        _ if index < u64::from(GIDS) => Err(Errno(libc::ENODATA)),
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// Refuses a path by a port that is not there, without a global route, or from a GID that is not there. There is no
/// other way than by GID.
pub fn check_path(port: u8, is_global: u8, index: u8) -> Result<(), Errno> {
    if port != 1 || is_global == 0 {
        return Err(Errno(libc::EINVAL));
    }
    check_index(index.into())
}

fn find() -> Result<GidEntry, Errno> {
    // Without an engine nobody is reached: what sysfs says is enough.
    let machine = machine()?.ok_or(Errno(libc::EPROTONOSUPPORT))?;
    Ok(GidEntry {
        gid: machine.gid(),
        port_num: 1,
        gid_type: match port() {
            Port::Ethernet | Port::Down => ROCE_V2,
            Port::InfiniBand => INFINIBAND,
        },
        ..GidEntry::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_a_port_and_a_gid() {
        assert_eq!(check_path(1, 1, 0), Ok(()));
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
                check_path(port, is_global, index),
                Err(Errno(errno)),
                "{path:?}"
            );
        }
    }
}
