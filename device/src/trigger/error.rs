//! What is wrong.

use core::fmt;

use super::{MAX_THRESHOLD, Tag};
use crate::error::{PostError, QueueError};

/// Why a call did not succeed. Nothing was triggered or registered then; what was before is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A handle of another version, or no handle.
    Handle,
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

impl Error {
    /// The error in one word, for a scope's other threads and for the host; never 0.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        let (kind, detail) = match self {
            // Its two highest bits are never both 0.
            Self::Failed(error) => return error.to_bits(),
            Self::Handle => (1, 0),
            Self::InvalidTag { tag } => (2, tag),
            Self::InvalidThreshold { threshold } => (3, threshold),
            Self::InvalidOperation { limit } => (4, limit),
            Self::InvalidSize { limit } => (5, limit),
            Self::Misaligned => (6, 0),
            Self::NotRegistered => (7, 0),
            Self::InUse => (8, 0),
            Self::Untriggered { missing } => (9, missing),
            Self::Timeout => (10, 0),
            Self::Managed => (11, 0),
        };
        kind << 32 | detail as u64
    }

    /// The error in a word of [`to_bits`](Self::to_bits); none in any other.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        let detail = bits as u32;
        Some(match bits >> 32 {
            1 => Self::Handle,
            2 => Self::InvalidTag { tag: detail },
            3 => Self::InvalidThreshold { threshold: detail },
            4 => Self::InvalidOperation { limit: detail },
            5 => Self::InvalidSize { limit: detail },
            6 => Self::Misaligned,
            7 => Self::NotRegistered,
            8 => Self::InUse,
            9 => Self::Untriggered { missing: detail },
            10 => Self::Timeout,
            11 => Self::Managed,
            high if high >> 30 != 0 => match QueueError::from_bits(bits) {
                Some(error) => Self::Failed(error),
                None => return None,
            },
            _ => return None,
        })
    }
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
            Error::Failed(failed),
        ];
        for error in errors {
            assert_ne!(error.to_bits(), 0);
            assert_eq!(Error::from_bits(error.to_bits()), Some(error));
        }
        for nothing in [0, 1, 12 << 32, u64::MAX >> 2] {
            assert_eq!(Error::from_bits(nothing), None);
        }
    }
}
