//! Copies between memory that others may be reading and writing at the same time.
//!
//! A host that looks at registered memory, or a kernel that polls a CQE, does so through atomics
//! while the engine writes. With plain copies that would be a data race, and undefined; so these go
//! byte by byte, or word by word, through relaxed atomics, or through an instruction that does the
//! same.

use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Bytes from which the string instruction is faster than a loop over words.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const STRING: usize = 512;

/// Bytes up to which every aligned word of the destination is stored in one: a block of a WQE, and so all inline data of one.
/// Beyond, nobody counts on it, and what is quickest is best.
const SHORT: usize = 64;

const WORD: usize = size_of::<u64>();

/// Copies `length` bytes. Where the ranges overlap, the destination ends up with bytes of either.
///
/// # Safety
///
/// `source` must be readable and `destination` writable for `length` bytes; others may access them
/// at the same time through atomics, or as a device would.
pub(super) unsafe fn copy(source: u64, destination: u64, length: usize) {
    if length <= SHORT {
        // SAFETY: the caller's promise is passed on unchanged.
        return unsafe { copy_short(source, destination, length) };
    }
    // Both sides come to a multiple of eight together, or never.
    let alike = (source ^ destination).is_multiple_of(WORD as u64);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if length >= STRING || !alike {
        // SAFETY: the caller's promise is passed on unchanged.
        return unsafe { copy_string(source, destination, length) };
    }
    let head = match alike {
        true => (source.wrapping_neg() as usize % WORD).min(length),
        false => length,
    };
    let words = (length - head) / WORD;
    let tail = head + words * WORD;
    let at = |offset: usize| (source + offset as u64, destination + offset as u64);
    for offset in (0..head).chain(tail..length) {
        let (from, to) = at(offset);
        // SAFETY: inside the caller's ranges.
        unsafe {
            let byte = byte(from).load(Ordering::Relaxed);
            self::byte(to).store(byte, Ordering::Relaxed);
        }
    }
    for offset in (head..tail).step_by(WORD) {
        let (from, to) = at(offset);
        // SAFETY: inside the caller's ranges, and aligned on both sides after the head.
        unsafe {
            let word = word(from).load(Ordering::Relaxed);
            self::word(to).store(word, Ordering::Relaxed);
        }
    }
}

/// How many bytes go in one store to an address, of so many that are left: the largest aligned word.
const fn piece(destination: u64, left: usize) -> usize {
    match left {
        8.. if destination.is_multiple_of(8) => 8,
        4.. if destination.is_multiple_of(4) => 4,
        _ => 1,
    }
}

/// # Safety
///
/// As for [`copy`].
unsafe fn copy_short(source: u64, destination: u64, length: usize) {
    let mut done = 0;
    while done < length {
        let (from, to) = (source + done as u64, destination + done as u64);
        let piece = piece(to, length - done);
        // SAFETY: inside the caller's ranges, and aligned at the destination.
        unsafe {
            match piece {
                8 if from.is_multiple_of(8) => {
                    let value = word(from).load(Ordering::Relaxed);
                    word(to).store(value, Ordering::Relaxed);
                }
                8 => word(to).store(u64::from_ne_bytes(bytes(from)), Ordering::Relaxed),
                4 => half(to).store(u32::from_ne_bytes(bytes(from)), Ordering::Relaxed),
                _ => byte(to).store(byte(from).load(Ordering::Relaxed), Ordering::Relaxed),
            }
        }
        done += piece;
    }
}

/// Some bytes, each loaded for itself.
///
/// # Safety
///
/// They are valid, as for [`copy`].
unsafe fn bytes<const N: usize>(address: u64) -> [u8; N] {
    // SAFETY: the caller vouches for them.
    core::array::from_fn(|at| unsafe { byte(address + at as u64) }.load(Ordering::Relaxed))
}

/// Writes `bytes`, which nobody else accesses.
///
/// # Safety
///
/// As for [`copy`].
pub(super) unsafe fn write(bytes: &[u8], destination: u64) {
    let head = (destination.wrapping_neg() as usize % WORD).min(bytes.len());
    let (head, rest) = bytes.split_at(head);
    let (words, tail) = rest.as_chunks::<WORD>();
    let mut at = destination;
    for &value in head {
        // SAFETY: inside the caller's range.
        unsafe { byte(at) }.store(value, Ordering::Relaxed);
        at += 1;
    }
    for &value in words {
        // SAFETY: inside the caller's range, and aligned after the head.
        unsafe { word(at) }.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        at += WORD as u64;
    }
    for &value in tail {
        // SAFETY: inside the caller's range.
        unsafe { byte(at) }.store(value, Ordering::Relaxed);
        at += 1;
    }
}

