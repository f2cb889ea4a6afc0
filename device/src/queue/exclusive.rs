//! The ledger of a queue with one owner: all indices lie in registers.

use warpbell_gpu::arch::Reach;

use crate::error::{OpenError, QueueError};
use crate::queue::ledger::{Internal, Ledger};
use crate::queue::openings;
use crate::queue::producer::keep_first;
use crate::queue::{Ring, Scope};
use crate::state::QueueState;
use crate::words::{load_relaxed64, store_relaxed64};

/// One thread, warp or block has the queue to itself; its indices lie in registers.
///
/// Each thread of a warp or block counts what all of them post, so that no thread has to be told where a reservation
/// starts. Only the leader counts what is complete, and it tells the others of more credit when theirs is used up.
#[derive(Clone, Debug)]
pub struct Exclusive {
    /// The first block that is not published.
    next: u64,
    /// All blocks from there to before this one are at hand: known to be free.
    ///
    /// Of a thread they end before the next block that makes its WQE be signalled in any case.
    at_hand: u64,
    consumed: u64,
    taken: u64,
}

impl Ledger for Exclusive {
    const SHARED: bool = false;
    const REACH: Reach = Reach::Gpu;

    #[inline(always)]
    fn follower(_: Internal, position: u64) -> Self {
        Self {
            next: position,
            at_hand: 0,
            consumed: 0,
            taken: 0,
        }
    }

    #[inline(always)]
    fn open(_: Internal, state: &QueueState) -> Result<Self, OpenError> {
        openings::claim(state)?;
        Ok(Self {
            // What a shared view reserved and gave up is behind it.
            next: load_relaxed64(&state.ready, Reach::Gpu),
            // The first post asks what is free.
            at_hand: 0,
            consumed: load_relaxed64(&state.consumed, Reach::Gpu),
            taken: load_relaxed64(&state.taken, Reach::Gpu),
        })
    }

    #[inline(always)]
    fn close(&mut self, state: &QueueState) {
        store_relaxed64(&state.reserved, self.next, Reach::Gpu);
        store_relaxed64(&state.ready, self.next, Reach::Gpu);
        store_relaxed64(&state.consumed, self.consumed, Reach::Gpu);
        store_relaxed64(&state.taken, self.taken, Reach::Gpu);
        // The indices before the claim's end, because the next owner reads
        // them as soon as it has claimed the queue: the decrement releases.
        openings::remove(state);
    }

    #[inline(always)]
    fn position(&self) -> u64 {
        self.next
    }

    /// All threads of the scope find the same. The reservation holds once it is published, so that one that is given up
    /// (a leaked batch) leaves no gap.
    #[inline(always)]
    fn reserve_known<C: Scope>(
        &mut self,
        _: &QueueState,
        ring: Ring,
        blocks: u32,
        _: bool,
    ) -> Option<u64> {
        let start = (self.next + blocks as u64 <= self.at_hand).then_some(self.next);
        start.filter(|_| blocks <= ring.group_limit())
    }

    /// The word is the credit.
    #[inline(always)]
    fn reserve(&mut self, _: &QueueState, ring: Ring, blocks: u32) -> Option<u64> {
        let credit = ring.room(self.next, self.consumed);
        (credit >= blocks).then_some(credit as u64)
    }

    #[inline(always)]
    fn take_up<C: Scope>(&mut self, ring: Ring, credit: u64) -> u64 {
        self.at_hand = self.next + credit;
        if !C::COLLECTIVE {
            // So that a post of what is at hand need not ask whether it is marked.
            self.at_hand = self.at_hand.min(ring.next_signal(self.next));
        }
        self.next
    }

    #[inline(always)]
    fn reserve_unchecked(&mut self, _: &QueueState, _: u32) -> u64 {
        self.next
    }

    #[inline(always)]
    fn drop_credit(&mut self) {
        self.at_hand = 0;
    }

    #[inline(always)]
    fn publish<C: Scope>(
        &mut self,
        _: &QueueState,
        _: Ring,
        _: Option<u64>,
        end: u64,
        leads: bool,
        publish: impl FnOnce(u64),
    ) -> Result<(), QueueError> {
        if leads {
            publish(end);
        }
        self.next = end;
        Ok(())
    }

    #[inline(always)]
    fn published(&self, _: &QueueState) -> u64 {
        self.next
    }

    #[inline(always)]
    fn consumed(&self) -> u64 {
        self.consumed
    }

    #[inline(always)]
    fn seen(&self) -> u64 {
        self.consumed
    }

    #[inline(always)]
    fn refresh(&mut self, _: &QueueState) -> u64 {
        self.consumed
    }

    #[inline(always)]
    fn told(&self, _: &QueueState) -> (u64, u64) {
        (self.consumed, 0)
    }

    #[inline(always)]
    fn next_cqe(&self) -> u32 {
        self.taken as u32
    }

    #[inline(always)]
    fn take_next(&mut self, consumed: u64) {
        self.consumed = consumed;
        self.taken += 1;
    }

    #[inline(always)]
    fn start_taking(&mut self, _: &QueueState) -> Option<u64> {
        Some(self.taken)
    }

    #[inline(always)]
    fn end_taking(
        &mut self,
        state: &QueueState,
        consumed: u64,
        taken: u64,
        error: Option<QueueError>,
    ) {
        self.consumed = consumed;
        self.taken = taken;
        if let Some(error) = error {
            keep_first(state, error.to_bits());
        }
    }
}
