//! What send and receive queues have in common: opening, room, turns, errors.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr;

use mlx5_wqe::{CqeOpcode, CqeTail};
use warpbell_gpu::arch::{Reach, fence_acquire};
use warpbell_gpu::trace::{Kind, WAIT_FOR_ROOM, WAIT_IN_VAIN};
use warpbell_gpu::tuned::narrow;

use crate::Deadline;
use crate::error::{Cause, OpenError, PostError, QueueError};
use crate::handle::Completions;
use crate::processor::Processor;
use crate::queue::completion;
use crate::queue::lanes::Lanes;
use crate::queue::ledger::INTERNAL;
use crate::queue::{Ring, Scope, Sharing};
use crate::state::QueueState;
use crate::words::{compare_exchange64, load_relaxed64};

/// The producing side of a ring, for one view of it.
pub(super) struct Producer<'a, S: Sharing, C: Scope> {
    pub(super) state: &'a QueueState,
    pub(super) ring: Ring,
    pub(super) ledger: S,
    /// Whether this view knows that the queue has failed.
    failed: bool,
    _scope: PhantomData<C>,
}

/// What a leader tells the others, in one word: a block or another number
/// below 2^62, the bits of a [`QueueError`], or one of these, which are neither.
const LATE: u64 = u64::MAX;
const IN_USE: u64 = u64::MAX - 1;
const TOO_MANY: u64 = u64::MAX - 2;
const ELSEWHERE: u64 = u64::MAX - 3;
const DONE: u64 = 0;
/// Done, and the queue has failed at something behind it.
const DONE_BEFORE_ERROR: u64 = 1;

/// How long lanes that post together look for room together, in microseconds, before each of them waits for itself, if the
/// first one's deadline does not pass before: for
/// longer than another thread is busy reading the completion that tells of it. Lanes that part may not meet again, and
/// then each has a doorbell of its own.
const TOGETHER_US: u64 = 10;

/// What stands for an error that is no longer there.
const LOST: u64 = QueueError::new(Cause::UnexpectedCompletion { op_own: 0 }).to_bits();

/// Why there is no answer: the word of a leader that has none.
///
/// One word, and not the error that becomes of it: a GPU's compiler sees through
/// a choice between two words, and not through one between larger values, which
/// it would put together and ask again on the way without an error, too.
#[derive(Clone, Copy)]
pub(super) struct Refusal(u64);

impl Refusal {
    /// The answer in a leader's word, or that it is none. Blocks stay below the
    /// bits that say whose error it is.
    #[inline(always)]
    const fn or_answer(word: u64) -> Result<u64, Self> {
        if word >> 62 == 0 {
            Ok(word)
        } else {
            Err(Self(word))
        }
    }

    /// The queue's error, if it is one.
    #[inline(always)]
    pub(super) const fn error(self) -> Option<QueueError> {
        match self.0 {
            LATE | IN_USE | TOO_MANY | ELSEWHERE => None,
            bits => QueueError::from_bits(bits),
        }
    }

    /// Why `blocks` were not reserved, of which `limit` are allowed: before the
    /// deadline or, without one, at once.
    #[inline(always)]
    pub(super) fn of_post(self, blocks: u32, limit: u32, deadline: Option<Deadline>) -> PostError {
        match self.0 {
            TOO_MANY => PostError::TooManyBlocks {
                asked: blocks,
                limit,
            },
            LATE if deadline.is_none() => PostError::NoRoom,
            LATE => PostError::Deadline,
            _ => self.error().map_or(PostError::Deadline, PostError::Failed),
        }
    }
}

