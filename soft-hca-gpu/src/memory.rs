//! What a crew wants of memory beside what an engine does: copies in parts, and in two halves.

use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use warpbell_soft_hca::engine::{DirectMemory, Memory};

/// The memory that engines and crews reach here: a GPU's, or this program's own.
#[cfg(target_arch = "nvptx64")]
pub type KernelMemory = crate::gpu_memory::GpuMemory;
/// The memory that engines and crews reach here: a GPU's, or this program's own.
#[cfg(not(target_arch = "nvptx64"))]
pub type KernelMemory = DirectMemory;

/// For whom an engine orders its accesses to memory. On a CPU it is the same for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryScope {
    /// The threads of the GPU that the engine runs on.
    Gpu,
    /// Other GPUs and the host, too.
    System,
}

impl MemoryScope {
    /// Memory whose users are within this scope.
    #[inline(always)]
    pub const fn memory(self) -> KernelMemory {
        #[cfg(target_arch = "nvptx64")]
        return KernelMemory::new(self);
        #[cfg(not(target_arch = "nvptx64"))]
        DirectMemory
    }
}

/// Copies in parts for several threads, and in two halves between which a thread does something else.
///
/// A copy is *small* if it passes through a thread's registers in one piece: 1, 2, 4 or 8 bytes to an address aligned
/// to their number, or up to four blocks of 16 bytes that are aligned at both ends.
///
/// # Safety
///
/// *Implementation safety.* As for [`Memory`].
pub unsafe trait LaneMemory: Memory {
    /// One of `parts` parts of a copy, which are together what [`copy`](Memory::copy) is for a length that is
    /// not small, but in no order with other accesses.
    ///
    /// # Safety
    ///
    /// As for [`copy`](Memory::copy), and `part` must be below `parts`.
    unsafe fn copy_part(&self, source: u64, destination: u64, length: u64, part: u32, parts: u32);

    /// The first half of a small copy, in no order with other accesses.
    ///
    /// # Safety
    ///
    /// `source` must be readable for `length` bytes, which with some destination are small.
    unsafe fn load_small(&self, source: u64, length: u64) -> Small;

    /// The second half of a small copy, in no order with other accesses: one store for a word.
    ///
    /// # Safety
    ///
    /// `destination` must be writable for `length` bytes, which with some source are small.
    unsafe fn store_small(&self, destination: u64, length: u64, data: &Small);
}

/// Up to 64 bytes on their way from one place to another: a word's in the low bytes of the first, blocks of 16
/// in two words each.
pub type Small = [u64; 8];

/// Whether a copy is small, as [`LaneMemory`] has it.
#[inline(always)]
pub(crate) const fn is_small(source: u64, destination: u64, length: u64) -> bool {
    // Without branches, which on a GPU cost more than the rest.
    is_word(destination, length) | ((length <= 64) & ((source | destination | length) & 15 == 0))
}

/// Whether so many bytes at this address are one store.
#[inline(always)]
pub(crate) const fn is_word(destination: u64, length: u64) -> bool {
    matches!(length, 1 | 2 | 4 | 8) & (destination & length.wrapping_sub(1) == 0)
}

/// The atomic of type `$atomic` at an address.
macro_rules! atomic_at {
    ($atomic:ty, $address:expr) => {
        // SAFETY: the caller vouches that the address is valid and aligned for this width; the
        // atomic is used only within this expression's statement.
        unsafe { <$atomic>::from_ptr(core::ptr::with_exposed_provenance_mut($address as usize)) }
    };
}

// SAFETY: every method accesses exactly the bytes named, words through core's atomics.
unsafe impl LaneMemory for DirectMemory {
    #[inline]
    unsafe fn copy_part(&self, source: u64, destination: u64, length: u64, part: u32, parts: u32) {
        // In whole words, where the destination is aligned to them.
        let share = length.div_ceil(u64::from(parts)).next_multiple_of(8);
        let begin = (u64::from(part) * share).min(length);
        let length = share.min(length - begin) as usize;
        // SAFETY: inside the caller's ranges.
        unsafe { self.copy(source + begin, destination + begin, length) };
    }

