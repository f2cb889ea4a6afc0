//! A word by which the host asks kernels to end.

use core::fmt;

use warpbell_gpu::arch::{Reach, Word64};

use crate::words::{load_relaxed64, store_relaxed64};

/// Whether the host wants a kernel to end that would run for long.
///
/// A kernel looks now and then, finishes what it has begun and returns. One look loads the word from where
/// it lies; from host memory that takes a GPU about a microsecond, so look once in many rounds.
///
/// ```
/// use warpbell::{Stop, Word64};
///
/// fn kernel(stop: Stop<'_>) -> u64 {
///     let mut rounds = 0;
///     while !(rounds % 64 == 0 && stop.requested()) {
///         rounds += 1; // a round of work
/// #       if rounds == 1000 { break }
///     }
///     rounds
/// }
///
/// // On the host, `warpbell_host_init::StopWord` holds the word.
/// let (asked, quiet) = (Word64::new(1), Word64::new(0));
/// // SAFETY: both words are of a CPU's memory, where kernels of its grid look at them.
/// let (asked, quiet) = unsafe { (Stop::new(&asked), Stop::new(&quiet)) };
/// assert_eq!(kernel(asked), 0);
/// assert_eq!(kernel(quiet), 1000);
/// ```
///
/// `repr(transparent)`, 8 bytes: the host hands it to the kernel.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Stop<'a> {
    word: &'a Word64,
}

impl<'a> Stop<'a> {
    /// A stop that this word stands for: 0 until the host asks.
    ///
    /// # Safety
    /// The word lies where every kernel that gets the stop reaches it by global addresses: for a GPU in its memory or in
    /// pinned host memory, not in a kernel's shared or local memory.
    pub const unsafe fn new(word: &'a Word64) -> Self {
        Self { word }
    }

    /// Whether the host has asked.
    #[inline(always)]
    pub fn requested(self) -> bool {
        load_relaxed64(self.word, Reach::System) != 0
    }

    /// Asks, as the host does: a kernel that has found the end, of those that look at the same word.
    #[inline(always)]
    pub fn request(self) {
        store_relaxed64(self.word, 1, Reach::System);
    }
}

impl fmt::Debug for Stop<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stop").field(&self.requested()).finish()
    }
}
