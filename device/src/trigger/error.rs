//! What is wrong.

use core::fmt;

use super::{MAX_THRESHOLD, Tag};
use crate::error::{PostError, QueueError};
use crate::together::error_words;

/// Why a call did not succeed. Nothing was triggered or registered then; what was before is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A handle of another version, or no handle.
    Handle,
    /// The table is for kernels of another [`Processor`](crate::Processor): another GPU, or the CPU.
    Elsewhere,
    /// There is no such tag.
    InvalidTag {
        /// The number.
        tag: Tag,
    },
    /// A threshold of 0, or above [`MAX_THRESHOLD`].
    InvalidThreshold {
        /// The number.
        threshold: u32,
    },
    /// An operation without WQEs, or with more than the ring has room for.
    InvalidOperation {
        /// The most that fit.
        limit: u32,
    },
    /// No bytes where there should be some, or more than a message takes.
    InvalidSize {
        /// The most that a message takes.
        limit: u32,
    },
    /// An atomic on an address that is not aligned to its size.
    Misaligned,
    /// No operation was ever registered under the tag.
    NotRegistered,
    /// Somebody else is registering under the tag.
    InUse,
    /// The operation was not done in time, because its threshold was not reached.
    Untriggered {
        /// How many triggers it wants yet.
        missing: u32,
    },
    /// The operation was sent, and was not done in time.
    Timeout,
    /// The NIC starts the tag's operations, once those of another tag are done: the host alone registers them.
    Managed,
    /// The tag's queue has failed; the host makes it anew.
    Failed(QueueError),
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handle => f.write_str("no handle of triggers of this version"),
            Self::Elsewhere => {
                f.write_str("the triggers are for kernels on another GPU, or on the CPU")
            }
            Self::InvalidTag { tag } => write!(f, "there is no tag {tag}"),
            Self::InvalidThreshold { threshold } => {
                write!(f, "a threshold of {threshold}; choose 1 to {MAX_THRESHOLD}")
            }
            Self::InvalidOperation { limit } => {
                write!(f, "an operation has 1 to {limit} WQEs in this ring")
            }
            Self::InvalidSize { limit: 0 } => f.write_str("a request without bytes"),
            Self::InvalidSize { limit } => write!(f, "a request takes 1 to {limit} bytes"),
            Self::Misaligned => f.write_str("an atomic that is not aligned to its size"),
            Self::NotRegistered => f.write_str("no operation is registered"),
            Self::InUse => f.write_str("somebody else is registering under the tag"),
            Self::Untriggered { missing } => {
                write!(
                    f,
                    "the threshold was not reached, {missing} triggers are missing"
                )
            }
            Self::Timeout => f.write_str("the operation was sent, and not done in time"),
            Self::Managed => {
                f.write_str("the NIC starts the tag's operations, which the host registers")
            }
            Self::Failed(error) => write!(f, "the tag's queue has failed: {error}"),
        }
    }
}

impl core::error::Error for Error {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Cause;
    use mlx5_wqe::WqeIndex;

    #[test]
    fn errors_survive_their_word() {
        let number = 0xfedc_ba98;
        let failed = QueueError::new(Cause::Stalled { wqe: WqeIndex(7) });
        let errors = [
            Error::Handle,
            Error::InvalidTag { tag: number },
            Error::InvalidThreshold { threshold: number },
            Error::InvalidOperation { limit: number },
            Error::InvalidSize { limit: number },
            Error::Misaligned,
            Error::NotRegistered,
            Error::InUse,
            Error::Untriggered { missing: number },
            Error::Timeout,
            Error::Managed,
            Error::Elsewhere,
            Error::Failed(failed),
        ];
        for error in errors {
            assert_ne!(error.to_bits(), 0);
            assert_eq!(Error::from_bits(error.to_bits()), Some(error));
        }
        for nothing in [0, 1, 13 << 32, u64::MAX >> 2] {
            assert_eq!(Error::from_bits(nothing), None);
        }
    }
}
