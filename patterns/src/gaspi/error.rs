//! Return values.

use super::{NotificationId, QueueId, Rank, SegmentId};
use crate::together::error_words;
use warpbell::{OpenError, PostError, QueueError, WaitError};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `GASPI_TIMEOUT`: not done in time. Call again to complete it.
    #[error("GASPI_TIMEOUT: not done in time")]
    Timeout,
    /// `GASPI_QUEUE_FULL`: the queue had no room until the time-out. Wait, then call again.
    #[error("GASPI_QUEUE_FULL: no room in the queue; wait")]
    QueueFull,
    /// A handle of another version, or no handle.
    #[error("no GASPI handle of this version")]
    Handle,
    /// There is no such rank.
    #[error("there is no rank {rank}")]
    InvalidRank {
        /// The number.
        rank: Rank,
    },
    /// There is no such queue.
    #[error("there is no queue {queue}")]
    InvalidQueue {
        /// The number.
        queue: QueueId,
    },
    /// The segment is not there, at this rank or at the other one.
    #[error("there is no segment {segment}")]
    InvalidSegment {
        /// The number.
        segment: SegmentId,
    },
    /// The bytes do not all lie in the local segment.
    #[error("the bytes do not lie in the local segment {segment}")]
    InvalidLocalOffset {
        /// The segment.
        segment: SegmentId,
    },
    /// The bytes do not all lie in the remote segment.
    #[error("the bytes do not lie in the remote segment {segment}")]
    InvalidRemoteOffset {
        /// The segment.
        segment: SegmentId,
    },
    /// No bytes at all, or more than a request takes.
    #[error("a request takes 1 to {limit} bytes")]
    InvalidSize {
        /// The most that it takes.
        limit: u32,
    },
    /// There is no such notification, or a range does not end before it.
    #[error("no such notifications from {notification} on")]
    InvalidNotification {
        /// The number, or the range's first.
        notification: NotificationId,
    },
    /// A notification of value 0, which would be none.
    #[error("a notification's value is not 0")]
    InvalidNotificationValue,
    /// There is no connection to the rank.
    #[error("no connection to rank {rank}")]
    NotConnected {
        /// The rank.
        rank: Rank,
    },
    /// Somebody else has the queue open, and one of the two wants it exclusively.
    #[error("the queue is open elsewhere")]
    InUse,
    /// The queue's ring is too short for the request: make it deeper.
    #[error("the queue's ring is too short for the request")]
    TooShallow,
    /// The queue has failed; the host resets it (`gaspi_queue_purge`).
    #[error("the queue has failed: {0}")]
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

error_words! {
    Error:
    1 => Timeout,
    2 => QueueFull,
    3 => Handle,
    4 => InvalidRank { rank },
    5 => InvalidQueue { queue },
    6 => InvalidSegment { segment },
    7 => InvalidLocalOffset { segment },
    8 => InvalidRemoteOffset { segment },
    9 => InvalidSize { limit },
    10 => InvalidNotification { notification },
    11 => InvalidNotificationValue,
    12 => NotConnected { rank },
    13 => InUse,
    14 => TooShallow,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_specification_names_four_values() {
        assert_eq!(Error::Timeout.returns() as i32, 1);
        assert_eq!(Error::QueueFull.returns() as i32, 2);
        assert_eq!(Error::InUse.returns() as i32, -1);
        assert_eq!(Return::Success as i32, 0);
    }
}
