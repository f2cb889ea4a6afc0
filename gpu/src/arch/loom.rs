//! The model checker loom: its atomics, so that it sees every access and tries every order.

extern crate std;

use core::cell::Cell;

use ::loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use mlx5_wqe::{Octoword, WqeBlock};

use super::Reach;
use crate::cpu;

/// What a model leaves out, so that a test can show that they matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftOut {
    /// Every release fence.
    Release,
    /// The first release fence, the third, and so on: of two that publish a WQE, the one before the record.
    OddRelease,
    /// The others: of two, the one before the doorbell.
    EvenRelease,
    /// Every acquire fence.
    Acquire,
    /// What a full fence has beyond an acquire and a release: the one order for all.
    Full,
    /// What a store with release has of it: its order.
    ReleaseStores,
}

std::thread_local! {
    /// All threads of a model are coroutines of one thread.
    static LEFT_OUT: Cell<Option<LeftOut>> = const { Cell::new(None) };
    /// Release fences so far, modulo 2.
    static RELEASES: Cell<u8> = const { Cell::new(0) };
}

/// Leaves something out of all models that this thread checks from now on.
pub fn leave_out(which: Option<LeftOut>) {
    LEFT_OUT.set(which);
    RELEASES.set(0);
}

/// A 32-bit word that others read or write at the same time.
pub type Word32 = AtomicU32;
/// A 64-bit word that others read or write at the same time.
pub type Word64 = AtomicU64;

/// A basic block of a send ring: words that loom knows, in the order of the block's bytes.
#[derive(Debug)]
pub struct RingBlock(pub [Word64; 8]);

impl RingBlock {
    /// A block of zeros.
    pub fn zeroed() -> Self {
        Self(core::array::from_fn(|_| Word64::new(0)))
    }
}

/// Stores a block in four 16-byte stores that are ordered only by the fence that follows.
///
/// # Safety
/// `slot` must be valid for writes, and on a GPU in global memory (or host memory mapped there). Nobody may read or
/// write the block until a later release makes this store visible to them.
#[inline(always)]
pub unsafe fn store_block(slot: *mut RingBlock, block: WqeBlock) {
    // SAFETY: the caller's promise; loom checks the order itself, so a shared reference will do.
    let words = unsafe { &(*slot).0 };
    for (word, value) in words
        .iter()
        .zip(block.into_iter().flat_map(|octoword| octoword.0))
    {
        word.store(value, Ordering::Relaxed);
    }
}

/// Loads a block that another thread has stored, each of its words once.
///
/// # Safety
/// `slot` must be valid for reads, and an acquire after which this load comes must have made the block's stores visible.
#[inline(always)]
pub unsafe fn load_block(slot: *mut RingBlock) -> WqeBlock {
    // SAFETY: the caller's promise; loom checks the order itself, so a shared reference will do.
    let words = unsafe { &(*slot).0 };
    let word = |index: usize| words[index].load(Ordering::Relaxed);
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

/// 16 bytes of a receive ring, as words that loom knows.
#[derive(Debug)]
pub struct RingSegment(pub [Word64; 2]);

impl RingSegment {
    /// A segment of zeros.
    pub fn zeroed() -> Self {
        Self([Word64::new(0), Word64::new(0)])
    }
}

/// Stores a segment in one 16-byte store that is ordered only by the fence that follows.
///
/// # Safety
/// As for [`store_block`].
#[inline(always)]
pub unsafe fn store_segment(slot: *mut RingSegment, segment: Octoword) {
    // SAFETY: the caller's promise; loom checks the order itself, so a shared reference will do.
    let words = unsafe { &(*slot).0 };
    for (word, value) in words.iter().zip(segment.0) {
        word.store(value, Ordering::Relaxed);
    }
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
    let order = match LEFT_OUT.get() {
        Some(LeftOut::ReleaseStores) => Ordering::Relaxed,
        _ => Ordering::Release,
    };
    word.store(value, order);
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
    let odd = RELEASES.get() == 0;
    RELEASES.set(u8::from(odd));
    let left_out = match LEFT_OUT.get() {
        Some(LeftOut::Release) => true,
        Some(LeftOut::OddRelease) => odd,
        Some(LeftOut::EvenRelease) => !odd,
        _ => false,
    };
    if !left_out {
        fence(Ordering::Release);
    }
}

/// Every earlier load before every later access, for those within `reach`.
#[inline(always)]
pub fn fence_acquire(_reach: Reach) {
    if LEFT_OUT.get() != Some(LeftOut::Acquire) {
        fence(Ordering::Acquire);
    }
}

/// Every earlier load before every later access, and every earlier access before every later store, for those within
/// `reach`.
#[inline(always)]
pub fn fence_acquire_release(reach: Reach) {
    fence_acquire(reach);
    fence_release(reach);
}

/// Every earlier access before every later one, in one order for all within `reach`.
#[inline(always)]
pub fn fence_full(_reach: Reach) {
    fence(match LEFT_OUT.get() {
        Some(LeftOut::Full) => Ordering::AcqRel,
        _ => Ordering::SeqCst,
    });
}

/// Stores to a doorbell register; orders nothing by itself.
///
/// # Safety
/// The [contract of a word](crate::arch).
#[inline(always)]
pub unsafe fn ring_doorbell(register: &Word64, value: u64) {
    register.store(value, Ordering::Relaxed);
}

/// One turn of a waiting loop: lets loom run another thread.
#[inline(always)]
pub(crate) fn spin(_turns: u32) {
    ::loom::thread::yield_now();
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

/// The clock of time stamps.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    now_ns()
}
