//! The ledger of a queue that several threads share: the indices that count lie in shared words.

use core::marker::PhantomData;

use warpbell_gpu::arch::Reach;

use crate::Deadline;
use crate::error::{Cause, OpenError, QueueError};
use crate::queue::ledger::{Internal, Ledger};
use crate::queue::openings;
use crate::queue::producer::keep_first;
use crate::queue::{Ring, Scope};
use crate::state::QueueState;
use crate::words::{
    compare_exchange_relaxed64, compare_exchange64, fetch_add64, load_acquire64, load_relaxed64,
    store_relaxed64, store_release64,
};

/// Tries to reserve before contention counts as "no room" for this turn.
const RESERVE_TRIES: u32 = 1024;

/// How long a publisher waits for those who reserved before it. They only have
/// stores left to do, so that this much means that one of them is gone.
const TURN_MS: u64 = 2_000;

/// A share in a queue: indices in shared words, one compare-and-swap a post.
///
/// `ready` doubles as the publisher's lock: whoever reserved from `ready` on
/// may publish, and hands on by storing its end there.
#[derive(Clone, Debug)]
pub struct SharedAmong<A: Among> {
    consumed: u64,
    /// The CQE to look at next: a guess, which is right for a view that is alone.
    next_cqe: u32,
    /// Blocks behind `consumed` that the CQEs before that one have shown complete. Not counted among these: a view that
    /// reserved by them would leave the others' `consumed` behind, and by more than 2^16 blocks they could not catch up.
    ahead: u32,
    /// All blocks below are published: this view published the last of them, or its group's leader did. A warp of lone
    /// lanes meets that leader at a barrier before it posts again. Followers of a warp's or block's view need none: only
    /// their leader publishes.
    published: u64,
    /// Whether the next post asks first where the others are: they posted between the last two posts of this view, and a
    /// view that has lost one exchange would lose the next one, too. Or the queue has failed.
    asks: bool,
    _among: PhantomData<A>,
}

/// Among whom a queue is shared: how far its ordering reaches.
pub trait Among: Clone {
    /// The reach of what orders one view's accesses with another's.
    const REACH: Reach;

    /// Whether the sharers are of one block of one grid.
    const IN_BLOCK: bool;
}

/// The threads of a block. A view stays in its block, so it is not `Send`.
#[derive(Clone, Copy, Debug)]
pub struct InBlock(PhantomData<*const ()>);

/// The threads of a GPU.
#[derive(Clone, Copy, Debug)]
pub enum InGpu {}

impl Among for InBlock {
    const REACH: Reach = Reach::Block;
    const IN_BLOCK: bool = true;
}

impl Among for InGpu {
    const REACH: Reach = Reach::Gpu;
    const IN_BLOCK: bool = false;
}

impl<A: Among> SharedAmong<A> {
    /// Waits until everything before `start` is published.
    #[inline(always)]
    fn await_turn(&self, state: &QueueState, ring: Ring, start: u64) -> Result<(), QueueError> {
        // Those before us are we.
        if start == self.published {
            return Ok(());
        }
        // Acquire, so that the record and doorbell of those before us come
        // before ours: the record must never go back.
        let mut ready = load_acquire64(&state.ready, A::REACH);
        if ready == start {
            return Ok(());
        }
        let mut wait = Deadline::after_ms(TURN_MS).wait();
        while ready != start {
            let late = wait.expired();
            let failed = load_relaxed64(&state.error, A::REACH);
            if let Some(error) = QueueError::from_bits(failed)
                && let Cause::Stalled { .. } = error.cause()
            {
                return Err(error);
            }
            ready = load_acquire64(&state.ready, A::REACH);
            if late && ready != start {
                let wqe = ring.index(ready);
                return Err(QueueError::new(Cause::Stalled { wqe }));
            }
        }
        Ok(())
    }
}

impl<A: Among> Ledger for SharedAmong<A> {
    const SHARED: bool = true;
    const REACH: Reach = A::REACH;

    #[inline(always)]
    fn follower(_: Internal, position: u64) -> Self {
        Self {
            // Nothing is known yet: the first post or wait asks.
            consumed: 0,
            next_cqe: 0,
            ahead: 0,
            published: position,
            asks: false,
            _among: PhantomData,
        }
    }

    #[inline(always)]
    fn open(internal: Internal, state: &QueueState) -> Result<Self, OpenError> {
        openings::share(state, A::IN_BLOCK)?;
        // The first exchange says where the queue stands.
        Ok(Self::follower(internal, 0))
    }

    #[inline(always)]
    fn close(&mut self, state: &QueueState) {
        // What this view did is already in the shared words.
        openings::remove(state);
    }

    #[inline(always)]
    fn position(&self) -> u64 {
        self.published
    }

    #[inline(always)]
    fn reserve_known<C: Scope>(
        &mut self,
        state: &QueueState,
        ring: Ring,
        blocks: u32,
        acts: bool,
    ) -> Option<u64> {
        let start = self.published;
        let mut reserved = false;
        if acts
            & !self.asks
            & (blocks <= ring.group_limit())
            & ring.has_room(start, self.consumed, blocks)
        {
            let end = start + blocks as u64;
            // Relaxed, as in `reserve`.
            self.asks = compare_exchange_relaxed64(&state.reserved, start, end, A::REACH).is_err();
            reserved = !self.asks;
        }
        // One vote, and all know where they stand.
        C::any(reserved).then_some(start)
    }

