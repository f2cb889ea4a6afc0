//! Posting by hand, in the wrong order or without a fence: the twins that the test must find something in.

use warpbell::wqe::{CqeOpcode, CqeTail, Doorbell, DoorbellRecord, QpNumber, WqeBlock, WqeIndex};
use warpbell::{Deadline, PostError, WordExt, kernel, thread};
use warpbell_gpu::arch::{fence_release, ring_doorbell, store_block};

use super::{Fault, Litmus, Poster, STRETCH, marked};
use crate::bare::reach;
use crate::outcome::Failure;

/// How far a WQE comes behind its doorbell where it does so on purpose, in microseconds.
const BEHIND_US: u64 = 2;

impl Poster<'_, '_> {
    /// Posts until the time is over, with `FAULT`.
    #[inline(always)]
    fn by_hand<const FAULT: u32, const SYSTEM: bool>(
        self,
        posted: &mut u64,
    ) -> Result<(), Failure> {
        let test = self.test;
        let qpn = QpNumber::from_low_bits(test.qpn);
        let mut completed = 0;
        let until = thread::clock_ns() + test.run_ns;
        while thread::clock_ns() < until {
            for _ in 0..STRETCH {
                self.room(*posted, &mut completed)?;
                let [block] = marked(*posted).place(WqeIndex(*posted as u16), qpn);
                // SAFETY: the host made a ring of so many blocks, which this thread alone writes.
                let slot = unsafe { self.pair.places.ring.add(test.ring().slot(*posted)) };
                *posted += 1;
                self.publish::<FAULT, SYSTEM>(slot, block, *posted as u16, qpn);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn publish<const FAULT: u32, const SYSTEM: bool>(
        self,
        slot: *mut WqeBlock,
        block: WqeBlock,
        end: u16,
        qpn: QpNumber,
    ) {
        // SAFETY: the slot is the ring's, and the NIC has read what was there.
        let store_wqe = || unsafe { store_block(slot.cast(), block) };
        let store_record = || {
            // SAFETY: the host made the record.
            let record = unsafe { &*self.pair.places.record };
            record.store_relaxed(DoorbellRecord::word(end));
        };
        let (wqe_last, record_last) = (
            FAULT == Fault::WqeLast as u32,
            FAULT == Fault::RecordLast as u32,
        );
        if !wqe_last {
            store_wqe();
            if FAULT != Fault::WqeUnfenced as u32 {
                fence_release(reach(SYSTEM));
            }
        }
        if self.test.record && !record_last {
            store_record();
            if FAULT != Fault::RecordUnfenced as u32 {
                fence_release(reach(SYSTEM));
            }
        }
        // SAFETY: the host made the register.
        unsafe {
            ring_doorbell(
                &*self.pair.places.doorbell,
                Doorbell::of_producer(WqeIndex(end), qpn).0,
            );
        }
        if wqe_last || record_last {
            let mut behind = Deadline::after_us(BEHIND_US).wait();
            while !behind.expired() {}
        }
        if wqe_last {
            store_wqe();
        }
        if record_last {
            store_record();
        }
    }

    /// Waits until the slot of WQE number `number` is free.
    #[inline(always)]
    fn room(self, number: u64, completed: &mut u64) -> Result<(), Failure> {
        let ring = self.test.ring();
        if ring.has_room(number, *completed, 1) {
            return Ok(());
        }
        // SAFETY: the host promises the place.
        let last = unsafe { &(&*self.pair.completion)[7] };
        let mut wait = Deadline::after_us(self.test.limit_us).wait();
        loop {
            let tail = CqeTail(last.load_relaxed());
            if tail.cqe_opcode() != CqeOpcode::INVALID {
                *completed = ring.completed(*completed, tail.wqe_index());
            }
            if ring.has_room(number, *completed, 1) {
                return Ok(());
            }
            if wait.expired() {
                return Err(PostError::Deadline.into());
            }
        }
    }

    #[inline(always)]
    fn by_hand_within<const FAULT: u32>(self, posted: &mut u64) -> Result<(), Failure> {
        match self.test.system {
            true => self.by_hand::<FAULT, true>(posted),
            false => self.by_hand::<FAULT, false>(posted),
        }
    }
}

/// Posts by hand, with the fault that is asked for.
///
/// # Safety
/// The places that [`Litmus`] names are there, for as long as the kernel runs, as its fields say.
#[kernel]
pub unsafe fn suite_litmus_hand(p: Litmus<'_>) {
    p.run(1, false, |poster, posted| match p.fault {
        Fault::WqeUnfenced => poster.by_hand_within::<{ Fault::WqeUnfenced as u32 }>(posted),
        Fault::RecordUnfenced => poster.by_hand_within::<{ Fault::RecordUnfenced as u32 }>(posted),
        Fault::WqeLast => poster.by_hand_within::<{ Fault::WqeLast as u32 }>(posted),
        Fault::RecordLast => poster.by_hand_within::<{ Fault::RecordLast as u32 }>(posted),
        _ => poster.by_hand_within::<{ Fault::None as u32 }>(posted),
    });
}
