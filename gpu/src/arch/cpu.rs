//! A CPU: core atomics, and the clock and the waiting turn of the installed [hooks](crate::cpu).

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use mlx5_wqe::{DoorbellRegister, Octoword, WqeBlock};

use super::Reach;
use crate::cpu;

/// A 32-bit word that others read or write at the same time.
pub type Word32 = AtomicU32;
/// A 64-bit word that others read or write at the same time.
pub type Word64 = AtomicU64;

/// A basic block of a send ring, 64 bytes.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct RingBlock(WqeBlock);

impl RingBlock {
    /// A block of zeros.
    pub const fn zeroed() -> Self {
        Self([Octoword::ZERO; 4])
    }
}

/// Stores a block in four 16-byte stores that are ordered only by the fence that follows.
///
/// # Safety
/// `slot` must be valid for writes, and on a GPU in global memory (or host memory mapped there). Nobody may read or
/// write the block until a later release makes this store visible to them.
#[inline(always)]
pub unsafe fn store_block(slot: *mut RingBlock, block: WqeBlock) {
    // SAFETY: the caller's promise; `RingBlock` is aligned to 64 bytes, so vector stores are allowed.
    unsafe { slot.write(RingBlock(block)) }
}

/// Loads a block that another thread or a GPU has stored, each of its words once.
///
/// # Safety
/// `slot` must be valid for reads, and an acquire after which this load comes must have made the block's stores visible.
#[inline(always)]
pub unsafe fn load_block(slot: *mut RingBlock) -> WqeBlock {
    // SAFETY: the caller's promise; a `RingBlock` is eight words, aligned to more than that. Atomic loads, so that a kernel
    // that stores to it against the queue's protocol changes the value alone.
    let word = |index| unsafe { AtomicU64::from_ptr(slot.cast::<u64>().add(index)) };
    let word = |index| word(index).load(Ordering::Relaxed);
    core::array::from_fn(|octoword| Octoword([word(2 * octoword), word(2 * octoword + 1)]))
}

/// Stores a block of each lane of a whole warp; `slot` says where that of a lane goes. Here each stores its own.
///
/// # Safety
/// As for [`store_block`], for all slots; all lanes of the warp call this together, with the same `slot`.
#[inline(always)]
pub unsafe fn store_blocks(slot: impl Fn(u32) -> *mut RingBlock, block: WqeBlock) {
    // SAFETY: the caller's promise.
    unsafe { store_block(slot(crate::warp::lane_id()), block) };
}

/// 16 bytes of a receive ring.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct RingSegment(Octoword);

impl RingSegment {
    /// A segment of zeros.
    pub const fn zeroed() -> Self {
        Self(Octoword::ZERO)
    }
}

/// Stores a segment in one 16-byte store that is ordered only by the fence that follows.
///
/// # Safety
/// As for [`store_block`].
#[inline(always)]
pub unsafe fn store_segment(slot: *mut RingSegment, segment: Octoword) {
    // SAFETY: the caller's promise; `RingSegment` is aligned to 16 bytes.
    unsafe { slot.write(RingSegment(segment)) }
}

/// Loads a word, in no order with other accesses.
///
/// # Safety
/// The [contract of a word](crate::arch).
#[inline(always)]
pub unsafe fn load_relaxed64(word: &Word64, _reach: Reach) -> u64 {
    word.load(Ordering::Relaxed)
}

/// Loads a word before every later access.
///
/// # Safety
/// The [contract of a word](crate::arch).
#[inline(always)]
pub unsafe fn load_acquire64(word: &Word64, _reach: Reach) -> u64 {
    word.load(Ordering::Acquire)
}

/// Stores a word, in no order with other accesses.
///
/// # Safety
/// The [contract of a word](crate::arch).
#[inline(always)]
pub unsafe fn store_relaxed32(word: &Word32, value: u32, _reach: Reach) {
    word.store(value, Ordering::Relaxed);
}

/// Stores a word, in no order with other accesses.
///
/// # Safety
/// The [contract of a word](crate::arch).
#[inline(always)]
pub unsafe fn store_relaxed64(word: &Word64, value: u64, _reach: Reach) {
    word.store(value, Ordering::Relaxed);
}

/// Stores a word after every earlier access.
///
/// # Safety
/// The [contract of a word](crate::arch).
#[inline(always)]
pub unsafe fn store_release64(word: &Word64, value: u64, _reach: Reach) {
    word.store(value, Ordering::Release);
}

/// Replaces `old` by `new`, as acquire and release; `Err` holds the value that was there instead.
///
/// # Safety
/// The [contract of a word](crate::arch).
#[inline(always)]
pub unsafe fn compare_exchange64(
    word: &Word64,
    old: u64,
    new: u64,
    _reach: Reach,
) -> Result<u64, u64> {
    word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
}

