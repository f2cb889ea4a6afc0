//! What a task answers beside its value.

use core::marker::PhantomData;

use warpbell_gpu::arch::{Reach, Word64};

use crate::words::load_relaxed64;

/// A task's value and its result, which lies in the room of its slot while the lane is borrowed:
/// [`Lane::wait_reply`](super::Lane::wait_reply).
#[derive(Clone, Copy, Debug)]
pub struct Reply<'l> {
    value: u32,
    length: u32,
    first: *const Word64,
    _lane: PhantomData<&'l Word64>,
}

impl Reply<'_> {
    /// `length` bytes from `first` on, in memory of whole words.
    #[inline(always)]
    pub(super) const fn new(value: u32, first: *const Word64, length: u32) -> Self {
        Self {
            value,
            length,
            first,
            _lane: PhantomData,
        }
    }

    /// The task's value.
    #[inline(always)]
    pub fn value(&self) -> u32 {
        self.value
    }

    /// Bytes of its result; 0 if it answered with a value alone.
    #[inline(always)]
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Where the result begins, aligned to 8 bytes: for reading, while this borrows the lane.
    #[inline(always)]
    pub fn first(&self) -> *const u8 {
        self.first.cast()
    }

    /// Eight bytes of the result, in the order of memory; bytes behind its end are 0.
    #[inline(always)]
    pub fn word(&self, index: u32) -> u64 {
        let bytes = self.length.saturating_sub(index.saturating_mul(8));
        if bytes == 0 {
            return 0;
        }
        // SAFETY: the word begins inside of the result, and the room for it has whole words (the promise of the handle
        // that the lane comes from).
        let word = load_relaxed64(unsafe { &*self.first.add(index as usize) }, Reach::System);
        match bytes {
            // The first bytes are the low ones, on a GPU and on x86-64.
            1..8 => word & ((1 << (8 * bytes)) - 1),
            _ => word,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_behind_the_end_are_none() {
        let words = [const { Word64::new(u64::MAX) }; 3];
        let reply = |length| Reply::new(5, words.as_ptr(), length);
        assert_eq!((reply(9).value(), reply(9).length()), (5, 9));
        assert_eq!(reply(9).first(), words.as_ptr().cast());
        for length in 0..=24 {
            let ones: u32 = (0..3)
                .map(|word| reply(length).word(word).count_ones())
                .sum();
            assert_eq!(ones, 8 * length);
        }
        assert_eq!(reply(9).word(1), 0xff);
        for beyond in [3, u32::MAX] {
            assert_eq!(reply(24).word(beyond), 0);
        }
    }
}