impl<'a, S: Sharing, C: Scope> Producer<'a, S, C> {
    #[inline(always)]
    pub(super) fn open(
        state: &'a QueueState,
        depth_log2: u8,
        processor: Processor,
    ) -> Result<Self, OpenError> {
        // On a CPU, where other breaches of a scope's contract are found, too; a GPU would pay for it in registers.
        if C::COLLECTIVE && cfg!(not(target_arch = "nvptx64")) {
            // Before anything is claimed: a leader's answer counts for the leader's queue alone.
            let own = ptr::from_ref(state).addr() as u64;
            if C::any(C::broadcast(own) != own) {
                return Err(OpenError::Apart);
            }
        }
        let mut ledger = S::follower(INTERNAL, 0);
        let mut word = DONE;
        if C::leads() {
            // By the leader, who alone claims: a question for all would be in the way of all.
            if !processor.admits(Processor::here()) {
                word = ELSEWHERE;
            } else if let Some(error) = state.first_error() {
                word = error.to_bits();
            } else {
                match S::open(INTERNAL, state) {
                    Ok(opened) => ledger = opened,
                    Err(_) => word = IN_USE,
                }
            }
        }
        let word = C::broadcast(word);
        if let Err(refusal) = Refusal::or_answer(word) {
            return Err(match refusal.error() {
                Some(error) => OpenError::Failed(error),
                None if word == ELSEWHERE => OpenError::Elsewhere,
                None => OpenError::InUse,
            });
        }
        if C::COLLECTIVE && !S::SHARED {
            let position = C::broadcast(ledger.position());
            if !C::leads() {
                ledger = S::follower(INTERNAL, position);
            }
        }
        Ok(Self {
            state,
            ring: Ring::new(depth_log2),
            ledger,
            failed: false,
            _scope: PhantomData,
        })
    }

    /// A view that is not open, and is neither used nor dropped.
    #[inline(always)]
    pub(super) fn follower(state: &'a QueueState, depth_log2: u8) -> Self {
        Self {
            state,
            ring: Ring::new(depth_log2),
            ledger: S::follower(INTERNAL, 0),
            failed: false,
            _scope: PhantomData,
        }
    }

    /// Reserves `blocks` for the scope, if they are known to be free. All of the scope get the same answer; one of them
    /// `acts`.
    ///
    /// To be asked before [`reserve`](Self::reserve), and not by it: what comes of both
    /// would be one value, which the caller would have to ask again on the quick way, too.
    #[inline(always)]
    pub(super) fn reserve_known(&mut self, blocks: u32, acts: bool) -> Option<u64> {
        let Self { state, ring, .. } = *self;
        self.ledger.reserve_known::<C>(state, ring, blocks, acts)
    }

    /// The same in an exclusive queue alone. In a shared one [`reserve`](Self::reserve) begins with the same exchange.
    #[inline(always)]
    pub(super) fn reserve_at_hand(&mut self, blocks: u32) -> Option<u64> {
        match S::SHARED {
            true => None,
            false => self.reserve_known(blocks, C::leads()),
        }
    }

    /// Reserves `blocks` for the scope, or for `lanes` that act each for itself.
    /// Without a deadline it answers at once, and soon for several lanes, whose
    /// deadlines may differ. `poll` takes up what the NIC has completed since.
    #[inline(always)]
    pub(super) fn reserve<H>(
        &mut self,
        lanes: Lanes,
        blocks: u32,
        deadline: Option<Deadline>,
        poll: Poll<'_, H, impl Fn(&H, &mut Self)>,
    ) -> Result<u64, Refusal> {
        if blocks > self.ring.group_limit() {
            return Err(Refusal(TOO_MANY));
        }
        let mut word = DONE;
        if C::leads() && lanes.leads() {
            word = match self.attempt(blocks) {
                Some(word) => word,
                None => {
                    let limit = match deadline {
                        Some(deadline) if lanes.count() == 1 => deadline,
                        Some(deadline) if S::SHARED => deadline.at_most_us(TOGETHER_US),
                        _ => Deadline::PASSED,
                    };
                    let attempt = |producer: &mut Self, _: &mut bool| producer.attempt(blocks);
                    self.poll_until(limit, WAIT_FOR_ROOM, false, poll, attempt)
                }
            };
        }
        let word = match C::COLLECTIVE {
            true => C::broadcast(word),
            false => lanes.broadcast(word),
        };
        let word = Refusal::or_answer(word)?;
        Ok(self.ledger.take_up::<C>(self.ring, word))
    }

    /// Reserves `blocks` for the scope without a look at the credit.
    #[inline(always)]
    pub(super) fn reserve_unchecked(&mut self, lanes: Lanes, blocks: u32) -> u64 {
        if !S::SHARED {
            return self.ledger.reserve_unchecked(self.state, blocks);
        }
        let start = if C::leads() && lanes.leads() {
            self.ledger.reserve_unchecked(self.state, blocks)
        } else {
            0
        };
        match C::COLLECTIVE {
            true => C::broadcast(start),
            false => lanes.broadcast(start),
        }
    }

