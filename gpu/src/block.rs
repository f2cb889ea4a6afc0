//! What all threads of a block do together.
//!
//! Every thread of the block must come to each of these functions, in the same order, and none may have
//! exited before; only [`sync`] does without the exited ones. On a CPU a breach ends the launch with an
//! error, on a GPU the block hangs or gets unspecified values.
//!
//! And they come to it as one: to one call, not to one in each arm of a branch that parts the lanes of a
//! warp. A GPU's barrier counts a warp when it comes, so that one which comes in two parts lets the others
//! go too early, or hangs. That a CPU does not see.

#[cfg(target_arch = "nvptx64")]
use crate::arch;
#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::{self, BlockOp};
use crate::thread;
#[cfg(target_arch = "nvptx64")]
use crate::warp;

/// Threads in a block, over all dimensions: 1 to 1,024.
#[inline(always)]
pub fn size() -> u32 {
    thread::block_dim_x() * thread::block_dim_y() * thread::block_dim_z()
}

/// The block's index in the grid, over all dimensions.
#[inline(always)]
pub fn index() -> u32 {
    let row = thread::block_idx_y() + thread::grid_dim_y() * thread::block_idx_z();
    thread::block_idx_x() + thread::grid_dim_x() * row
}

/// The number of the grid: no two grids that run on a GPU at the same time, or on the CPU, have the same.
#[inline(always)]
pub fn grid() -> u64 {
    #[cfg(target_arch = "nvptx64")]
    return arch::grid_id();
    #[cfg(not(target_arch = "nvptx64"))]
    (cpu::hooks().position)().grid
}

/// The thread's index in its block, over all dimensions.
#[inline(always)]
pub fn thread_index() -> u32 {
    let row = thread::thread_idx_y() + thread::block_dim_y() * thread::thread_idx_z();
    thread::thread_idx_x() + thread::block_dim_x() * row
}

/// Waits until every thread of the block that has not exited is here: [`thread::sync_threads`].
#[inline(always)]
pub fn sync() {
    thread::sync_threads();
}

/// Gives every thread the value that thread 0 brought.
#[inline(always)]
pub fn broadcast(value: u64) -> u64 {
    #[cfg(target_arch = "nvptx64")]
    {
        if thread_index() == 0 {
            arch::scratch_store(value);
        }
        // Thread 0's store before the others' loads.
        sync();
        let first = arch::scratch_load();
        // All loads before thread 0's store of the next broadcast.
        sync();
        first
    }
    #[cfg(not(target_arch = "nvptx64"))]
    (cpu::hooks().meet_block)(BlockOp::Broadcast, value).first
}

/// Each thread's rank among the threads that are present (how many of a lower index are), and how many are
/// present in all. The rank is also defined for a thread that is not present.
#[inline(always)]
pub fn rank_and_count(present: bool) -> (u32, u32) {
    #[cfg(target_arch = "nvptx64")]
    {
        // Mostly all are: the barrier counts them, and nobody has to be told where he stands.
        if arch::barrier_count(present) == size() {
            return (thread_index(), size());
        }
        let (rank_in_warp, count_in_warp) = warp::rank_and_count(present);
        let own_warp = thread_index() / thread::warp_size();
        if warp::lane_id() == 0 {
            arch::scratch_count_store(own_warp, count_in_warp);
        }
        // Every warp's store before the loads.
        sync();
        let mut rank = rank_in_warp;
        let mut count = 0;
        for warp in 0..size().div_ceil(thread::warp_size()) {
            let present = arch::scratch_count_load(warp);
            rank += if warp < own_warp { present } else { 0 };
            count += present;
        }
        // All loads before the stores of the next call.
        sync();
        (rank, count)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let meeting = (cpu::hooks().meet_block)(BlockOp::Rank, u64::from(present));
        (meeting.before, meeting.count)
    }
}
