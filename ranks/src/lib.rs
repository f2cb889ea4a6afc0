#![doc = include_str!("../README.md")]

#[cfg(test)]
#[macro_use]
mod assert_matches;

mod address;
mod caller;
mod config;
mod environment;
mod error;
#[cfg(any(fuzzing, test))]
pub mod fuzzing;
mod hub;
mod launcher;
mod link;
mod member;
mod message;
#[cfg(feature = "mpi")]
mod mpi;
mod pmi;
mod rendezvous;
mod seat;
mod secret;
mod shared;
mod stream;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeSet;
use std::time::Duration;

pub use address::Root;
pub use config::Config;
pub use environment::Environment;
pub use error::{Collective, FailedRank, JobFailure, RanksError};
pub use launcher::Launcher;
pub use pmi::PmiFd;
pub use rendezvous::Rendezvous;
pub use secret::{SHORTEST_SECRET, Secret};

/// Most bytes that a rank brings to one [`allgather`](Bootstrap::allgather).
pub const LARGEST_CONTRIBUTION: usize = 64 * 1024;

/// Most ranks of a job.
pub const MOST_RANKS: u32 = 16_384;

/// Ranks that know each other and exchange bytes. [`Rendezvous`] does so over TCP, for the
/// processes of an MPI program, too.
///
/// All ranks make the same calls in the same order. If a call fails with [`RanksError::Failed`], it fails on all ranks, and
/// so do all later calls until all ranks that are left call [`shrink`](Self::shrink). Other errors concern the rank that
/// gets them.
///
/// # After a failure
///
/// | step | who | what |
/// |---|---|---|
/// | [`check`](Self::check), [`failed`](Self::failed) | each rank, when it likes | why the next call would fail, and which ranks have failed; do not wait |
/// | [`shrink`](Self::shrink) | all ranks that are left | they agree on who they are; later calls are theirs |
/// | [`take_in`](Self::take_in) | all ranks that take part | a new process with the number of a rank that failed takes part again |
///
/// Rank 0 serves all others. If its process ends, or does not call [`shrink`](Self::shrink) in time, the job ends on all
/// ranks with an error that says so.
pub trait Bootstrap {
    /// The number of this rank, from 0.
    fn rank(&self) -> u32;

    /// How many ranks there are.
    fn size(&self) -> u32;

    /// The number of this rank among those of its host, from 0: for example to choose a GPU.
    fn local_rank(&self) -> u32;

    /// Gives `bytes` to all ranks, and returns those of all that [take part](Self::ranks), in their order. They may have
    /// different lengths.
    ///
    /// # Errors
    /// [`RanksError::TooLong`] for more than [`LARGEST_CONTRIBUTION`] bytes; [`RanksError::Failed`] once a rank has
    /// failed, for example because it did not call within `timeout`.
    fn allgather(&mut self, bytes: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, RanksError>;

    /// Waits until all ranks are here that take part.
    ///
    /// # Errors
    /// [`RanksError::Failed`] once a rank has failed, for example because it did not call within `timeout`.
    fn barrier(&mut self, timeout: Duration) -> Result<(), RanksError>;

    /// Waits until these ranks are here, of which this is one. They alone make the call, with the same ranks.
    ///
    /// # Errors
    /// [`RanksError::NotInGroup`] for a rank that does not take part; those of [`barrier`](Self::barrier).
    fn barrier_of(&mut self, ranks: &[u32], timeout: Duration) -> Result<(), RanksError>;

    /// Lets the current or next call of each rank fail with this reason, of which at most 1,024 bytes are kept. The
    /// process may end right after it, or go on with those that are left.
    fn abort(&mut self, reason: &str);

    /// The ranks that take part, this one included, in order. At first all.
    fn ranks(&self) -> Vec<u32>;

    /// Whether the next call would fail, because a rank has failed or another one shrinks. Does not wait.
    ///
    /// # Errors
    /// [`RanksError::Failed`].
    fn check(&mut self) -> Result<(), RanksError>;

    /// The ranks that have failed, as far as this rank knows, and those that do not take part. Does not wait.
    fn failed(&mut self) -> BTreeSet<u32>;

    /// Goes on with the ranks that are left: those that call this within `timeout` after the first one. Their calls fail
    /// no more, and wait for no others. Ranks that have not failed make their current or next call in vain, and then call
    /// this, too.
    ///
    /// # Errors
    /// [`RanksError::Failed`] if rank 0 is gone or late, or if the others have gone on without this rank.
    fn shrink(&mut self, timeout: Duration) -> Result<(), RanksError>;

    /// Takes a new process in, which has [joined](Rendezvous::join) with the number of a rank that failed. All that take
    /// part call this, and it waits until the process has come, too.
    ///
    /// # Errors
    /// [`RanksError::NotBack`] on all ranks if it has not come within `timeout`: they go on without it;
    /// [`RanksError::RankOutOfRange`]; those of [`barrier`](Self::barrier).
    fn take_in(&mut self, rank: u32, timeout: Duration) -> Result<(), RanksError>;

    /// Whether this process came in the place of one that failed, and was taken in.
    fn has_returned(&self) -> bool;
}
