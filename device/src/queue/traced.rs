//! A queue whose events are recorded: a ledger around another one.
//!
//! All that a queue does with its indices goes through its ledger. So the events are recorded here, and a queue without a
//! trace has no code for it.

use mlx5_wqe::QpNumber;
use warpbell_gpu::arch::Reach;
use warpbell_gpu::trace::{Buffer, Event, Kind, On, Span, Trace};

use crate::error::{OpenError, QueueError};
use crate::queue::ledger::{Internal, Ledger};
use crate::queue::{ReceiveQueue, Ring, Scope, SendQueue, Sharing};
use crate::state::QueueState;

/// A queue that is shared as `S` says, and records what it does: [`SendQueue::trace_into`].
///
/// A view records its own events: what another view of the same queue reserves or finds complete is that one's. Of a scope
/// wider than a thread the leader records, once for all.
///
/// ```
/// use warpbell::trace::Buffer;
/// use warpbell::{Exclusive, OpenError, SendQueueHandle, Traced};
///
/// fn kernel<'a>(queue: SendQueueHandle<'a>, trace: Buffer<'a>) -> Result<(), OpenError> {
///     let mut queue = queue.open::<Traced<Exclusive>>()?;
///     queue.trace_into(trace);
///     // Post and wait as on any other queue.
///     Ok(())
/// }
/// ```
pub struct Traced<'t, S> {
    ledger: S,
    trace: On<'t>,
    qpn: QpNumber,
    /// Whether it is a receive queue.
    receives: bool,
    /// The error that was recorded last, which each poll of a failed queue finds again.
    error: u32,
}

impl<S: Sharing> Sharing for Traced<'_, S> {}

impl<'t, S: Sharing, C: Scope> SendQueue<'_, Traced<'t, S>, C> {
    /// Records the queue's events from now on in `buffer`. Before this call they are recorded nowhere.
    ///
    /// Of a post that fits into known free blocks there is one event, [`Publish`](Kind::Publish). A reservation is an
    /// event of its own if the queue had to find out what is free. A wait is one if it finds nothing at its first look;
    /// [`wait_all`](Self::wait_all) is none.
    #[inline(always)]
    pub fn trace_into(&mut self, buffer: Buffer<'t>) {
        let qpn = self.qpn();
        self.producer.ledger.begin(buffer, qpn, false);
    }
}

impl<'t, S: Sharing, C: Scope> ReceiveQueue<'_, Traced<'t, S>, C> {
    /// Records the queue's events from now on, as [`SendQueue::trace_into`] does. Indices are those of receives, and a
    /// wait for a message is no event.
    #[inline(always)]
    pub fn trace_into(&mut self, buffer: Buffer<'t>) {
        let qpn = QpNumber::from_low_bits(self.handle.qpn);
        self.producer.ledger.begin(buffer, qpn, true);
    }
}

impl<'t, S: Ledger> Traced<'t, S> {
    /// A ledger whose events nobody has asked for yet.
    #[inline(always)]
    fn of(ledger: S) -> Self {
        Self {
            ledger,
            trace: Buffer::none().writer(),
            qpn: QpNumber::from_low_bits(0),
            receives: false,
            error: 0,
        }
    }

    #[inline(always)]
    fn begin(&mut self, buffer: Buffer<'t>, qpn: QpNumber, receives: bool) {
        self.trace = buffer.writer();
        self.qpn = qpn;
        self.receives = receives;
    }

    #[inline(always)]
    fn record_at(&self, ticks: u64, kind: Kind, value: u32) {
        let event = Event::new(ticks, kind, self.qpn, value);
        self.trace.store(match self.receives {
            true => event.of_receive_queue(),
            false => event,
        });
    }

    /// Records that all blocks below `consumed` are complete, if that is news to the view.
    #[inline(always)]
    fn record_completion(&self, consumed: u64) {
        if consumed > self.ledger.seen() {
            let newest = consumed.wrapping_sub(1) as u16;
            self.record_at(self.trace.now(), Kind::Completion, newest.into());
        }
    }
}

