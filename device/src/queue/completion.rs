//! Reading CQEs: by the last word of one, which the NIC writes last.
//!
//! Words are loaded and stored with system scope, whatever the fences' `reach`.

use mlx5_wqe::{CqeErrorWord, CqeOpcode, CqeTail};
use warpbell_gpu::arch::{Reach, Word32, fence_acquire, fence_release};

use crate::error::QueueError;
use crate::handle::{CompletionSlot, Completions};
use crate::words::{load_relaxed64, store_relaxed32};

/// Loads a word of a CQE.
#[inline(always)]
pub(crate) fn word(slot: &CompletionSlot, index: usize) -> u64 {
    load_relaxed64(&slot.words[index & 7], Reach::System)
}

/// The entry that CQE number `number` lies in.
#[inline(always)]
pub(crate) fn slot<'a>(parts: &Completions, number: u32) -> &'a CompletionSlot {
    let mask = (1u32 << parts.depth_log2) - 1;
    // SAFETY: the handle's `new` promises `1 << depth_log2` entries for as long
    // as the handle lives, and its users keep this reference no longer.
    unsafe { &*parts.ring.add((number & mask) as usize) }
}

/// The tail in the entry that CQE number `number` lies in, written or not.
#[inline(always)]
pub(crate) fn tail(parts: &Completions, number: u32) -> CqeTail {
    CqeTail(word(slot(parts, number), 7))
}

/// The owner bit of CQE number `number`. That of a collapsed queue's one entry
/// says nothing.
#[inline(always)]
pub(super) fn owner(parts: &Completions, number: u32) -> Option<bool> {
    let odd_lap = number >> parts.depth_log2 & 1 == 1;
    (!parts.is_collapsed()).then_some(odd_lap)
}

/// Whether this is the tail of CQE number `number`, and not of one a lap before
/// it. A collapsed queue has one entry, and whatever it holds counts.
#[inline(always)]
pub(crate) fn is_new(parts: &Completions, tail: CqeTail, number: u32) -> bool {
    match owner(parts, number) {
        Some(owner) => tail.is_new(owner),
        None => tail.cqe_opcode() != CqeOpcode::INVALID,
    }
}

/// The error in the CQE with this tail, or that it is none for this queue.
///
/// In a collapsed queue the flushed requests' CQEs overwrite that of the error,
/// the tail last: the syndrome read here may already be the flush's, and the
/// error then counts as one. No more is lost than had we looked a moment later.
/// In a ring each CQE keeps its entry until it is taken.
#[inline(always)]
pub(super) fn decode_error(slot: &CompletionSlot, tail: CqeTail, reach: Reach) -> QueueError {
    // The tail before the rest, because the NIC writes it last: what we read
    // after it is of the same CQE or a later one.
    fence_acquire(reach);
    QueueError::of_cqe(CqeErrorWord(word(slot, 6)), tail)
}

/// Tells the NIC that all CQEs of a receive queue before number `taken` may be overwritten.
#[inline(always)]
pub(super) fn free_entries(parts: &Completions, taken: u32, reach: Reach) {
    // Our reading of the CQEs before the record, because the NIC may overwrite
    // them as soon as it sees the record.
    fence_release(reach);
    // SAFETY: the handle's pointers are valid, by the promise of its `new`.
    let record: &Word32 = unsafe { &*parts.record };
    store_relaxed32(record, (taken & 0xff_ffff).to_be(), Reach::System);
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use core::sync::atomic::Ordering;
    use std::vec::Vec;

    use mlx5_wqe::{Opcode, QpNumber, WqeIndex};

    use super::*;
    use crate::handle::{CompletionKind, CompletionParts};

    /// Two laps around each boundary at which a counter of the CQE's number wraps.
    #[test]
    fn entries_owners_and_records_wrap() {
        let depths = if cfg!(miri) { 0..=3 } else { 0..=15 };
        for log2 in depths {
            let depth = 1u64 << log2;
            let ring: Vec<_> = (0..depth).map(|_| CompletionSlot::invalid()).collect();
            let record = Word32::new(0);
            let parts = Completions::new(CompletionParts {
                ring: ring.as_ptr(),
                record: &record,
                depth_log2: log2,
                kind: CompletionKind::Ordinary,
            });
            for boundary in [depth, 1 << 16, 1 << 24, 1 << 32] {
                let start = boundary - depth;
                // As the lap before left the ring.
                for taken in start - start.min(depth)..start {
                    write(&ring, taken);
                }
                for taken in start..boundary + depth {
                    // 32 bits of the number, as views keep it.
                    let number = taken as u32;
                    let found = || tail(&parts, number);
                    assert!(
                        !is_new(&parts, found(), number),
                        "CQE {taken} before it is written"
                    );
                    let written = write(&ring, taken);
                    assert_eq!(found(), written, "CQE {taken}");
                    assert!(is_new(&parts, written, number), "CQE {taken}");
                    let (index, owner) = (WqeIndex(taken as u16), owner(&parts, number));
                    assert!(written.is_success_of_pass(index, owner), "CQE {taken}");
                    let before = owner.map(|owner| !owner);
                    assert!(!written.is_success_of_pass(index, before), "CQE {taken}");
                    free_entries(&parts, number.wrapping_add(1), Reach::System);
                    let freed = u32::from_be(record.load(Ordering::Relaxed));
                    assert_eq!(u64::from(freed), (taken + 1) % (1 << 24));
                }
                for entry in &ring {
                    entry.invalidate();
                }
            }
        }
    }

    /// Writes CQE number `taken` as a NIC does: entry modulo depth, owner by lap.
    fn write(ring: &[CompletionSlot], taken: u64) -> CqeTail {
        let depth = ring.len() as u64;
        let owner = taken / depth % 2 == 1;
        let qpn = QpNumber::MAX;
        let tail = CqeTail::new(CqeOpcode::REQUESTER, owner, Opcode::NOP, qpn, taken as u16);
        ring[(taken % depth) as usize].words[7].store(tail.0, Ordering::Relaxed);
        tail
    }
}
