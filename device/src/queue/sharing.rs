//! Who else uses a queue: where its indices live and what keeps them whole.

use crate::Deadline;
use crate::arch::{
    Reach, compare_exchange64, fetch_add64, fetch_max64, load_acquire64, load_relaxed64,
    store_relaxed64, store_release64,
};
use crate::error::{Cause, OpenError, QueueError};
use crate::queue::Ring;
use crate::state::QueueState;

/// `openings` of a queue that one owner has to itself.
const EXCLUSIVE: u64 = u64::MAX;

/// Tries to reserve before contention counts as "no room" for this turn.
const RESERVE_TRIES: u32 = 1024;

/// How long a publisher waits for those who reserved before it. They only have
/// stores left to do, so that this much means that one of them is gone.
const TURN_MS: u64 = 2_000;

/// How a queue is shared: [`Exclusive`], [`BlockShared`] or [`GpuShared`].
///
/// The methods are called by a scope's leader only.
pub trait Sharing: sealed::Sealed + Sized {
    /// A view that leads nothing: what threads other than the leader hold.
    fn follower() -> Self;

    /// Takes the queue, or a share in it.
    fn open(state: &QueueState) -> Result<Self, OpenError>;

    /// Gives it back.
    fn close(&mut self, state: &QueueState);

    /// Blocks known complete, as last learnt.
    fn consumed(&self) -> u64;

    /// Blocks known complete to anybody, to be asked before a CQE is read.
    fn refresh(&mut self, state: &QueueState) -> u64;

    /// Makes known that all blocks below `consumed` are complete.
    fn learn(&mut self, state: &QueueState, consumed: u64);

    /// Reserves `blocks` if they fit while all below `consumed()` are free.
    fn try_reserve(&mut self, state: &QueueState, ring: Ring, blocks: u32) -> Option<u64>;

    /// Reserves `blocks` whether or not they are free.
    fn reserve_unchecked(&mut self, state: &QueueState, blocks: u32) -> u64;

    /// Takes back the last `blocks` of a reservation that ends at `end`, where
    /// nobody can have reserved behind it.
    fn give_back(&mut self, end: u64, blocks: u32) -> bool;

    /// Waits until everything before `start` is published.
    fn await_turn(&self, state: &QueueState, ring: Ring, start: u64) -> Result<(), QueueError>;

    /// Lets the next publisher go on: everything before `end` is published.
    fn pass_turn(&self, state: &QueueState, end: u64);

    /// Takes the right to take CQEs from an ordinary completion ring, if nobody
    /// has it, and says how many were taken so far.
    fn start_taking(&mut self, state: &QueueState) -> Option<u64>;

    /// Gives that right back after `taken` CQEs in all.
    fn stop_taking(&mut self, state: &QueueState, taken: u64);

    /// The queue's first error as bits, where others may have met it.
    fn error_of_others(&self, state: &QueueState) -> u64;
}

/// One thread, warp or block has the queue to itself; its indices lie in registers.
#[derive(Debug)]
pub struct Exclusive {
    reserved: u64,
    consumed: u64,
    taken: u64,
}

/// The threads of one block share the queue.
pub type BlockShared = Shared<BLOCK>;

/// All threads of the GPU share the queue.
pub type GpuShared = Shared<GPU>;

/// A share in a queue: indices in shared words, one compare-and-swap a post.
///
/// `ready` doubles as the publisher's lock: whoever reserved from `ready` on
/// may publish, and hands on by storing its end there.
#[derive(Debug)]
pub struct Shared<const REACH: u8> {
    consumed: u64,
}

/// Reach of [`BlockShared`].
pub const BLOCK: u8 = 0;
/// Reach of [`GpuShared`].
pub const GPU: u8 = 1;

impl Sharing for Exclusive {
    #[inline(always)]
    fn follower() -> Self {
        Self {
            reserved: 0,
            consumed: 0,
            taken: 0,
        }
    }

    #[inline(always)]
    fn open(state: &QueueState) -> Result<Self, OpenError> {
        compare_exchange64(&state.openings, 0, EXCLUSIVE, Reach::Gpu)
            .map_err(|_| OpenError::InUse)?;
        Ok(Self {
            reserved: load_relaxed64(&state.reserved, Reach::Gpu),
            consumed: load_relaxed64(&state.consumed, Reach::Gpu),
            taken: load_relaxed64(&state.taken, Reach::Gpu),
        })
    }

    #[inline(always)]
    fn close(&mut self, state: &QueueState) {
        store_relaxed64(&state.reserved, self.reserved, Reach::Gpu);
        store_relaxed64(&state.ready, self.reserved, Reach::Gpu);
        store_relaxed64(&state.consumed, self.consumed, Reach::Gpu);
        store_relaxed64(&state.taken, self.taken, Reach::Gpu);
        // The indices before the claim's end, because the next owner reads
        // them as soon as it has claimed the queue.
        store_release64(&state.openings, 0, Reach::Gpu);
    }

    #[inline(always)]
    fn consumed(&self) -> u64 {
        self.consumed
    }

    #[inline(always)]
    fn refresh(&mut self, _: &QueueState) -> u64 {
        self.consumed
    }

    #[inline(always)]
    fn learn(&mut self, _: &QueueState, consumed: u64) {
        self.consumed = consumed;
    }

    #[inline(always)]
    fn try_reserve(&mut self, _: &QueueState, ring: Ring, blocks: u32) -> Option<u64> {
        let start = self.reserved;
        if !ring.has_room(start, self.consumed, blocks) {
            return None;
        }
        self.reserved = start + blocks as u64;
        Some(start)
    }

