//! What send and receive queues have in common: opening, room, turns, errors.

use core::marker::PhantomData;

use mlx5_wqe::WqeIndex;

use crate::Deadline;
use crate::arch::{Reach, compare_exchange64, load_acquire64};
use crate::error::{Cause, OpenError, PostError, QueueError, WaitError};
use crate::queue::{Ring, Scope, Sharing};
use crate::state::QueueState;

/// The producing side of a ring, for one view of it.
pub(super) struct Producer<'a, S: Sharing, C: Scope> {
    pub(super) state: &'a QueueState,
    pub(super) ring: Ring,
    pub(super) ledger: S,
    /// The queue's first error as bits, once this view knows of it.
    error: u64,
    _scope: PhantomData<C>,
}

/// What a leader tells the others, in one word: a block, or one of these.
const NO_ROOM: u64 = u64::MAX;
const LATE: u64 = u64::MAX - 1;
const FAILED: u64 = u64::MAX - 2;
const IN_USE: u64 = u64::MAX - 3;
const DONE: u64 = 0;

impl<'a, S: Sharing, C: Scope> Producer<'a, S, C> {
    #[inline(always)]
    pub(super) fn open(state: &'a QueueState, depth_log2: u8) -> Result<Self, OpenError> {
        if let Some(error) = state.first_error() {
            return Err(OpenError::Failed(error));
        }
        let mut ledger = S::follower();
        let mut code = DONE;
        if C::leads() {
            match S::open(state) {
                Ok(opened) => ledger = opened,
                Err(_) => code = IN_USE,
            }
        }
        if C::broadcast(code) == IN_USE {
            return Err(OpenError::InUse);
        }
        Ok(Self {
            state,
            ring: Ring::new(depth_log2),
            ledger,
            error: 0,
            _scope: PhantomData,
        })
    }

    /// Reserves `blocks` for the scope. Without a deadline it answers at once.
    /// `poll` takes up what the NIC has completed since.
    #[inline(always)]
    pub(super) fn reserve(
        &mut self,
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
        let code = if C::leads() {
            self.reserve_as_leader(blocks, deadline, poll)
        } else {
            0
        };
        match C::broadcast(code) {
            NO_ROOM => Err(PostError::NoRoom),
            LATE => Err(PostError::Deadline),
            FAILED => Err(PostError::Failed(self.first_error())),
            start => Ok(start),
        }
    }

    /// Reserves `blocks` for the scope without a look at the credit.
    #[inline(always)]
    pub(super) fn reserve_unchecked(&mut self, blocks: u32) -> u64 {
        let start = if C::leads() {
            self.ledger.reserve_unchecked(self.state, blocks)
        } else {
            0
        };
        C::broadcast(start)
    }

    #[inline(always)]
    fn reserve_as_leader(
        &mut self,
        blocks: u32,
        deadline: Option<Deadline>,
        poll: impl Fn(&mut Self),
    ) -> u64 {
        if self.error == 0
            && let Some(start) = self.ledger.try_reserve(self.state, self.ring, blocks)
        {
            return start;
        }
        self.reserve_slowly(blocks, deadline, poll)
    }

    #[inline(always)]
    fn reserve_slowly(
        &mut self,
        blocks: u32,
        deadline: Option<Deadline>,
        poll: impl Fn(&mut Self),
    ) -> u64 {
        let mut wait = deadline.unwrap_or(Deadline::PASSED).wait();
        loop {
            poll(self);
            if self.failed() {
                return FAILED;
            }
            if let Some(start) = self.ledger.try_reserve(self.state, self.ring, blocks) {
                return start;
            }
            if wait.expired() {
                return if deadline.is_some() { LATE } else { NO_ROOM };
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

    /// Waits until all blocks below `after` are complete.
    #[inline(always)]
    pub(super) fn wait(
        &mut self,
        after: u64,
        deadline: Deadline,
        poll: impl Fn(&mut Self),
    ) -> Result<(), WaitError> {
        let mut code = DONE;
        if C::leads() && self.ledger.consumed() < after {
            code = self.wait_as_leader(after, deadline, poll);
        }
        match C::broadcast(code) {
            LATE => Err(WaitError::Deadline),
            FAILED => Err(WaitError::Failed(self.first_error())),
            _ => Ok(()),
        }
    }

    #[inline(always)]
    fn wait_as_leader(&mut self, after: u64, deadline: Deadline, poll: impl Fn(&mut Self)) -> u64 {
        let mut wait = None;
        loop {
            poll(self);
            if self.ledger.consumed() >= after {
                return DONE;
            }
            if self.failed() {
                return FAILED;
            }
            if wait.get_or_insert_with(|| deadline.wait()).expired() {
                return LATE;
            }
        }
    }

    /// Takes note that the WQE at `newest` and all before it are complete.
    #[inline(always)]
    pub(super) fn complete_through(&mut self, base: u64, newest: WqeIndex) {
        let consumed = self.ring.completed(base, newest);
        if consumed != base {
            self.ledger.learn(self.state, consumed);
        }
    }

    /// Whether the queue has failed, as far as this view or the others know.
    #[inline(always)]
    pub(super) fn failed(&mut self) -> bool {
        if self.error == 0 {
            self.error = self.ledger.error_of_others(self.state);
        }
        self.error != 0
    }

    /// Keeps the queue's first error where all views and the host find it.
    #[inline(always)]
    pub(super) fn fail(&mut self, error: QueueError) {
        self.error = keep_first(self.state, error.to_bits());
    }

    /// The first error, for a view that was told that there is one.
    #[inline(always)]
    pub(super) fn first_error(&mut self) -> QueueError {
        self.error = load_acquire64(&self.state.error, Reach::System);
        // Told so, there is one, unless the host cleared the state under an
        // open queue.
        QueueError::from_bits(self.error)
            .unwrap_or(QueueError::new(Cause::UnexpectedCompletion { op_own: 0 }))
    }
}

/// Stores an error as the queue's first, and returns what is the first then.
///
/// On a collapsed completion queue a flush may be seen before the error that
/// caused it; the cause takes its place.
#[cold]
fn keep_first(state: &QueueState, bits: u64) -> u64 {
    if let Err(found) = compare_exchange64(&state.error, 0, bits, Reach::System)
        && is_flush(found)
        && !is_flush(bits)
    {
        // Whoever wins here stores a cause, and one cause is enough.
        let _ = compare_exchange64(&state.error, found, bits, Reach::System);
    }
    load_acquire64(&state.error, Reach::System)
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
