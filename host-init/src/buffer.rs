//! Memory for the NIC: page-aligned, zeroed, at an address that does not change.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::Error;

/// Alignment of every [`Buffer`] in bytes: a page.
pub const BUFFER_ALIGNMENT: usize = 4096;

/// Zeroed, page-aligned host memory that a NIC, kernels and the host share.
///
/// It never gives out `&[u8]`, because the NIC may write at any time: the host
/// copies in and out with [`read`](Self::read) and [`write`](Self::write). Bytes
/// that the NIC is changing meanwhile come out old or new, each for itself;
/// whoever wants to know waits for the completion first.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the allocation belongs to this value alone and is not tied to a thread.
unsafe impl Send for Buffer {}
// SAFETY: through a shared reference the bytes are only touched as atomics.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates `len` bytes, all zero, aligned to [`BUFFER_ALIGNMENT`].
    ///
    /// # Errors
    /// [`Error::BadSize`] for 0 bytes or more than `isize::MAX`;
    /// [`Error::OutOfMemory`] if the system has none.
    pub fn new(len: usize) -> Result<Self, Error> {
        let layout = Self::layout(len).ok_or(Error::BadSize {
            what: "a buffer",
            bytes: len,
        })?;
        // SAFETY: `layout` refuses a size of zero.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Ok(Self { start, len }),
            None => Err(Error::OutOfMemory { bytes: len }),
        }
    }

    fn layout(len: usize) -> Option<Layout> {
        if len == 0 {
            return None;
        }
        Layout::from_size_align(len, BUFFER_ALIGNMENT).ok()
    }

    /// Address of the first byte, in this process.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Length in bytes; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a buffer is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Copies `into.len()` bytes out, from `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they do not all lie inside.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        check_range(offset, into.len(), self.len)?;
        // SAFETY: the range was checked, and the memory lives as long as `self`.
        unsafe { read_shared(self.as_ptr().add(offset), into) };
        Ok(())
    }

    /// Copies `from` in, from `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if it does not fit.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        check_range(offset, from.len(), self.len)?;
        // SAFETY: the range was checked, and the memory lives as long as `self`.
        unsafe { write_shared(self.as_ptr().add(offset), from) };
        Ok(())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let layout = Self::layout(self.len).expect("checked when it was allocated");
        // SAFETY: allocated in `new` with the same layout, and freed once.
        unsafe { dealloc(self.as_ptr(), layout) };
    }
}

/// Refuses a range that does not lie inside `len` bytes.
pub(crate) fn check_range(offset: usize, bytes: usize, len: usize) -> Result<(), Error> {
    match offset.checked_add(bytes) {
        Some(end) if end <= len => Ok(()),
        _ => Err(Error::OutOfRange { offset, bytes, len }),
    }
}

/// Copies out of memory that others may be writing.
///
/// # Safety
/// `from` is valid for reads of `into.len()` bytes, by others through atomics or
/// by a NIC only.
pub(crate) unsafe fn read_shared(from: *mut u8, into: &mut [u8]) {
    let head = from.align_offset(8).min(into.len());
    let (head, rest) = into.split_at_mut(head);
    // SAFETY: the three parts make up the range of the contract, and the middle
    // one starts at a multiple of eight.
    unsafe {
        read_bytes(from, head);
        let from = from.add(head.len());
        let mut words = rest.chunks_exact_mut(8);
        let mut at = from.cast::<u64>();
        for word in &mut words {
            let value = AtomicU64::from_ptr(at).load(Ordering::Relaxed);
            word.copy_from_slice(&value.to_ne_bytes());
            at = at.add(1);
        }
        read_bytes(at.cast(), words.into_remainder());
    }
}

/// Copies into memory that others may be reading or writing.
///
/// # Safety
/// `to` is valid for writes of `from.len()` bytes, by others through atomics or
/// by a NIC only.
pub(crate) unsafe fn write_shared(to: *mut u8, from: &[u8]) {
    let head = to.align_offset(8).min(from.len());
    let (head, rest) = from.split_at(head);
    // SAFETY: as in `read_shared`.
    unsafe {
        write_bytes(to, head);
        let to = to.add(head.len());
        let words = rest.chunks_exact(8);
        let mut at = to.cast::<u64>();
        let tail = words.remainder();
        for word in words {
            let value = u64::from_ne_bytes(word.try_into().expect("chunks of eight bytes"));
            AtomicU64::from_ptr(at).store(value, Ordering::Relaxed);
            at = at.add(1);
        }
        write_bytes(at.cast(), tail);
    }
}

/// # Safety
/// As for [`read_shared`].
unsafe fn read_bytes(from: *mut u8, into: &mut [u8]) {
    for (index, byte) in into.iter_mut().enumerate() {
        // SAFETY: inside the range of the contract.
        *byte = unsafe { AtomicU8::from_ptr(from.add(index)) }.load(Ordering::Relaxed);
    }
}

/// # Safety
/// As for [`write_shared`].
unsafe fn write_bytes(to: *mut u8, from: &[u8]) {
    for (index, byte) in from.iter().enumerate() {
        // SAFETY: inside the range of the contract.
        unsafe { AtomicU8::from_ptr(to.add(index)) }.store(*byte, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn is_aligned_and_zeroed() {
        let buffer = Buffer::new(100).unwrap();
        assert_eq!(buffer.as_ptr() as usize % BUFFER_ALIGNMENT, 0);
        let mut bytes = [1u8; 100];
        buffer.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 100]);
    }

    #[test]
    fn refuses_bad_sizes() {
        assert!(matches!(
            Buffer::new(0),
            Err(Error::BadSize { bytes: 0, .. })
        ));
        assert!(matches!(
            Buffer::new(usize::MAX),
            Err(Error::BadSize { .. })
        ));
    }

    proptest! {
        #[test]
        fn gives_back_what_was_written_and_nothing_beside(
            offset in 0usize..70,
            bytes in proptest::collection::vec(any::<u8>(), 0..70),
        ) {
            let buffer = Buffer::new(80).unwrap();
            let mut model = [0xa5u8; 80];
            buffer.write(0, &model).unwrap();
            let fits = offset + bytes.len() <= 80;
            prop_assert_eq!(buffer.write(offset, &bytes).is_ok(), fits);
            if fits {
                model[offset..offset + bytes.len()].copy_from_slice(&bytes);
                let mut back = vec![0; bytes.len()];
                buffer.read(offset, &mut back).unwrap();
                prop_assert_eq!(back, bytes);
            }
            let mut all = [0u8; 80];
            buffer.read(0, &mut all).unwrap();
            prop_assert_eq!(all, model);
        }
    }
}
