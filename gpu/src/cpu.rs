//! What a GPU gives a kernel, as a table of functions for a kernel on a CPU.
//!
//! This crate has no std, so it starts no threads: a CPU grid (the package `warpbell-cpu-grid`, or one of
//! your own) fills in [`Hooks`] and [`install`]s them. Without one, every caller is a grid of one block of
//! one thread, and the clock advances by 100 ns with every look at it, so that deadlines still end.

use core::alloc::Layout;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Lanes in a warp.
pub const LANES: usize = 32;

/// Where the calling thread stands in its grid, which has one dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Index of the thread in its block, 0 to `threads` - 1.
    pub thread: u32,
    /// Threads in each block, 1 to 1,024.
    pub threads: u32,
    /// Index of the block in the grid, 0 to `blocks` - 1.
    pub block: u32,
    /// Blocks in the grid, at least 1.
    pub blocks: u32,
    /// The grid's number: no two that run at the same time have the same.
    pub grid: u64,
}

/// Which warp-wide operation a lane has come to; lanes that meet must have come to the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarpOp {
    /// [`warp::sync_warp`](crate::warp::sync_warp).
    Sync,
    /// A vote: all, any, ballot.
    Vote,
    /// A comparison of each lane's value with every other's.
    Match,
    /// A shuffle from a given lane.
    ShuffleIdx,
    /// A shuffle from a lower lane.
    ShuffleUp,
    /// A shuffle from a higher lane.
    ShuffleDown,
    /// A shuffle from the lane whose index differs in given bits.
    ShuffleXor,
}

/// Which block-wide operation a thread has come to; threads that meet must have come to the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockOp {
    /// A barrier; threads that have exited are not waited for.
    Sync,
    /// A barrier that counts a predicate; threads that have exited are not waited for.
    Count,
    /// Thread 0's value for all; every thread of the block must come.
    Broadcast,
    /// Each thread's rank; every thread of the block must come.
    Rank,
}

/// What a thread learns when its block has met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockMeeting {
    /// The value that thread 0 brought; 0 where thread 0 has exited.
    pub first: u64,
    /// How many threads of a lower index brought a value other than 0.
    pub before: u32,
    /// How many threads brought a value other than 0.
    pub count: u32,
    /// How many threads came.
    pub threads: u32,
}

/// What a CPU grid offers the kernels that run in it. Each function acts for the calling lane.
#[derive(Debug, Clone, Copy)]
pub struct Hooks {
    /// Where the caller stands.
    pub position: fn() -> Position,
    /// Waits until every lane of `mask` (bit n is lane n, the caller's own among them) has come to the
    /// same operation with the same mask, and returns what each brought; 0 for lanes outside of the mask.
    pub meet_warp: fn(op: WarpOp, mask: u32, value: u64) -> [u64; LANES],
    /// Waits until the block has come to the same operation, and returns what it brought.
    pub meet_block: fn(op: BlockOp, value: u64) -> BlockMeeting,
    /// Memory of the caller's block for an array of the given layout: the same for all its threads, another
    /// for every `place`, which is told by its address. It holds anything at first, and lives as long as the
    /// block.
    pub shared: fn(place: &'static u8, layout: Layout) -> *mut u8,
    /// One turn of a waiting loop that has already taken `turns`: lets others run. A long wait may sleep.
    pub spin: fn(turns: u32),
    /// A clock in nanoseconds that never goes back; its zero is arbitrary.
    pub now_ns: fn() -> u64,
}

/// The table in use; null means [`ONE_THREAD`].
static INSTALLED: AtomicPtr<Hooks> = AtomicPtr::new(ptr::null_mut());

/// Makes `hooks` the table that every thread of the process uses from now on. Installing the same table
/// again changes nothing; another table replaces it.
///
/// # Safety
/// The functions do what the fields of [`Hooks`] say, because queues rely on them: no two threads that run at the same
/// time have one position, all that meet get the same answer, and `shared` gives memory that is valid for its layout as
/// long as the block lives. No kernel runs while another table is replaced.
pub unsafe fn install(hooks: &'static Hooks) {
    // The table's content before its address, because another thread may call through it at once.
    INSTALLED.store(ptr::from_ref(hooks).cast_mut(), Ordering::Release);
}

/// The table in use.
#[inline]
pub(crate) fn hooks() -> &'static Hooks {
    let installed = INSTALLED.load(Ordering::Acquire);
    // SAFETY: the pointer is null or came from a `&'static Hooks` in `install`, and nobody writes through it.
    unsafe { installed.as_ref() }.unwrap_or(&ONE_THREAD)
}

/// The grid of one block of one thread, for a table of your own to fall back on.
pub static ONE_THREAD: Hooks = Hooks {
    position: || Position {
        thread: 0,
        threads: 1,
        block: 0,
        blocks: 1,
        grid: 0,
    },
    meet_warp: meet_alone,
    meet_block: |_, value| BlockMeeting {
        first: value,
        before: 0,
        count: u32::from(value != 0),
        threads: 1,
    },
    shared: |_, _| panic!("shared memory on a CPU is a grid's, and this caller is in none"),
    spin: |_| core::hint::spin_loop(),
    now_ns: count_looks,
};

fn meet_alone(op: WarpOp, mask: u32, value: u64) -> [u64; LANES] {
    assert!(
        mask == 1,
        "{op:?} with mask {mask:#x} in a warp of one lane"
    );
    let mut values = [0; LANES];
    values[0] = value;
    values
}

/// What a look at the clock of the one-thread grid costs, in nanoseconds.
const LOOK_NS: u64 = 100;

fn count_looks() -> u64 {
    static NOW: AtomicU64 = AtomicU64::new(0);
    NOW.fetch_add(LOOK_NS, Ordering::Relaxed)
}