    /// The word is where the reservation starts.
    #[inline(always)]
    fn reserve(&mut self, state: &QueueState, ring: Ring, blocks: u32) -> Option<u64> {
        // Where nobody else has posted since, this is where the next one begins;
        // where somebody has, the exchange says so, in the time of a load.
        let mut start = self.published;
        for _ in 0..RESERVE_TRIES {
            if !ring.has_room(start, self.consumed, blocks) {
                return None;
            }
            let end = start + blocks as u64;
            // Relaxed, because it hands out numbers: that the slots are free is
            // ordered by `consumed`, and one publisher after another by `ready`.
            match compare_exchange_relaxed64(&state.reserved, start, end, A::REACH) {
                Ok(_) => {
                    self.asks = start != self.published;
                    return Some(start);
                }
                Err(found) => start = found,
            }
        }
        None
    }

    #[inline(always)]
    fn take_up<C: Scope>(&mut self, _: Ring, start: u64) -> u64 {
        start
    }

    #[inline(always)]
    fn reserve_unchecked(&mut self, state: &QueueState, blocks: u32) -> u64 {
        fetch_add64(&state.reserved, blocks as u64, A::REACH)
    }

    #[inline(always)]
    fn drop_credit(&mut self) {
        self.asks = true;
    }

    #[inline(always)]
    fn publish<C: Scope>(
        &mut self,
        state: &QueueState,
        ring: Ring,
        start: Option<u64>,
        end: u64,
        leads: bool,
        publish: impl FnOnce(u64),
    ) -> Result<(), QueueError> {
        if leads {
            if let Some(start) = start {
                self.await_turn(state, ring, start)?;
            }
            publish(end);
            // Record and doorbell before those of the next one, who sees this.
            store_release64(&state.ready, end, A::REACH);
        } else if start.is_some() && !C::COLLECTIVE {
            // A lone lane cannot tell whether the leader of its group got its turn. Its next exchange says so.
            return Ok(());
        }
        self.published = end;
        Ok(())
    }

    #[inline(always)]
    fn published(&self, state: &QueueState) -> u64 {
        load_relaxed64(&state.ready, A::REACH)
    }

    #[inline(always)]
    fn consumed(&self) -> u64 {
        self.consumed
    }

    #[inline(always)]
    fn seen(&self) -> u64 {
        self.consumed + u64::from(self.ahead)
    }

    #[inline(always)]
    fn refresh(&mut self, state: &QueueState) -> u64 {
        // `consumed` before the CQE, because a CQE read first could be older
        // than it, and would then look 2^16 blocks newer. Acquire also puts
        // another's reading of a CQE before ours, so that ours is no older,
        // before our reuse of the slots that it freed, and before our reading of
        // the data that it vouches for.
        let consumed = load_acquire64(&state.consumed, A::REACH);
        if consumed != self.consumed {
            self.consumed = consumed;
            // Loaded behind `consumed`, which was stored after it: it counts all CQEs
            // that told of `consumed`, and perhaps more. Acquire, so that we find in
            // their entries nothing older than what was taken from there.
            self.next_cqe = load_acquire64(&state.taken, A::REACH) as u32;
            self.ahead = 0;
        }
        consumed
    }

    #[inline(always)]
    fn told(&self, state: &QueueState) -> (u64, u64) {
        let consumed = load_relaxed64(&state.consumed, A::REACH);
        (consumed, load_relaxed64(&state.error, A::REACH))
    }

    #[inline(always)]
    fn next_cqe(&self) -> u32 {
        self.next_cqe
    }

    #[inline(always)]
    fn take_next(&mut self, consumed: u64) {
        self.ahead = consumed.wrapping_sub(self.consumed) as u32;
        self.next_cqe = self.next_cqe.wrapping_add(1);
    }

    #[inline(always)]
    fn start_taking(&mut self, state: &QueueState) -> Option<u64> {
        compare_exchange64(&state.polling, 0, 1, A::REACH).ok()?;
        Some(load_relaxed64(&state.taken, A::REACH))
    }

    #[inline(always)]
    fn end_taking(
        &mut self,
        state: &QueueState,
        consumed: u64,
        taken: u64,
        error: Option<QueueError>,
    ) {
        if consumed != self.consumed {
            // Stores, because one view at a time reads CQEs. The caller's fence comes
            // before both. Release, because the others go by `consumed`, and look for the
            // next CQE where `taken` says.
            store_relaxed64(&state.taken, taken, A::REACH);
            store_release64(&state.consumed, consumed, A::REACH);
            self.consumed = consumed;
            self.next_cqe = taken as u32;
            self.ahead = 0;
        }
        if let Some(error) = error {
            // Behind `consumed`, because an error ends the waits for what is not complete.
            keep_first(state, error.to_bits());
        }
        // `taken` before the lock's end, because the next poller goes on there.
        store_release64(&state.polling, 0, A::REACH);
    }
}
