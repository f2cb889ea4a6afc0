//! WQEs that lie in the ring before their doorbell: stored now, published later, perhaps by another thread.
//!
//! Such a queue has no view: there is one operation in it at a time, of one or several WQEs, the last of which is
//! signalled, and its completions are collapsed. So the newest CQE alone tells whether the operation is done.

use mlx5_wqe::{CqeOpcode, Wqe, WqeIndex};

use crate::error::{PostError, QueueError};
use crate::handle::SendQueueHandle;
use crate::queue::doorbell::sealed::Publish;
use crate::queue::ledger::INTERNAL;
use crate::queue::producer::keep_first;
use crate::queue::{Exclusive, Now, Ring, SendQueue, Thread, Ticket};
use crate::queue::{completion, doorbell};

/// Stores WQEs of a block each from index `start` on, the last one signalled, and gives the index behind them. The
/// NIC hears nothing of them.
///
/// # Safety
/// All that was published in the queue is complete, and nobody else stores to its ring.
#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "no iterator, which would lie in local memory, too"
)]
pub(crate) unsafe fn hold<const N: usize>(
    handle: SendQueueHandle<'_>,
    start: WqeIndex,
    wqes: [Wqe<1>; N],
) -> Result<WqeIndex, PostError> {
    let (limit, asked) = (Ring::new(handle.depth_log2).group_limit(), N as u32);
    // One comparison for "none" and "too many".
    if asked.wrapping_sub(1) >= limit {
        return Err(PostError::TooManyBlocks { asked, limit });
    }
    let mut view = SendQueue::<Exclusive, Thread>::follower(handle);
    // The first two apart: a loop would keep them in a GPU's local memory, and most operations have no more.
    refuse(&view, wqes[0])?;
    if N > 1 {
        refuse(&view, wqes[1])?;
    }
    for number in 2..N {
        refuse(&view, wqes[number])?;
    }
    store(&mut view, start.0, wqes[0], N == 1);
    if N > 1 {
        store(&mut view, start.0.wrapping_add(1), wqes[1], N == 2);
    }
    for number in 2..N {
        let index = start.0.wrapping_add(number as u16);
        store(&mut view, index, wqes[number], number + 1 == N);
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
fn store(view: &mut SendQueue<'_, Exclusive, Thread>, index: u16, wqe: Wqe<1>, last: bool) {
    let wqe = Some(if last { wqe.signalled() } else { wqe });
    let group = view.gather(&wqe);
    let marked = view.may_be_marked(index.into(), 1);
    let _ = view.fill(index.into(), marked, &wqe, &group);
}

/// Makes all WQEs before index `end` the NIC's.
#[inline(always)]
pub(crate) fn publish(handle: &SendQueueHandle<'_>, end: WqeIndex) {
    Now::publish(INTERNAL, handle, end.0.into());
}

/// The same for WQEs and data of others, if `due`, which is asked last, says that it is this thread's to do; gives what it
/// said. They are `ordered` already before whatever this thread stores, for the threads of the GPU; or only found, by a
/// relaxed access to what the others released.
#[inline(always)]
pub(crate) fn publish_found(
    handle: &SendQueueHandle<'_>,
    end: WqeIndex,
    ordered: bool,
    due: impl Fn() -> bool,
) -> bool {
    doorbell::publish_found(handle, end.0.into(), ordered, due)
}

/// How an operation fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is not complete.
    UnderWay,
    /// It is; no data that it brought is ordered yet.
    Done,
    /// It failed, and the queue with it.
    Failed(QueueError),
}

/// How the operation fares whose last WQE lies before index `end`.
#[inline(always)]
pub(crate) fn outcome(handle: &SendQueueHandle<'_>, end: WqeIndex) -> Outcome {
    let tail = completion::tail(&handle.completions, 0);
    if tail.is_success_of(WqeIndex(end.0.wrapping_sub(1))) {
        return Outcome::Done;
    }
    let opcode = tail.cqe_opcode();
    if (opcode == CqeOpcode::INVALID) | (opcode == CqeOpcode::REQUESTER) {
        return Outcome::UnderWay;
    }
    let slot = completion::slot(&handle.completions, 0);
    let error = completion::decode_error(slot, tail, handle.reach());
    // SAFETY: the handle's pointers are valid, by the promise of its `new`.
    let state = unsafe { &*handle.state };
    keep_first(state, error.to_bits());
    Outcome::Failed(state.first_error().unwrap_or(error))
}
