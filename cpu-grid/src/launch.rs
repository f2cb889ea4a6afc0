//! A launch: its threads, its first failure, its time.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use warpbell_gpu::cpu::{self, LANES};

use crate::block::Block;
use crate::error::{LaneReport, LaunchError};
use crate::lane;
use crate::order::LaneOrder;
use crate::overflow::{self, SignalStack};
use crate::warp::Warp;

/// How many warps a launch may have over all its blocks. Each is a thread of the operating system, and its
/// lanes take 64 mappings of the 65,530 that Linux gives a process.
pub const MAX_WARPS: u32 = 512;

/// The threads that a block has at most.
const MAX_THREADS: u32 = 1024;

/// How many threads run a kernel, in one dimension.
///
/// ```
/// use warpbell_cpu_grid::Grid;
///
/// assert_eq!(Grid::new(4, 64).threads(), 256);
/// assert_eq!(Grid::ONE_THREAD.threads(), 1);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Blocks in the grid, at least 1.
    pub blocks: u32,
    /// Threads in each block, 1 to 1,024.
    pub threads_per_block: u32,
}

impl Grid {
    /// One thread.
    pub const ONE_THREAD: Self = Self::new(1, 1);

    /// So many blocks of so many threads.
    pub const fn new(blocks: u32, threads_per_block: u32) -> Self {
        Self {
            blocks,
            threads_per_block,
        }
    }

    /// Threads of all blocks.
    pub const fn threads(self) -> u64 {
        self.blocks as u64 * self.threads_per_block as u64
    }
}

/// How a grid is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The order in which a warp's lanes run.
    pub order: LaneOrder,
    /// How long the launch may take, 60 s unless said otherwise; `None` waits for ever.
    pub deadline: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            order: LaneOrder::default(),
            deadline: Some(Duration::from_secs(60)),
        }
    }
}

/// A launch under way, shared by its warps.
pub(crate) struct Launch {
    /// Another one for each launch of the process.
    pub(crate) number: u64,
    pub(crate) dim: Grid,
    pub(crate) order: LaneOrder,
    blocks: Vec<Block>,
    /// Set with the first failure; the warps then stop.
    cancelled: AtomicBool,
    ending: Mutex<Ending>,
    changed: Condvar,
}

/// How a launch ends.
struct Ending {
    failure: Option<LaunchError>,
    /// The lanes that had not exited when it failed.
    unfinished: Vec<LaneReport>,
    /// Warps that run.
    running: u64,
}