/// # Safety
///
/// The byte is valid, as for [`copy`], as long as the reference is used.
unsafe fn byte<'a>(address: u64) -> &'a AtomicU8 {
    // SAFETY: the caller vouches for it.
    unsafe { AtomicU8::from_ptr(ptr::with_exposed_provenance_mut(address as usize)) }
}

/// # Safety
///
/// The four bytes are valid, as for [`copy`], as long as the reference is used, and aligned.
unsafe fn half<'a>(address: u64) -> &'a AtomicU32 {
    // SAFETY: the caller vouches for it.
    unsafe { AtomicU32::from_ptr(ptr::with_exposed_provenance_mut(address as usize)) }
}

/// # Safety
///
/// The eight bytes are valid, as for [`copy`], as long as the reference is used, and aligned.
unsafe fn word<'a>(address: u64) -> &'a AtomicU64 {
    // SAFETY: the caller vouches for it.
    unsafe { AtomicU64::from_ptr(ptr::with_exposed_provenance_mut(address as usize)) }
}

/// # Safety
///
/// As for [`copy`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn copy_string(source: u64, destination: u64, length: usize) {
    // SAFETY: the caller vouches for both ranges. To everybody else the instruction is a loop over
    // bytes, each loaded and stored as an atomic, and later stores come after all of them. The
    // direction flag is clear, as between any two functions.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") length => _,
            inout("rsi") source => _,
            inout("rdi") destination => _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    /// Lengths up to two words and around the string instruction's, at every alignment.
    fn moves_these_bytes_and_no_others(how: impl Fn(&mut [u8], u64)) {
        let mut source: Vec<u8> = (0..1016).map(|index| (index % 251) as u8 + 1).collect();
        let data = source.clone();
        // Under miri a few of them, because each step is slow.
        let every = if cfg!(miri) { 13 } else { 1 };
        for length in (0..20).chain([63, 64, 511, 512, 513, 1000]) {
            for (from, to) in (0..64).step_by(every).map(|both| (both / 8, both % 8)) {
                let mut target = std::vec![0; length + 16];
                let target_at = target.as_mut_ptr().expose_provenance() as u64 + to as u64;
                how(&mut source[from..from + length], target_at);
                let (before, rest) = target.split_at(to);
                let (moved, after) = rest.split_at(length);
                assert_eq!(moved, &data[from..from + length], "{length} {from} {to}");
                assert!(before.iter().chain(after).all(|byte| *byte == 0));
            }
        }
    }

    /// Whichever words of 4 or 8 bytes a short copy covers whole, no store ends inside of them.
    #[test]
    fn aligned_words_of_a_short_copy_come_whole() {
        for (begin, length) in (0..8).flat_map(|begin| (0..=28).map(move |length| (begin, length)))
        {
            let end = begin + length as u64;
            let mut ends = std::vec![begin];
            while let Some(&at) = ends.last().filter(|&&at| at < end) {
                ends.push(at + super::piece(at, (end - at) as usize) as u64);
            }
            assert_eq!(ends.last(), Some(&end));
            for width in [4, 8] {
                let words = (0..64)
                    .step_by(width)
                    .map(|first| (first, first + width as u64));
                for (first, last) in words.filter(|word| word.0 >= begin && word.1 <= end) {
                    let torn = ends.iter().any(|&at| first < at && at < last);
                    assert!(!torn, "{width} bytes at {first} of {begin}..{end}");
                }
            }
        }
    }

    #[test]
    fn a_copy_moves_these_bytes_and_no_others() {
        moves_these_bytes_and_no_others(|source, target| {
            let source_at = source.as_mut_ptr().expose_provenance() as u64;
            // SAFETY: both are long enough.
            unsafe { super::copy(source_at, target, source.len()) };
        });
    }

    #[test]
    fn a_write_moves_these_bytes_and_no_others() {
        moves_these_bytes_and_no_others(|source, target| {
            // SAFETY: the target is long enough.
            unsafe { super::write(source, target) };
        });
    }
}