    /// Reserves `blocks` if there is room for them, as far as is known.
    #[inline(always)]
    fn attempt(&mut self, blocks: u32) -> Option<u64> {
        let Self { state, ring, .. } = *self;
        if self.failed {
            return None;
        }
        self.ledger.reserve(state, ring, blocks)
    }

    /// Polls until an attempt succeeds, the queue has failed, or the deadline is
    /// over; `polled` says that a poll has just found nothing. An attempt that
    /// looks for itself says so in the same way. `awaited` is the value of the wait's event.
    #[inline(always)]
    fn poll_until<H>(
        &mut self,
        deadline: Deadline,
        awaited: u32,
        polled: bool,
        poll: Poll<'_, H, impl Fn(&H, &mut Self)>,
        attempt: impl Fn(&mut Self, &mut bool) -> Option<u64>,
    ) -> u64 {
        // A single look is no wait.
        let waits = S::TRACED && deadline != Deadline::PASSED;
        if waits {
            self.ledger.note(Kind::WaitBegin, awaited);
        }
        let word = self.poll_in_place(deadline, polled, poll, attempt);
        if waits {
            let in_vain = if word >> 62 == 0 { 0 } else { WAIT_IN_VAIN };
            self.ledger.note(Kind::WaitEnd, awaited | in_vain);
        }
        word
    }

    /// As [`keep_polling`](Self::keep_polling), in a way that leaves the view in registers.
    #[inline(always)]
    fn poll_in_place<H>(
        &mut self,
        deadline: Deadline,
        polled: bool,
        poll: Poll<'_, H, impl Fn(&H, &mut Self)>,
        attempt: impl Fn(&mut Self, &mut bool) -> Option<u64>,
    ) -> u64 {
        if cfg!(target_arch = "nvptx64") {
            return self.keep_polling(deadline, polled, poll, attempt);
        }
        // The call is on a copy, so that it has no address of the view itself,
        // which would have to lie in memory from then on. Not dropped: it is no
        // view of its own.
        // SAFETY: a valid view. Until it gets the copy's content back, nobody uses it, but for a lane's unwinding, which
        // drops it as it was.
        let mut copy = ManuallyDrop::new(unsafe { ptr::read(self) });
        let word = copy.keep_polling(deadline, polled, poll, attempt);
        // SAFETY: as above; the view's old content is not dropped, because it went on as the copy.
        unsafe { ptr::write(self, ManuallyDrop::into_inner(copy)) };
        word
    }

    // Out of the way on a CPU; on a GPU a call would put the queue into memory.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[cfg_attr(not(target_arch = "nvptx64"), cold, inline(never))]
    fn keep_polling<H>(
        &mut self,
        deadline: Deadline,
        mut polled: bool,
        poll: Poll<'_, H, impl Fn(&H, &mut Self)>,
        attempt: impl Fn(&mut Self, &mut bool) -> Option<u64>,
    ) -> u64 {
        let mut wait = None;
        loop {
            // Others' error before the poll, which then finds all that they
            // knew to be complete before it.
            if self.has_failed() || !polled {
                (poll.take)(poll.handle, self);
            }
            polled = false;
            if let Some(word) = attempt(self, &mut polled) {
                return word;
            }
            if self.failed {
                return self.first_error();
            }
            let wait = wait.get_or_insert_with(|| deadline.wait());
            if wait.expired() {
                return LATE;
            }
            // A loop of its own, because each turn's length adds to a GPU's wait.
            while !S::SHARED && polled {
                if let Some(word) = attempt(self, &mut polled) {
                    return word;
                }
                if wait.expired() {
                    return LATE;
                }
            }
        }
    }

    /// Waits for this view's turn to publish the blocks from `start` to `end`, publishes them, and lets the next one go
    /// on. Without a `start` they begin where this view stands, so that it is its turn. A stall becomes the queue's
    /// error, which the next call reports. All of the scope, or of lanes that post together, call it; one `leads`.
    #[inline(always)]
    pub(super) fn publish(
        &mut self,
        start: Option<u64>,
        end: u64,
        leads: bool,
        publish: impl FnOnce(u64),
    ) {
        let Self { state, ring, .. } = *self;
        let published = self
            .ledger
            .publish::<C>(state, ring, start, end, leads, publish);
        if let Err(error) = published {
            self.fail(error);
        }
    }

    /// What stands where this view's next completion comes.
    #[inline(always)]
    fn next_tail(&self, completions: &Completions) -> CqeTail {
        completion::tail(completions, self.ledger.next_cqe())
    }

