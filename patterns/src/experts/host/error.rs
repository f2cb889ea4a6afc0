//! What is refused when an exchange is set up.

/// Why a step of an exchange's set-up was refused. Nothing of it has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExpertsError {
    /// A number that is too small or too large.
    #[error("{what}: {value}; choose 1 to {limit}")]
    Number {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: u32,
        /// The most.
        limit: u32,
    },
    /// A number that does not divide.
    #[error("{what}: {value}; choose a multiple of {unit}")]
    Uneven {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: u32,
        /// What it has to be a multiple of.
        unit: u32,
    },
    /// Queues in which a warp's requests never have room together.
    #[error("queues of depth {depth} are too short; choose 64 or more")]
    TooShallow {
        /// The depth asked for.
        depth: u32,
    },
    /// Rows that travel together and do not fit a message.
    #[error("{what}: {bytes} bytes; a message has up to {limit}")]
    TooLong {
        /// Which rows.
        what: &'static str,
        /// Their bytes.
        bytes: u64,
        /// The most.
        limit: u32,
    },
    /// A token, an expert, a choice or a number of bytes that the exchange does not have.
    #[error("{what}: {value}; there are {there}")]
    NotThere {
        /// What.
        what: &'static str,
        /// Its number.
        value: usize,
        /// How many there are.
        there: usize,
    },
    /// A rank was given another configuration.
    #[error("rank {rank} was given another configuration: {what} differ")]
    Disagrees {
        /// The rank.
        rank: u32,
        /// What differs.
        what: &'static str,
    },
}