impl<S: Ledger> Ledger for Traced<'_, S> {
    const SHARED: bool = S::SHARED;
    const REACH: Reach = S::REACH;
    const TRACED: bool = true;

    #[inline(always)]
    fn follower(internal: Internal, position: u64) -> Self {
        Self::of(S::follower(internal, position))
    }

    #[inline(always)]
    fn open(internal: Internal, state: &QueueState) -> Result<Self, OpenError> {
        S::open(internal, state).map(Self::of)
    }

    #[inline(always)]
    fn close(&mut self, state: &QueueState) {
        self.ledger.close(state);
    }

    #[inline(always)]
    fn note(&self, kind: Kind, value: u32) {
        self.record_at(self.trace.now(), kind, value);
    }

    #[inline(always)]
    fn position(&self) -> u64 {
        self.ledger.position()
    }

    #[inline(always)]
    fn reserve_known<C: Scope>(
        &mut self,
        state: &QueueState,
        ring: Ring,
        blocks: u32,
        acts: bool,
    ) -> Option<u64> {
        self.ledger.reserve_known::<C>(state, ring, blocks, acts)
    }

    #[inline(always)]
    fn reserve(&mut self, state: &QueueState, ring: Ring, blocks: u32) -> Option<u64> {
        let word = self.ledger.reserve(state, ring, blocks)?;
        // The word of a shared queue is where the blocks begin. An exclusive queue's view stands there.
        let start = match S::SHARED {
            true => word,
            false => self.ledger.position(),
        };
        self.note(Kind::Reserve, span(start, start + u64::from(blocks)));
        Some(word)
    }

    #[inline(always)]
    fn take_up<C: Scope>(&mut self, ring: Ring, word: u64) -> u64 {
        self.ledger.take_up::<C>(ring, word)
    }

    #[inline(always)]
    fn reserve_unchecked(&mut self, state: &QueueState, blocks: u32) -> u64 {
        self.ledger.reserve_unchecked(state, blocks)
    }

    #[inline(always)]
    fn drop_credit(&mut self) {
        self.ledger.drop_credit();
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
        let Self { ledger, trace, .. } = self;
        let first = start.unwrap_or(ledger.position());
        // The time before the doorbell, and the store behind it: the doorbell's fences do not wait for the store.
        let mut ticks = 0;
        ledger.publish::<C>(state, ring, start, end, leads, |end| {
            ticks = trace.now();
            publish(end);
        })?;
        if leads {
            self.record_at(ticks, Kind::Publish, span(first, end));
        }
        Ok(())
    }

    #[inline(always)]
    fn published(&self, state: &QueueState) -> u64 {
        self.ledger.published(state)
    }

    #[inline(always)]
    fn consumed(&self) -> u64 {
        self.ledger.consumed()
    }

    #[inline(always)]
    fn seen(&self) -> u64 {
        self.ledger.seen()
    }

    #[inline(always)]
    fn refresh(&mut self, state: &QueueState) -> u64 {
        self.ledger.refresh(state)
    }

    #[inline(always)]
    fn told(&self, state: &QueueState) -> (u64, u64) {
        self.ledger.told(state)
    }

    #[inline(always)]
    fn next_cqe(&self) -> u32 {
        self.ledger.next_cqe()
    }

    #[inline(always)]
    fn take_next(&mut self, consumed: u64) {
        self.record_completion(consumed);
        self.ledger.take_next(consumed);
    }

    #[inline(always)]
    fn start_taking(&mut self, state: &QueueState) -> Option<u64> {
        self.ledger.start_taking(state)
    }

    #[inline(always)]
    fn end_taking(
        &mut self,
        state: &QueueState,
        consumed: u64,
        taken: u64,
        error: Option<QueueError>,
    ) {
        self.record_completion(consumed);
        if let Some(error) = error
            && error.to_bits() as u32 != self.error
        {
            self.error = error.to_bits() as u32;
            self.note(Kind::Error, self.error);
        }
        self.ledger.end_taking(state, consumed, taken, error);
    }
}

/// The blocks from `start` to `end` as an event's value.
#[inline(always)]
fn span(start: u64, end: u64) -> u32 {
    let span = Span {
        start: start as u16,
        blocks: end.wrapping_sub(start) as u16,
    };
    span.to_value()
}
