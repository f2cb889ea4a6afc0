//! What is wrong.

use core::fmt;

use super::{MAX_THRESHOLD, Tag};
use crate::together::error_words;
use warpbell::{PostError, QueueError};

/// Why a call did not succeed. Nothing was triggered or registered then; what was before is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A handle of another version, or no handle.
    #[error("no handle of triggers of this version")]
    Handle,
    /// The table is for kernels of another [`Processor`](warpbell::Processor): another GPU, or the CPU.
    #[error("the triggers are for kernels on another GPU, or on the CPU")]
    Elsewhere,
    /// There is no such tag.
    #[error("there is no tag {tag}")]
    InvalidTag {
        /// The number.
        tag: Tag,
    },
    /// A threshold of 0, or above [`MAX_THRESHOLD`].
    #[error("a threshold of {threshold}; choose 1 to {MAX_THRESHOLD}")]
    InvalidThreshold {
        /// The number.
        threshold: u32,
    },
    /// An operation without WQEs, or with more than the ring has room for.
    #[error("an operation has 1 to {limit} WQEs in this ring")]
    InvalidOperation {
        /// The most that fit.
        limit: u32,
    },
    /// No bytes where there should be some, or more than a message takes.
    #[error(fmt = invalid_size)]
    InvalidSize {
        /// The most that a message takes.
        limit: u32,
    },
    /// An atomic on an address that is not aligned to its size.
    #[error("an atomic that is not aligned to its size")]
    Misaligned,
    /// No operation was ever registered under the tag; or, where the host registers while kernels run, none that takes
    /// the triggers so far.
    #[error("no operation is registered")]
    NotRegistered,
    /// Somebody else is registering under the tag.
    #[error("somebody else is registering under the tag")]
    InUse,
    /// The operation was not done in time, because its threshold was not reached.
    #[error("the threshold was not reached, {missing} triggers are missing")]
    Untriggered {
        /// How many triggers it wants yet.
        missing: u32,
    },
    /// The operation was sent, and was not done in time.
    #[error("the operation was sent, and not done in time")]
    Timeout,
    /// The NIC starts the tag's operations, once those of another tag are done: the host alone registers them.
    #[error("the NIC starts the tag's operations, which the host registers")]
    Managed,
    /// The host has closed the tag: it registers no more operations under it.
    #[error("the host registers no more operations under the tag")]
    Closed,
    /// The operation is registered, but threads kept triggering the tag until the deadline, so that the host does not
    /// know yet whether one of them rings. The host settles that later.
    #[error("the operation is registered; threads kept triggering, so settle later who rings")]
    Unsettled,
    /// The tag's queue has failed; the host makes it anew.
    #[error("the tag's queue has failed: {0}")]
    Failed(QueueError),
}

fn invalid_size(limit: &u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match limit {
        0 => f.write_str("a request without bytes"),
        _ => write!(f, "a request takes 1 to {limit} bytes"),
    }
}

error_words! {
    Error:
    1 => Handle,
    2 => InvalidTag { tag },
    3 => InvalidThreshold { threshold },
    4 => InvalidOperation { limit },
    5 => InvalidSize { limit },
    6 => Misaligned,
    7 => NotRegistered,
    8 => InUse,
    9 => Untriggered { missing },
    10 => Timeout,
    11 => Managed,
    12 => Elsewhere,
    13 => Closed,
    14 => Unsettled,
}

impl From<PostError> for Error {
    #[inline(always)]
    fn from(error: PostError) -> Self {
        match error {
            PostError::TooManyBlocks { limit, .. } => Self::InvalidOperation { limit },
            PostError::TooLong { limit, .. } => Self::InvalidSize { limit },
            PostError::Empty => Self::InvalidSize { limit: 0 },
            PostError::Misaligned { .. } => Self::Misaligned,
            PostError::NoRoom | PostError::Deadline => Self::Timeout,
            PostError::Failed(error) => Self::Failed(error),
        }
    }
}
