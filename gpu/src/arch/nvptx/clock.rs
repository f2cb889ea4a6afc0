//! Clocks, and waiting.

use core::arch::asm;

/// One turn of a waiting loop. Nothing: a GPU runs other warps while this one waits for its loads.
#[inline(always)]
pub(crate) fn spin(_turns: u32) {}

/// A clock in nanoseconds that never goes back, the same for all threads of the GPU.
#[inline(always)]
pub(crate) fn now_ns() -> u64 {
    let now: u64;
    // SAFETY: reads a special register.
    unsafe {
        asm!("mov.u64 {now}, %globaltimer;", now = out(reg64) now, options(nomem, preserves_flags, nostack));
    }
    now
}

/// The clock of time stamps: the one that all SMs share.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    now_ns()
}

/// A count of the SM's cycles.
#[inline(always)]
pub(crate) fn cycles() -> u64 {
    let now: u64;
    // SAFETY: reads a special register. It keeps its place among the accesses to memory.
    unsafe {
        asm!("mov.u64 {now}, %clock64;", now = out(reg64) now, options(preserves_flags, nostack));
    }
    now
}

/// Suspends the thread for a time between none and twice `nanoseconds`.
#[inline(always)]
pub(crate) fn nanosleep(nanoseconds: u32) {
    // SAFETY: touches no memory.
    unsafe {
        asm!("nanosleep.u32 {time};", time = in(reg32) nanoseconds, options(nomem, preserves_flags, nostack));
    }
}
