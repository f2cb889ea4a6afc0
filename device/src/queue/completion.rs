//! Reading CQEs: by the last word of one, which the NIC writes last.
//!
//! Words are loaded and stored with system scope, whatever the fences' `reach`.

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

/// The tail in the entry that CQE number `taken` lies in, written or not.
#[inline(always)]
pub(super) fn tail(parts: &Completions, taken: u64) -> CqeTail {
    CqeTail(word(slot(parts, taken), 7))
}

/// The tail of CQE number `taken`, if the NIC has written it. A collapsed queue
/// has one entry, in which every CQE is number 0.
#[inline(always)]
pub(super) fn read(parts: &Completions, taken: u64) -> Option<CqeTail> {
    let tail = tail(parts, taken);
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
pub(super) fn decode_error(slot: &CompletionSlot, tail: CqeTail, reach: Reach) -> QueueError {
    // The tail before the rest, because the NIC writes it last: what we read
    // after it is of the same CQE or a later one.
    fence_acquire(reach);
    QueueError::of_cqe(CqeErrorWord(word(slot, 6)), tail)
}

/// Tells the NIC that all CQEs before number `taken` may be overwritten.
#[inline(always)]
pub(super) fn free_entries(parts: &Completions, taken: u64, reach: Reach) {
    // Our reading of the CQEs before the record, because the NIC may overwrite
    // them as soon as it sees the record.
    fence_release(reach);
    // SAFETY: the handle's pointers are valid, by the promise of its `new`.
    let record: &Word32 = unsafe { &*parts.record };
    store_relaxed32(record, (taken as u32 & 0xff_ffff).to_be(), Reach::System);
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;
    use core::sync::atomic::Ordering;
    use std::vec::Vec;

    use mlx5_wqe::{Opcode, QpNumber};

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
            for boundary in [depth, 1 << 16, 1 << 24, 1 << 32, 1 << 40] {
                let start = boundary - depth;
                // As the lap before left the ring.
                for taken in start - start.min(depth)..start {
                    write(&ring, taken);
                }
                for taken in start..boundary + depth {
                    assert_eq!(
                        read(&parts, taken),
                        None,
                        "CQE {taken} before it is written"
                    );
                    let tail = write(&ring, taken);
                    assert_eq!(read(&parts, taken), Some(tail), "CQE {taken}");
                    free_entries(&parts, taken + 1, Reach::System);
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
