//! Memory that queues of DEVX live in.

use super::open::{self, Open};
use crate::abi::ioctl as abi;
use crate::attributes::{Errno, Request};
use crate::machine::machine;

/// A range of the user's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Umem {
    address: u64,
    length: u64,
}

impl Umem {
    /// Where `bytes` bytes at `offset` lie; none if they do not all lie inside.
    pub fn place(&self, offset: u64, bytes: u64) -> Option<u64> {
        let end = offset.checked_add(bytes)?;
        (end <= self.length).then(|| self.address + offset)
    }
}

/// Registers memory, and gives it a number.
pub fn register(request: &mut Request<'_>, open: &mut Open) -> Result<(), Errno> {
    // Without an engine nobody looks into it.
    machine()?.ok_or(Errno(libc::EOPNOTSUPP))?;
    // There is no memory of other devices here.
    if request.number(abi::UMEM_DMABUF_FILE).is_some() {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let number = |id| request.number(id).ok_or(Errno(libc::EINVAL));
    let (address, length) = (number(abi::UMEM_ADDRESS)?, number(abi::UMEM_LENGTH)?);
    if length == 0 || address.checked_add(length).is_none() {
        return Err(Errno(libc::EINVAL));
    }
    let id = open::fresh();
    open.umems.insert(id, Umem { address, length });
    request.answer_handle(abi::UMEM_HANDLE, id);
    request.answer(abi::UMEM_ID, &id.to_ne_bytes());
    Ok(())
}

/// Deregisters memory that no queue lives in any more.
pub fn deregister(request: &Request<'_>, open: &mut Open) -> Result<(), Errno> {
    let id = request
        .handle(abi::UMEM_HANDLE)
        .ok_or(Errno(libc::EINVAL))?;
    if open.objects.values().any(|object| object.lives_in(id)) {
        return Err(Errno(libc::EBUSY));
    }
    open.umems.remove(&id).ok_or(Errno(libc::ENOENT))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_lies_inside() {
        let umem = Umem {
            address: 0x1000,
            length: 0x100,
        };
        assert_eq!(umem.place(0, 0x100), Some(0x1000));
        assert_eq!(umem.place(0xf8, 8), Some(0x10f8));
        assert_eq!(umem.place(0xf9, 8), None);
        assert_eq!(umem.place(u64::MAX, 8), None);
    }
}
