//! What send and receive queues have in common: opening, room, turns, errors.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use mlx5_wqe::{CqeOpcode, CqeTail};

use crate::Deadline;
use crate::arch::{Reach, compare_exchange64};
use crate::error::{Cause, OpenError, PostError, QueueError, WaitError};
use crate::handle::Completions;
use crate::queue::completion;
use crate::queue::lanes::Lanes;
use crate::queue::{Ring, Scope, Sharing};
use crate::state::QueueState;

/// The producing side of a ring, for one view of it.
pub(super) struct Producer<'a, S: Sharing, C: Scope> {
    pub(super) state: &'a QueueState,
    pub(super) ring: Ring,
    pub(super) ledger: S,
    /// Whether this view knows that the queue has failed.
    failed: bool,
    _scope: PhantomData<C>,
}

/// What a leader tells the others, in one word: a block, the bits of a
/// [`QueueError`], or one of these, which are neither.
const LATE: u64 = u64::MAX;
const IN_USE: u64 = u64::MAX - 1;
const DONE: u64 = 0;

/// What stands for an error that is no longer there.
const LOST: u64 = QueueError::new(Cause::UnexpectedCompletion { op_own: 0 }).to_bits();

/// The error in a leader's word. Blocks stay below the bits that say whose
/// error it is.
#[inline(always)]
fn error_in(word: u64) -> Option<QueueError> {
    if word >> 62 == 0 {
        None
    } else {
        QueueError::from_bits(word)
    }
}

impl<'a, S: Sharing, C: Scope> Producer<'a, S, C> {
    #[inline(always)]
    pub(super) fn open(state: &'a QueueState, depth_log2: u8) -> Result<Self, OpenError> {
        let mut ledger = S::follower();
        let mut word = DONE;
        if C::leads() {
            match state.first_error() {
                Some(error) => word = error.to_bits(),
                None => match S::open(state) {
                    Ok(opened) => ledger = opened,
                    Err(_) => word = IN_USE,
                },
            }
        }
        let word = C::broadcast(word);
        if word == IN_USE {
            return Err(OpenError::InUse);
        }
        if let Some(error) = error_in(word) {
            return Err(OpenError::Failed(error));
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
            ledger: S::follower(),
            failed: false,
            _scope: PhantomData,
        }
    }

    /// Reserves `blocks` for the scope, or for `lanes` that act each for itself.
    /// Without a deadline it answers at once, and so it does for several lanes,
    /// whose deadlines may differ. `poll` takes up what the NIC has completed since.
    #[inline(always)]
    pub(super) fn reserve(
        &mut self,
        lanes: Lanes,
        blocks: u32,
        deadline: Option<Deadline>,
        poll: impl Fn(&mut Self),
    ) -> Result<u64, PostError> {
        let limit = self.ring.group_limit();
        if blocks > limit {
            return Err(PostError::TooManyBlocks {
                asked: blocks,
                limit,
            });
        }
        let mut word = DONE;
        if C::leads() && lanes.leads() {
            let limit = match deadline {
                Some(deadline) if lanes.count() == 1 => deadline,
                _ => Deadline::PASSED,
            };
            match self.attempt(blocks) {
                // A thread on its own needs no word for others.
                Some(start) if !C::COLLECTIVE && lanes.count() == 1 => return Ok(start),
                Some(start) => word = start,
                None => {
                    let attempt = |producer: &mut Self| producer.attempt(blocks);
                    word = self.poll_until(limit, false, poll, attempt);
                }
            }
        }
        let word = match C::COLLECTIVE {
            true => C::broadcast(word),
            false => lanes.broadcast(word),
        };
        if word == LATE {
            return Err(match deadline {
                Some(_) => PostError::Deadline,
                None => PostError::NoRoom,
            });
        }
        match error_in(word) {
            Some(error) => Err(PostError::Failed(error)),
            None => Ok(word),
        }
    }