    /// Whether the next completion is the success of the WQE before block `after`: all of this but a comparison can be
    /// done before the completion is there.
    #[inline(always)]
    fn is_own(&self, after: u64, completions: &Completions, next: CqeTail) -> bool {
        // An index repeats itself after 2^16 blocks.
        let near = after.wrapping_sub(self.ledger.consumed()) <= u16::MAX as u64;
        let index = self.ring.index(after.wrapping_sub(1));
        let owner = completion::owner(completions, self.ledger.next_cqe());
        last_half(next).is_success_of_pass(index, owner) & near
    }

    /// What the next completion shows. Nothing depends on its load but that, so
    /// that it can be under way while the rest is prepared.
    #[inline(always)]
    fn glance_at(&mut self, next: CqeTail, after: u64, completions: &Completions) -> Glance {
        let next = last_half(next);
        let known = self.ledger.consumed();
        // More than any completion shows, where `after` is no news.
        let wanted = after.wrapping_sub(known);
        let wanted = match wanted <= u16::MAX as u64 {
            true => wanted as u32,
            false => u32::MAX,
        };
        let wanted = narrow(wanted);
        let shown = self.ring.shown(known, next.wqe_index()) as u64;
        let new = completion::is_new(completions, next, self.ledger.next_cqe());
        let success = next.cqe_opcode() == CqeOpcode::REQUESTER;
        Glance {
            done: new & success & (wanted <= shown as u32),
            // In a ring each new one shows more. Where all lie in one place, the newest one stays there.
            old: !new | (success & (shown == 0)),
            complete: known + shown,
        }
    }

    /// Whether no view knows of more than this one.
    #[inline(always)]
    fn knows_all(&mut self) -> bool {
        let known = self.ledger.consumed();
        self.ledger.refresh(self.state) == known
    }

    /// What is to be looked at first by who waits: the leader's next completion.
    #[inline(always)]
    pub(super) fn first_look(&self, completions: &Completions) -> CqeTail {
        match C::leads() {
            true => self.next_tail(completions),
            false => CqeTail(0),
        }
    }

    /// Whether a thread finds by one look that the blocks below `after` are not all complete, so far as anybody knows. It
    /// answers soon or not at all: all loads are under way together, and a poll of an empty queue takes as long as one.
    #[inline(always)]
    pub(super) fn is_pending(&self, look: CqeTail, after: u64, completions: &Completions) -> bool {
        if C::COLLECTIVE {
            return false;
        }
        let (consumed, error) = self.ledger.told(self.state);
        if self.is_own(after, completions, look) {
            return false;
        }
        let tail = last_half(look);
        let is_old = match completion::owner(completions, self.ledger.next_cqe()) {
            Some(owner) => !tail.is_new(owner),
            // Of a collapsed queue the newest completion stays where it is.
            None => {
                let last = self.ring.index(self.ledger.seen().wrapping_sub(1));
                tail.is_success_of_pass(last, None) | (tail.cqe_opcode() == CqeOpcode::INVALID)
            }
        };
        let knows_all = (consumed == self.ledger.consumed()) & (error == 0);
        (self.ledger.seen() < after) & knows_all & is_old
    }

    /// Waits until all blocks below `after` are complete, after a [first look](Self::first_look).
    #[inline(always)]
    pub(super) fn wait<H>(
        &mut self,
        next: CqeTail,
        after: u64,
        deadline: impl FnOnce() -> Deadline,
        completions: &Completions,
        poll: Poll<'_, H, impl Fn(&H, &mut Self)>,
    ) -> Result<(), Refusal> {
        let done = |producer: &mut Self, polled: &mut bool| {
            if producer.ledger.consumed() >= after {
                return Some(DONE);
            }
            if !S::SHARED {
                // Nobody else takes up what completes: until that place shows news, a
                // load of it is all there is to do, and a look takes the time of one.
                let next = producer.next_tail(completions);
                let glance = producer.glance_at(next, after, completions);
                if glance.done {
                    producer.ledger.take_next(glance.complete);
                    return Some(DONE);
                }
                *polled = glance.old;
            }
            None
        };
        let mut word = DONE;
        if C::leads() {
            // Mostly it is this request's own: one comparison behind the load.
            if !C::COLLECTIVE && self.is_own(after, completions, next) {
                self.ledger.take_next(after);
                return Ok(());
            }
            let glance = self.glance_at(next, after, completions);
            if glance.done {
                self.ledger.take_next(glance.complete);
                // Straight out: a GPU's compiler does not see through a detour.
                if !C::COLLECTIVE {
                    return Ok(());
                }
            } else if self.ledger.seen() < after {
                // An index repeats itself after 2^16 blocks, which others may have
                // seen complete. If they know no more either, less than that can be.
                let polled = glance.old && self.knows_all();
                let deadline = deadline();
                let last = self.ring.index(after.wrapping_sub(1)).0.into();
                word = match polled && deadline == Deadline::PASSED && !self.has_failed() {
                    true => LATE,
                    false => self.poll_until(deadline, last, polled, poll, done),
                };
            }
            if C::COLLECTIVE && word == DONE && self.failed {
                word = DONE_BEFORE_ERROR;
            }
        }
        let word = C::broadcast(word);
        if C::COLLECTIVE && word != DONE && word != LATE {
            self.ledger.drop_credit();
        }
        Refusal::or_answer(word).map(|_| ())
    }

