//! Schedules in GOAL, the text form of LogGOPSim: what each rank sends, receives and computes, and in which order.
//!
//! ```text
//! num_ranks 2
//! rank 0 {
//!   work: calc 100
//!   put: send 8b to 1 tag 0
//!   put requires work
//! }
//! rank 1 {
//!   got: recv 8b from 0 tag 0
//! }
//! ```
//!
//! A statement ends with a line or a semicolon. Labels are optional, and a tag that is left out is 0. `requires` waits
//! until another operation ends, `irequires` until it starts. `calc` takes nanoseconds, and `cpu N` puts it on the rank's
//! stream N, which runs one `calc` at a time. `nic 0` is allowed, because a node has one NIC. `//` and `#` start a
//! comment.
//!
//! Four things of LogGOPSim's form are not read: `from -1` (any source), `tag -1` (any tag), comments in `/* */`, and a
//! size with a space (`8 b`). Each ends with a named error. LogGOPSim itself has neither semicolons nor `#`.
//!
//! [`Schedule::check`] pairs each message with its receive: messages of one source, destination and tag go with their
//! receives in the order of the text.

mod check;
mod parse;

use std::fmt;

pub use check::{Followers, Program, Rank};

/// The longest message of a queue pair (bytes), as `mlx5_wqe::decode::MAX_MESSAGE_LENGTH`.
pub const LONGEST_MESSAGE: u64 = 1 << 30;
/// The longest `calc` (ns): 1,000 s.
pub const LONGEST_CALC: u64 = 1_000_000_000_000;
/// The most ranks of a schedule.
pub const MOST_RANKS: u32 = 65_536;
/// The most streams of a rank.
pub const MOST_STREAMS: u32 = 256;

/// One operation of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Puts a message into another rank's memory, and notifies it.
    Send {
        /// Its length (bytes).
        bytes: u64,
        /// The rank that receives.
        to: u32,
        /// Pairs it with a receive.
        tag: u32,
    },
    /// Waits for a message.
    Receive {
        /// The room for it (bytes).
        bytes: u64,
        /// The rank that sends.
        from: u32,
        /// Pairs it with a send.
        tag: u32,
    },
    /// Computes.
    Calc {
        /// How long (ns), without launch and teardown.
        nanoseconds: u64,
        /// The stream it runs on.
        stream: u32,
    },
}

/// The operations of one rank and their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    operations: Vec<Operation>,
    /// Pairs of an operation and the one that has to end before it.
    requires: Vec<(u32, u32)>,
    /// Pairs of an operation and the one that has to start before it.
    irequires: Vec<(u32, u32)>,
    /// The line of each operation, if they come from a text.
    lines: Vec<u32>,
}

impl Steps {
    /// Adds an operation after those that it requires, and gives its number.
    pub fn add(&mut self, operation: Operation, requires: &[u32]) -> u32 {
        let number = self.operations.len() as u32;
        self.operations.push(operation);
        let pairs = requires.iter().map(|earlier| (number, *earlier));
        self.requires.extend(pairs);
        number
    }

    /// Its operations.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The line of an operation; 0 if it comes from no text.
    fn line(&self, operation: u32) -> u32 {
        self.lines.get(operation as usize).copied().unwrap_or(0)
    }
}

/// What all ranks do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    ranks: Vec<Steps>,
}

impl Schedule {
    /// A schedule of so many ranks that do nothing yet.
    pub fn new(ranks: usize) -> Self {
        Self {
            ranks: vec![Steps::default(); ranks],
        }
    }

    /// The ranks.
    pub fn ranks(&self) -> &[Steps] {
        &self.ranks
    }

    /// A rank.
    ///
    /// # Panics
    ///
    /// If there is no such rank.
    pub fn rank(&mut self, rank: usize) -> &mut Steps {
        &mut self.ranks[rank]
    }