    /// Reserves `blocks` for the scope without a look at the credit.
    #[inline(always)]
    pub(super) fn reserve_unchecked(&mut self, lanes: Lanes, blocks: u32) -> u64 {
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
    pub(super) fn attempt(&mut self, blocks: u32) -> Option<u64> {
        let Self { state, ring, .. } = *self;
        if self.failed {
            return None;
        }
        self.ledger.try_reserve(state, ring, blocks)
    }

    /// Polls until an attempt succeeds, the queue has failed, or the deadline is
    /// over; `polled` says that a poll has just found nothing.
    #[inline(always)]
    fn poll_until(
        &mut self,
        deadline: Deadline,
        polled: bool,
        poll: impl Fn(&mut Self),
        attempt: impl Fn(&mut Self) -> Option<u64>,
    ) -> u64 {
        if cfg!(target_arch = "nvptx64") {
            return self.keep_polling(deadline, polled, poll, attempt);
        }
        // The call is on a copy, so that it has no address of the view itself,
        // which would have to lie in memory from then on. Not dropped: it is no
        // view of its own.
        let mut copy = ManuallyDrop::new(Self {
            state: self.state,
            ring: self.ring,
            ledger: self.ledger.clone(),
            failed: self.failed,
            _scope: PhantomData,
        });
        let word = copy.keep_polling(deadline, polled, poll, attempt);
        self.ledger = copy.ledger.clone();
        self.failed = copy.failed;
        word
    }

    // Out of the way on a CPU; on a GPU a call would put the queue into memory.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    #[cfg_attr(not(target_arch = "nvptx64"), cold, inline(never))]
    fn keep_polling(
        &mut self,
        deadline: Deadline,
        mut polled: bool,
        poll: impl Fn(&mut Self),
        attempt: impl Fn(&mut Self) -> Option<u64>,
    ) -> u64 {
        let mut wait = None;
        loop {
            // Others' error before the poll, which then finds all that they
            // knew to be complete before it.
            if self.has_failed() || !polled {
                poll(self);
            }
            polled = false;
            if let Some(word) = attempt(self) {
                return word;
            }
            if self.failed {
                return self.first_error();
            }
            if wait.get_or_insert_with(|| deadline.wait()).expired() {
                return LATE;
            }
        }
    }

    /// Waits for this scope's turn to publish from `start`, publishes, and
    /// lets the next one go on. A stall becomes the queue's error, which the
    /// next call reports.
    #[inline(always)]
    pub(super) fn publish_in_turn(&mut self, start: u64, end: u64, publish: impl FnOnce(u64)) {
        match self.ledger.await_turn(self.state, self.ring, start) {
            Ok(()) => {
                publish(end);
                self.ledger.pass_turn(self.state, end);
            }
            Err(error) => self.fail(error),
        }
    }

    /// Whether a single load shows that all blocks below `after` are complete,
    /// and what it loaded: the newest completion, where there is one place for it.
    #[inline(always)]
    fn glance(&mut self, after: u64, completions: &Completions) -> (bool, CqeTail) {
        let last = after.wrapping_sub(1);
        // What is not known to be complete, and less than a ring ahead of what
        // is: a completion of this index is then that of this block, because it
        // is no older than what is known and no newer than a ring ahead of it.
        let near = last.wrapping_sub(self.ledger.consumed()) < self.ring.depth() as u64;
        if near && completions.is_collapsed() {
            let tail = completion::tail(completions, 0);
            let done = tail.is_success_of(self.ring.index(last));
            if done {
                self.ledger.note(after);
            }
            return (done, tail);
        }
        (false, completion::NEWS)
    }

    /// Whether the newest completion tells nothing that this view does not know.
    #[inline(always)]
    fn is_old(&mut self, newest: CqeTail) -> bool {
        let known = self.ledger.consumed();
        let last = self.ring.index(known.wrapping_sub(1));
        let looks_old = newest.cqe_opcode() == CqeOpcode::INVALID || newest.is_success_of(last);
        // An index repeats itself after 2^16 blocks, which others may have seen
        // complete. If they know no more either, less than that can be.
        looks_old && self.ledger.refresh(self.state) == known
    }

    /// Waits until all blocks below `after` are complete.
    #[inline(always)]
    pub(super) fn wait(
        &mut self,
        after: u64,
        deadline: impl FnOnce() -> Deadline,
        completions: &Completions,
        poll: impl Fn(&mut Self),
    ) -> Result<(), WaitError> {
        let done = |producer: &mut Self| (producer.ledger.consumed() >= after).then_some(DONE);
        let mut word = DONE;
        if C::leads() {
            let (seen, newest) = self.glance(after, completions);
            // Straight out: a GPU's compiler does not see through a detour.
            if seen && !C::COLLECTIVE {
                return Ok(());
            }
            if !seen && done(self).is_none() {
                let polled = self.is_old(newest);
                word = self.poll_until(deadline(), polled, poll, done);
            }
        }
        let word = C::broadcast(word);
        if word == LATE {
            return Err(WaitError::Deadline);
        }
        match error_in(word) {
            Some(error) => Err(WaitError::Failed(error)),
            None => Ok(()),
        }
    }

    /// Whether the queue has failed, as far as this view or the others know.
    #[inline(always)]
    pub(super) fn has_failed(&mut self) -> bool {
        self.failed = self.failed || self.ledger.others_failed(self.state);
        self.failed
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
        self.failed = true;
        keep_first(self.state, error.to_bits());
    }
}

/// Stores an error as the queue's first.
///
/// On a collapsed completion queue a flush may be seen before the error that
/// caused it; the cause takes its place.
#[cold]
#[inline(always)]
fn keep_first(state: &QueueState, bits: u64) {
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
