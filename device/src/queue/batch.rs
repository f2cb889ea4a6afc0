//! Several WQEs under one doorbell.

use core::marker::PhantomData;

use mlx5_wqe::Wqe;

use crate::error::PostError;
use crate::queue::lanes::Lanes;
use crate::queue::{Scope, SendQueue, Sharing, Ticket};

/// Slots of a queue whose WQEs share one doorbell. Dropping the batch rings it.
///
/// Blocks that were reserved and not used go back to an exclusive queue; in a
/// shared one, where others may have reserved behind them, they become NOPs.
///
/// In an exclusive queue a batch may wait: what is filled early, as long as it is
/// known, leaves less to do when it is dropped.
///
/// A batch that is leaked posts nothing, and its tickets mean nothing. In a
/// shared queue the others then wait for it: see [`SendQueue::batch`].
#[must_use = "a batch that is dropped at once posts nothing"]
#[repr(C)]
pub struct Batch<'q, 'a, S: Sharing, C: Scope> {
    start: u64,
    next: u64,
    /// Blocks from `next` on. A number of its own, because the compiler sees through it where it
    /// is known, and through a difference of ends only too late.
    left: u32,
    /// No reference, and last: a `Result` of a batch would otherwise put its
    /// error where the queue's address lies, and a GPU would have to keep the
    /// queue in memory instead of registers.
    queue: *mut SendQueue<'a, S, C>,
    _queue: PhantomData<&'q mut SendQueue<'a, S, C>>,
}

impl<'q, 'a, S: Sharing, C: Scope> Batch<'q, 'a, S, C> {
    #[inline(always)]
    pub(super) fn new(queue: &'q mut SendQueue<'a, S, C>, start: u64, blocks: u32) -> Self {
        Self {
            start,
            next: start,
            left: blocks,
            queue,
            _queue: PhantomData,
        }
    }

    #[inline(always)]
    fn queue(&mut self) -> &mut SendQueue<'a, S, C> {
        // SAFETY: the pointer comes from the exclusive reference that `new` was
        // given for 'q, and is used here alone.
        unsafe { &mut *self.queue }
    }

    /// Blocks that are left.
    pub fn room(&self) -> u32 {
        self.left
    }

    /// Adds a WQE; the NIC hears of it when the batch is dropped.
    ///
    /// The ticket may be waited for once the batch is dropped.
    ///
    /// # Errors
    /// `TooManyBlocks` where the batch is full, and what is wrong with the WQE.
    #[inline(always)]
    pub fn post<const B: usize>(&mut self, wqe: Wqe<B>) -> Result<Ticket, PostError> {
        self.post_if(Some(wqe))
    }

    /// Adds the WQEs of those threads of the scope that have one.
    ///
    /// # Errors
    /// As for [`post`](Self::post); a thread whose own WQE is refused gets its
    /// error alone.
    #[inline(always)]
    pub fn post_if<const B: usize>(&mut self, wqe: Option<Wqe<B>>) -> Result<Ticket, PostError> {
        let group = self.queue().gather(&wqe);
        if group.count == 0 {
            return self.queue().answer(Ticket::NOTHING, &wqe, &group);
        }
        let asked = group.blocks();
        if asked > self.room() {
            return Err(PostError::TooManyBlocks {
                asked,
                limit: self.room(),
            });
        }
        let start = self.next;
        let marked = self.queue().may_be_marked(start, asked);
        let ticket = self.queue().fill(start, marked, &wqe, &group);
        self.next += asked as u64;
        self.left -= asked;
        self.queue().answer(ticket, &wqe, &group)
    }
}

impl<S: Sharing, C: Scope> Drop for Batch<'_, '_, S, C> {
    #[inline(always)]
    fn drop(&mut self) {
        let Self {
            start, next, left, ..
        } = *self;
        let mut end = next;
        if S::SHARED {
            end += left as u64;
            self.queue().pad(next, end);
        }
        if start != end {
            self.queue().publish(Some(start), end, Lanes::alone());
        }
    }
}
