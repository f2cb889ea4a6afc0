//! Who calls a queue's methods together.

use core::marker::PhantomData;

use warpbell_gpu::tuned;

use crate::{block, thread, warp};

/// The threads that call a queue's methods together, each with a WQE of its own.
///
/// One of them, the leader, reserves, publishes and polls for all.
pub trait Scope: sealed::Sealed {
    /// Whether more than one thread takes part.
    const COLLECTIVE: bool;

    /// Whether this thread is the one that acts for all.
    fn leads() -> bool;

    /// Whether more than one warp may take part.
    const WIDE: bool;

    /// How many threads take part.
    fn size() -> u32;

    /// This thread's number among them; the leader's is 0.
    fn rank() -> u32;

    /// This thread's rank among those with `present`, and their number.
    fn rank_and_count(present: bool) -> (u32, u32);

    /// Whether any thread brings `true`.
    fn any(predicate: bool) -> bool;

    /// The leader's value, for all.
    fn broadcast(value: u64) -> u64;

    /// Waits for all; what each stored before is seen by each after.
    fn sync();
}

/// One thread, for itself.
#[derive(Clone, Copy, Debug)]
pub enum Thread {}

/// All lanes of a warp together. The leader is lane 0.
///
/// Only the leader's view knows the queue's indices, so a view stays with the
/// thread that opened it: it is not `Send`.
///
/// ```compile_fail
/// fn movable<T: Send>() {}
/// movable::<warpbell::SendQueue<'_, warpbell::Exclusive, warpbell::Warp>>();
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Warp(PhantomData<*const ()>);

/// All threads of a block together. The leader is thread 0. Its views are not
/// `Send`, as those of a [`Warp`].
#[derive(Clone, Copy, Debug)]
pub struct Block(PhantomData<*const ()>);

impl Scope for Thread {
    const COLLECTIVE: bool = false;
    const WIDE: bool = false;

    #[inline(always)]
    fn size() -> u32 {
        1
    }

    #[inline(always)]
    fn rank() -> u32 {
        0
    }

    #[inline(always)]
    fn leads() -> bool {
        true
    }

    #[inline(always)]
    fn rank_and_count(present: bool) -> (u32, u32) {
        (0, present as u32)
    }

    #[inline(always)]
    fn any(predicate: bool) -> bool {
        predicate
    }

    #[inline(always)]
    fn broadcast(value: u64) -> u64 {
        value
    }

    #[inline(always)]
    fn sync() {}
}

impl Scope for Warp {
    const COLLECTIVE: bool = true;
    const WIDE: bool = false;

    #[inline(always)]
    fn size() -> u32 {
        warp::full_mask().count_ones()
    }

    #[inline(always)]
    fn rank() -> u32 {
        warp::lane_id()
    }

    #[inline(always)]
    fn leads() -> bool {
        Self::rank() == 0
    }

    #[inline(always)]
    fn rank_and_count(present: bool) -> (u32, u32) {
        warp::rank_and_count(present)
    }

    #[inline(always)]
    fn any(predicate: bool) -> bool {
        if tuned::is_known(predicate) {
            return predicate;
        }
        warp::any(predicate)
    }

    #[inline(always)]
    fn broadcast(value: u64) -> u64 {
        warp::broadcast(value)
    }

    #[inline(always)]
    fn sync() {
        warp::sync();
    }
}

impl Scope for Block {
    const COLLECTIVE: bool = true;
    const WIDE: bool = true;

    #[inline(always)]
    fn size() -> u32 {
        block::size()
    }

    #[inline(always)]
    fn rank() -> u32 {
        block::thread_index()
    }

    #[inline(always)]
    fn leads() -> bool {
        Self::rank() == 0
    }

    #[inline(always)]
    fn rank_and_count(present: bool) -> (u32, u32) {
        block::rank_and_count(present)
    }

    #[inline(always)]
    fn any(predicate: bool) -> bool {
        if tuned::is_known(predicate) {
            return predicate;
        }
        thread::sync_threads_or(u32::from(predicate)) != 0
    }

    #[inline(always)]
    fn broadcast(value: u64) -> u64 {
        block::broadcast(value)
    }

    #[inline(always)]
    fn sync() {
        block::sync();
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Thread {}
    impl Sealed for super::Warp {}
    impl Sealed for super::Block {}
}
