//! Copies into and out of memory that a NIC or a kernel may be using.
//!
//! All that leads here is `#[inline]`: a program is then optimised with its copies, where this crate, which starts up
//! and no more, is not.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Copies out of memory that others may be writing.
///
/// # Safety
/// `from` is valid for reads of `into.len()` bytes, by others through atomics or
/// by a NIC only.
#[inline]
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
#[inline]
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
