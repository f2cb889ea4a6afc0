//! Who else uses a queue: where its indices live and what keeps them whole.

use core::marker::PhantomData;

use warpbell_gpu::arch::{Reach, fence_acquire};

use crate::error::{Cause, OpenError, QueueError};
use crate::queue::Ring;
use crate::queue::ledger::{Internal, Ledger};
use crate::state::QueueState;
use crate::words::{
    compare_exchange_relaxed64, compare_exchange64, fetch_add64, load_acquire64, load_relaxed64,
    store_relaxed64, store_release64,
};
use crate::{Deadline, block};

/// The low half of `openings` counts the views, its high half says whose they
/// are: those of the block of that index in the grid that `grid` names, or of one of these. Without views the
/// high half means nothing.
const WHOLE_GPU: u32 = u32::MAX;
const ONE_OWNER: u32 = u32::MAX - 1;
/// A block's, whose first view has not yet said of which grid.
const CLAIMING: u32 = u32::MAX - 2;

/// Most views at a time, far below what would carry into the high half.
const MAX_VIEWS: u32 = u32::MAX / 2;

/// Tries to reserve before contention counts as "no room" for this turn.
const RESERVE_TRIES: u32 = 1024;

/// How long a publisher waits for those who reserved before it. They only have
/// stores left to do, so that this much means that one of them is gone.
const TURN_MS: u64 = 2_000;

/// How a queue is shared: [`Exclusive`], [`BlockShared`] or [`GpuShared`].
///
/// Sealed: its methods are the queue's own, and nobody else can call them.
pub trait Sharing: Ledger {}

impl Sharing for Exclusive {}
impl<A: Among> Sharing for Shared<A> {}

/// One thread, warp or block has the queue to itself; its indices lie in registers.
///
/// Each thread of a warp or block counts for itself what all of them post, so
/// that nobody has to tell the others where a reservation starts. What is
/// complete the leader alone knows, who tells of it when the credit is used up.
#[derive(Clone, Debug)]
pub struct Exclusive {
    /// The first block that is not published.
    next: u64,
    /// All blocks from there to before this one are at hand: known to be free.
    at_hand: u64,
    consumed: u64,
    taken: u64,
}

/// The threads of one block share the queue, and no other block's may.
pub type BlockShared = Shared<InBlock>;

/// All threads of the GPU share the queue.
pub type GpuShared = Shared<InGpu>;

/// A share in a queue: indices in shared words, one compare-and-swap a post.
///
/// `ready` doubles as the publisher's lock: whoever reserved from `ready` on
/// may publish, and hands on by storing its end there.
#[derive(Clone, Debug)]
pub struct Shared<A: Among> {
    consumed: u64,
    /// The CQE to look at next: a guess, which is right for a view that is alone.
    next_cqe: u32,
    /// Blocks behind `consumed` that the CQEs before that one have shown complete. Not counted among these: a view that
    /// reserved by them would leave the others' `consumed` behind, and by more than 2^16 blocks they could not catch up.
    ahead: u32,
    /// All blocks below are published: this view published the last of them, or that of its group's leader has, whom a
    /// warp of lone lanes meets at a barrier before it posts again. Followers of a warp's or block's view need none:
    /// only their leader publishes.
    published: u64,
    /// Whether others posted between the last two posts of this view: then it is not asked first whether nobody has,
    /// because who has been told no at once tries again where the others are.
    contended: bool,
    _among: PhantomData<A>,
}

/// Among whom a queue is shared: how far its ordering reaches.
pub trait Among: Clone {
    /// The reach of what orders one view's accesses with another's.
    const REACH: Reach;

    /// Whether the sharers are of one grid.
    const IN_GRID: bool;

    /// Who may open the queue beside the caller, for `openings`.
    fn sharers() -> u32;
}

/// The threads of a block. A view stays in its block, so it is not `Send`.
#[derive(Clone, Copy, Debug)]
pub struct InBlock(PhantomData<*const ()>);

/// The threads of a GPU.
#[derive(Clone, Copy, Debug)]
pub enum InGpu {}

impl Among for InBlock {
    const REACH: Reach = Reach::Block;
    const IN_GRID: bool = true;

    #[inline(always)]
    fn sharers() -> u32 {
        block::index()
    }
}

impl Among for InGpu {
    const REACH: Reach = Reach::Gpu;
    const IN_GRID: bool = false;

    #[inline(always)]
    fn sharers() -> u32 {
        WHOLE_GPU
    }
}

impl Ledger for Exclusive {
    const SHARED: bool = false;

    #[inline(always)]
    fn follower(_: Internal) -> Self {
        Self {
            next: 0,
            at_hand: 0,
            consumed: 0,
            taken: 0,
        }
    }

