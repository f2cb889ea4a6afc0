//! WQEs that lie in the ring before their doorbell: stored now, published later, perhaps by another thread.
//!
//! Such a queue has no view: there is one operation in it at a time, of one or several WQEs. Each has a block and is
//! signalled, and the ring of completions is as deep as that of the WQEs. So the CQE of a WQE has the WQE's own number,
//! and any number of threads find it without taking anything: the last one tells whether the operation is done, and
//! those before it, where it was flushed, why.
//!
//! For crates that build patterns on queues, such as `warpbell-patterns`; a kernel itself needs none of these functions.

use mlx5_wqe::{CqeOpcode, CqeTail, Wqe, WqeIndex};
use warpbell_gpu::arch::{Reach, fence_acquire};

use crate::error::{PostError, QueueError};
use crate::handle::{
    CompletionKind, CompletionParts, CompletionSlot, Completions, SendQueueHandle,
};
use crate::queue::producer::keep_first;
use crate::queue::{Exclusive, Ring, SendQueue, Thread, Ticket};
use crate::queue::{completion, doorbell};
use crate::state::QueueState;

/// Stores WQEs of a block each from index `start` on, all signalled, and gives the index behind them. The NIC hears
/// nothing of them.
///
/// # Errors
/// More WQEs than a group may have, or none; a WQE that is refused.
///
/// # Safety
/// [`check`](SendQueueHandle::check) has accepted the handle. All that was published in the queue is complete, and nobody
/// else stores to its ring.
#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "no iterator, which would lie in local memory, too"
)]
pub unsafe fn hold<const N: usize>(
    handle: SendQueueHandle<'_>,
    start: WqeIndex,
    wqes: [Wqe<1>; N],
) -> Result<WqeIndex, PostError> {
    let (limit, asked) = (Ring::new(handle.depth_log2).group_limit(), N as u32);
    // One comparison for "none" and "too many".
    if asked.wrapping_sub(1) >= limit {
        return Err(PostError::TooManyBlocks { asked, limit });
    }
    // SAFETY: the caller's handle is good, and the view only gathers and fills.
    let mut view = unsafe { SendQueue::<Exclusive, Thread>::follower(handle) };
    // The first two apart: a loop would keep them in a GPU's local memory, and most operations have no more.
    refuse(&view, wqes[0])?;
    if N > 1 {
        refuse(&view, wqes[1])?;
    }
    for number in 2..N {
        refuse(&view, wqes[number])?;
    }
    store(&mut view, start.0, wqes[0]);
    if N > 1 {
        store(&mut view, start.0.wrapping_add(1), wqes[1]);
    }
    for number in 2..N {
        store(&mut view, start.0.wrapping_add(number as u16), wqes[number]);
    }
    Ok(WqeIndex(start.0.wrapping_add(N as u16)))
}

/// What is wrong with a WQE.
#[inline(always)]
fn refuse(view: &SendQueue<'_, Exclusive, Thread>, wqe: Wqe<1>) -> Result<(), PostError> {
    let wqe = Some(wqe);
    let group = view.gather(&wqe);
    view.answer(Ticket::NOTHING, &wqe, &group).map(drop)
}

/// Stores a WQE that is in order.
#[inline(always)]
fn store(view: &mut SendQueue<'_, Exclusive, Thread>, index: u16, wqe: Wqe<1>) {
    let wqe = Some(wqe.signalled());
    let group = view.gather(&wqe);
    let marked = view.may_be_marked(index.into(), 1);
    let _ = view.fill(index.into(), marked, &wqe, &group);
}

/// Makes all WQEs before index `end` the NIC's.
///
/// # Safety
/// [`check`](SendQueueHandle::check) has accepted the handle. WQEs up to index `end` lie in the ring, and nobody else
/// publishes in the queue at the same time.
#[inline(always)]
pub unsafe fn publish(handle: &SendQueueHandle<'_>, end: WqeIndex) {
    doorbell::publish(handle, end.0.into());
}

