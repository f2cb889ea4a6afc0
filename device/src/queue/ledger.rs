//! What a kind of sharing does for its queue: the indices behind [`Sharing`](crate::Sharing).
//!
//! There are two ledgers: [`Exclusive`](crate::Exclusive) and [`SharedAmong`](crate::queue::shared::SharedAmong).
//!
//! A generic function outside of the crate may call the methods of each trait that its bounds imply, however private the
//! trait is. So whatever gives a ledger, or acts without one, asks for an [`Internal`], which only this crate has. The
//! other methods need a ledger.

use warpbell_gpu::arch::Reach;
use warpbell_gpu::trace::Kind;

use crate::error::{OpenError, QueueError};
use crate::queue::{Ring, Scope};
use crate::state::QueueState;

/// Says that the caller is the queue's own code: nobody else can name or make one.
#[derive(Clone, Copy)]
pub struct Internal(());

/// The only one.
pub(in crate::queue) const INTERNAL: Internal = Internal(());

/// The indices of one view of a queue, and how they are kept whole among all views.
///
/// A scope's leader calls the methods. All threads of the scope call those that say so.
pub trait Ledger: Sized {
    /// Whether others may reserve behind a reservation that is not published.
    const SHARED: bool;

    /// The reach of what orders one view's accesses with another's.
    const REACH: Reach;

    /// Whether it records what it is told to [`note`](Self::note).
    const TRACED: bool = false;

    /// What threads other than the leader hold, of a queue that stands at a block.
    fn follower(internal: Internal, position: u64) -> Self;

    /// Takes the queue, or a share in it.
    fn open(internal: Internal, state: &QueueState) -> Result<Self, OpenError>;

    /// Gives it back.
    fn close(&mut self, state: &QueueState);

    /// Records an event that the ledger does not see by itself, if the view records any.
    #[inline(always)]
    fn note(&self, _: Kind, _: u32) {}

    /// Where the view stands: where its next reservation starts, in a shared queue if nobody else has posted since.
    fn position(&self) -> u64;

    /// Reserves `blocks` from [`position`](Self::position) on, if they are known to be free and likely to be this view's.
    /// All of the scope call it, and all get the same answer. In a shared queue the one that `acts` finds it.
    fn reserve_known<C: Scope>(
        &mut self,
        state: &QueueState,
        ring: Ring,
        blocks: u32,
        acts: bool,
    ) -> Option<u64>;

    /// Reserves `blocks` wherever they fit while all below `consumed()` are free. Gives a word for
    /// [`take_up`](Self::take_up).
    fn reserve(&mut self, state: &QueueState, ring: Ring, blocks: u32) -> Option<u64>;

    /// Takes up the word of the leader's `reserve`, and gives where the reservation starts. All call it.
    fn take_up<C: Scope>(&mut self, ring: Ring, word: u64) -> u64;

    /// Reserves `blocks` whether or not they are free. All call it where nobody else may use the queue.
    fn reserve_unchecked(&mut self, state: &QueueState, blocks: u32) -> u64;

    /// No block is known to be free any more: the next post has to ask. All call it.
    fn drop_credit(&mut self);

    /// Waits until all blocks before `start` are published, calls `publish` with the end of those from there on, and lets
    /// the next publisher go on. Without a `start` they begin at [`position`](Self::position). All call it; the one that
    /// `leads` acts.
    fn publish<C: Scope>(
        &mut self,
        state: &QueueState,
        ring: Ring,
        start: Option<u64>,
        end: u64,
        leads: bool,
        publish: impl FnOnce(u64),
    ) -> Result<(), QueueError>;

    /// Blocks that are published.
    fn published(&self, state: &QueueState) -> u64;

    /// Blocks known complete, as last learnt.
    fn consumed(&self) -> u64;

    /// Blocks known complete to this view: `consumed()`, and more by CQEs that it took.
    fn seen(&self) -> u64;

    /// Blocks known complete to anybody, to be asked before a CQE is read.
    fn refresh(&mut self, state: &QueueState) -> u64;

    /// What other views told by now: blocks known complete, and the error's bits. An answer that nothing has come needs no
    /// order of these, because a look a moment before would have found as little. So they are under way together with a
    /// CQE.
    fn told(&self, state: &QueueState) -> (u64, u64);

    /// Number of the CQE to look at next. All CQEs before it have come, and each
    /// that has this number or a later one is of a block at or behind `consumed()`.
    /// 32 bits are enough for a place in a ring and its owner bit.
    fn next_cqe(&self) -> u32;

    /// Takes the CQE of that number. It says that all blocks below `consumed` are
    /// complete: those are fewer than 2^16 behind `consumed()`.
    fn take_next(&mut self, consumed: u64);

    /// Takes the right to read CQEs, if nobody has it, and says how many were
    /// taken from an ordinary completion ring so far. One reader at a time, because
    /// CQEs may lie beyond a bus.
    fn start_taking(&mut self, state: &QueueState) -> Option<u64>;

    /// Makes known that all blocks below `consumed` are complete, as the CQEs before number `taken` say, then the error
    /// that the CQE of that number tells, and gives the right back. In a shared queue the caller's fence orders the
    /// reading of the CQEs before it, where `consumed` has changed.
    fn end_taking(
        &mut self,
        state: &QueueState,
        consumed: u64,
        taken: u64,
        error: Option<QueueError>,
    );
}
