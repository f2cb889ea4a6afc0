//! Bytes of the symmetric heap: each allocation lies at the same offset at all PEs.

use super::Error;
use warpbell::{Deadline, Signal, Words};

/// Bytes in a word of the heap.
const WORD: u64 = size_of::<u64>() as u64;

/// An allocation of the symmetric heap, as this PE's kernels see it: `char*` of `cpnet_shmalloc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Symmetric<'a> {
    /// This PE's words of it.
    words: Words<'a>,
    /// Bytes from the beginning of each PE's heap.
    offset: u64,
    /// Bytes of it.
    bytes: u64,
}

/// One byte of an allocation.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SymmetricChar<'a> {
    /// The word of this PE that the byte is in.
    word: Signal<'a>,
    /// Bytes from the beginning of each PE's heap.
    offset: u64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Symmetric>() == 40);

impl<'a> Symmetric<'a> {
    /// So many bytes in these words of this PE, which begin so many bytes behind the beginning of its heap: a multiple
    /// of 8.
    pub const fn new(words: Words<'a>, offset: u64, bytes: u64) -> Self {
        Self {
            words,
            offset,
            bytes,
        }
    }

    /// How many bytes it has.
    #[inline(always)]
    pub const fn bytes(self) -> u64 {
        self.bytes
    }

    /// Bytes from the beginning of each PE's heap to its own.
    #[inline(always)]
    pub const fn offset(self) -> u64 {
        self.offset
    }

    /// A byte of it.
    ///
    /// # Errors
    /// [`Error::Outside`], also to a CPU for bytes in a GPU's memory.
    #[inline(always)]
    pub fn at(self, index: u64) -> Result<SymmetricChar<'a>, Error> {
        let outside = Error::Outside {
            index: if index < u32::MAX as u64 {
                index as u32
            } else {
                u32::MAX
            },
        };
        if index >= self.bytes {
            return Err(outside);
        }
        match self.words.signal(index / WORD) {
            Some(word) => Ok(SymmetricChar {
                word,
                offset: self.offset + index,
            }),
            None => Err(outside),
        }
    }
}

impl SymmetricChar<'_> {
    /// Bytes from the beginning of each PE's heap.
    #[inline(always)]
    pub(super) const fn offset(self) -> u64 {
        self.offset
    }

    /// Its value at this PE. What the same queue brought before it may be read then.
    #[inline(always)]
    pub fn read(self) -> u8 {
        // The word as on a little-endian machine, whose lowest byte is the first one.
        (self.word.read().to_le() >> (8 * (self.offset % WORD))) as u8
    }

    /// Waits until it has this value.
    #[inline(always)]
    pub(super) fn wait(self, value: u8, limit: Deadline) -> Result<u32, Error> {
        let mut wait = limit.wait();
        let mut late = false;
        while self.read() != value {
            if late {
                return Err(Error::Late);
            }
            // Another look behind the deadline, for a thread that was away.
            late = wait.expired();
        }
        Ok(0)
    }
}