    #[inline]
    unsafe fn load_small(&self, source: u64, length: u64) -> Small {
        let mut data = Small::default();
        // Others may write these bytes meanwhile only where they are one aligned word, which is then atomic.
        macro_rules! load_word {
            ($atomic:ty, $word:ty) => {
                data[0] = match source % length {
                    0 => atomic_at!($atomic, source).load(Ordering::Relaxed).into(),
                    // SAFETY: the caller vouches for the range; bytes of any alignment make a word.
                    _ => unsafe {
                        core::ptr::with_exposed_provenance::<$word>(source as usize)
                            .read_unaligned()
                            .into()
                    },
                }
            };
        }
        match length {
            1 => load_word!(AtomicU8, u8),
            2 => load_word!(AtomicU16, u16),
            4 => load_word!(AtomicU32, u32),
            8 => load_word!(AtomicU64, u64),
            _ => {
                for (word, at) in data.iter_mut().zip((0..length).step_by(8)) {
                    *word = atomic_at!(AtomicU64, source + at).load(Ordering::Relaxed);
                }
            }
        }
        data
    }

    #[inline]
    unsafe fn store_small(&self, destination: u64, length: u64, data: &Small) {
        macro_rules! store_word {
            ($atomic:ty, $word:ty) => {
                atomic_at!($atomic, destination).store(data[0] as $word, Ordering::Relaxed)
            };
        }
        match length {
            1 => store_word!(AtomicU8, u8),
            2 => store_word!(AtomicU16, u16),
            4 => store_word!(AtomicU32, u32),
            8 => store_word!(AtomicU64, u64),
            _ => {
                for (word, at) in data.iter().zip((0..length).step_by(8)) {
                    atomic_at!(AtomicU64, destination + at).store(*word, Ordering::Relaxed);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const CANARY: u8 = 0xee;

    /// Moves `length` bytes to an offset of a target by `how`, which gets both addresses, and looks at all of the target.
    fn moves_these_bytes_and_no_others(length: usize, offset: usize, how: impl FnOnce(u64, u64)) {
        let source: Vec<u128> = (0..16).map(|word| word * 0x0101_0307 + 1).collect();
        let mut target = [u128::from_ne_bytes([CANARY; 16]); 18];
        let from = source.as_ptr().expose_provenance() as u64;
        let to = target.as_mut_ptr().expose_provenance() as u64 + offset as u64;
        how(from, to);
        let bytes = |words: &[u128]| -> Vec<u8> {
            let words = words.iter().flat_map(|word| word.to_ne_bytes());
            words.collect()
        };
        let (source, target) = (bytes(&source), bytes(&target));
        let (before, rest) = target.split_at(offset);
        let (moved, after) = rest.split_at(length);
        assert_eq!(moved, &source[..length], "{length} bytes at {offset}");
        let mut others = before.iter().chain(after);
        assert!(others.all(|byte| *byte == CANARY), "{length} at {offset}");
    }

    #[test]
    fn the_parts_of_a_copy_are_the_whole() {
        for (length, offset) in (9..=200).flat_map(|length| [0, 3, 8].map(|at| (length, at))) {
            for parts in [1, 3, 32] {
                moves_these_bytes_and_no_others(length, offset, |from, to| {
                    for part in 0..parts {
                        // SAFETY: both ranges lie in the test's own memory.
                        unsafe { DirectMemory.copy_part(from, to, length as u64, part, parts) };
                    }
                });
            }
        }
    }

    #[test]
    fn both_halves_of_a_small_copy_move_it() {
        let words = [1, 2, 4, 8].map(|width| (width, width));
        let blocks = [16, 32, 48, 64].map(|length| (length, 16));
        for (length, step) in words.into_iter().chain(blocks) {
            for offset in (0..32).step_by(step) {
                moves_these_bytes_and_no_others(length, offset, |from, to| {
                    let length = length as u64;
                    assert!(is_small(from, to, length));
                    // SAFETY: both ranges lie in the test's own memory.
                    unsafe {
                        let data = DirectMemory.load_small(from, length);
                        DirectMemory.store_small(to, length, &data);
                    }
                });
            }
        }
    }
}
