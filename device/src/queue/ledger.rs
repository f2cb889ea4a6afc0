//! What a kind of sharing does for its queue: the indices behind [`Sharing`](crate::Sharing).
//!
//! A generic function outside of the crate may call the methods of each trait that its bounds imply, however private the
//! trait is. So whatever gives a ledger, or acts without one, asks for an [`Internal`], which only this crate has. The
//! other methods need a ledger.

use crate::error::{OpenError, QueueError};
use crate::queue::Ring;
use crate::state::QueueState;

/// Says that the caller is the queue's own code: nobody else can name or make one.
#[derive(Clone, Copy)]
pub struct Internal(());

/// The only one.
pub(in crate::queue) const INTERNAL: Internal = Internal(());

/// The indices of one view of a queue, and how they are kept whole among all views.
///
/// The methods are called by a scope's leader only, but for those that say that all call them.
pub trait Ledger: Clone {
    /// Whether others may reserve behind a reservation that is not published.
    const SHARED: bool;

    /// A view that leads nothing: what threads other than the leader hold.
    fn follower(internal: Internal) -> Self;

    /// Takes the queue, or a share in it.
    fn open(internal: Internal, state: &QueueState) -> Result<Self, OpenError>;

    /// Gives it back.
    fn close(&mut self, state: &QueueState);

    /// Blocks known complete, as last learnt.
    fn consumed(&self) -> u64;

    /// Blocks that are published.
    fn published(&self, state: &QueueState) -> u64;

    /// Blocks known complete to anybody, to be asked before a CQE is read.
    fn refresh(&mut self, state: &QueueState) -> u64;

    /// Makes known that all blocks below `consumed` are complete, as the CQEs before
    /// number `taken` say. In a shared queue a fence orders their reading before it.
    fn learn(&mut self, state: &QueueState, consumed: u64, taken: u64);

    /// Number of the CQE to look at next. All CQEs before it have come, and each
    /// that has this number or a later one is of a block at or behind `consumed()`.
    /// 32 bits are enough for a place in a ring and its owner bit.
    fn next_cqe(&self) -> u32;

    /// Takes the CQE of that number. It says that all blocks below `consumed` are
    /// complete: those are fewer than 2^16 behind `consumed()`.
    fn take_next(&mut self, consumed: u64);

    /// Blocks known complete to this view: `consumed()`, and more by CQEs that it took.
    fn seen(&self) -> u64;

    /// Reserves `blocks` if they fit while all below `consumed()` are free. Of
    /// an exclusive queue it is where the next block lies that was asked for.
    fn try_reserve(&mut self, state: &QueueState, ring: Ring, blocks: u32) -> Option<u64>;

    /// Reserves `blocks` from [`position`](Self::position) on, which fit: whether nobody else has reserved since. For
    /// shared queues.
    fn try_reserve_next(&mut self, state: &QueueState, blocks: u32) -> bool;

    /// Whether that is likely.
    fn is_likely_next(&self) -> bool;

    /// The same without a look at any memory, where that is possible: all of a
    /// scope call it, and find the same.
    ///
    /// An exclusive owner's reservation holds once it is published, so that one
    /// that is given up (a leaked batch) leaves no gap.
    fn reserve_at_hand(&self, blocks: u32) -> Option<u64>;

    /// Takes up what a leader's `try_reserve` has found, in a word for all of
    /// its scope, and gives where the reservation starts. All call it.
    fn take_up(&mut self, word: u64) -> u64;

    /// Nothing more is at hand. All call it.
    fn drop_credit(&mut self);

    /// Nothing from block `end` on is at hand. All call it.
    fn keep_at_hand(&mut self, end: u64);

    /// Where a view stands: where the next reservation starts, in a shared queue if nobody else has posted since.
    fn position(&self) -> u64;

    /// Stands there. All call it.
    fn set_position(&mut self, position: u64);

    /// Reserves `blocks` whether or not they are free. All call it where nobody
    /// else may use the queue.
    fn reserve_unchecked(&mut self, state: &QueueState, blocks: u32) -> u64;

    /// Waits until everything before `start` is published.
    fn await_turn(&self, state: &QueueState, ring: Ring, start: u64) -> Result<(), QueueError>;

    /// Lets the next publisher go on: everything before `end` is published.
    /// All call it where nobody else may use the queue.
    fn pass_turn(&mut self, state: &QueueState, end: u64);

    /// Takes the right to read CQEs, if nobody has it, and says how many were
    /// taken from an ordinary completion ring so far. One reader at a time, because
    /// CQEs may lie beyond a bus.
    fn start_taking(&mut self, state: &QueueState) -> Option<u64>;

    /// Gives that right back.
    fn stop_taking(&mut self, state: &QueueState);

    /// Whether others may have met an error of the queue, and have. What was
    /// complete before it is known to `refresh` then.
    fn others_failed(&self, state: &QueueState) -> bool;
}
