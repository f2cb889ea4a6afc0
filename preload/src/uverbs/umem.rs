//! Memory that queues of DEVX live in.

use super::open::{self, Open};
use crate::abi::ioctl as abi;
use crate::attributes::{Errno, Request};
use crate::machine::machine;

/// Bytes of the smallest page, which is the system's too.
const PAGE: u64 = 4096;
/// A ring's offset has 6 bits, in parts of a page.
const OFFSETS: u64 = 64;

/// A range of the user's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Umem {
    address: u64,
    length: u64,
    /// Bytes of its pages.
    page: u64,
}

impl Umem {
    /// Where a ring of `bytes` bytes at `offset` lies; none if it does not lie inside, or begins where pages of this size
    /// let no ring begin.
    pub fn ring(&self, offset: u64, bytes: u64) -> Option<u64> {
        let begins = offset.is_multiple_of(self.page / OFFSETS);
        self.place(offset, bytes).filter(|_| begins)
    }

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
    let page = page(request.number(abi::UMEM_PAGE_SIZES), length).ok_or(Errno(libc::EINVAL))?;
    let umem = Umem {
        address,
        length,
        page,
    };
    let id = open::fresh();
    open.umems.insert(id, umem);
    request.answer_handle(abi::UMEM_HANDLE, id);
    request.answer(abi::UMEM_ID, &id.to_ne_bytes());
    Ok(())
}

/// The size of the pages, of all those that the user admits (a bit each): the largest that the memory needs, as where the
/// memory is contiguous for a card. None if the system has no pages of these sizes.
fn page(admitted: Option<u64>, length: u64) -> Option<u64> {
    let largest = length.next_power_of_two().max(PAGE);
    let fitting = admitted.unwrap_or(u64::MAX) & (2 * largest - 1) & !(PAGE - 1);
    (fitting != 0).then(|| 1 << fitting.ilog2())
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
            page: PAGE,
        };
        assert_eq!(umem.place(0, 0x100), Some(0x1000));
        assert_eq!(umem.place(0xf8, 8), Some(0x10f8));
        assert_eq!(umem.place(0xf9, 8), None);
        assert_eq!(umem.place(u64::MAX, 8), None);
    }

    /// A ring begins at a 64th of a page: anywhere on small pages, at few places on large ones.
    #[test]
    fn large_pages_leave_rings_few_places() {
        let length = 1 << 20;
        let rings = |admitted| {
            let page = page(admitted, length)?;
            let umem = Umem {
                address: 0,
                length,
                page,
            };
            Some([64, 4096, 1 << 14].map(|offset| umem.ring(offset, 64).is_some()))
        };
        assert_eq!(rings(Some(PAGE)), Some([true; 3]));
        assert_eq!(rings(None), Some([false, false, true]));
        assert_eq!(rings(Some(1 << 30 | PAGE)), Some([true; 3]));
        assert_eq!(rings(Some(PAGE - 1)), None);
        assert_eq!(rings(Some(1 << 30)), None);
    }
}