    #[inline(always)]
    fn open(_: Internal, state: &QueueState) -> Result<Self, OpenError> {
        let openings = load_relaxed64(&state.openings, Reach::Gpu);
        let (views, _) = split(openings);
        if views != 0 {
            return Err(OpenError::InUse);
        }
        let one_view = join(1, ONE_OWNER);
        compare_exchange64(&state.openings, openings, one_view, Reach::Gpu)
            .map_err(|_| OpenError::InUse)?;
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
        remove_view(state);
    }

    #[inline(always)]
    fn consumed(&self) -> u64 {
        self.consumed
    }

    #[inline(always)]
    fn published(&self, _: &QueueState) -> u64 {
        self.next
    }

    #[inline(always)]
    fn refresh(&mut self, _: &QueueState) -> u64 {
        self.consumed
    }

    #[inline(always)]
    fn learn(&mut self, _: &QueueState, consumed: u64, taken: u64) {
        self.consumed = consumed;
        self.taken = taken;
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
    fn seen(&self) -> u64 {
        self.consumed
    }

    #[inline(always)]
    fn try_reserve(&mut self, _: &QueueState, ring: Ring, blocks: u32) -> Option<u64> {
        let credit = ring.room(self.next, self.consumed);
        (credit >= blocks).then_some(credit as u64)
    }

    #[inline(always)]
    fn try_reserve_next(&mut self, _: &QueueState, _: u32) -> bool {
        false
    }

    #[inline(always)]
    fn is_likely_next(&self) -> bool {
        false
    }

    #[inline(always)]
    fn reserve_at_hand(&self, blocks: u32) -> Option<u64> {
        (self.next + blocks as u64 <= self.at_hand).then_some(self.next)
    }

    #[inline(always)]
    fn take_up(&mut self, credit: u64) -> u64 {
        self.at_hand = self.next + credit;
        self.next
    }

    #[inline(always)]
    fn drop_credit(&mut self) {
        self.at_hand = 0;
    }

    #[inline(always)]
    fn keep_at_hand(&mut self, end: u64) {
        self.at_hand = self.at_hand.min(end);
    }

    #[inline(always)]
    fn position(&self) -> u64 {
        self.next
    }

    #[inline(always)]
    fn set_position(&mut self, position: u64) {
        self.next = position;
    }

    #[inline(always)]
    fn reserve_unchecked(&mut self, _: &QueueState, _: u32) -> u64 {
        self.next
    }

    #[inline(always)]
    fn await_turn(&self, _: &QueueState, _: Ring, _: u64) -> Result<(), QueueError> {
        Ok(())
    }

    #[inline(always)]
    fn pass_turn(&mut self, _: &QueueState, end: u64) {
        self.next = end;
    }

    #[inline(always)]
    fn start_taking(&mut self, _: &QueueState) -> Option<u64> {
        Some(self.taken)
    }

    #[inline(always)]
    fn stop_taking(&mut self, _: &QueueState) {}

    #[inline(always)]
    fn others_failed(&self, _: &QueueState) -> bool {
        false
    }
}

/// The views of `openings`, and whose they are.
#[inline(always)]
const fn split(openings: u64) -> (u32, u32) {
    (openings as u32, (openings >> 32) as u32)
}

#[inline(always)]
const fn join(views: u32, whose: u32) -> u64 {
    (whose as u64) << 32 | views as u64
}

/// Counts a view as gone.
#[inline(always)]
fn remove_view(state: &QueueState) {
    fetch_add64(&state.openings, u64::MAX, Reach::Gpu);
}

impl<A: Among> Ledger for Shared<A> {
    const SHARED: bool = true;

    #[inline(always)]
    fn follower(_: Internal) -> Self {
        Self {
            // Nothing is known yet: the first post or wait asks.
            consumed: 0,
            next_cqe: 0,
            ahead: 0,
            published: 0,
            contended: false,
            _among: PhantomData,
        }
    }

