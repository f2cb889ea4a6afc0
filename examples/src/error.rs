//! What ends an example early, in one line.

use std::net::Ipv6Addr;
use std::path::PathBuf;

use warpbell_host_init::GpuError;
use warpbell_host_init::args::NodeError;
use warpbell_kernels::outcome::Failure;
use warpbell_ptx::PtxError;
use warpbell_soft_hca::shell::HcaError;

/// Why an example could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A step of start-up.
    #[error(transparent)]
    Setup(#[from] warpbell_host_init::Error),
    /// A step of a pattern's set-up.
    #[error(transparent)]
    Pattern(#[from] warpbell_patterns::Error),
    /// The thread that drives the software HCAs.
    #[error(transparent)]
    Driver(#[from] HcaError),
    /// Options that choose no node.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// More GPUs than ranks.
    #[error(
        "{ranks} ranks leave some of {gpus} GPUs without any; choose more --ranks, or fewer --gpus"
    )]
    IdleGpu {
        /// How many ranks.
        ranks: u32,
        /// How many GPUs.
        gpus: usize,
    },
    /// A NIC whose writes cannot be late on purpose.
    #[error(
        "only a NIC on a CPU thread can be unlucky; choose --nic soft, or soft-host with --on gpu"
    )]
    NoLateStores,
    /// A NIC whose requests nobody can look at.
    #[error(
        "only a NIC on a CPU thread can be watched; choose --nic soft, or soft-host with --on gpu"
    )]
    NoWatch,
    /// The built-in kernels do not suit the GPU.
    #[error(transparent)]
    Ptx(#[from] PtxError),
    /// A file of kernels that cannot be read.
    #[error("the kernels {} cannot be read: {source}", path.display())]
    UnreadablePtx {
        /// Where it should be.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file without any of the kernels.
    #[error("{} has none of the kernels; cargo xtask ptx builds them", path.display())]
    ForeignPtx {
        /// The file.
        path: PathBuf,
    },
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
    /// A part of a batch or message that is not whole.
    #[error("{bytes} bytes do not make {parts} parts of whole {what} of {unit} bytes; choose a multiple of {}", u64::from(*parts) * unit)]
    Uneven {
        /// What was to be divided.
        bytes: u64,
        /// Into how many.
        parts: u32,
        /// What a part is made of.
        what: &'static str,
        /// Bytes of one.
        unit: u64,
    },
    /// A file with a picture that cannot be read or written.
    #[error("the picture {} cannot be served: {why}", path.display())]
    NoPicture {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// Blocks, threads or queues that do not suffice.
    #[error("{what}")]
    Unfit {
        /// For what, and what would do.
        what: String,
    },
    /// Recursive doubling of ranks without partners.
    #[error(
        "recursive doubling takes a power of two of ranks, not {ranks}; choose --algorithms ring, or other --ranks"
    )]
    NotPowerOfTwo {
        /// How many there are.
        ranks: u32,
    },
    /// More blocks than run at the same time.
    #[error(
        "{ranks} ranks of {blocks} blocks are more than the {limit} blocks that run at the same time for certain; choose fewer"
    )]
    Crowded {
        /// How many ranks.
        ranks: u32,
        /// Blocks of each.
        blocks: u32,
        /// The most of all.
        limit: u32,
    },
    /// A rank that is not there.
    #[error("there is no rank {rank} among {ranks}, which are counted from 0")]
    NoSuchRank {
        /// Which one.
        rank: u32,
        /// How many there are.
        ranks: u32,
    },
    /// More memory than a kernel's numbers of words name.
    #[error(
        "a rank would take {bytes} bytes; choose smaller vectors, or fewer sums of a repetition"
    )]
    TooLarge {
        /// Bytes of a rank.
        bytes: u64,
    },
    /// Nothing comes to a host that drives the network.
    #[error("part {part} does not come")]
    Silent {
        /// Which part.
        part: u32,
    },
    /// All events of a stream came before those that count.
    #[error("none of {events} events counts; give more time, or a higher rate")]
    NoneCounts {
        /// Events sent.
        events: u64,
    },
    /// Ctrl-C.
    #[error("interrupted; what was measured before is shown")]
    Interrupted,
    /// A kernel said why it stopped.
    #[error("{what}: {failure}")]
    Kernel {
        /// What it was to do.
        what: String,
        /// Why it did not.
        failure: Failure,
    },
    /// A plot could not be written.
    #[error("the plot {what} cannot be written: {source}")]
    Plot {
        /// Where it should be, or what it shows.
        what: String,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A page could not be written.
    #[error("the page {} cannot be written: {source}", path.display())]
    Page {
        /// Where it should be.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The output could not be written as JSON.
    #[error("the result cannot be written: {0}")]
    Json(#[from] serde_json::Error),
    /// Bytes or numbers differ from what they should be.
    #[error("{wrong} of {checks} checks failed")]
    Wrong {
        /// Checks that failed.
        wrong: usize,
        /// Checks made.
        checks: usize,
    },
}

impl From<GpuError> for Error {
    fn from(error: GpuError) -> Self {
        Self::Setup(error.into())
    }
}

impl Error {
    /// The error of a run with wrong checks, if there are any.
    ///
    /// # Errors
    /// [`Error::Wrong`] if there are.
    pub fn if_wrong(wrong: usize, checks: usize) -> Result<(), Self> {
        match wrong {
            0 => Ok(()),
            _ => Err(Self::Wrong { wrong, checks }),
        }
    }
}
