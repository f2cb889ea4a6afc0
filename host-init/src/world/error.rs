//! Why ranks did not start together.

use warpbell_ranks::RanksError;
#[cfg(feature = "soft")]
use warpbell_soft_hca::shell::roce::AddressesError;

use super::WireKind;
use crate::Error;

/// Why the ranks of a job could not start together. Each variant names the rank that it is about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorldError {
    /// The ranks did not find each other, or lost each other.
    #[error(transparent)]
    Ranks(#[from] RanksError),
    /// A variable of the environment has a value that it cannot have.
    #[error("{variable} is {value:?}; it must be {expected}")]
    BadValue {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What is expected.
        expected: &'static str,
    },
    /// The addresses that were named are not there, or not these.
    #[cfg(feature = "soft")]
    #[error("WARPBELL_ADDRESS: {0}")]
    BadAddress(#[from] AddressesError),
    /// Another rank has another wire than this one.
    #[error(
        "rank {rank} wants {theirs}, and rank 0 {ours}; give all ranks the same WARPBELL_WIRE and the same kind of NIC"
    )]
    OtherWire {
        /// The rank.
        rank: u32,
        /// What it wants.
        theirs: String,
        /// What rank 0 wants.
        ours: String,
    },
    /// Shared memory was asked for, and these two ranks have none.
    #[error(
        "ranks {rank} and {other} share no memory, because they differ in machine, network namespace or user; leave WARPBELL_WIRE out"
    )]
    NotOneMachine {
        /// This rank.
        rank: u32,
        /// The other one.
        other: u32,
    },
    /// No address of this rank suits the others.
    #[error(
        "rank {rank} has no IP address at which the others could reach it (it has {}); name an address, a network or an interface in WARPBELL_ADDRESS",
        if .found.is_empty() { "none" } else { .found }
    )]
    NoAddress {
        /// The rank.
        rank: u32,
        /// The addresses among which it could choose.
        found: String,
    },
    /// A rank listens on loopback, and another rank is on another machine.
    #[error(
        "rank {rank} can be reached only within its machine, at {found}, and rank {other} is on another one. Start rank {other} on the machine of rank {rank}, or start all ranks with a network of both machines in WARPBELL_ADDRESS"
    )]
    Loopback {
        /// The rank on loopback.
        rank: u32,
        /// Its addresses.
        found: String,
        /// The rank on another machine.
        other: u32,
    },
    /// The NIC of this rank has no wire to other processes.
    #[error(
        "the NIC {nic} of rank {rank} has no wire to other ranks; choose soft for kernels on CPU threads, soft-host for those on a GPU, or a card"
    )]
    NoWire {
        /// This rank.
        rank: u32,
        /// Its NIC.
        nic: String,
    },
    /// The ranks were to be connected, and one of two wants no queue pair with the other.
    #[error(
        "rank {rank} wants a queue pair with rank {other}, and rank {other} none with rank {rank}; let both name each other"
    )]
    OneSided {
        /// The rank that wants one.
        rank: u32,
        /// The rank that wants none.
        other: u32,
    },
    /// A neighbour that this rank cannot have.
    #[error(
        "rank {neighbour} cannot be a neighbour of rank {rank} among {size} ranks; name others"
    )]
    NoNeighbour {
        /// This rank.
        rank: u32,
        /// The neighbour asked for.
        neighbour: u32,
        /// How many ranks there are.
        size: u32,
    },
    /// A neighbour that has failed.
    #[error(
        "rank {rank} has failed, and does not take part; name ranks that do, or take it in again"
    )]
    LeftOut {
        /// The rank.
        rank: u32,
    },
    /// The queue pair with this rank could not be connected.
    #[error("the queue pair with rank {rank}, over {wire}, cannot be connected: {source}")]
    Connect {
        /// The rank.
        rank: u32,
        /// The wire to it.
        wire: WireKind,
        /// Why.
        source: Box<Error>,
    },
    /// What this rank gave is not what was expected.
    #[error(
        "rank {rank} gave something else than expected: {reason}; run the same program, in the same version, on all ranks"
    )]
    Malformed {
        /// The rank.
        rank: u32,
        /// What is wrong.
        reason: String,
    },
    /// A value to exchange that is too long.
    #[error("a value of {bytes} bytes, at most {limit} are allowed; exchange it in pieces")]
    TooLong {
        /// Bytes as JSON.
        bytes: usize,
        /// The most bytes.
        limit: usize,
    },
}
