//! Return values.

use core::fmt;

use super::{NotificationId, QueueId, Rank, SegmentId};
use crate::error::{OpenError, PostError, QueueError, WaitError};
use crate::together::ErrorWord;

/// The four return values of the specification, with their numbers in its header.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// `GASPI_ERROR`
    Error = -1,
    /// `GASPI_SUCCESS`
    Success = 0,
    /// `GASPI_TIMEOUT`
    Timeout = 1,
    /// `GASPI_QUEUE_FULL`
    QueueFull = 2,
}

/// Why a call did not succeed. [`returns`](Self::returns) is what GASPI calls it; behind `GASPI_ERROR` stands
/// what is wrong. Nothing was posted then, nor changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// `GASPI_TIMEOUT`: not done in time. Call again to complete it.
    Timeout,
    /// `GASPI_QUEUE_FULL`: the queue had no room until the time-out. Wait, then call again.
    QueueFull,
    /// A handle of another version, or no handle.
    Handle,
    /// There is no such rank.
    InvalidRank {
        /// The number.
        rank: Rank,
    },
    /// There is no such queue.
    InvalidQueue {
        /// The number.
        queue: QueueId,
    },
    /// The segment is not there, at this rank or at the other one.
    InvalidSegment {
        /// The number.
        segment: SegmentId,
    },
    /// The bytes do not all lie in the local segment.
    InvalidLocalOffset {
        /// The segment.
        segment: SegmentId,
    },
    /// The bytes do not all lie in the remote segment.
    InvalidRemoteOffset {
        /// The segment.
        segment: SegmentId,
    },
    /// No bytes at all, or more than a request takes.
    InvalidSize {
        /// The most that it takes.
        limit: u32,
    },
    /// There is no such notification, or a range does not end before it.
    InvalidNotification {
        /// The number, or the range's first.
        notification: NotificationId,
    },
    /// A notification of value 0, which would be none.
    InvalidNotificationValue,
    /// There is no connection to the rank.
    NotConnected {
        /// The rank.
        rank: Rank,
    },
    /// Somebody else has the queue open, and one of the two wants it exclusively.
    InUse,
    /// The queue's ring is too short for the request: make it deeper.
    TooShallow,
    /// The queue has failed; the host resets it (`gaspi_queue_purge`).
    Failed(QueueError),
}

impl Error {
    /// The specification's return value.
    pub const fn returns(self) -> Return {
        match self {
            Self::Timeout => Return::Timeout,
            Self::QueueFull => Return::QueueFull,
            _ => Return::Error,
        }
    }

    /// The error in one word, for a scope's other threads and for the host; never 0.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        let (kind, detail) = match self {
            // Its two highest bits are never both 0.
            Self::Failed(error) => return error.to_bits(),
            Self::Timeout => (1, 0),
            Self::QueueFull => (2, 0),
            Self::Handle => (3, 0),
            Self::InvalidRank { rank } => (4, rank),
            Self::InvalidQueue { queue } => (5, queue),
            Self::InvalidSegment { segment } => (6, segment),
            Self::InvalidLocalOffset { segment } => (7, segment),
            Self::InvalidRemoteOffset { segment } => (8, segment),
            Self::InvalidSize { limit } => (9, limit),
            Self::InvalidNotification { notification } => (10, notification),
            Self::InvalidNotificationValue => (11, 0),
            Self::NotConnected { rank } => (12, rank),
            Self::InUse => (13, 0),
            Self::TooShallow => (14, 0),
        };
        kind << 32 | detail as u64
    }

    /// The error in a word of [`to_bits`](Self::to_bits); none in any other.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        let detail = bits as u32;
        Some(match bits >> 32 {
            1 => Self::Timeout,
            2 => Self::QueueFull,
            3 => Self::Handle,
            4 => Self::InvalidRank { rank: detail },
            5 => Self::InvalidQueue { queue: detail },
            6 => Self::InvalidSegment { segment: detail },
            7 => Self::InvalidLocalOffset { segment: detail },
            8 => Self::InvalidRemoteOffset { segment: detail },
            9 => Self::InvalidSize { limit: detail },
            10 => Self::InvalidNotification {
                notification: detail,
            },
            11 => Self::InvalidNotificationValue,
            12 => Self::NotConnected { rank: detail },
            13 => Self::InUse,
            14 => Self::TooShallow,
            high if high >> 30 != 0 => match QueueError::from_bits(bits) {
                Some(error) => Self::Failed(error),
                None => return None,
            },
            _ => return None,
        })
    }

    /// Why a queue's part for a rank could not be opened.
    #[inline(always)]
    pub(super) fn of_open(error: OpenError, rank: Rank) -> Self {
        match error {
            OpenError::InUse => Self::InUse,
            OpenError::Failed(error) => Self::Failed(error),
            // The host leaves the places of ranks without a connection empty.
            _ => Self::NotConnected { rank },
        }
    }
}