    #[inline(always)]
    fn open(internal: Internal, state: &QueueState) -> Result<Self, OpenError> {
        let sharers = A::sharers();
        let mut openings = load_relaxed64(&state.openings, Reach::Gpu);
        let mut wait = None;
        for _ in 0..RESERVE_TRIES {
            let (views, whose) = split(openings);
            if views == 0 {
                let whose = if A::IN_GRID { CLAIMING } else { sharers };
                let one_view = join(1, whose);
                match compare_exchange64(&state.openings, openings, one_view, Reach::Gpu) {
                    Ok(_) => {
                        if A::IN_GRID {
                            store_relaxed64(&state.grid, block::grid(), Reach::Gpu);
                            // The grid before the block's index, because whoever finds that compares the grid: the
                            // addition releases. It is one, because others may count themselves in and out meanwhile.
                            let change = join(0, sharers.wrapping_sub(CLAIMING));
                            fetch_add64(&state.openings, change, Reach::Gpu);
                        }
                        return Ok(Self::follower(internal));
                    }
                    Err(found) => openings = found,
                }
            } else if whose == sharers {
                // An addition, because thousands may open the queue at once.
                let found = fetch_add64(&state.openings, 1, Reach::Gpu);
                let (views, whose) = split(found);
                let ours = whose == sharers && views < MAX_VIEWS;
                // The same block's of another grid is another one, and `.cta` would not reach it.
                let same_grid =
                    || !A::IN_GRID || load_relaxed64(&state.grid, Reach::Gpu) == block::grid();
                if ours && same_grid() {
                    return Ok(Self::follower(internal));
                }
                // The views that were there have gone, and others come; or they are another grid's.
                remove_view(state);
                break;
            } else if A::IN_GRID && whose == CLAIMING {
                // The first view has but two words to write.
                let wait = wait.get_or_insert_with(|| Deadline::after_ms(TURN_MS).wait());
                while split(openings).1 == CLAIMING && split(openings).0 != 0 {
                    if wait.expired() {
                        return Err(OpenError::InUse);
                    }
                    openings = load_relaxed64(&state.openings, Reach::Gpu);
                }
            } else {
                break;
            }
        }
        Err(OpenError::InUse)
    }

    #[inline(always)]
    fn close(&mut self, state: &QueueState) {
        // What this view did is already in the shared words.
        remove_view(state);
    }

    #[inline(always)]
    fn consumed(&self) -> u64 {
        self.consumed
    }

    #[inline(always)]
    fn published(&self, state: &QueueState) -> u64 {
        load_relaxed64(&state.ready, A::REACH)
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
    fn learn(&mut self, state: &QueueState, consumed: u64, taken: u64) {
        // Stores, because one view at a time reads CQEs. The caller's fence comes
        // before both. Release, because the others go by `consumed`, and look for the
        // next CQE where `taken` says.
        store_relaxed64(&state.taken, taken, A::REACH);
        store_release64(&state.consumed, consumed, A::REACH);
        self.consumed = consumed;
        self.next_cqe = taken as u32;
        self.ahead = 0;
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
    fn seen(&self) -> u64 {
        self.consumed + u64::from(self.ahead)
    }

    #[inline(always)]
    fn try_reserve(&mut self, state: &QueueState, ring: Ring, blocks: u32) -> Option<u64> {
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
                    self.contended = start != self.published;
                    return Some(start);
                }
                Err(found) => start = found,
            }
        }
        None
    }

    #[inline(always)]
    fn try_reserve_next(&mut self, state: &QueueState, blocks: u32) -> bool {
        let (start, end) = (self.published, self.published + blocks as u64);
        // Relaxed, as in `try_reserve`.
        self.contended = compare_exchange_relaxed64(&state.reserved, start, end, A::REACH).is_err();
        !self.contended
    }

    #[inline(always)]
    fn is_likely_next(&self) -> bool {
        !self.contended
    }

    #[inline(always)]
    fn reserve_at_hand(&self, _: u32) -> Option<u64> {
        None
    }

    #[inline(always)]
    fn take_up(&mut self, start: u64) -> u64 {
        start
    }

    #[inline(always)]
    fn drop_credit(&mut self) {}

    #[inline(always)]
    fn keep_at_hand(&mut self, _: u64) {}

    #[inline(always)]
    fn position(&self) -> u64 {
        self.published
    }

    #[inline(always)]
    fn set_position(&mut self, position: u64) {
        self.published = position;
    }

    #[inline(always)]
    fn reserve_unchecked(&mut self, state: &QueueState, blocks: u32) -> u64 {
        fetch_add64(&state.reserved, blocks as u64, A::REACH)
    }

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

    #[inline(always)]
    fn pass_turn(&mut self, state: &QueueState, end: u64) {
        // Record and doorbell before those of the next one, who sees this.
        store_release64(&state.ready, end, A::REACH);
        self.published = end;
    }

    #[inline(always)]
    fn start_taking(&mut self, state: &QueueState) -> Option<u64> {
        compare_exchange64(&state.polling, 0, 1, A::REACH).ok()?;
        Some(load_relaxed64(&state.taken, A::REACH))
    }

    #[inline(always)]
    fn stop_taking(&mut self, state: &QueueState) {
        // `taken` before the lock's end, because the next poller goes on there.
        store_release64(&state.polling, 0, A::REACH);
    }

    #[inline(always)]
    fn others_failed(&self, state: &QueueState) -> bool {
        let failed = load_relaxed64(&state.error, A::REACH) != 0;
        if failed {
            // The error before `consumed`, because whoever found the error has
            // first told what was complete before it.
            fence_acquire(A::REACH);
        }
        failed
    }
}
