//! Reading CQEs: by the last word of one, which the NIC writes last.

use mlx5_wqe::{CqeErrorWord, CqeOpcode, CqeTail};

use crate::arch::{Reach, Word32, fence_acquire, fence_release, load_relaxed64, store_relaxed32};
use crate::error::QueueError;
use crate::handle::{CompletionSlot, Completions};

/// Loads a word of a CQE.
#[inline(always)]
pub(super) fn word(slot: &CompletionSlot, index: usize) -> u64 {
    load_relaxed64(&slot.words[index & 7], Reach::System)
}

/// The entry that CQE number `taken` lies in.
#[inline(always)]
pub(super) fn slot<'a>(parts: &Completions, taken: u64) -> &'a CompletionSlot {
    let mask = (1u32 << parts.depth_log2) - 1;
    // SAFETY: the handle's `new` promises `1 << depth_log2` entries for as long
    // as the handle lives, and its users keep this reference no longer.
    unsafe { &*parts.ring.add((taken as u32 & mask) as usize) }
}

/// The tail of CQE number `taken`, if the NIC has written it. A collapsed queue
/// has one entry, in which every CQE is number 0.
#[inline(always)]
pub(super) fn read(parts: &Completions, taken: u64) -> Option<CqeTail> {
    let tail = CqeTail(word(slot(parts, taken), 7));
    let odd_lap = taken as u32 >> parts.depth_log2 & 1 == 1;
    let written = if parts.is_collapsed() {
        tail.cqe_opcode() != CqeOpcode::INVALID
    } else {
        tail.is_new(odd_lap)
    };
    written.then_some(tail)
}

/// The error in the CQE with this tail, or that it is none for this queue.
///
/// In a collapsed queue the flushed requests' CQEs overwrite that of the error,
/// the tail last: the syndrome read here may already be the flush's, and the
/// error then counts as one. No more is lost than had we looked a moment later.
#[inline(always)]
pub(super) fn decode_error(slot: &CompletionSlot, tail: CqeTail) -> QueueError {
    // The tail before the rest, because the NIC writes it last: what we read
    // after it is of the same CQE or a later one.
    fence_acquire(Reach::System);
    QueueError::of_cqe(CqeErrorWord(word(slot, 6)), tail)
}

/// Tells the NIC that all CQEs before number `taken` may be overwritten.
#[inline(always)]
pub(super) fn free_entries(parts: &Completions, taken: u64) {
    // Our reading of the CQEs before the record, because the NIC may overwrite
    // them as soon as it sees the record.
    fence_release(Reach::System);
    // SAFETY: the handle's pointers are valid, by the promise of its `new`.
    let record: &Word32 = unsafe { &*parts.record };
    store_relaxed32(record, (taken as u32 & 0xff_ffff).to_be(), Reach::System);
}