    /// How many operations all ranks have.
    pub fn operations(&self) -> usize {
        self.ranks.iter().map(|rank| rank.operations.len()).sum()
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "num_ranks {}", self.ranks.len())?;
        for (number, rank) in self.ranks.iter().enumerate() {
            writeln!(f, "rank {number} {{")?;
            for (label, operation) in rank.operations.iter().enumerate() {
                write!(f, "l{label}: ")?;
                match operation {
                    Operation::Send { bytes, to, tag } => {
                        writeln!(f, "send {bytes}b to {to} tag {tag}")?;
                    }
                    Operation::Receive { bytes, from, tag } => {
                        writeln!(f, "recv {bytes}b from {from} tag {tag}")?;
                    }
                    Operation::Calc {
                        nanoseconds,
                        stream,
                    } => writeln!(f, "calc {nanoseconds} cpu {stream}")?,
                }
            }
            for (later, earlier) in &rank.requires {
                writeln!(f, "l{later} requires l{earlier}")?;
            }
            for (later, earlier) in &rank.irequires {
                writeln!(f, "l{later} irequires l{earlier}")?;
            }
            writeln!(f, "}}")?;
        }
        Ok(())
    }
}

/// Why a schedule is refused. Each error names the line; line 0 stands for a schedule that no text gave.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A word that does not belong there.
    #[error("line {line}: expected {expected}, found {found}")]
    Syntax {
        /// Where.
        line: u32,
        /// What could stand there.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// No ranks.
    #[error("line {line}: 0 ranks; a schedule has 1 to {MOST_RANKS}")]
    NoRanks {
        /// Where.
        line: u32,
    },
    /// A rank that does not exist.
    #[error("line {line}: there is no rank {rank}; the last one is {}", ranks - 1)]
    NoSuchRank {
        /// Where.
        line: u32,
        /// Which.
        rank: String,
        /// How many ranks there are.
        ranks: u32,
    },
    /// A second block of the same rank.
    #[error("line {line}: rank {rank} has a block already")]
    RankTwice {
        /// Where.
        line: u32,
        /// Which.
        rank: u32,
    },
    /// A label that no operation of the rank has.
    #[error("line {line}: no operation of this rank is labelled {label}")]
    UnknownLabel {
        /// Where.
        line: u32,
        /// Which.
        label: String,
    },
    /// A label that another operation of the rank has.
    #[error("line {line}: another operation of this rank is labelled {label}")]
    LabelTwice {
        /// Where.
        line: u32,
        /// Which.
        label: String,
    },
    /// A size, time or number that is too large.
    #[error("line {line}: {quantity} {value} is out of range; the greatest is {greatest}")]
    OutOfRange {
        /// Where.
        line: u32,
        /// What.
        quantity: &'static str,
        /// How much.
        value: String,
        /// The most.
        greatest: u64,
    },
    /// A message from a rank to itself.
    #[error("line {line}: rank {rank} sends a message to itself")]
    ToItself {
        /// Where.
        line: u32,
        /// Which.
        rank: u32,
    },
    /// A send without a receive.
    #[error("line {line}: rank {to} has no receive for this message of rank {from} with tag {tag}")]
    MissingReceive {
        /// Where the send stands.
        line: u32,
        /// Who sends.
        from: u32,
        /// Who should receive.
        to: u32,
        /// The tag.
        tag: u32,
    },
    /// A receive without a send.
    #[error(
        "line {line}: rank {from} sends no message to rank {to} with tag {tag} for this receive"
    )]
    MissingSend {
        /// Where the receive stands.
        line: u32,
        /// Who should send.
        from: u32,
        /// Who receives.
        to: u32,
        /// The tag.
        tag: u32,
    },
    /// A receive with less room than its message takes.
    #[error("line {line}: room for {room} bytes, but the message of line {sender} has {bytes}")]
    TooLittleRoom {
        /// Where the receive stands.
        line: u32,
        /// Where the send stands.
        sender: u32,
        /// The receive's bytes.
        room: u64,
        /// The message's bytes.
        bytes: u64,
    },
    /// Operations that wait for each other.
    #[error("line {line}: this operation of rank {rank} waits for itself, by way of others")]
    Cycle {
        /// Where one of them stands.
        line: u32,
        /// Whose it is.
        rank: u32,
    },
}
