//! What is refused when a team is set up.

/// Why a step of a team's set-up was refused. Nothing of it has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TeamError {
    /// A number that is too small or too large.
    #[error("{what}: {value}; choose 1 to {limit}")]
    Number {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: usize,
        /// The most.
        limit: usize,
    },
    /// Bytes that are not whole words.
    #[error("{what}: {bytes} bytes; choose a multiple of 8")]
    Uneven {
        /// Which bytes.
        what: &'static str,
        /// How many.
        bytes: usize,
    },
    /// A window larger than any memory.
    #[error("a window of more bytes than there are")]
    TooLarge,
    /// Queues in which a write and its signal never have room together.
    #[error("queues of depth {depth} are too short; choose 4 or more")]
    TooShallow {
        /// The depth asked for.
        depth: u32,
    },
    /// A rank that is no member, or there twice.
    #[error("rank {rank} is not there, or named twice")]
    Rank {
        /// The rank.
        rank: u32,
    },
    /// A rank was given another configuration.
    #[error("rank {rank} was given another configuration: {what} differ")]
    Disagrees {
        /// The rank.
        rank: u32,
        /// What differs.
        what: &'static str,
    },
    /// A member that was set up by another job's ranks, or with all members in one process.
    #[error("the member is none of this job's; let it rejoin the job whose ranks set its team up")]
    OtherJob,
}
