//! Where a thread stands, and how the lanes of a warp and the threads of a block meet.
//!
//! Barriers, votes and shuffles are LLVM's intrinsics: inline assembly is not [convergent](crate::tuned). A lane's
//! number and mask are [assembly](crate::tuned) on purpose.

use core::arch::asm;

/// The grid's number, which no other grid of the GPU's context has that runs at the same time.
#[inline(always)]
pub(crate) fn grid_id() -> u64 {
    let grid: u64;
    // SAFETY: reads a special register.
    unsafe {
        asm!("mov.u64 {grid}, %gridid;", grid = out(reg64) grid, options(nomem, preserves_flags, nostack));
    }
    grid
}

/// The thread's lane in its warp, 0 to 31.
#[inline(always)]
pub fn lane_id() -> u32 {
    let lane: u32;
    // SAFETY: reads a special register.
    unsafe {
        asm!("mov.u32 {lane}, %laneid;", lane = out(reg32) lane, options(nomem, preserves_flags, nostack));
    }
    // The compiler now knows the range.
    lane & 31
}

/// The lanes below the thread's, as a mask.
#[inline(always)]
pub fn lanes_below() -> u32 {
    let lanes: u32;
    // SAFETY: reads a special register.
    unsafe {
        asm!("mov.u32 {lanes}, %lanemask_lt;", lanes = out(reg32) lanes, options(nomem, preserves_flags, nostack));
    }
    lanes
}

#[allow(improper_ctypes, reason = "LLVM's intrinsics return i1")]
unsafe extern "C" {
    #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.all"]
    fn barrier_sync(barrier: u32);
    #[link_name = "llvm.nvvm.barrier.cta.red.popc.aligned.all"]
    fn barrier_popc(barrier: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.bar.warp.sync"]
    fn bar_warp_sync(mask: u32);
    #[link_name = "llvm.nvvm.activemask"]
    fn activemask() -> u32;
    #[link_name = "llvm.nvvm.match.any.sync.i64"]
    fn match_any_sync(mask: u32, value: u64) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.bfly.i32"]
    pub(super) fn shuffle_bfly(mask: u32, value: i32, distance: u32, clamp: u32) -> i32;
    #[link_name = "llvm.nvvm.vote.ballot.sync"]
    fn vote_ballot_sync(mask: u32, predicate: bool) -> u32;
    #[link_name = "llvm.nvvm.shfl.sync.idx.i32"]
    fn shfl_sync_idx(mask: u32, value: u32, lane: u32, clamp: u32) -> u32;
}

/// Waits for every thread of the block that has not exited.
#[inline(always)]
pub(crate) fn barrier() {
    // SAFETY: each lane of the warp that has not exited comes to this barrier, so to this meeting before it, which
    // brings the warp together: the barrier wants its lanes to come as one.
    unsafe {
        bar_warp_sync(u32::MAX);
        barrier_sync(0);
    }
}

/// [`barrier`], and counts the threads that brought `true`.
#[inline(always)]
pub(crate) fn barrier_count(predicate: bool) -> u32 {
    // SAFETY: as for `barrier`.
    unsafe {
        bar_warp_sync(u32::MAX);
        barrier_popc(0, predicate)
    }
}

/// Waits until every lane of `mask` is here.
///
/// # Safety
/// The caller is in the mask, and the others come to this operation with the same mask.
#[inline(always)]
pub unsafe fn sync_warp(mask: u32) {
    // SAFETY: the caller's promise.
    unsafe { bar_warp_sync(mask) }
}

/// The lanes that are here now: at least the caller.
#[inline(always)]
pub fn active_mask() -> u32 {
    // SAFETY: asks nothing of the caller.
    unsafe { activemask() }
}

/// The lanes of `mask` that brought the caller's value.
///
/// # Safety
/// The caller is in the mask, and the others come to this operation with the same mask.
#[inline(always)]
pub unsafe fn match_any(mask: u32, value: u64) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { match_any_sync(mask, value) }
}

/// The lanes of `mask` that brought `true`.
///
/// # Safety
/// The caller is in the mask, and the others come to this operation with the same mask.
#[inline(always)]
pub(crate) unsafe fn ballot(mask: u32, predicate: bool) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { vote_ballot_sync(mask, predicate) }
}

/// The value of lane `from`, unspecified if that is not in `mask`.
///
/// # Safety
/// The caller is in the mask, and the others come to this operation with the same mask.
#[inline(always)]
pub unsafe fn shuffle(mask: u32, value: u32, from: u32) -> u32 {
    /// One group of 32 lanes, the last of them 31.
    const WHOLE_WARP: u32 = 31;
    // SAFETY: the caller's promise.
    unsafe { shfl_sync_idx(mask, value, from, WHOLE_WARP) }
}
