//! One WQE of a lane's own queue, executed by that lane without the others: the shortest way from a ring to a CQE.

use mlx5_wqe::{Doorbell, DoorbellRecord};

use super::Crew;
use super::burst::store_cqe;
use super::front::Front;
use crate::lanes::Lanes;
use crate::memory::{LaneMemory, is_word};
use warpbell_soft_hca::engine::plain::plain_write;

/// What a lane has done alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// Nothing: all is as it was, for a burst.
    Nothing,
    /// The WQE.
    All,
    /// The WQE, and there are more.
    AndMore,
}

impl<M: LaneMemory, L: Lanes> Crew<'_, '_, M, L> {
    /// Executes the WQE that a ring at this lane's register tells of, if nothing else was known to be posted, and it is
    /// one plain write of a few bytes that may be executed at once. All lanes have met since another one changed the
    /// loan.
    #[inline(always)]
    pub(super) fn alone(&mut self, ring: u64) -> Done {
        match self.execute_alone(ring) {
            None => Done::Nothing,
            Some(false) => Done::All,
            Some(true) => Done::AndMore,
        }
    }

    /// As [`alone`](Self::alone); gives whether more is posted.
    #[inline(always)]
    fn execute_alone(&mut self, ring: u64) -> Option<bool> {
        let ring = Doorbell(ring);
        // Several are the others' work, too: nothing of it is done twice.
        if ring.producer().0 != self.front.next {
            return None;
        }
        let memory = &self.memory;
        // The ring before record and WQE, which were written before.
        memory.acquire();
        // On their way before anything else is asked: there is hardly a ring that does not tell of this WQE.
        // SAFETY: the owner vouched for the ring when the queue pair was created.
        let block = unsafe { memory.read_block(self.front.block) };
        // SAFETY: the owner vouched for the record, too; without one this is the block.
        let word = unsafe { memory.peek_u32(self.front.record) };
        let seat = self.seat?;
        // SAFETY: the loan is the crew's, and until all meet again no lane but this one looks at it.
        let mut loan = unsafe { *seat.loan() };
        let next = loan.tail.wrapping_add(1);
        let write = plain_write(&block, loan.tail, loan.ring, loan.number, loan.mtu);
        let opened = self.open(&loan, &write);
        let awaited = ring.qpn() == loan.number;
        loan.producer = match loan.record {
            Some(_) => DoorbellRecord::producer(word),
            None => next,
        };
        // Not if the record does not yet tell of it, or makes no sense.
        let posted = u32::from(loan.producer.wrapping_sub(loan.tail));
        let recorded = posted.wrapping_sub(1) < 1 << loan.ring.log_depth;
        // One question, while the payload is on its way.
        if !(awaited & recorded & opened.opens & opened.small & !opened.is_revoked()) {
            return None;
        }
        let completions = &mut loan.completions;
        if write.signalled && !completions.ignore_overrun && completions.room(memory, 1) == 0 {
            return None;
        }
        let (target, length) = (write.remote.address, write.source.length);
        if is_word(target, length) & loan.unordered {
            // All earlier payloads before this word, because who polls it goes on to read those. Inline data that are small
            // are a word, too.
            memory.release();
        }
        let (address, words) = loan.cqe(&write, loan.tail, 0);
        if write.signalled {
            // While the payload is on its way: nothing counts before the last word.
            // SAFETY: the slot is in the ring that the owner vouched for when the queue was created.
            unsafe { store_cqe(memory, address, &words) };
        }
        // SAFETY: the range was just checked.
        unsafe { memory.store_small(target, length, &opened.data) };
        loan.unordered = true;
        if write.signalled {
            // All payloads, and the rest of the CQE, before its last word, because whoever sees the new owner bit
            // goes on to read those.
            memory.release();
            // SAFETY: as above.
            unsafe { memory.write_u64(address + 56, words[7]) };
            loan.unordered = false;
            loan.completions.producer = loan.completions.producer.wrapping_add(1);
        }
        loan.tail = next;
        loan.executed = loan.executed.wrapping_add(1);
        // SAFETY: as above.
        unsafe { seat.loan_mut() }.advance_to(&loan);
        self.front = Front::of(&loan);
        Some(loan.producer != next)
    }
}
