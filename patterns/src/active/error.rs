//! What is wrong.

use super::{Buffer, Function, MAX_ARGUMENTS, MAX_FUNCTION};
use crate::together::error_words;
use warpbell::{OpenError, PostError, QueueError};

/// Why a call did not succeed.
///
/// The first four are answers: the message arrived, and nothing of its task was run but for what
/// [`Task`](Self::Task) says. After any other error of a call that sends, nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The target has no function of this number.
    #[error("the target has no function {function}")]
    NotRegistered {
        /// The number.
        function: Function,
    },
    /// The function takes another number of arguments.
    #[error("the function takes {wanted} arguments")]
    WrongArguments {
        /// So many.
        wanted: u32,
    },
    /// The payload does not lie in a buffer of the target.
    #[error("the payload does not lie in the target's buffer {buffer}")]
    InvalidPayload {
        /// The buffer's number.
        buffer: Buffer,
    },
    /// The task itself says that it failed.
    #[error("the task failed with code {code}")]
    Task {
        /// What it says.
        code: u32,
    },
    /// The lane's slots are all taken by messages that the target has not answered until the deadline, or its queue had
    /// no room.
    #[error("the target has answered no message in time; wait")]
    Full,
    /// No task, or no answer, until the deadline. What was sent stays sent.
    #[error("not done in time")]
    Timeout,
    /// The answer is no longer there: as many messages as there are slots were sent after this one, and answered.
    #[error("the answer was overwritten by later ones; wait for it earlier")]
    Forgotten,
    /// A handle of another version, or no handle.
    #[error("no handle of this version")]
    Handle,
    /// There is no such lane.
    #[error("there is no lane {lane}")]
    InvalidLane {
        /// The number.
        lane: u32,
    },
    /// No function can have this number.
    #[error("function {function}: numbers end at {MAX_FUNCTION}")]
    InvalidFunction {
        /// The number.
        function: Function,
    },
    /// More arguments than a slot has room for.
    #[error("{given} arguments: a task has {MAX_ARGUMENTS} at most")]
    TooManyArguments {
        /// So many.
        given: u32,
    },
    /// There is no such buffer at the target.
    #[error("the target has no buffer {buffer}")]
    InvalidBuffer {
        /// The number.
        buffer: Buffer,
    },
    /// The payload would not lie in the target's buffer.
    #[error("the payload ends outside of the target's buffer {buffer}")]
    InvalidOffset {
        /// The buffer's number.
        buffer: Buffer,
    },
    /// A payload without bytes, or too long.
    #[error("a payload has 1 to {limit} bytes")]
    InvalidSize {
        /// The most.
        limit: u32,
    },
    /// A result without bytes, or longer than the lane has room for.
    #[error("a result without bytes, or of more than the {limit} that the lane has room for")]
    InvalidResult {
        /// The most; 0 where a lane has no room for results.
        limit: u32,
    },
    /// The task is not the one that this server gave last.
    #[error("the task is not the one that was given last")]
    NotServed,
    /// Somebody else has the lane open.
    #[error("the lane is open elsewhere")]
    InUse,
    /// The lane is not connected, or was made for something else.
    #[error("the lane is not connected")]
    NotConnected,
    /// The queue's ring is too short for a message: make it deeper.
    #[error("the lane's queue is too short for the message")]
    TooShallow,
    /// The lane's queue has failed; the host renews the lane.
    #[error("the lane's queue has failed: {0}")]
    Failed(QueueError),
}

error_words! {
    Error:
    1 => NotRegistered { function },
    2 => WrongArguments { wanted },
    3 => InvalidPayload { buffer },
    4 => Task { code },
    5 => Full,
    6 => Timeout,
    7 => Forgotten,
    8 => Handle,
    9 => InvalidLane { lane },
    10 => InvalidFunction { function },
    11 => TooManyArguments { given },
    12 => InvalidBuffer { buffer },
    13 => InvalidOffset { buffer },
    14 => InvalidSize { limit },
    15 => NotServed,
    16 => InUse,
    17 => NotConnected,
    18 => TooShallow,
    19 => InvalidResult { limit },
}

impl From<OpenError> for Error {
    #[inline(always)]
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::InUse => Self::InUse,
            OpenError::Failed(error) => Self::Failed(error),
            _ => Self::NotConnected,
        }
    }
}

impl From<PostError> for Error {
    #[inline(always)]
    fn from(error: PostError) -> Self {
        match error {
            PostError::NoRoom | PostError::Deadline => Self::Full,
            PostError::TooManyBlocks { .. } => Self::TooShallow,
            PostError::TooLong { limit, .. } => Self::InvalidSize { limit },
            // Neither gets past the checks before.
            PostError::Empty | PostError::Misaligned { .. } => Self::InvalidSize { limit: 0 },
            PostError::Failed(error) => Self::Failed(error),
        }
    }
}
