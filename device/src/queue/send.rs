//! The send queue that a kernel uses.

use core::mem::ManuallyDrop;

use mlx5_wqe::{CqeOpcode, CqeTail, Wqe, WqeIndex};
use warpbell_gpu::arch::{fence_acquire, fence_acquire_release};

use crate::Deadline;
use crate::error::{OpenError, PostError, QueueError, WaitError};
use crate::handle::SendQueueHandle;
use crate::queue::completion;
use crate::queue::doorbell::publish;
use crate::queue::group::Group;
use crate::queue::lanes::Lanes;
use crate::queue::producer::{Poll, Producer, Refusal};
use crate::queue::{Batch, Scope, Sharing, Thread};
use crate::{thread, warp};

/// A send queue, as this thread (or warp, or block) sees it.
///
/// `S` says who else uses the queue, `C` who calls together. With a scope wider than a thread, all its threads make
/// every call together (one call, not one in each arm of a branch that parts
/// them: [`SendQueueHandle::open_together`]), each with a WQE of its own (all of the same size `B`);
/// one reservation and one doorbell serve them all. Of a group only the last
/// WQE is signalled, if any thread asks for that. All get the group's ticket,
/// and where they wait, the leader's (lane 0's, thread 0's) ticket counts.
/// Opening and dropping the queue are such calls, too.
///
/// With scope [`Thread`](crate::Thread) each thread acts for itself. Lanes of a
/// warp that post to the same shared queue at the same time still have one
/// reservation and one doorbell between them, where there is room for all; they
/// look for it together for up to 10 microseconds, or until the first lane's
/// deadline.
pub struct SendQueue<'a, S: Sharing, C: Scope> {
    pub(super) handle: SendQueueHandle<'a>,
    pub(super) producer: Producer<'a, S, C>,
    /// Tickets up to here are covered by a signalled WQE of this view.
    pub(super) signalled: u64,
}

/// Names a posted WQE, or the last of a group: it is done once all blocks
/// below a certain one are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[must_use = "without its ticket nobody knows when the request is done"]
pub struct Ticket {
    after: u64,
}

impl Ticket {
    /// The ticket of nothing: done at once.
    pub(super) const NOTHING: Self = Self { after: 0 };

    /// The ticket of the WQE whose first block is `start`: a CQE names that
    /// block, and makes it and all before it complete.
    #[inline(always)]
    pub(super) const fn of(start: u64) -> Self {
        Self { after: start + 1 }
    }
}

impl<'a, S: Sharing, C: Scope> SendQueue<'a, S, C> {
    /// For a scope wider than a thread under the promise of [`SendQueueHandle::open_together`].
    #[inline(always)]
    pub(crate) fn open(handle: SendQueueHandle<'a>) -> Result<Self, OpenError> {
        // SAFETY: the handle's pointers are valid for 'a, by the promise of its `new`.
        let state = unsafe { &*handle.state };
        Ok(Self {
            producer: Producer::open(state, handle.depth_log2, handle.processor)?,
            handle,
            signalled: 0,
        })
    }

    /// A view that is not open, for the other threads of a scope whose leader alone opened the queue. An `Option` in its
    /// place would lie in a GPU's local memory.
    ///
    /// # Safety
    /// [`check`](SendQueueHandle::check) has accepted the handle. The view posts, polls and waits for nothing, and is not
    /// dropped.
    #[inline(always)]
    pub unsafe fn follower(handle: SendQueueHandle<'a>) -> ManuallyDrop<Self> {
        // SAFETY: the handle's pointers are valid for 'a, by the promise of its `new`.
        let state = unsafe { &*handle.state };
        ManuallyDrop::new(Self {
            producer: Producer::follower(state, handle.depth_log2),
            handle,
            signalled: 0,
        })
    }

    /// Posts a WQE and rings the doorbell; waits for room until the deadline.
    ///
    /// # Errors
    /// Everything in [`PostError`] but `NoRoom`. Nothing was posted then.
    #[inline(always)]
    pub fn post<const B: usize>(
        &mut self,
        wqe: Wqe<B>,
        deadline: Deadline,
    ) -> Result<Ticket, PostError> {
        self.submit::<B, true>(Some(wqe), Some(deadline))
    }

    /// Posts a WQE and rings the doorbell, or says at once that there is no room.
    ///
    /// # Errors
    /// Everything in [`PostError`] but `Deadline`. Nothing was posted then.
    #[inline(always)]
    pub fn try_post<const B: usize>(&mut self, wqe: Wqe<B>) -> Result<Ticket, PostError> {
        self.submit::<B, true>(Some(wqe), None)
    }

