//! Up to a WQE a lane of one queue, executed together.
//!
//! All that takes time is done side by side: WQEs are read, keys checked, payloads loaded. Then the payloads
//! are stored in the order of their WQEs, a lane after the other, because whoever polls the last byte of one
//! goes on to read the one before; and all completions at the end, behind one fence.

use mlx5_wqe::{Doorbell, DoorbellRecord};

use super::Crew;
use super::open::Opened;
use crate::desk::Seat;
use crate::lanes::Lanes;
use crate::memory::{LaneMemory, is_word};
use warpbell_soft_hca::engine::loan::{Loan, Wanted};
use warpbell_soft_hca::engine::plain::{BasicBlock, PlainWrite, plain_write};

/// How a burst ended: the same at every lane.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// What there was is executed.
    Executed,
    /// The first WQE's key has to be looked up.
    Unknown,
    /// The first WQE is not plain, or not in order.
    NotPlain,
}

/// What came of a burst.
#[derive(Clone, Copy)]
pub(super) struct Burst {
    pub(super) verdict: Verdict,
    /// More is posted.
    pub(super) more: bool,
    /// The record has what the ring said.
    pub(super) confirmed: bool,
    /// At lane 0, if a key is unknown: which.
    pub(super) wanted: Wanted,
}

impl Burst {
    const NOTHING: Self = Self {
        verdict: Verdict::Executed,
        more: false,
        confirmed: true,
        wanted: Wanted::NOTHING,
    };
}

/// Stores a CQE but for its last word.
///
/// # Safety
/// `address` is that of a CQE in a completion queue's ring.
#[inline(always)]
pub(super) unsafe fn store_cqe<M: LaneMemory>(memory: &M, address: u64, words: &[u64; 8]) {
    // SAFETY: the caller's promise.
    unsafe {
        memory.store_small(address, 48, words);
        memory.write_u64(address + 48, words[6]);
    }
}

/// The bits below `count`.
#[inline(always)]
const fn first(count: u32) -> u32 {
    ((1u64 << count) - 1) as u32
}

