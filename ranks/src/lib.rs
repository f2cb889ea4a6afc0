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
mod message;
mod pmi;
mod rendezvous;
mod secret;
mod stream;
#[cfg(test)]
mod tests;
mod wire;

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

/// Ranks that know each other and exchange bytes. [`Rendezvous`] does so over TCP; a program that uses MPI can implement
/// it with MPI.
///
/// All ranks make the same calls in the same order. If a call fails with [`RanksError::Failed`], it fails on all ranks, and
/// so do all later calls. [`RanksError::TooLong`] concerns the rank that gets it.
pub trait Bootstrap {
    /// The number of this rank, from 0.
    fn rank(&self) -> u32;

    /// How many ranks there are.
    fn size(&self) -> u32;

    /// The number of this rank among those of its host, from 0: for example to choose a GPU.
    fn local_rank(&self) -> u32;

    /// Gives `bytes` to all ranks, and returns those of all, by rank. They may have different lengths.
    ///
    /// # Errors
    /// [`RanksError::TooLong`] for more than [`LARGEST_CONTRIBUTION`] bytes; [`RanksError::Failed`] once the job has
    /// failed, for example because a rank did not call within `timeout`.
    fn allgather(&mut self, bytes: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, RanksError>;

    /// Waits until all ranks are here.
    ///
    /// # Errors
    /// [`RanksError::Failed`] once the job has failed, for example because a rank did not call within `timeout`.
    fn barrier(&mut self, timeout: Duration) -> Result<(), RanksError>;

    /// Ends the job: the current or next call of each rank fails with this reason, of which at most 1,024 bytes are
    /// kept. The process may end right after it.
    fn abort(&mut self, reason: &str);
}
