//! A word by which kernels that repeat choose what runs behind their round.

use core::fmt;
use core::marker::PhantomData;

use warpbell_gpu::arch::{Reach, Word64};

use crate::words::{compare_exchange_relaxed64, exchange_relaxed64, load_relaxed64};

/// What the kernels of a round choose to run next, once, ahead of the next round: one of the branches that the host has
/// prepared, by its number.
///
/// A choice holds for one round. Whoever runs the branch [takes](Self::take) it: the host's
/// `Node::run_choosing`, on a GPU the graph's last kernel.
///
/// ```
/// use warpbell::{Choice, Word64};
///
/// let word = Word64::new(0);
/// // SAFETY: the word is of a CPU's memory, where kernels of its grid look at it.
/// let choice = unsafe { Choice::new(&raw const word) };
/// assert!(!choice.is_made() && choice.choose(3) && choice.is_made());
/// assert!(!choice.choose(4), "another thread was faster");
/// assert_eq!((choice.take(), choice.take()), (Some(3), None));
/// ```
///
/// `repr(transparent)`, 8 bytes: the host hands it to the kernel.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Choice<'a> {
    /// 0, or the branch's number and 1.
    word: *const Word64,
    _word: PhantomData<&'a Word64>,
}

// SAFETY: it only names a word, for which `new` was given a promise.
unsafe impl Send for Choice<'_> {}
// SAFETY: as above.
unsafe impl Sync for Choice<'_> {}

impl<'a> Choice<'a> {
    /// A choice in this word, 0 at first.
    ///
    /// # Safety
    /// For the lifetime `'a` the word is there for every thread that gets the choice, aligned to 8 bytes, and choices
    /// alone touch it. On a GPU it is in global memory.
    pub const unsafe fn new(word: *const Word64) -> Self {
        Self {
            word,
            _word: PhantomData,
        }
    }

    /// Chooses a branch for this round. False if another thread has chosen one, which stands.
    #[inline(always)]
    pub fn choose(self, branch: u32) -> bool {
        compare_exchange_relaxed64(self.word(), 0, u64::from(branch) + 1, Reach::Gpu).is_ok()
    }

    /// Whether a branch was chosen in this round.
    #[inline(always)]
    pub fn is_made(self) -> bool {
        load_relaxed64(self.word(), Reach::Gpu) != 0
    }

    /// Takes the choice, if there is one, to run that branch. The kernels of the round have ended.
    #[inline(always)]
    pub fn take(self) -> Option<u32> {
        match exchange_relaxed64(self.word(), 0, Reach::Gpu) {
            0 => None,
            word => Some((word - 1) as u32),
        }
    }

    #[inline(always)]
    fn word(self) -> &'a Word64 {
        // SAFETY: `new` was promised the word.
        unsafe { &*self.word }
    }
}

impl fmt::Debug for Choice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Choice").field(&self.word).finish()
    }
}