    /// Posts the WQEs of those threads of the scope that have one; the others
    /// take part with `None`.
    ///
    /// # Errors
    /// As for [`post`](Self::post). A thread whose own WQE is refused gets its
    /// error alone; the WQEs of the others are posted.
    #[inline(always)]
    pub fn post_if<const B: usize>(
        &mut self,
        wqe: Option<Wqe<B>>,
        deadline: Deadline,
    ) -> Result<Ticket, PostError> {
        self.submit::<B, true>(wqe, Some(deadline))
    }

    /// Posts a WQE and rings the doorbell without a look at the credit.
    ///
    /// # Safety
    /// The caller knows that the ring has room: at most as many blocks as it is
    /// deep, this WQE's (or the group's) included, are posted behind what this
    /// queue has found complete, by a wait of an exclusive queue or by a post
    /// that looks at the credit. Otherwise WQEs that the NIC has not read yet are
    /// overwritten, and the NIC moves bytes that nobody asked for; or CQEs are
    /// overwritten, and waits end late or never.
    ///
    /// # Errors
    /// What is wrong with the WQE.
    #[inline(always)]
    pub unsafe fn post_unchecked<const B: usize>(
        &mut self,
        wqe: Wqe<B>,
    ) -> Result<Ticket, PostError> {
        self.submit::<B, false>(Some(wqe), None)
    }

    /// Reserves `blocks` basic blocks whose WQEs share one doorbell, which the
    /// batch rings when it is dropped. `blocks` counts all threads of the scope.
    ///
    /// Whoever else posts to a shared queue meanwhile waits for the batch; after
    /// two seconds the queue counts as stalled. So fill it and drop it at once.
    ///
    /// # Errors
    /// Everything in [`PostError`] but `NoRoom`.
    #[inline(always)]
    pub fn batch(
        &mut self,
        blocks: u32,
        deadline: Deadline,
    ) -> Result<Batch<'_, 'a, S, C>, PostError> {
        let start = self.reserve_together(blocks, deadline)?;
        Ok(Batch::new(self, start, blocks))
    }

    /// Whether the request is done; takes up what the NIC has completed.
    ///
    /// # Errors
    /// The queue's first error, for a request that is not done.
    #[inline(always)]
    pub fn is_done(&mut self, ticket: Ticket) -> Result<bool, QueueError> {
        let look = self.first_look();
        let Self {
            handle, producer, ..
        } = self;
        if producer.is_pending(look, ticket.after, &handle.completions) {
            return Ok(false);
        }
        match self.await_inbound(look, ticket, Deadline::PASSED) {
            Ok(()) => Ok(true),
            Err(refusal) => refusal.error().map_or(Ok(false), Err),
        }
    }

    /// Waits until the request and all posted before it are done. What reads
    /// and atomics among them brought may be read then.
    ///
    /// # Errors
    /// The deadline passed; the request was not signalled; the queue failed
    /// before the request was done.
    #[inline(always)]
    pub fn wait(&mut self, ticket: Ticket, deadline: Deadline) -> Result<(), WaitError> {
        match self.await_inbound(self.first_look(), ticket, deadline) {
            Ok(()) => Ok(()),
            Err(refusal) => Err(self.no_completion(refusal, ticket)),
        }
    }

    /// Waits like [`wait`](Self::wait), but orders no data: for requests that
    /// bring nothing in, whose buffers may be used again. It spares a GPU the
    /// acquire fence, which empties the L1 cache.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    #[inline(always)]
    pub fn wait_outbound(&mut self, ticket: Ticket, deadline: Deadline) -> Result<(), WaitError> {
        match self.await_outbound(self.first_look(), ticket, deadline) {
            Ok(()) => Ok(()),
            Err(refusal) => Err(self.no_completion(refusal, ticket)),
        }
    }

    #[inline(always)]
    fn first_look(&self) -> CqeTail {
        self.producer.first_look(&self.handle.completions)
    }

    /// Waits, and orders the data behind what it found.
    #[inline(always)]
    fn await_inbound(
        &mut self,
        look: CqeTail,
        ticket: Ticket,
        deadline: Deadline,
    ) -> Result<(), Refusal> {
        self.await_outbound(look, ticket, deadline)?;
        if C::leads() {
            // The CQE before the data, because the NIC writes the data first:
            // whoever has seen the CQE then sees the data.
            fence_acquire(self.handle.reach());
        }
        // The leader's fence before the others' reading.
        C::sync();
        Ok(())
    }