/// Replaces `old` by `new`, in no order with other accesses; `Err` holds the value that was there instead.
///
/// # Safety
/// The [contract of a word](crate::arch).
#[inline(always)]
pub unsafe fn compare_exchange_relaxed64(
    word: &Word64,
    old: u64,
    new: u64,
    _reach: Reach,
) -> Result<u64, u64> {
    word.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed)
}

/// Stores `new` and returns the value from before, in one step and in no order with other accesses.
///
/// # Safety
/// The [contract of a word](crate::arch).
#[inline(always)]
pub unsafe fn exchange_relaxed64(word: &Word64, new: u64, _reach: Reach) -> u64 {
    word.swap(new, Ordering::Relaxed)
}

/// Adds, as acquire and release, and returns the value from before.
///
/// # Safety
/// The [contract of a word](crate::arch).
#[inline(always)]
pub unsafe fn fetch_add64(word: &Word64, value: u64, _reach: Reach) -> u64 {
    word.fetch_add(value, Ordering::AcqRel)
}

/// Adds, in no order with other accesses, and returns the value from before.
///
/// # Safety
/// The [contract of a word](crate::arch).
#[inline(always)]
pub unsafe fn fetch_add_relaxed64(word: &Word64, value: u64, _reach: Reach) -> u64 {
    word.fetch_add(value, Ordering::Relaxed)
}

/// Every earlier access before every later store, for those within `reach`.
#[inline(always)]
pub fn fence_release(_reach: Reach) {
    fence(Ordering::Release);
}

/// Every earlier load before every later access, for those within `reach`.
#[inline(always)]
pub fn fence_acquire(_reach: Reach) {
    fence(Ordering::Acquire);
}

/// Every earlier load before every later access, and every earlier access before every later store, for those within
/// `reach`.
#[inline(always)]
pub fn fence_acquire_release(_reach: Reach) {
    fence(Ordering::AcqRel);
}

/// Every earlier access before every later one, in one order for all within `reach`.
#[inline(always)]
pub fn fence_full(_reach: Reach) {
    fence(Ordering::SeqCst);
}

/// Stores to a card's doorbell register, after every earlier store. On a page that `combines` writes it has left the CPU
/// when the call returns, and stands for itself; on another one it leaves by itself.
///
/// As libmlx5 does it (`mmio_wc_start`, `mmio_flush_writes`).
///
/// # Safety
/// `register` must be a card's register, mapped into the process.
#[cold]
pub unsafe fn ring_register(register: *const Word64, value: u64, combines: bool) {
    // WQEs and record before the doorbell, because the card reads them when it rings: a write-combining page is not part
    // of the CPU's order of stores, and on Arm no card's page is.
    store_barrier(combines);
    // SAFETY: the caller's promise; a register takes native integers of 8 bytes, aligned like these.
    unsafe { (*register.cast::<DoorbellRegister>()).write(value) };
    if combines {
        // The doorbell before whatever this thread does next, because it would otherwise stay in the CPU for as long as
        // nothing else needs its buffer, and two of them could become one.
        store_barrier(combines);
    }
}

/// Every earlier store before every later one, for devices too. Between ordinary and uncached memory x86 keeps that order
/// by itself.
#[inline(always)]
fn store_barrier(combines: bool) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        if combines {
            // SAFETY: every x86-64 CPU has SSE.
            unsafe { core::arch::x86_64::_mm_sfence() };
        } else {
            fence(Ordering::Release);
        }
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        let _ = combines;
        // SAFETY: a barrier changes nothing.
        unsafe { core::arch::asm!("dsb st", options(nostack, preserves_flags)) };
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
    {
        let _ = combines;
        fence(Ordering::SeqCst);
    }
}

/// Stores to a doorbell register that is ordinary memory; orders nothing by itself.
///
/// # Safety
/// The [contract of a word](crate::arch).
#[inline(always)]
pub unsafe fn ring_doorbell(register: &Word64, value: u64) {
    register.store(value, Ordering::Relaxed);
}

/// One turn of a waiting loop that has already taken `turns`: lets the other lanes of the warp run.
#[inline(always)]
pub(crate) fn spin(turns: u32) {
    (cpu::hooks().spin)(turns);
}

/// A clock in nanoseconds that never goes back.
#[inline(always)]
pub(crate) fn now_ns() -> u64 {
    (cpu::hooks().now_ns)()
}

/// A clock of the finest steps that there are: nanoseconds.
#[inline(always)]
pub(crate) fn cycles() -> u64 {
    now_ns()
}

/// The counter that costs least to read, in no order with other accesses; what its unit is, depends on the machine.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: every x86-64 CPU has it.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        let now: u64;
        // SAFETY: reads a register that Linux lets every program read.
        unsafe {
            core::arch::asm!("mrs {now}, cntvct_el0", now = out(reg) now, options(nomem, nostack, preserves_flags));
        }
        now
    }
    #[cfg(any(not(any(target_arch = "x86_64", target_arch = "aarch64")), miri))]
    now_ns()
}
