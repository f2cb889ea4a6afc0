//! Reading CQEs: by the last word of one, which the NIC writes last.

use mlx5_wqe::{CompletionError, CqeErrorWord, CqeOpcode, CqeTail, WqeIndex};

use crate::arch::{Reach, Word32, fence_acquire, fence_release, load_relaxed64, store_relaxed32};
use crate::error::{Cause, QueueError};
use crate::handle::{CompletionParts, CompletionSlot};

/// What a CQE says to a send queue.
#[derive(Clone, Copy)]
pub(super) enum News {
    /// The NIC has not written here yet.
    Nothing,
    /// All up to this WQE, and the WQE itself, is done.
    Completed(WqeIndex),
    /// The queue has failed.
    Failed(QueueError),
}

/// Loads a word of a CQE.
#[inline(always)]
pub(super) fn word(slot: &CompletionSlot, index: usize) -> u64 {
    load_relaxed64(&slot.words[index & 7], Reach::System)
}

/// The entry that CQE number `taken` lies in.
#[inline(always)]
pub(super) fn slot<'a>(parts: &CompletionParts, taken: u64) -> &'a CompletionSlot {
    let mask = (1usize << parts.depth_log2) - 1;
    // SAFETY: the handle's `new` promises `1 << depth_log2` entries for as long
    // as the handle lives, and its users keep this reference no longer.
    unsafe { &*parts.ring.add(taken as usize & mask) }
}

/// Entry 0 of a collapsed completion queue.
///
/// After an error the NIC overwrites the entry with those of the flushed
/// requests, the last word last: a syndrome that is read meanwhile may already
/// be the flush's, and the error then counts as one. No more is lost than if we
/// had looked a moment later.
#[inline(always)]
pub(super) fn read_collapsed(parts: &CompletionParts) -> News {
    let slot = slot(parts, 0);
    let tail = CqeTail(word(slot, 7));
    if tail.cqe_opcode() == CqeOpcode::INVALID {
        News::Nothing
    } else {
        decode_request(slot, tail)
    }
}

/// Entry number `taken` of an ordinary completion queue: its tail, if valid.
#[inline(always)]
pub(super) fn read_ordinary(parts: &CompletionParts, taken: u64) -> Option<CqeTail> {
    let tail = CqeTail(word(slot(parts, taken), 7));
    let odd_lap = taken >> parts.depth_log2 & 1 == 1;
    tail.is_new(odd_lap).then_some(tail)
}

/// What the CQE with this tail says to a send queue.
#[inline(always)]
pub(super) fn decode_request(slot: &CompletionSlot, tail: CqeTail) -> News {
    if tail.cqe_opcode() == CqeOpcode::REQUESTER {
        News::Completed(tail.wqe_index())
    } else {
        News::Failed(decode_error(slot, tail))
    }
}

/// The error in the CQE with this tail.
#[inline(always)]
pub(super) fn decode_error(slot: &CompletionSlot, tail: CqeTail) -> QueueError {
    // The tail before the rest, because the NIC writes it last: what we read
    // after it is of the same CQE or a later one.
    fence_acquire(Reach::System);
    let word = CqeErrorWord(word(slot, 6));
    QueueError::new(match CompletionError::from_words(word, tail) {
        Some(error) => Cause::Completion(error),
        None => Cause::UnexpectedCompletion {
            op_own: tail.op_own(),
        },
    })
}

/// Tells the NIC that all CQEs before number `taken` may be overwritten.
#[inline(always)]
pub(super) fn free_entries(parts: &CompletionParts, taken: u64) {
    // Our reading of the CQEs before the record, because the NIC may overwrite
    // them as soon as it sees the record.
    fence_release(Reach::System);
    // SAFETY: the handle's pointers are valid, by the promise of its `new`.
    let record: &Word32 = unsafe { &*parts.record };
    store_relaxed32(record, (taken as u32 & 0xff_ffff).to_be(), Reach::System);
}