    #[inline(always)]
    fn reserve_unchecked(&mut self, _: &QueueState, blocks: u32) -> u64 {
        let start = self.reserved;
        self.reserved = start + blocks as u64;
        start
    }

    #[inline(always)]
    fn give_back(&mut self, end: u64, blocks: u32) -> bool {
        self.reserved = end - blocks as u64;
        true
    }

    #[inline(always)]
    fn await_turn(&self, _: &QueueState, _: Ring, _: u64) -> Result<(), QueueError> {
        Ok(())
    }

    #[inline(always)]
    fn pass_turn(&self, _: &QueueState, _: u64) {}

    #[inline(always)]
    fn start_taking(&mut self, _: &QueueState) -> Option<u64> {
        Some(self.taken)
    }

    #[inline(always)]
    fn stop_taking(&mut self, _: &QueueState, taken: u64) {
        self.taken = taken;
    }

    #[inline(always)]
    fn error_of_others(&self, _: &QueueState) -> u64 {
        0
    }
}

impl<const REACH: u8> Shared<REACH> {
    const REACH: Reach = if REACH == BLOCK {
        Reach::Block
    } else {
        Reach::Gpu
    };
}

impl<const REACH: u8> Sharing for Shared<REACH> {
    #[inline(always)]
    fn follower() -> Self {
        Self { consumed: 0 }
    }

    #[inline(always)]
    fn open(state: &QueueState) -> Result<Self, OpenError> {
        let mut openings = load_relaxed64(&state.openings, Reach::Gpu);
        for _ in 0..RESERVE_TRIES {
            if openings == EXCLUSIVE {
                break;
            }
            match compare_exchange64(&state.openings, openings, openings + 1, Reach::Gpu) {
                // Nothing is known yet: the first post or wait asks.
                Ok(_) => return Ok(Self { consumed: 0 }),
                Err(found) => openings = found,
            }
        }
        Err(OpenError::InUse)
    }

    #[inline(always)]
    fn close(&mut self, state: &QueueState) {
        // A decrement; what this view did is already in the shared words.
        fetch_add64(&state.openings, u64::MAX, Reach::Gpu);
    }

    #[inline(always)]
    fn consumed(&self) -> u64 {
        self.consumed
    }

    #[inline(always)]
    fn refresh(&mut self, state: &QueueState) -> u64 {
        // `consumed` before the CQE, because a CQE read first could be older
        // than it, and would then look 2^16 blocks newer. Acquire also puts
        // another's reading of a CQE before ours, so that ours is no older,
        // and before our reuse of the slots that it freed.
        self.consumed = load_acquire64(&state.consumed, Self::REACH);
        self.consumed
    }

    #[inline(always)]
    fn learn(&mut self, state: &QueueState, consumed: u64) {
        // A maximum, because pollers overtake each other. What others found
        // meanwhile is not taken over: this view vouches only for what a CQE
        // that it has read itself tells, so that one acquire fence orders the
        // data behind it.
        fetch_max64(&state.consumed, consumed, Self::REACH);
        self.consumed = consumed;
    }

    #[inline(always)]
    fn try_reserve(&mut self, state: &QueueState, ring: Ring, blocks: u32) -> Option<u64> {
        let mut start = load_relaxed64(&state.reserved, Self::REACH);
        for _ in 0..RESERVE_TRIES {
            if !ring.has_room(start, self.consumed, blocks) {
                return None;
            }
            let end = start + blocks as u64;
            match compare_exchange64(&state.reserved, start, end, Self::REACH) {
                Ok(_) => return Some(start),
                Err(found) => start = found,
            }
        }
        None
    }

    #[inline(always)]
    fn reserve_unchecked(&mut self, state: &QueueState, blocks: u32) -> u64 {
        fetch_add64(&state.reserved, blocks as u64, Self::REACH)
    }

    #[inline(always)]
    fn give_back(&mut self, _: u64, _: u32) -> bool {
        false
    }

    #[inline(always)]
    fn await_turn(&self, state: &QueueState, ring: Ring, start: u64) -> Result<(), QueueError> {
        // Acquire, so that the record and doorbell of those before us come
        // before ours: the record must never go back.
        let mut ready = load_acquire64(&state.ready, Self::REACH);
        if ready == start {
            return Ok(());
        }
        let mut wait = Deadline::after_ms(TURN_MS).wait();
        while ready != start {
            let late = wait.expired();
            let failed = load_relaxed64(&state.error, Self::REACH);
            if let Some(error) = QueueError::from_bits(failed)
                && let Cause::Stalled { .. } = error.cause()
            {
                return Err(error);
            }
            ready = load_acquire64(&state.ready, Self::REACH);
            if late && ready != start {
                let wqe = ring.index(ready);
                return Err(QueueError::new(Cause::Stalled { wqe }));
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn pass_turn(&self, state: &QueueState, end: u64) {
        store_release64(&state.ready, end, Self::REACH);
    }

    #[inline(always)]
    fn start_taking(&mut self, state: &QueueState) -> Option<u64> {
        compare_exchange64(&state.polling, 0, 1, Self::REACH).ok()?;
        Some(load_relaxed64(&state.taken, Self::REACH))
    }

    #[inline(always)]
    fn stop_taking(&mut self, state: &QueueState, taken: u64) {
        store_relaxed64(&state.taken, taken, Self::REACH);
        // `taken` before the lock's end, because the next poller goes on there.
        store_release64(&state.polling, 0, Self::REACH);
    }

    #[inline(always)]
    fn error_of_others(&self, state: &QueueState) -> u64 {
        load_relaxed64(&state.error, Self::REACH)
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Exclusive {}
    impl<const REACH: u8> Sealed for super::Shared<REACH> {}
}
