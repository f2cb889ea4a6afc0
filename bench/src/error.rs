//! What ends a benchmark early, in one line.

use std::net::Ipv6Addr;

use crate::energy::Unreadable;
use crate::run::StageError;
use crate::run::error::{Error as RunError, Nested};
use warpbell_soft_hca::shell::HcaError;

/// Why a benchmark could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What ends an example, too.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A step of a pattern's set-up.
    #[error(transparent)]
    Pattern(#[from] warpbell_patterns::Error),
    /// The thread that drives the software HCAs.
    #[error(transparent)]
    Driver(#[from] HcaError),
    /// A UDP socket, to compare with.
    #[error("a UDP socket at the loopback device: {0}")]
    Socket(#[from] std::io::Error),
    /// A NIC whose writes cannot be late on purpose.
    #[error("--unlucky needs a NIC on a CPU thread; choose --nic soft, or soft-host with --on gpu")]
    NoLateStores,
    /// Lines of a CPU's memory that nobody locks.
    #[error(
        "--producer-line locked needs a GPU's L2 cache; choose --on gpu, or --producer-line memory"
    )]
    NoCache,
    /// A NIC whose engine is a kernel has no way to other processes.
    #[error(
        "the NIC soft-gpu reaches no other process; choose --nic soft, or soft-host with kernels on the GPU"
    )]
    Alone,
    /// A program of others, before or after its queue pair is used.
    #[error(transparent)]
    Stranger(#[from] warpbell_strangers::Error),
    /// A program of others has a device that is out of reach.
    #[error(
        "no wire leads to {gid}; run the other program on this machine, as this user, with libwarpbell_preload.so under it (LD_PRELOAD)"
    )]
    NoWire {
        /// Its GID.
        gid: Ipv6Addr,
    },
    /// A program of others does not go on.
    #[error("{program} does not go on: {why}; {remedy}")]
    Parted {
        /// The program.
        program: &'static str,
        /// What kernel or device say.
        why: String,
        /// What may help.
        remedy: &'static str,
    },
    /// A program of others has other messages.
    #[error(
        "a message of {theirs} bytes came, ours have {ours}; give both ends the same size (--size, -s)"
    )]
    OtherSize {
        /// Bytes of ours.
        ours: u64,
        /// Bytes of the message.
        theirs: u64,
    },
    /// A program of others plays on.
    #[error(
        "another message came after {ours} rounds; give both ends the same number (--rounds, -n)"
    )]
    MoreRounds {
        /// Our rounds.
        ours: u64,
    },
    /// A launcher has started more or fewer ranks than the program has.
    #[error(
        "the program has {ranks} ranks here, and {size} were started; start {ranks}, or none by a launcher"
    )]
    OtherRanks {
        /// Ranks that it has.
        ranks: u32,
        /// Ranks that were started.
        size: u32,
    },
    /// A counter of energy that could be read before.
    #[error("energy cannot be read any more: {0}")]
    Energy(#[from] Unreadable),
    /// Nothing comes to a host that drives the network.
    #[error("part {part} does not come")]
    Silent {
        /// Which part.
        part: u32,
    },
    /// A plot could not be written.
    #[error("the plot {what} cannot be written: {source}")]
    Plot {
        /// Where it should be, or what it shows.
        what: String,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Cases of which none is there.
    #[error("no case has {texts} in its name; choose one of: {known}")]
    NoCase {
        /// What was asked for.
        texts: String,
        /// All names.
        known: String,
    },
    /// What ends the benchmark of posting, in words.
    #[error("{0}")]
    Posting(String),
}

impl From<warpbell_host_init::Error> for Error {
    fn from(error: warpbell_host_init::Error) -> Self {
        Self::Run(error.into())
    }
}

impl From<StageError> for Error {
    fn from(error: StageError) -> Self {
        Self::Run(error.into())
    }
}

impl Nested for Error {
    fn own(&self) -> Option<&RunError> {
        match self {
            Self::Run(error) => Some(error),
            _ => None,
        }
    }
}