    #[inline(always)]
    fn await_outbound(
        &mut self,
        look: CqeTail,
        ticket: Ticket,
        deadline: Deadline,
    ) -> Result<(), Refusal> {
        let covered = self.covers(ticket);
        let Self {
            handle, producer, ..
        } = self;
        // What nothing will report gets one look, in case others' completions
        // cover it.
        let deadline = || match covered {
            true => deadline,
            false => Deadline::PASSED,
        };
        let completions = &handle.completions;
        producer.wait(look, ticket.after, deadline, completions, poll_by(handle))
    }

    /// Whether a signalled WQE of this view reports the request.
    #[inline(always)]
    pub(super) fn covers(&self, ticket: Ticket) -> bool {
        ticket.after <= self.signalled
    }

    /// Why a wait ended without what it waited for.
    #[inline(always)]
    fn no_completion(&self, refusal: Refusal, ticket: Ticket) -> WaitError {
        match refusal.error() {
            Some(error) => WaitError::Failed(error),
            None if self.covers(ticket) => WaitError::Deadline,
            None => WaitError::NotSignalled,
        }
    }

    /// Posts a signalled NOP and waits for it: all posted before is done then.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait); a queue without room until the deadline
    /// counts as late, too.
    #[inline(always)]
    pub fn drain(&mut self, deadline: Deadline) -> Result<(), WaitError> {
        self.carry_out(Wqe::nop(), deadline)
    }

    /// Posts a request, one for all threads of the scope, and waits until it is done and all before it.
    ///
    /// # Errors
    /// As for [`drain`](Self::drain). A request that is refused counts as late, too.
    #[inline(always)]
    pub fn carry_out(&mut self, wqe: Wqe<1>, deadline: Deadline) -> Result<(), WaitError> {
        let wqe = C::leads().then(|| wqe.signalled());
        match self.post_if(wqe, deadline) {
            Ok(ticket) => self.wait(ticket, deadline),
            Err(PostError::Failed(error)) => Err(WaitError::Failed(error)),
            Err(_) => Err(WaitError::Deadline),
        }
    }

    /// Number of basic blocks in the ring.
    pub fn depth(&self) -> u32 {
        self.producer.ring.depth()
    }

    /// Posts what this thread brings, with a look at the credit or without: reserves slots, and goes
    /// [the way](Self::put) of every post from there.
    ///
    /// Slots are reserved in one of three manners, the quickest one first. Each goes on by itself: where two met, a
    /// compiler would move what either brings, and forget what it knows of it.
    #[inline(always)]
    fn submit<const B: usize, const CREDIT: bool>(
        &mut self,
        wqe: Option<Wqe<B>>,
        deadline: Option<Deadline>,
    ) -> Result<Ticket, PostError> {
        let group = self.gather(&wqe);
        if group.count == 0 {
            return self.answer(Ticket::NOTHING, &wqe, &group);
        }
        let here = match S::SHARED && !C::COLLECTIVE {
            true => Lanes::here(),
            false => Lanes::alone(),
        };
        if let Some(group) = group.quick::<S, C, B>()
            && let Some(slots) = self.known_slots::<CREDIT>(&group, here)
        {
            let ticket = self.put(slots, &wqe, &group);
            return self.answer(ticket, &wqe, &group);
        }
        if S::SHARED
            && !C::COLLECTIVE
            && CREDIT
            && let Some(slots) = self.known_slots_of_warp(&group, here)
        {
            return Ok(self.put(slots, &wqe, &group));
        }
        let slots = self.slots::<CREDIT>(&group, here, deadline)?;
        let ticket = self.put(slots, &wqe, &group);
        self.answer(ticket, &wqe, &group)
    }

    /// The way of every post: builds the WQE and stores it in its slot, then makes the slots the NIC's.
    #[inline(always)]
    fn put<const B: usize>(&mut self, slots: Slots, wqe: &Option<Wqe<B>>, group: &Group) -> Ticket {
        let ticket = self.fill(slots.own, slots.marked, wqe, group);
        self.publish(slots.start, slots.end, slots.lanes);
        ticket
    }

    /// Reserves slots that are known to be free. A thread of a shared queue has them if no other lane of its warp posts
    /// just now.
    #[inline(always)]
    fn known_slots<const CREDIT: bool>(&mut self, group: &Group, here: Lanes) -> Option<Slots> {
        if S::SHARED && C::COLLECTIVE && !CREDIT {
            return None;
        }
        let acts = C::leads() & here.is_alone();
        let start = self.producer.reserve_known(group.blocks(), acts)?;
        Some(Slots {
            start: None,
            end: start + group.blocks() as u64,
            own: start,
            // What is at hand for a thread's own queue is not marked.
            marked: (S::SHARED || C::COLLECTIVE) && self.may_be_marked(start, group.blocks()),
            lanes: Lanes::alone(),
        })
    }