/// The same for WQEs and data of others, if `due`, which is asked last, says that it is this thread's to do; gives what it
/// said. They are `ordered` already before whatever this thread stores, for the threads of the GPU; or only found, by a
/// relaxed access to what the others released.
///
/// # Safety
/// As for [`publish`], where `due` says that it is this thread's to do.
#[inline(always)]
pub unsafe fn publish_found(
    handle: &SendQueueHandle<'_>,
    end: WqeIndex,
    ordered: bool,
    due: impl Fn() -> bool,
) -> bool {
    doorbell::publish_found(handle, end.0.into(), ordered, due)
}

/// How an operation fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is not complete.
    UnderWay,
    /// It is; no data that it brought is ordered yet.
    Done,
    /// It failed, and the queue with it.
    Failed(QueueError),
}

/// How the operation fares whose last WQE lies before index `end`.
///
/// # Safety
/// [`check`](SendQueueHandle::check) has accepted the handle. The queue's completions are a ring as deep as that of its
/// WQEs, and each WQE of the operation is signalled.
#[inline(always)]
pub unsafe fn outcome(handle: &SendQueueHandle<'_>, end: WqeIndex) -> Outcome {
    let completions = &handle.completions;
    let last = WqeIndex(end.0.wrapping_sub(1));
    let tail = completion::tail(completions, last.0.into());
    if tail.is_success_of_pass(last, completion::owner(completions, last.0.into())) {
        return Outcome::Done;
    }
    if !is_failure(completions, tail, last) {
        return Outcome::UnderWay;
    }
    let bits = cause(
        completions.ring,
        completions.depth_log2.into(),
        handle.state,
        handle.reach() == Reach::Gpu,
        last.0.into(),
    );
    // None of no error, which `cause` never gives.
    QueueError::from_bits(bits).map_or(Outcome::UnderWay, Outcome::Failed)
}

/// Whether the tail found in the place of a WQE's CQE is that CQE, and tells no success.
#[inline(always)]
fn is_failure(completions: &Completions, tail: CqeTail, index: WqeIndex) -> bool {
    let written = completion::is_new(completions, tail, index.0.into());
    written & (tail.cqe_opcode() != CqeOpcode::REQUESTER)
}

/// Why the operation failed whose last WQE is that of index `last`: what the first of the errors tells that end with the
/// last one's. Gives the queue's first error in bits.
///
/// Out of the way, and of numbers and pointers alone: a GPU keeps neither the handle nor the callers' WQEs in local memory
/// for its sake.
#[cold]
#[inline(never)]
fn cause(
    ring: *const CompletionSlot,
    depth_log2: u32,
    state: *const QueueState,
    within_gpu: bool,
    last: u32,
) -> u64 {
    let completions = Completions::new(CompletionParts {
        ring,
        record: core::ptr::null(),
        depth_log2: depth_log2 as u8,
        kind: CompletionKind::Ordinary,
    });
    let reach = match within_gpu {
        true => Reach::Gpu,
        false => Reach::System,
    };
    let mut first = WqeIndex(last as u16);
    let mut tail = completion::tail(&completions, last);
    // The CQE of `last` before those of the WQEs before it, because the NIC writes them first.
    fence_acquire(reach);
    // An operation has half of the ring at most, and the one before it succeeded.
    for _ in 0..1u32 << depth_log2 {
        let index = WqeIndex(first.0.wrapping_sub(1));
        let found = completion::tail(&completions, index.0.into());
        if !is_failure(&completions, found, index) {
            break;
        }
        (first, tail) = (index, found);
    }
    let slot = completion::slot(&completions, first.0.into());
    let error = completion::decode_error(slot, tail, reach);
    // SAFETY: `outcome` took the pointer from a handle, which is valid, by the promise of its `new`.
    let state = unsafe { &*state };
    keep_first(state, error.to_bits());
    state.first_error().unwrap_or(error).to_bits()
}