impl Launch {
    fn new(dim: Grid, order: LaneOrder, warps: u64) -> Self {
        // 0 is the grid of one thread outside of any launch.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            dim,
            order,
            blocks: (0..dim.blocks)
                .map(|index| Block::new(index, dim.threads_per_block))
                .collect(),
            cancelled: AtomicBool::new(false),
            ending: Mutex::new(Ending {
                failure: None,
                unfinished: Vec::new(),
                running: warps,
            }),
            changed: Condvar::new(),
        }
    }

    fn ending(&self) -> MutexGuard<'_, Ending> {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has failed, so that its warps stop.
    pub(crate) fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// For the lanes, which cannot borrow the launch.
    pub(crate) fn cancelled_flag(&self) -> *const AtomicBool {
        &raw const self.cancelled
    }

    /// Ends the launch with `error`, unless it has failed before.
    pub(crate) fn fail(&self, error: LaunchError) {
        self.ending().failure.get_or_insert(error);
        self.cancelled.store(true, Ordering::Relaxed);
        for block in &self.blocks {
            block.wake();
        }
    }

    /// Notes lanes that had not exited.
    pub(crate) fn add_unfinished(&self, lanes: Vec<LaneReport>) {
        self.ending().unfinished.extend(lanes);
    }

    /// Counts `warps` that run no longer.
    fn warps_ended(&self, warps: u64) {
        self.ending().running -= warps;
        self.changed.notify_all();
    }

    /// Waits until all warps have ended, failing the launch when `deadline` is over.
    fn watch(&self, deadline: Option<Duration>) {
        let start = Instant::now();
        let mut ending = self.ending();
        while ending.running > 0 {
            let left = deadline.map(|deadline| deadline.saturating_sub(start.elapsed()));
            ending = match left {
                Some(left) if left.is_zero() => {
                    drop(ending);
                    self.fail(LaunchError::TimedOut {
                        after: deadline.unwrap_or_default(),
                        lanes: Vec::new(),
                    });
                    return;
                }
                Some(left) => {
                    self.changed
                        .wait_timeout(ending, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                None => self
                    .changed
                    .wait(ending)
                    .unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// How it ended.
    fn end(self) -> Result<(), LaunchError> {
        let ending = self
            .ending
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        match ending.failure {
            None => Ok(()),
            Some(LaunchError::TimedOut { after, .. }) => {
                let mut lanes = ending.unfinished;
                lanes.sort_by_key(|lane| (lane.block, lane.warp, lane.lane));
                Err(LaunchError::TimedOut { after, lanes })
            }
            Some(other) => Err(other),
        }
    }
}

/// Runs `kernel` once for each thread of the grid, and returns when all have returned from it.
///
/// All blocks run at once. The kernel finds its place through [`warpbell_gpu::thread`], and meets others
/// through [`warpbell_gpu::warp`] and [`warpbell_gpu::block`].
///
/// # Errors
/// [`LaunchError`] says which lanes panicked, did not meet, or were not done in time. The other lanes are
/// then stopped where they wait: their stacks are unwound, and what they hold is dropped. A kernel that catches the
/// unwinding does not keep it: where it drops what it caught, the unwinding goes on.
///
/// # What it cannot end
/// Nobody takes a core from a thread. A loop that neither waits through `warpbell` ([`warpbell_gpu::Wait`],
/// [`warpbell_gpu::thread::nanosleep`], a meeting of its warp or block) nor reads its clock ([`warpbell_gpu::Deadline`]) runs
/// past every deadline, and this call with it: a bare `while !flag.load(…) {}` is such a loop.
///
/// A kernel that catches the unwinding again and again, and drops nothing of what it caught, ends the process with a
/// line that names its lane: what it borrows must outlive it.
pub fn launch(dim: Grid, options: Options, kernel: impl Fn() + Sync) -> Result<(), LaunchError> {
    let Grid {
        blocks,
        threads_per_block: threads,
    } = dim;
    if blocks == 0 || !(1..=MAX_THREADS).contains(&threads) {
        return Err(LaunchError::Dimensions { blocks, threads });
    }
    let warps_per_block = threads.div_ceil(LANES as u32);
    let warps = u64::from(blocks) * u64::from(warps_per_block);
    if warps > u64::from(MAX_WARPS) {
        return Err(LaunchError::TooManyWarps {
            warps,
            limit: MAX_WARPS,
        });
    }
    if lane::inside_kernel() {
        return Err(LaunchError::InsideKernel);
    }
    // SAFETY: the hooks are this grid's, which runs each lane in its own position, and keeps a block's memory until its
    // last lane has gone; the process has no other table.
    unsafe { cpu::install(&lane::HOOKS) };
    overflow::watch();

    let launch = Launch::new(dim, options.order, warps);
    thread::scope(|scope| {
        let (launch, kernel) = (&launch, &kernel);
        let mut left = warps;
        for block in &launch.blocks {
            for index in 0..warps_per_block {
                let started = thread::Builder::new()
                    .name(format!("block {} warp {index}", block.index))
                    .spawn_scoped(scope, move || {
                        let _ended = Ended(launch);
                        run_warp(launch, block, index, kernel)
                            .unwrap_or_else(|error| launch.fail(error.into()));
                    });
                if let Err(error) = started {
                    launch.fail(error.into());
                    launch.warps_ended(left);
                    return;
                }
                left -= 1;
            }
        }
        launch.watch(options.deadline);
    });
    launch.end()
}

/// Counts a warp as ended when it goes, however that comes about, because the launch waits for the count.
struct Ended<'l>(&'l Launch);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.warps_ended(1);
    }
}

fn run_warp<K: Fn() + Sync>(
    launch: &Launch,
    block: &Block,
    index: u32,
    kernel: &K,
) -> io::Result<()> {
    let _signal_stack = SignalStack::for_this_thread()?;
    Warp::new(launch, block, index, kernel)?.run();
    Ok(())
}
