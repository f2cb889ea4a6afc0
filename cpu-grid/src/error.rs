//! Why a launch did not end well.

use std::fmt;
use std::io;
use std::time::Duration;

use warpbell_gpu::cpu::{BlockOp, WarpOp};

/// What a lane was doing when the launch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It ran, or waited in a loop of its own.
    Running,
    /// It waited for the lanes of `mask` to come to the same operation.
    AtWarp {
        /// The operation it came to.
        op: WarpOp,
        /// The lanes it waited for, bit n for lane n.
        mask: u32,
    },
    /// It waited for its block to come to the same operation.
    AtBlock(BlockOp),
    /// It had returned from the kernel.
    Exited,
    /// There was no such lane: the block has fewer threads.
    Missing,
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => write!(f, "runs"),
            Self::AtWarp { op, mask } => write!(f, "waits at warp {op:?} of lanes {mask:#010x}"),
            Self::AtBlock(op) => write!(f, "waits at block {op:?}"),
            Self::Exited => write!(f, "has exited"),
            Self::Missing => write!(f, "does not exist"),
        }
    }
}

/// One lane of a launch that did not end well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneReport {
    /// Index of the block in the grid.
    pub block: u32,
    /// Index of the warp in the block.
    pub warp: u32,
    /// The lane in the warp, 0 to 31.
    pub lane: u32,
    /// What it was doing.
    pub doing: Doing,
}

impl fmt::Display for LaneReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            block,
            warp,
            lane,
            doing,
        } = self;
        write!(f, "block {block} warp {warp} lane {lane} {doing}")
    }
}

/// Why a launch did not end well. Where several lanes fail, the first one is reported.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// No blocks, or a number of threads that no block can have.
    #[error(
        "a grid of {blocks} blocks of {threads} threads: at least 1 block of 1 to 1024 threads"
    )]
    Dimensions {
        /// Blocks asked for.
        blocks: u32,
        /// Threads in each, asked for.
        threads: u32,
    },
    /// More warps than may run at once; all do, because they may wait for each other.
    #[error("{warps} warps, each a thread of the operating system: at most {limit}")]
    TooManyWarps {
        /// Warps asked for.
        warps: u64,
        /// How many there may be: [`MAX_WARPS`](crate::MAX_WARPS).
        limit: u32,
    },
    /// A kernel launched a grid.
    #[error("a kernel cannot launch a grid")]
    InsideKernel,
    /// The operating system gave no thread or no stack.
    #[error("no thread or stack for a warp")]
    Resources(#[from] io::Error),
    /// A lane panicked.
    #[error("block {block} warp {warp} lane {lane} panicked: {message}")]
    Panicked {
        /// Index of the block in the grid.
        block: u32,
        /// Index of the warp in the block.
        warp: u32,
        /// The lane in the warp.
        lane: u32,
        /// What it said.
        message: String,
    },
    /// Lanes wait for each other at operations that do not meet; a GPU would hang here or go wrong.
    #[error("lanes that do not meet: {}", listed(.0))]
    Diverged(Vec<LaneReport>),
    /// The launch's time was up.
    #[error("not done after {after:?}: {}", listed(.lanes))]
    TimedOut {
        /// The time that the launch had.
        after: Duration,
        /// The lanes that had not exited.
        lanes: Vec<LaneReport>,
    },
}

/// The first lanes of a list, and how many more there are.
fn listed(lanes: &[LaneReport]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = lanes
        .iter()
        .take(SHOWN)
        .map(LaneReport::to_string)
        .collect();
    let more = match lanes.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    shown.join(", ") + &more
}
