//! The other end is an unmodified program of somebody else's.

pub mod perftest;
pub mod pingpong;

use std::net::{IpAddr, Ipv6Addr};

use crate::run::StageError;
use clap::Args;
use warpbell::{PostError, WaitError};
use warpbell_host_init::QueuePair;
use warpbell_host_init::state::{CardPort, Endpoint};
use warpbell_kernels::outcome::Failure;

use crate::Error;
use crate::parse::parse_message;

/// Where the other program is, and what it was told.
#[derive(Clone, Debug, Args)]
pub struct Other {
    /// With --peer: the other program's host
    #[arg(requires = "peer")]
    pub host: Option<String>,
    /// With --peer: the TCP port (its -p)
    #[arg(long, requires = "peer", default_value_t = 18515)]
    pub port: u16,
    /// With --peer, as server: the address to listen at; 0.0.0.0 or :: lets other machines in
    #[arg(
        long,
        value_name = "ADDRESS",
        requires = "peer",
        default_value = "127.0.0.1"
    )]
    pub bind: IpAddr,
    /// With --peer: size of a message (its -s); by default what it has by default
    #[arg(long, value_name = "BYTES", requires = "peer", value_parser = parse_message::<{ 1 << 30 }>)]
    pub size: Option<u64>,
}

/// Why the game with a program of others has ended before its time: the device knows it, or the kernel.
fn parted(
    program: &'static str,
    remedy: &'static str,
    pair: &QueuePair,
    failure: Failure,
) -> Error {
    use {Failure::Post, Failure::Wait};
    let too_late = matches!(
        failure,
        Post(PostError::Deadline) | Wait(WaitError::Deadline)
    );
    if !too_late && failure.queue_error().is_none() {
        // Ours alone: a request that no queue takes.
        let what = format!("the kernel that meets {program}");
        return StageError::Kernel { what, failure }.into();
    }
    // A queue pair in error flushes what the kernel waits for, which then has no more to tell.
    let why = match pair.nic_error() {
        Ok(Some(error)) => error.to_string(),
        _ => failure.to_string(),
    };
    Error::Parted {
        program,
        why,
        remedy,
    }
}

/// Why a queue is not to be had: the other end may have sent what does not fit before ours has begun, and then the
/// device knows why the queue pair is in error.
fn unready(
    program: &'static str,
    remedy: &'static str,
    pair: &QueuePair,
    error: warpbell_host_init::Error,
) -> Error {
    match pair.nic_error() {
        Ok(Some(nic)) => Error::Parted {
            program,
            why: nic.to_string(),
            remedy,
        },
        _ => error.into(),
    }
}

/// The other program's port: of the same kind as ours, where that is a card's. In either direction it has that many reads
/// under way.
fn port(ours: &Endpoint, lid: u16, mtu: u32, reads: u16) -> Option<CardPort> {
    ours.card.map(|card| CardPort {
        lid,
        mtu,
        reads_asked: reads,
        reads_answered: reads,
        ..card
    })
}

/// Connects a queue pair with the other program's.
fn connect(pair: &mut QueuePair, theirs: &Endpoint) -> Result<(), Error> {
    pair.connect(theirs).map_err(|error| match error {
        warpbell_host_init::Error::Unreachable { gid } => Error::NoWire {
            gid: Ipv6Addr::from(gid.0),
        },
        other => other.into(),
    })
}
