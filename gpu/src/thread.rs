//! Where a thread stands in its grid, and the block's barrier; the names are cuda_std's.
//!
//! A grid on a CPU has one dimension: its y and z indices are 0, their sizes 1.

use crate::arch::{self, Reach, Word64};
use crate::block;
#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu::{self, BlockOp};
#[cfg(target_arch = "nvptx64")]
use core::arch::nvptx;

/// An index or a size: an intrinsic on a GPU, a value of the caller's position on a CPU.
macro_rules! coordinate {
    ($(#[$doc:meta])* $name:ident, $intrinsic:ident, $cpu:expr) => {
        $(#[$doc])*
        #[inline(always)]
        pub fn $name() -> u32 {
            #[cfg(target_arch = "nvptx64")]
            // SAFETY: reads a special register, which has no precondition.
            return unsafe { nvptx::$intrinsic() as u32 };
            #[cfg(not(target_arch = "nvptx64"))]
            return $cpu;
        }
    };
}

/// A value of the caller's position.
#[cfg(not(target_arch = "nvptx64"))]
macro_rules! position {
    ($field:ident) => {
        (cpu::hooks().position)().$field
    };
}

coordinate!(
    /// The thread's index in its block along x.
    thread_idx_x, _thread_idx_x, position!(thread));
coordinate!(
    /// The thread's index in its block along y.
    thread_idx_y, _thread_idx_y, 0);
coordinate!(
    /// The thread's index in its block along z.
    thread_idx_z, _thread_idx_z, 0);
coordinate!(
    /// The block's index in the grid along x.
    block_idx_x, _block_idx_x, position!(block));
coordinate!(
    /// The block's index in the grid along y.
    block_idx_y, _block_idx_y, 0);
coordinate!(
    /// The block's index in the grid along z.
    block_idx_z, _block_idx_z, 0);
coordinate!(
    /// Threads in a block along x.
    block_dim_x, _block_dim_x, position!(threads));
coordinate!(
    /// Threads in a block along y.
    block_dim_y, _block_dim_y, 1);
coordinate!(
    /// Threads in a block along z.
    block_dim_z, _block_dim_z, 1);
coordinate!(
    /// Blocks in the grid along x.
    grid_dim_x, _grid_dim_x, position!(blocks));
coordinate!(
    /// Blocks in the grid along y.
    grid_dim_y, _grid_dim_y, 1);
coordinate!(
    /// Blocks in the grid along z.
    grid_dim_z, _grid_dim_z, 1);

/// The thread's index in the grid, over all dimensions; each thread has its own.
#[inline(always)]
pub fn index() -> u32 {
    block::index() * block::size() + block::thread_index()
}

/// The thread's index in a grid of one dimension.
#[inline(always)]
pub fn index_1d() -> u32 {
    thread_idx_x() + block_idx_x() * block_dim_x()
}

/// Whether this is the thread of index 0 in the block of index 0.
#[inline(always)]
pub fn first() -> bool {
    index() == 0
}

/// Lanes in a warp: 32.
#[inline(always)]
pub fn warp_size() -> u32 {
    32
}

/// Waits until every thread of the block that has not exited is here. What they wrote before is then
/// visible to all of them.
///
/// All threads of the block must come to the same barrier: to one call, as the module [`block`] says.
#[inline(always)]
pub fn sync_threads() {
    #[cfg(target_arch = "nvptx64")]
    arch::barrier();
    #[cfg(not(target_arch = "nvptx64"))]
    (cpu::hooks().meet_block)(BlockOp::Sync, 0);
}

/// [`sync_threads`], and returns how many threads brought a predicate other than 0.
#[inline(always)]
pub fn sync_threads_count(predicate: u32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    return arch::barrier_count(predicate != 0);
    #[cfg(not(target_arch = "nvptx64"))]
    return (cpu::hooks().meet_block)(BlockOp::Count, u64::from(predicate)).count;
}

/// [`sync_threads`], and returns 1 if every thread brought a predicate other than 0, else 0.
#[inline(always)]
pub fn sync_threads_and(predicate: u32) -> u32 {
    // Every thread brings a non-zero predicate exactly if none brings zero; exited threads bring none.
    u32::from(sync_threads_count(u32::from(predicate == 0)) == 0)
}

/// [`sync_threads`], and returns 1 if some thread brought a predicate other than 0, else 0.
#[inline(always)]
pub fn sync_threads_or(predicate: u32) -> u32 {
    u32::from(sync_threads_count(predicate) != 0)
}

/// A fence among the threads of the block: every access before it comes before every access after it.
/// (cuda_std's name; posting and polling bring their own fences.)
#[inline(always)]
pub fn grid_fence() {
    arch::fence_full(Reach::Block);
}

/// A fence among the threads of the GPU: every access before it comes before every access after it.
/// (Posting and polling bring their own fences.)
#[inline(always)]
pub fn device_fence() {
    arch::fence_full(Reach::Gpu);
}

/// A fence among GPU, CPU and NIC: every access before it comes before every access after it.
/// (Posting and polling bring their own fences.)
#[inline(always)]
pub fn system_fence() {
    arch::fence_full(Reach::System);
}

/// Replaces `current` by `new` in a word that only the GPU's threads write, wherever it lies; `Err` holds what
/// is there instead. Acquires and releases among those threads.
///
/// `compare_exchange` of the word itself would be an atomic for GPU and CPU, which a GPU behind PCIe does not
/// have on host memory.
///
/// # Safety
/// On a GPU the word lies in global memory (or host memory mapped there), not in shared or local memory.
///
/// # Errors
/// The word is not `current`.
#[inline(always)]
pub unsafe fn compare_exchange(word: &Word64, current: u64, new: u64) -> Result<u64, u64> {
    // SAFETY: the caller's promise.
    unsafe { arch::compare_exchange64(word, current, new, Reach::Gpu) }
}

/// A clock in nanoseconds that never goes back; its zero is arbitrary. On a GPU it is the global timer, the
/// same for all threads, which may step by a microsecond.
#[inline(always)]
pub fn clock_ns() -> u64 {
    arch::now_ns()
}

/// A count of the cycles of the thread's SM, for what takes too short for [`clock_ns`]; on a CPU it counts
/// nanoseconds.
#[inline(always)]
pub fn cycles() -> u64 {
    arch::cycles()
}

/// Suspends the thread for a time between none and twice `nanoseconds`; on a CPU, for one waiting turn.
#[inline(always)]
pub fn nanosleep(nanoseconds: u32) {
    #[cfg(target_arch = "nvptx64")]
    arch::nanosleep(nanoseconds);
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let _ = nanoseconds;
        arch::spin(0);
    }
}

/// The value, kept in a register from here on.
///
/// A GPU's assembler [computes again](crate::tuned) what follows from a kernel's parameters, in a loop over posts for
/// each of them. Pass a local address, length or key through this once before the loop. A post then has fewer
/// instructions, by those that put the value in a NIC's byte order.
#[inline(always)]
pub fn kept(value: u64) -> u64 {
    #[cfg(target_arch = "nvptx64")]
    return arch::kept(value);
    #[cfg(not(target_arch = "nvptx64"))]
    value
}