    /// Reserves slots that are known to be free for all lanes of a warp, which post each for itself to the same shared
    /// queue. The assembler knows their mask, and asks no lane for it.
    #[inline(always)]
    fn known_slots_of_warp(&mut self, own: &Group, here: Lanes) -> Option<Slots> {
        if !here.are_a_warp_with(self.key(own)) {
            return None;
        }
        let blocks = thread::warp_size() * own.span;
        let reserved = self.producer.reserve_known(blocks, warp::lane_id() == 0);
        let start = warp::broadcast(reserved.unwrap_or(u64::MAX));
        if start == u64::MAX {
            return None;
        }
        let own_start = start + (warp::lane_id() * own.span) as u64;
        Some(Slots {
            start: None,
            end: start + blocks as u64,
            own: own_start,
            marked: self.may_be_marked(own_start, own.span),
            lanes: Lanes::a_warp(),
        })
    }

    /// Reserves slots as soon as there is room. Lanes of a warp that post to the same shared queue just now share one
    /// reservation and one doorbell. Where there is no room for all of them soon, each posts for itself, and waits as
    /// long as it may.
    #[inline(always)]
    fn slots<const CREDIT: bool>(
        &mut self,
        group: &Group,
        here: Lanes,
        deadline: Option<Deadline>,
    ) -> Result<Slots, PostError> {
        let mut lanes = match S::SHARED && !C::COLLECTIVE {
            true => here.with_the_same(self.key(group)),
            false => here,
        };
        loop {
            let blocks = lanes.count() * group.blocks();
            match self.reserve::<CREDIT>(lanes, blocks, deadline) {
                Ok(start) => {
                    let own = start + (lanes.rank() * group.blocks()) as u64;
                    return Ok(Slots {
                        start: Some(start),
                        end: start + blocks as u64,
                        own,
                        marked: self.may_be_marked(own, group.blocks()),
                        lanes,
                    });
                }
                Err(refusal) if lanes.count() == 1 => {
                    return Err(self.no_room(refusal, blocks, deadline));
                }
                Err(_) => lanes = lanes.caller(),
            }
        }
    }

    /// What lanes have in common that post together: the queue and the size of a WQE.
    #[inline(always)]
    fn key(&self, own: &Group) -> u64 {
        // The state is aligned to 128 bytes, and no WQE has as many blocks.
        self.handle.state.addr() as u64 | own.span as u64
    }

    /// Why `blocks` were not reserved, before the deadline or, without one, at once.
    #[inline(always)]
    fn no_room(&self, refusal: Refusal, blocks: u32, deadline: Option<Deadline>) -> PostError {
        refusal.of_post(blocks, self.producer.ring.group_limit(), deadline)
    }

    /// Reserves `blocks` for the scope as soon as there is room.
    #[inline(always)]
    pub(super) fn reserve_together(
        &mut self,
        blocks: u32,
        deadline: Deadline,
    ) -> Result<u64, PostError> {
        let deadline = Some(deadline);
        self.reserve::<true>(Lanes::alone(), blocks, deadline)
            .map_err(|refusal| self.no_room(refusal, blocks, deadline))
    }

    /// Reserves `blocks` as soon as there is room, or without a look at the credit. No closure does it: a kernel may post
    /// in several places, and a closure that two of them have in common is not inlined, so that the queue would lie in a
    /// GPU's local memory.
    #[inline(always)]
    fn reserve<const CREDIT: bool>(
        &mut self,
        lanes: Lanes,
        blocks: u32,
        deadline: Option<Deadline>,
    ) -> Result<u64, Refusal> {
        if let Some(start) = self.producer.reserve_at_hand(blocks) {
            return Ok(start);
        }
        if !CREDIT {
            return Ok(self.producer.reserve_unchecked(lanes, blocks));
        }
        // A copy, for the reason of `Producer::poll_until`.
        let handle = self.handle;
        self.producer
            .reserve(lanes, blocks, deadline, poll_by(&handle))
    }

    /// Makes the blocks from `start` to `end` the NIC's: those of the scope, or of lanes that post each for itself. Without
    /// a `start` they begin where this view stands.
    #[inline(always)]
    pub(super) fn publish(&mut self, start: Option<u64>, end: u64, lanes: Lanes) {
        // The other threads' stores before the leader's fence, because the NIC fetches by what the leader tells it.
        C::sync();
        lanes.sync();
        let handle = &self.handle;
        self.producer
            .publish(start, end, C::leads() && lanes.leads(), |end| {
                publish(handle, end)
            });
        // The leader's record, doorbell and turn before those of any lane that posts next: to all of them
        // everything before the end is published now. And so they come to the next post together.
        lanes.sync();
    }
}

