//! What kernels that repeat choose to run ahead of their next round ([`Node::run_choosing`](crate::Node::run_choosing)).

use std::fmt;

use warpbell::{Choice, Word64};

use crate::{Buffer, Error, Launch, Placement};

/// A word by which kernels that repeat choose what runs ahead of their next round ([`Node::run_choosing`]): they get
/// [`choice`](Self::choice).
///
/// [`Node::run_choosing`]: crate::Node::run_choosing
#[derive(Debug)]
pub struct ChoiceWord(Buffer);

impl ChoiceWord {
    /// A word without a choice. Kernels on a GPU have it best in the GPU's own memory, and a thread of the host that
    /// takes the choice needs it where it reaches it.
    ///
    /// # Errors
    /// As [`Buffer::placed`].
    pub fn new(placement: Placement) -> Result<Self, Error> {
        Buffer::placed(placement, size_of::<Word64>()).map(Self)
    }

    /// Where it is.
    pub(crate) fn address(&self) -> u64 {
        self.0.as_ptr().addr() as u64
    }

    /// What the kernels get. Only they touch it if it lies in a GPU's own memory.
    pub fn choice(&self) -> Choice<'_> {
        // SAFETY: the buffer has room for the word, is aligned more strictly and is 0 at first; nobody else gets to it.
        unsafe { Choice::new(self.0.as_ptr().cast()) }
    }
}

/// What a round of kernels may choose.
#[derive(Clone, Copy)]
pub struct Branches<'b> {
    /// How it does so.
    pub word: &'b ChoiceWord,
    /// Of each branch, from 0, the kernels that run one behind the other. A branch without kernels is none.
    pub launches: &'b [Vec<Launch<'b>>],
}

impl<'b> Branches<'b> {
    /// Takes the choice, on the host that reaches it, and gives the kernels of that branch: none without a choice.
    ///
    /// # Errors
    /// [`Error::NoBranch`].
    pub(crate) fn take(&self) -> Result<&'b [Launch<'b>], Error> {
        let Some(branch) = self.word.choice().take() else {
            return Ok(&[]);
        };
        match self.launches.get(branch as usize) {
            Some(launches) if !launches.is_empty() => Ok(launches),
            _ => Err(Error::NoBranch { branch }),
        }
    }
}

impl fmt::Debug for Branches<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Branches")
            .field("word", &self.word)
            .field("branches", &self.launches.len())
            .finish()
    }
}
