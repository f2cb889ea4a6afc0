//! What is refused when active messages are set up.

use crate::active::{Buffer, Function, MAX_ARGUMENTS};

/// Why a step of active messages' set-up was refused. Nothing of it has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ActiveError {
    /// A number in the configuration.
    #[error("{what}: {value}; choose 1 to {limit}")]
    Number {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: u32,
        /// The most.
        limit: u32,
    },
    /// A number of slots that is no power of two.
    #[error("{slots} slots; choose a power of two")]
    Slots {
        /// The number.
        slots: u32,
    },
    /// Results longer than an answer tells, or than the queues' longest message.
    #[error("results of {bytes} bytes; choose at most {limit}")]
    Result {
        /// The bytes asked for.
        bytes: u32,
        /// The most.
        limit: u32,
    },
    /// Queues in which a message never has room.
    #[error("queues of depth {depth} are too short for a message; choose {least} or more")]
    TooShallow {
        /// The depth asked for.
        depth: u32,
        /// The least.
        least: u32,
    },
    /// There is no place for a function of this number.
    #[error("there is no place for function {function}; there are {functions}, from 0")]
    NoSuchFunction {
        /// The number.
        function: Function,
        /// How many places there are.
        functions: u32,
    },
    /// More arguments than a task has.
    #[error("a function of {arguments} arguments; a task has {MAX_ARGUMENTS} at most")]
    Arguments {
        /// How many were asked for.
        arguments: u32,
    },
    /// The function is registered already.
    #[error(
        "function {function} is registered already; deregister it first, or take another number"
    )]
    FunctionExists {
        /// The number.
        function: Function,
    },
    /// A function that is registered, and has no kernel that its tasks could launch.
    #[error(
        "function {function} has no kernel to launch; register one, or deregister the function"
    )]
    NoKernel {
        /// The number.
        function: Function,
    },
    /// There is no such buffer, or no place for it.
    #[error("there is no buffer {buffer}; register it, with a number below {limit}")]
    NoSuchBuffer {
        /// The number.
        buffer: Buffer,
        /// Places for buffers.
        limit: u32,
    },
    /// The buffer is there already.
    #[error("buffer {buffer} is there already; take another number")]
    BufferExists {
        /// The number.
        buffer: Buffer,
    },
    /// There is no such lane.
    #[error("there is no lane {lane}; there are {lanes}, from 0")]
    NoSuchLane {
        /// The number.
        lane: u32,
        /// How many there are.
        lanes: u32,
    },
    /// Another rank has another configuration.
    #[error("{what}: {theirs} at rank {rank}, {ours} at rank 0; give all ranks the same")]
    OtherRank {
        /// The other rank.
        rank: u32,
        /// Which number.
        what: &'static str,
        /// Its value there.
        theirs: u32,
        /// The value at rank 0.
        ours: u32,
    },
    /// There are no lanes to that rank.
    #[error("rank {rank} is no target of this rank; name it as one when the lanes are made")]
    NoTarget {
        /// The rank.
        rank: u32,
    },
    /// There are no lanes from that rank.
    #[error("rank {rank} does not send to this rank; let it name this rank as a target")]
    NoInitiator {
        /// The rank.
        rank: u32,
    },
}
