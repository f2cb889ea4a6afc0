//! Fences.

use core::arch::asm;

use super::by_reach;
use crate::arch::Reach;

/// The names of the one-sided fences, which [older GPUs](crate::tuned) have not. rustc calls such a GPU `sm_90`,
/// Rust-CUDA `compute_90`.
#[cfg(any(target_feature = "sm_90", target_feature = "compute_90"))]
macro_rules! one_sided {
    (release) => {
        "fence.release"
    };
    (acquire) => {
        "fence.acquire"
    };
}

#[cfg(not(any(target_feature = "sm_90", target_feature = "compute_90")))]
macro_rules! one_sided {
    ($side:ident) => {
        "fence.acq_rel"
    };
}

/// Every earlier access before every later store, for those within `reach`.
#[inline(always)]
pub fn fence_release(reach: Reach) {
    // SAFETY: a fence has no precondition.
    unsafe {
        by_reach!(
            reach,
            one_sided!(release),
            ";",
            options(preserves_flags, nostack)
        )
    }
}

/// Every earlier load before every later access, for those within `reach`. Empties the SM's L1 cache
/// where the reach is wider than the block: only after success.
#[inline(always)]
pub fn fence_acquire(reach: Reach) {
    // SAFETY: a fence has no precondition.
    unsafe {
        by_reach!(
            reach,
            one_sided!(acquire),
            ";",
            options(preserves_flags, nostack)
        )
    }
}

/// Every earlier load before every later access, and every earlier access before every later store, for those within
/// `reach`.
#[inline(always)]
pub fn fence_acquire_release(reach: Reach) {
    // SAFETY: a fence has no precondition.
    unsafe {
        by_reach!(
            reach,
            "fence.acq_rel",
            ";",
            options(preserves_flags, nostack)
        )
    }
}

/// Every earlier access before every later one, in one order for all within `reach`.
#[inline(always)]
pub fn fence_full(reach: Reach) {
    // SAFETY: a fence has no precondition.
    unsafe { by_reach!(reach, "fence.sc", ";", options(preserves_flags, nostack)) }
}
