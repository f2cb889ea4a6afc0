//! What ends an application early, in one line.

use std::path::PathBuf;

use warpbell_bench::cause::Vain;
use warpbell_bench::energy::Unreadable;
use warpbell_bench::error::Error as BenchError;
use warpbell_bench::run::StageError;
use warpbell_bench::run::error::{Error as RunError, Nested};

/// Why an application could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What ends a benchmark, too.
    #[error(transparent)]
    Bench(#[from] BenchError),
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
    /// A network that kernels cannot walk.
    #[error(transparent)]
    Plan(#[from] crate::serving::PlanError),
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
    /// A driver alone, where a launcher has started several processes.
    #[error(
        "--driver-alone measures in one process, and a launcher has started several; start one, or leave --driver-alone out"
    )]
    AloneAmongRanks,
    /// Recursive doubling of ranks without partners.
    #[error(
        "recursive doubling needs a number of ranks that is a power of two, not {ranks}; choose --algorithms ring, or other --ranks"
    )]
    NotPowerOfTwo {
        /// How many there are.
        ranks: u32,
    },
    /// More blocks than run at the same time.
    #[error(
        "{ranks} ranks of {blocks} blocks are more than the {limit} blocks that are certain to run at the same time; choose fewer"
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
    /// All events of a stream came before those that count.
    #[error("none of {events} events counts; give more time, or a higher rate")]
    NoneCounts {
        /// Events sent.
        events: u64,
    },
    /// A page could not be written.
    #[error("the page {} cannot be written: {source}", path.display())]
    Page {
        /// Where it should be.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

impl Error {
    /// Another rank takes no part in what all do.
    pub(crate) fn other_program() -> Self {
        let what = "another rank does something else; run the same program with the same options on all ranks";
        Self::Unfit { what: what.into() }
    }
}

impl Nested for Error {
    fn own(&self) -> Option<&RunError> {
        match self {
            Self::Bench(error) => error.own(),
            _ => None,
        }
    }
}

impl Vain for Error {
    fn is_vain(&self) -> bool {
        matches!(self, Self::Bench(error) if error.is_vain())
    }
}

macro_rules! from_inner {
    ($($inner:ty)*) => {
        $(impl From<$inner> for Error {
            fn from(error: $inner) -> Self {
                Self::Bench(error.into())
            }
        })*
    };
}

from_inner! { RunError StageError Unreadable warpbell_host_init::Error warpbell_patterns::Error }
