//! The port's one GID, which differs from process to process and so cannot come from sysfs.

use zerocopy::IntoBytes;

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
    if request.number(abi::GID_ENTRY_INDEX) != Some(0) {
        return Err(Errno(libc::ENODATA));
    }
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
