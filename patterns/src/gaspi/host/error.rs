//! What is refused when a GASPI program is set up.

/// Why a step of a GASPI program's set-up was refused. Nothing of it has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GaspiError {
    /// No ranks, or too many.
    #[error("{ranks} ranks; a program has 1 to {limit}")]
    Ranks {
        /// How many were asked for.
        ranks: usize,
        /// The most.
        limit: u32,
    },
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
    /// A queue in which a write and its notification never have room together.
    #[error("queues of depth {depth} are too short for `write_notify`; choose 4 or more")]
    TooShallow {
        /// The depth asked for.
        depth: u32,
    },
    /// There is no such rank.
    #[error("there is no rank {rank}; there are {ranks}, from 0")]
    NoSuchRank {
        /// The number.
        rank: u32,
        /// How many there are.
        ranks: u32,
    },
    /// There is no such queue.
    #[error("there is no queue {queue}; there are {queues}, from 0")]
    NoSuchQueue {
        /// The number.
        queue: u32,
        /// How many there are.
        queues: u32,
    },
    /// There is no such segment, or no place for it.
    #[error("there is no segment {segment}; create it, with a number below {limit}")]
    NoSuchSegment {
        /// The number.
        segment: u32,
        /// Places for segments.
        limit: u32,
    },
    /// There is no such group.
    #[error("there is no group {group}; create it first")]
    NoSuchGroup {
        /// The number.
        group: u32,
    },
    /// The group cannot change any more.
    #[error("group {group} is committed already; create another one")]
    GroupCommitted {
        /// The number.
        group: u32,
    },
    /// The group has no barrier yet.
    #[error("group {group} is not committed; commit it at all of its ranks")]
    GroupNotCommitted {
        /// The number.
        group: u32,
    },
    /// The segment is there already.
    #[error("segment {segment} is there already; delete it first, or take another number")]
    SegmentExists {
        /// The number.
        segment: u32,
    },
}
