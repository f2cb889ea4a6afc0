//! Why a call did not succeed.

use super::Pe;
use crate::together::error_words;
use warpbell::{OpenError, PostError, QueueError, WaitError};

/// Why a call did not succeed. All threads of the work-group get the same error, and nothing was put then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The deadline passed.
    #[error("not done in time")]
    Late,
    /// There is no such PE.
    #[error("there is no PE {pe}")]
    NoPe {
        /// The number.
        pe: Pe,
    },
    /// The grid has more work-groups than `cpnet_init` was told of.
    #[error("there are no queues for work-group {group}; tell `cpnet_init` of more")]
    NoGroup {
        /// The index of the block.
        group: u32,
    },
    /// An allocation of the symmetric heap has fewer bytes.
    #[error("byte {index} lies outside of the allocation")]
    Outside {
        /// The index, or the largest number of 32 bits.
        index: u32,
    },
    /// Another work-group has the queue open.
    #[error("the work-group's queue is open elsewhere")]
    InUse,
    /// The handle is of another version or for another processor.
    #[error("the handle leads to no queue of this processor")]
    Handle,
    /// The queue has failed.
    #[error("the queue has failed: {0}")]
    Failed(QueueError),
}

error_words! {
    Error:
    1 => Late,
    2 => NoPe { pe },
    3 => NoGroup { group },
    4 => Outside { index },
    5 => InUse,
    6 => Handle,
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
            // A put is one block of 1 byte, which every queue takes once it has room.
            _ => Self::Late,
        }
    }
}

impl From<WaitError> for Error {
    #[inline(always)]
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Failed(error) => Self::Failed(error),
            // All puts are signalled.
            WaitError::Deadline | WaitError::NotSignalled => Self::Late,
        }
    }
}