/// Slots that are reserved for WQEs under one doorbell.
struct Slots {
    /// The first block of all, unless the leader's view stands there.
    start: Option<u64>,
    /// The block behind them.
    end: u64,
    /// Where those of this thread's group begin.
    own: u64,
    /// What [`SendQueue::may_be_marked`] says of the group.
    marked: bool,
    /// The lanes that have them together, each for itself.
    lanes: Lanes,
}

impl<S: Sharing> SendQueue<'_, S, Thread> {
    /// The queue's first error, once this view knows of it.
    #[inline(always)]
    pub fn known_error(&mut self) -> Option<QueueError> {
        if !self.producer.has_failed() {
            return None;
        }
        QueueError::from_bits(self.producer.first_error())
    }

    /// Waits, like [`wait`](Self::wait), until all is done that was published so far through whichever view. The
    /// newest request is signalled: otherwise nothing reports it, and the wait is late.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    #[inline(always)]
    pub fn wait_all(&mut self, deadline: Deadline) -> Result<(), WaitError> {
        let Self {
            handle, producer, ..
        } = self;
        let after = producer.ledger.published(producer.state);
        let mut wait = deadline.wait();
        let mut late = false;
        // A loop of its own, because a kernel may wait in several places: the closures of the other waits are not
        // inlined there, and would have the queue in a GPU's local memory.
        loop {
            // Others' error before the poll, which then finds all that they knew to be complete before it.
            let failed = producer.has_failed();
            poll(handle, producer);
            if producer.ledger.consumed() >= after {
                break;
            }
            if failed || producer.has_failed() {
                let error = QueueError::from_bits(producer.first_error());
                return Err(error.map_or(WaitError::Deadline, WaitError::Failed));
            }
            if late {
                return Err(WaitError::Deadline);
            }
            late = wait.expired();
        }
        // As in `wait`.
        fence_acquire(handle.reach());
        Ok(())
    }
}

/// The [`poll`] of a queue.
#[inline(always)]
fn poll_by<'h, 'a, S: Sharing, C: Scope>(
    handle: &'h SendQueueHandle<'a>,
) -> Poll<'h, SendQueueHandle<'a>, impl Fn(&SendQueueHandle<'a>, &mut Producer<'a, S, C>)> {
    Poll { handle, take: poll }
}

/// Takes up what the NIC has completed. The leader's job.
#[inline(always)]
fn poll<S: Sharing, C: Scope>(handle: &SendQueueHandle<'_>, producer: &mut Producer<'_, S, C>) {
    let Producer { state, ring, .. } = *producer;
    let parts = &handle.completions;
    let Some(first) = producer.ledger.start_taking(state) else {
        // Another thread is at it; what it finds is in the shared words.
        producer.ledger.refresh(state);
        return;
    };
    let known = producer.ledger.refresh(state);
    let (mut consumed, mut taken, mut failure) = (known, first, None);
    // Ends after a lap at the latest: nobody posts into the blocks that we find
    // complete before we tell. One entry after the other, and none skipped: an entry
    // that nobody has read in one lap could show, in the next, what it held two laps
    // ago, with the same owner bit.
    loop {
        let number = taken as u32;
        let tail = completion::tail(parts, number);
        if !completion::is_new(parts, tail, number) {
            break;
        }
        let slot = completion::slot(parts, number);
        let newest = if tail.cqe_opcode() == CqeOpcode::REQUESTER {
            Some(tail.wqe_index())
        } else {
            let error = completion::decode_error(slot, tail, handle.reach());
            failure = Some(error);
            error
                .complete_before()
                .map(|failed| WqeIndex(failed.0.wrapping_sub(1)))
        };
        if let Some(newest) = newest {
            consumed = ring.completed(consumed, newest);
        }
        if parts.is_collapsed() || failure.is_some() {
            // The error's CQE stays where it is, for the host as well.
            break;
        }
        taken += 1;
    }
    // What is complete before an error, because an error ends the waits for
    // what is not.
    if S::SHARED && consumed != known {
        // The CQEs before what we tell the others, because nobody else reads
        // them: through us they may read the data behind them. No less before the
        // posts that go by it: what completes behind them overwrites the CQEs. Of
        // both kinds, because `end_taking` stores `taken` without an order of its own.
        fence_acquire_release(handle.reach());
    }
    // Not behind `end_taking`: a compiler would make a copy of its end for each answer.
    if failure.is_some() {
        producer.note_failure();
    }
    producer.ledger.end_taking(state, consumed, taken, failure);
}