impl ErrorWord for Error {
    #[inline(always)]
    fn to_word(self) -> u64 {
        self.to_bits()
    }

    #[inline(always)]
    fn from_word(word: u64) -> Option<Self> {
        Self::from_bits(word)
    }
}

impl From<PostError> for Error {
    #[inline(always)]
    fn from(error: PostError) -> Self {
        match error {
            PostError::NoRoom | PostError::Deadline => Self::QueueFull,
            PostError::TooManyBlocks { .. } => Self::TooShallow,
            PostError::TooLong { limit, .. } => Self::InvalidSize { limit },
            // Neither gets past the checks before.
            PostError::Empty | PostError::Misaligned { .. } => Self::InvalidSize { limit: 0 },
            PostError::Failed(error) => Self::Failed(error),
        }
    }
}

impl From<WaitError> for Error {
    #[inline(always)]
    fn from(error: WaitError) -> Self {
        match error {
            // All requests are signalled.
            WaitError::Deadline | WaitError::NotSignalled => Self::Timeout,
            WaitError::Failed(error) => Self::Failed(error),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("GASPI_TIMEOUT: not done in time"),
            Self::QueueFull => f.write_str("GASPI_QUEUE_FULL: no room in the queue; wait"),
            Self::Handle => f.write_str("no GASPI handle of this version"),
            Self::InvalidRank { rank } => write!(f, "there is no rank {rank}"),
            Self::InvalidQueue { queue } => write!(f, "there is no queue {queue}"),
            Self::InvalidSegment { segment } => write!(f, "there is no segment {segment}"),
            Self::InvalidLocalOffset { segment } => {
                write!(f, "the bytes do not lie in the local segment {segment}")
            }
            Self::InvalidRemoteOffset { segment } => {
                write!(f, "the bytes do not lie in the remote segment {segment}")
            }
            Self::InvalidSize { limit } => {
                write!(f, "a request takes 1 to {limit} bytes")
            }
            Self::InvalidNotification { notification } => {
                write!(f, "no such notifications from {notification} on")
            }
            Self::InvalidNotificationValue => f.write_str("a notification's value is not 0"),
            Self::NotConnected { rank } => write!(f, "no connection to rank {rank}"),
            Self::InUse => f.write_str("the queue is open elsewhere"),
            Self::TooShallow => f.write_str("the queue's ring is too short for the request"),
            Self::Failed(error) => write!(f, "the queue has failed: {error}"),
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
            Error::Timeout,
            Error::QueueFull,
            Error::Handle,
            Error::InvalidRank { rank: number },
            Error::InvalidQueue { queue: number },
            Error::InvalidSegment { segment: number },
            Error::InvalidLocalOffset { segment: number },
            Error::InvalidRemoteOffset { segment: number },
            Error::InvalidSize { limit: number },
            Error::InvalidNotification {
                notification: number,
            },
            Error::InvalidNotificationValue,
            Error::NotConnected { rank: number },
            Error::InUse,
            Error::TooShallow,
            Error::Failed(failed),
        ];
        for error in errors {
            assert_ne!(error.to_bits(), 0);
            assert_eq!(Error::from_bits(error.to_bits()), Some(error));
        }
        for nothing in [0, 1, 15 << 32, u64::MAX >> 2] {
            assert_eq!(Error::from_bits(nothing), None);
        }
    }

    #[test]
    fn the_specification_names_four_values() {
        assert_eq!(Error::Timeout.returns() as i32, 1);
        assert_eq!(Error::QueueFull.returns() as i32, 2);
        assert_eq!(Error::InUse.returns() as i32, -1);
        assert_eq!(Return::Success as i32, 0);
    }
}
