//! Schedules of the papers' workloads.

mod reduce;
pub mod training;

use clap::ValueEnum;

use crate::goal::{Operation, Schedule, Steps};

/// The most chunks of a rank's data.
pub const MOST_PIECES: u64 = 1 << 24;

/// How an all-reduce goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Algorithm {
    /// Parts go round, first summed and then copied: 2 (N - 1) steps of an N-th each.
    Ring,
    /// In each of log2 N steps pairs exchange everything.
    Doubling,
    /// Up a binomial tree to rank 0, and down again.
    Tree,
}

/// Why no schedule is made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Doubling needs pairs in each step.
    #[error("recursive doubling needs a power of two of ranks, not {0}")]
    PowerOfTwo(u32),
    /// Too few or too many ranks.
    #[error("{0} ranks; this workload has 2 to 65,536")]
    RankCount(u32),
    /// A chunk of no bytes.
    #[error("a chunk has at least 1 byte")]
    EmptyChunk,
    /// A reduction of too many pieces.
    #[error("the data of a rank has {0} chunks; at most {MOST_PIECES} are possible")]
    Pieces(u64),
    /// Rows that cannot be shared out.
    #[error("{rows} rows for {ranks} ranks: each rank needs one")]
    Rows {
        /// How many rows.
        rows: u64,
        /// How many ranks.
        ranks: u32,
    },
    /// A message that is too long.
    #[error("a message of {0} bytes; the longest has {longest}", longest = crate::goal::LONGEST_MESSAGE)]
    MessageLength(u64),
    /// A line of a table of layers.
    #[error("line {line}: {reason}")]
    Layers {
        /// Where.
        line: usize,
        /// What is wrong.
        reason: String,
    },
}

/// A sum over all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reduction {
    /// How it goes.
    pub algorithm: Algorithm,
    /// The bytes of each rank.
    pub bytes: u64,
    /// The most bytes of a message.
    pub chunk: u64,
    /// Bytes that a GPU's memory moves in a nanosecond: a sum reads two values and writes one.
    pub memory: f64,
}

/// Checks what all workloads need.
fn checked(ranks: u32) -> Result<Schedule, Error> {
    match (2..=crate::goal::MOST_RANKS).contains(&ranks) {
        true => Ok(Schedule::new(ranks as usize)),
        false => Err(Error::RankCount(ranks)),
    }
}

/// Rank 0 runs an empty kernel and puts `bytes` into the memory of rank 1: the latency benchmark of paper 003.
///
/// # Errors
///
/// [`Error::MessageLength`].
pub fn put(bytes: u64) -> Result<Schedule, Error> {
    if bytes > crate::goal::LONGEST_MESSAGE {
        return Err(Error::MessageLength(bytes));
    }
    let mut schedule = Schedule::new(2);
    let kernel = calc(schedule.rank(0), 0.0, 0, &[]);
    send(schedule.rank(0), bytes, 1, &[kernel]);
    receive(schedule.rank(1), bytes, 0, &[]);
    Ok(schedule)
}

/// Each rank reduces once.
///
/// # Errors
///
/// [`Error::RankCount`], [`Error::PowerOfTwo`], [`Error::EmptyChunk`], [`Error::Pieces`] or [`Error::MessageLength`].
pub fn all_reduce(ranks: u32, reduction: &Reduction) -> Result<Schedule, Error> {
    let mut schedule = checked(ranks)?;
    let before = vec![Vec::new(); ranks as usize];
    reduce::add(&mut schedule, reduction, 0, &before)?;
    Ok(schedule)
}

/// Each rank sends `bytes` to each other rank, beginning with its neighbour.
///
/// # Errors
///
/// [`Error::RankCount`] or [`Error::MessageLength`].
pub fn all_to_all(ranks: u32, bytes: u64) -> Result<Schedule, Error> {
    let mut schedule = checked(ranks)?;
    if bytes > crate::goal::LONGEST_MESSAGE {
        return Err(Error::MessageLength(bytes));
    }
    for rank in 0..ranks {
        let steps = schedule.rank(rank as usize);
        for distance in 1..ranks {
            send(steps, bytes, (rank + distance) % ranks, &[]);
            receive(steps, bytes, (rank + ranks - distance) % ranks, &[]);
        }
    }
    Ok(schedule)
}

/// A square of `side` × `side` cells of 8 bytes, shared out by rows. In each step each rank computes its cells, sends
/// its first and last row to its neighbours, and waits for theirs.
///
/// A cell reads one value from memory and writes one; its neighbours are in a cache.
///
/// # Errors
///
/// [`Error::RankCount`], [`Error::Rows`] or [`Error::MessageLength`].
pub fn jacobi(ranks: u32, side: u64, steps: u32, memory: f64) -> Result<Schedule, Error> {
    const CELL: u64 = 8;
    let mut schedule = checked(ranks)?;
    if side < u64::from(ranks) {
        return Err(Error::Rows { rows: side, ranks });
    }
    let row = side.saturating_mul(CELL);
    if row > crate::goal::LONGEST_MESSAGE {
        return Err(Error::MessageLength(row));
    }
    for rank in 0..ranks {
        let rows = share(side, rank, ranks);
        let nanoseconds = (2 * CELL * rows * side) as f64 / memory;
        let neighbours = [rank.checked_sub(1), Some(rank + 1)];
        let neighbours = neighbours
            .into_iter()
            .flatten()
            .filter(|other| *other < ranks);
        let here = schedule.rank(rank as usize);
        let mut before = Vec::new();
        for _ in 0..steps {
            let computed = calc(here, nanoseconds, 0, &before);
            before = vec![computed];
            for other in neighbours.clone() {
                send(here, row, other, &[computed]);
                before.push(receive(here, row, other, &[computed]));
            }
        }
    }
    Ok(schedule)
}

/// The share of one of several, where it does not divide.
fn share(all: u64, number: u32, count: u32) -> u64 {
    let until = |number: u64| (u128::from(all) * u128::from(number) / u128::from(count)) as u64;
    until(u64::from(number) + 1) - until(u64::from(number))
}

fn calc(steps: &mut Steps, nanoseconds: f64, stream: u32, requires: &[u32]) -> u32 {
    let nanoseconds = nanoseconds.round() as u64;
    let operation = Operation::Calc {
        nanoseconds,
        stream,
    };
    steps.add(operation, requires)
}

fn send(steps: &mut Steps, bytes: u64, to: u32, requires: &[u32]) -> u32 {
    steps.add(Operation::Send { bytes, to, tag: 0 }, requires)
}

fn receive(steps: &mut Steps, bytes: u64, from: u32, requires: &[u32]) -> u32 {
    let operation = Operation::Receive {
        bytes,
        from,
        tag: 0,
    };
    steps.add(operation, requires)
}
