//! Why a call did not succeed.

use crate::together::error_words;
use warpbell::{OpenError, PostError, QueueError, Scope, WaitError, thread};

/// Why a call did not succeed. All threads of the team's extent get the same error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no such channel, or a grid needs more than there are from there on.
    #[error("there is no channel {channel}")]
    NoChannel {
        /// The number.
        channel: u32,
    },
    /// There is no such member.
    #[error("the team has no member {rank}")]
    NoRank {
        /// The number.
        rank: u32,
    },
    /// Somebody else has the channel open: another warp or block, or another grid.
    #[error("the channel is open elsewhere")]
    InUse,
    /// The handle is of another version or for another processor.
    #[error("the handle leads to no queue of this processor")]
    Handle,
    /// An offset or a length is no multiple of 8 bytes, or does not divide into what the call wants.
    #[error("an offset or a length does not divide: {given}")]
    Uneven {
        /// The number, or the largest one of 32 bits.
        given: u32,
    },
    /// Bytes outside of the callers' part of the window.
    #[error("byte {offset} lies outside of the window")]
    Outside {
        /// Where the bytes begin, or the largest number of 32 bits.
        offset: u32,
    },
    /// What is read and what is written have bytes in common.
    #[error("what is read and what is written overlap")]
    Overlap,
    /// The channel's scratch is too small.
    #[error("the call needs {words} words of scratch; set the team up with more")]
    Scratch {
        /// Words that it needs, or the largest number of 32 bits.
        words: u32,
    },
    /// A member made another call, or gave other numbers.
    #[error("member {rank} made another call, or with other numbers")]
    Disagrees {
        /// Which one.
        rank: u32,
    },
    /// A member did not come in time.
    #[error("member {rank} did not come in time")]
    Late {
        /// Which one.
        rank: u32,
    },
    /// The call needs a member that is masked.
    #[error("member {rank} is masked")]
    Masked {
        /// Which one.
        rank: u32,
    },
    /// The call wants a number of members that is a power of 2.
    #[error("{ranks} members; the call wants a power of 2")]
    Ranks {
        /// How many there are.
        ranks: u32,
    },
    /// The call is not made by this algorithm.
    #[error("the call is not made by this algorithm")]
    Algorithm,
    /// Not all blocks of the grid came to the call in time.
    #[error("not all blocks of the grid came to the call in time")]
    Blocks,
    /// What was posted was not complete in time.
    #[error("not complete in time")]
    Incomplete,
    /// A message is longer than the queues take: `QueuePairConfig::max_message`.
    #[error("a message is longer than the queues take; set them up with a larger `max_message`")]
    TooLong,
    /// A queue to a member has failed.
    #[error("a queue has failed: {0}")]
    Failed(QueueError),
}

error_words! {
    Error:
    1 => NoChannel { channel },
    2 => NoRank { rank },
    3 => InUse,
    4 => Handle,
    5 => Uneven { given },
    6 => Outside { offset },
    7 => Overlap,
    8 => Scratch { words },
    9 => Disagrees { rank },
    10 => Late { rank },
    11 => Masked { rank },
    12 => Ranks { ranks },
    13 => Blocks,
    14 => Incomplete,
    15 => Algorithm,
    16 => TooLong,
}

impl Error {
    /// Bytes outside of the window that begin there.
    #[inline(always)]
    pub(super) const fn outside(offset: u64) -> Self {
        Self::Outside {
            offset: least(offset),
        }
    }

    /// A number that does not divide.
    #[inline(always)]
    pub(super) const fn uneven(given: u64) -> Self {
        Self::Uneven {
            given: least(given),
        }
    }

    /// More scratch than there is.
    #[inline(always)]
    pub(super) const fn scratch(words: u64) -> Self {
        Self::Scratch {
            words: least(words),
        }
    }
}

#[inline(always)]
const fn least(number: u64) -> u32 {
    match number < u32::MAX as u64 {
        true => number as u32,
        false => u32::MAX,
    }
}

impl From<OpenError> for Error {
    #[inline(always)]
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::InUse => Self::InUse,
            OpenError::Failed(error) => Self::Failed(error),
            _ => Self::Handle,
        }
    }
}

impl From<PostError> for Error {
    #[inline(always)]
    fn from(error: PostError) -> Self {
        match error {
            PostError::Failed(error) => Self::Failed(error),
            PostError::TooLong { .. } => Self::TooLong,
            // All else was checked before: only room was missing.
            _ => Self::Incomplete,
        }
    }
}

impl From<WaitError> for Error {
    #[inline(always)]
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Failed(error) => Self::Failed(error),
            // The last request of each post is signalled.
            WaitError::Deadline | WaitError::NotSignalled => Self::Incomplete,
        }
    }
}

/// What became of a thread's part of a call: good, or an error's word.
///
/// In a loop over members a `Result` of [`Error`] takes a GPU sixty registers more: it keeps the fields of each error of
/// each member apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Verdict(u64);

impl Verdict {
    pub(crate) const GOOD: Self = Self(0);

    #[inline(always)]
    pub(crate) fn bad(error: impl Into<Error>) -> Self {
        Self(thread::kept(error.into().to_bits()))
    }

    #[inline(always)]
    pub(crate) const fn is_bad(self) -> bool {
        self.0 != 0
    }

    /// This one, unless it is good; then the other one.
    #[inline(always)]
    pub(crate) const fn and(self, other: Self) -> Self {
        match self.is_bad() {
            true => self,
            false => other,
        }
    }

    /// Whether it says that a member is not there: late, or its queue full or failed.
    #[inline(always)]
    pub(crate) const fn is_gone(self) -> bool {
        // By the numbers of its word: a match on the error itself keeps all its fields.
        let high = self.0 >> 32;
        let late = Error::Late { rank: 0 }.to_bits() >> 32;
        let incomplete = Error::Incomplete.to_bits() >> 32;
        high == late || high == incomplete || high >> 30 != 0
    }

    /// Whether it says that a member makes another call.
    #[inline(always)]
    pub(crate) const fn is_disagreement(self) -> bool {
        self.0 >> 32 == Error::Disagrees { rank: 0 }.to_bits() >> 32
    }

    /// This one; but where something was not complete in time, that member was late.
    #[inline(always)]
    pub(crate) fn late(self, rank: u32) -> Self {
        match self.0 == Error::Incomplete.to_bits() {
            true => Self::bad(Error::Late { rank }),
            false => self,
        }
    }

    /// As a word.
    #[inline(always)]
    pub(crate) const fn to_word(self) -> u64 {
        self.0
    }

    /// Of a word of [`to_word`](Self::to_word).
    #[inline(always)]
    pub(crate) const fn of_word(word: u64) -> Self {
        Self(word)
    }

    /// The leader's, for all.
    #[inline(always)]
    pub(crate) fn of_leader<C: Scope>(self) -> Self {
        Self(C::broadcast(self.0))
    }

    /// The same as a result, where all members have been seen to.
    #[inline(always)]
    pub(crate) const fn result(self) -> Result<(), Error> {
        match Error::from_bits(self.0) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}