    /// Whether the queue has failed, as far as this view or the others know.
    #[inline(always)]
    pub(super) fn has_failed(&mut self) -> bool {
        if S::SHARED && !self.failed && load_relaxed64(&self.state.error, S::REACH) != 0 {
            // The error before `consumed`, because whoever found the error has
            // first told what was complete before it.
            fence_acquire(S::REACH);
            self.note_failure();
        }
        self.failed
    }

    /// Remembers that the queue has failed.
    #[inline(always)]
    pub(super) fn note_failure(&mut self) {
        self.failed = true;
        if S::SHARED || !C::COLLECTIVE {
            // What the threads of a scope know together, they drop together.
            self.ledger.drop_credit();
        }
    }

    /// The first error as bits, once the queue has failed.
    #[inline(always)]
    pub(super) fn first_error(&self) -> u64 {
        // There is one, unless the host cleared the state under an open queue.
        self.state.first_error().map_or(LOST, QueueError::to_bits)
    }

    /// Keeps the queue's first error where all views and the host find it.
    #[inline(always)]
    pub(super) fn fail(&mut self, error: QueueError) {
        self.note_failure();
        self.ledger.note(Kind::Error, error.to_bits() as u32);
        keep_first(self.state, error.to_bits());
    }
}

/// How a queue takes up what the NIC has completed.
///
/// A function and what it works on, and no closure: a GPU's compiler inlines a function that says so, and a closure only
/// where it deems it worth while. Otherwise it is called, and the queue lies in memory for it.
pub(super) struct Poll<'h, H, F> {
    pub(super) handle: &'h H,
    pub(super) take: F,
}

/// What the next completion shows.
struct Glance {
    /// That what was asked for is complete.
    done: bool,
    /// Nothing that this view does not know.
    old: bool,
    /// That all blocks below are, if it is a success: no more than the truth, because the
    /// completion is no older than what the view knew before.
    complete: u64,
}

/// Stores an error as the queue's first.
///
/// On a collapsed completion queue a flush may be seen before the error that
/// caused it; the cause takes its place.
#[cold]
#[inline(always)]
pub(super) fn keep_first(state: &QueueState, bits: u64) {
    // Only the GPU's threads write it; the host looks on.
    if let Err(found) = compare_exchange64(&state.error, 0, bits, Reach::Gpu)
        && is_flush(found)
        && !is_flush(bits)
    {
        // Whoever wins here stores a cause, and one cause is enough.
        let _ = compare_exchange64(&state.error, found, bits, Reach::Gpu);
    }
}

impl<S: Sharing, C: Scope> Drop for Producer<'_, S, C> {
    #[inline(always)]
    fn drop(&mut self) {
        C::sync();
        if C::leads() {
            self.ledger.close(self.state);
        }
    }
}

fn is_flush(bits: u64) -> bool {
    QueueError::from_bits(bits).is_some_and(QueueError::is_flush)
}

/// What index and opcode are read from, as a [number of 32 bits](warpbell_gpu::tuned).
#[inline(always)]
fn last_half(tail: CqeTail) -> CqeTail {
    if cfg!(target_arch = "nvptx64") {
        CqeTail(u64::from(narrow((tail.0 >> 32) as u32)) << 32)
    } else {
        tail
    }
}