impl<'t, M: LaneMemory, L: Lanes> Crew<'_, 't, M, L> {
    /// Executes plain writes from the front of the loan in a seat. `heard` is the ring that called for it; without
    /// one, which is 0, what was known to be posted goes on.
    #[inline(always)]
    pub(super) fn burst(&self, seat: &Seat<'_>, heard: u64) -> Burst {
        let lanes = self.lanes;
        lanes.sync();
        // SAFETY: the loan is the crew's, and lane 0 changes it only below, when all have looked.
        let mut loan = unsafe { *seat.loan() };
        let burst = self.execute(&mut loan, heard);
        // All have looked before lane 0 changes it.
        lanes.sync();
        if lanes.index() == 0 {
            // SAFETY: as above; the others look again after the next meeting.
            unsafe { seat.loan_mut() }.advance_to(&loan);
        }
        burst
    }

    /// Executes what is plain and allowed of what is posted.
    ///
    /// Nothing is asked between the blocks' loads and the payloads': how many of the blocks count is asked while the
    /// payloads are on their way.
    #[inline(always)]
    fn execute(&self, loan: &mut Loan, heard: u64) -> Burst {
        let (lanes, memory) = (self.lanes, &self.memory);
        // A ring tells an index up to which all is posted, so that WQEs and record are on their way together.
        let ring = Doorbell(heard);
        let told = match (heard == 0, ring.qpn() == loan.number) {
            (true, _) => loan.producer,
            (false, true) => ring.producer().0,
            (false, false) => loan.tail,
        };
        let depth = 1u32 << loan.ring.log_depth;
        let told = u32::from(told.wrapping_sub(loan.tail));
        let told = if told > depth { 0 } else { told };
        let index = loan.tail.wrapping_add(lanes.index() as u16);
        let at = loan.ring.block(index);
        // The ring, or the record as it was read last time, before record and WQEs, which were written before.
        memory.acquire();
        let block = match lanes.index() < told {
            // SAFETY: the owner vouched for the ring when the queue pair was created.
            true => unsafe { memory.read_block(at) },
            // Asks for nothing that is plain.
            false => BasicBlock::default(),
        };
        // One lane looks there, because each may find another word.
        let word = match loan.record {
            // SAFETY: the owner vouched for the record, too.
            Some(record) if (heard != 0) & (lanes.index() == 0) => unsafe {
                memory.peek_u32(record)
            },
            _ => 0,
        };
        let write = plain_write(&block, index, loan.ring, loan.number, loan.mtu);
        let opened = self.open(loan, &write);
        let word = lanes.broadcast(word.into(), 0) as u32;
        let told_last = u32::from(loan.producer.wrapping_sub(loan.tail));
        loan.producer = match (heard != 0, loan.record.is_some()) {
            (true, true) => DoorbellRecord::producer(word),
            // Without a record, what the ring tells counts, unless it is an old one.
            (true, false) if told > told_last => loan.tail.wrapping_add(told as u16),
            _ => loan.producer,
        };
        let posted = u32::from(loan.producer.wrapping_sub(loan.tail));
        let known = told.min(posted).min(lanes.count());
        let mut burst = Burst {
            // What the record alone has told of is for the next round, so that an acquire fence comes between the two.
            more: posted != 0,
            confirmed: told <= posted,
            ..Burst::NOTHING
        };
        let good = lanes.ballot(opened.opens & !opened.is_revoked());
        let signalled = lanes.ballot(write.signalled);
        if posted > depth {
            // The record makes no sense.
            burst.verdict = Verdict::NotPlain;
            burst.confirmed = true;
            return burst;
        }
        if known == 0 {
            return burst;
        }
        let run = self.fit(loan, (!good).trailing_zeros().min(known), signalled);
        if run == 0 {
            burst.wanted = opened.wanted;
            burst.verdict = match lanes.ballot(opened.unknown) & 1 {
                0 => Verdict::NotPlain,
                _ => Verdict::Unknown,
            };
        }
        self.store(loan, run, &write, &opened);
        self.complete(loan, index, &write, signalled & first(run));
        loan.tail = loan.tail.wrapping_add(run as u16);
        loan.executed = loan.executed.wrapping_add(run);
        burst.more = loan.producer != loan.tail;
        burst
    }

    /// How many of the first `run` WQEs have room for their completions.
    #[inline(always)]
    fn fit(&self, loan: &mut Loan, run: u32, signalled: u32) -> u32 {
        let mut signalled = signalled & first(run);
        let wanted = signalled.count_ones();
        let completions = &loan.completions;
        if completions.ignore_overrun | completions.known_to_fit(wanted) {
            return run;
        }
        // One lane reads the consumer index, because each may find another one.
        let room = match self.lanes.index() {
            0 => loan.completions.room(&self.memory, wanted),
            _ => 0,
        };
        let room = self.lanes.broadcast(room.into(), 0) as u32;
        if room >= wanted {
            return run;
        }
        for _ in 0..room {
            signalled &= signalled - 1;
        }
        signalled.trailing_zeros()
    }

    /// Stores the payloads of the first `run` lanes, one after the other.
    #[inline(always)]
    fn store(&self, loan: &mut Loan, run: u32, write: &PlainWrite, opened: &Opened) {
        let (lanes, memory) = (self.lanes, &self.memory);
        let (source, target, length) = (
            write.source.address,
            write.remote.address,
            write.source.length,
        );
        let words = lanes.ballot(is_word(target, length) | write.inline);
        let small = lanes.ballot(opened.small);
        // Those that something was stored before.
        let behind = match loan.unordered {
            true => words,
            false => words & !1,
        };
        for lane in 0..run {
            if behind >> lane & 1 != 0 {
                // All earlier payloads before this word, or these that lay in the ring, because who polls them goes on to
                // read those.
                lanes.sync();
                memory.release();
            }
            if small >> lane & 1 == 0 {
                let [source, target, length] =
                    [source, target, length].map(|value| lanes.broadcast(value, lane));
                // SAFETY: both ranges were just checked by that lane.
                unsafe {
                    memory.copy_part(source, target, length, lanes.index(), lanes.count());
                };
            } else if lanes.index() == lane {
                // SAFETY: the range was just checked.
                unsafe { memory.store_small(target, length, &opened.data) };
            }
            // This payload before the next one, which may go to the same place.
            lanes.sync();
        }
        loan.unordered |= run != 0;
    }

    /// Writes the completions of the signalled lanes.
    #[inline(always)]
    fn complete(&self, loan: &mut Loan, index: u16, write: &PlainWrite, signalled: u32) {
        let (lanes, memory) = (self.lanes, &self.memory);
        let count = signalled.count_ones();
        if count == 0 {
            return;
        }
        let before = (signalled & first(lanes.index())).count_ones();
        let mine = signalled >> lanes.index() & 1 != 0 && loan.completions.keeps(before, count);
        let (address, words) = loan.cqe(write, index, before);
        if mine {
            // SAFETY: the slot is in the ring that the owner vouched for when the queue was created.
            unsafe { store_cqe(memory, address, &words) };
        }
        // All payloads, and the rest of each CQE, before its last word, because whoever sees the new owner bit
        // goes on to read those.
        lanes.sync();
        memory.release();
        if mine {
            // SAFETY: as above.
            unsafe { memory.write_u64(address + 56, words[7]) };
        }
        loan.unordered = false;
        loan.completions.producer = loan.completions.producer.wrapping_add(count);
    }
}
