//! The NIC: looks at doorbell or record, reads the newest WQE that they name, and completes.
//!
//! Nothing but a branch on what was loaded stands between its loads, so that they come as close upon each other as
//! they can: a fence in between would hide much of what is looked for. PTX promises no order for that; a GPU, which
//! executes nothing before the branch is decided, keeps it.

use warpbell::wqe::{CqeOpcode, CqeTail, Opcode, QpNumber};
use warpbell::{Deadline, WaitError, Word64, WordExt, block};
use warpbell_gpu::arch::fence_release;

use super::{FAILED, Fault, LOOKS, Litmus, OLD_RECORD, OLD_WQE, Pair, WENT_BACK, target_of};
use crate::bare::reach;
use crate::outcome::Failure;

/// Looks that find nothing between two looks at whether there is anything to come.
const EMPTY_LOOKS: u32 = 64;
/// How far data comes behind its CQE where it does so on purpose, in microseconds.
const BEHIND_US: u64 = 2;

/// What was seen.
#[derive(Default)]
struct Seen {
    /// WQEs that the NIC was told of.
    told: u64,
    /// The newest index in the word that it looks at, and in the record behind that.
    named: u16,
    recorded: u16,
    looks: u64,
    old_wqe: u64,
    old_record: u64,
    went_back: u64,
}

/// Whether an index is older than another; they are never half of all indices apart.
#[inline(always)]
const fn is_behind(index: u16, other: u16) -> bool {
    (index.wrapping_sub(other) as i16) < 0
}

impl Litmus<'_> {
    /// Takes part until everything is posted and seen.
    #[inline(always)]
    pub(super) fn play(&self, pair: &Pair<'_>, index: u32, brings: bool) -> Result<(), Failure> {
        let mut seen = Seen::default();
        let watched = self.watch(pair, brings, &mut seen);
        self.note(index, LOOKS, seen.looks);
        self.note(index, OLD_WQE, seen.old_wqe);
        self.note(index, OLD_RECORD, seen.old_record);
        self.note(index, WENT_BACK, seen.went_back);
        watched
    }

    #[inline(always)]
    fn watch(&self, pair: &Pair<'_>, brings: bool, seen: &mut Seen) -> Result<(), Failure> {
        // SAFETY: the host made record and doorbell.
        let (record, doorbell) = unsafe { (&*pair.places.record, &*pair.places.doorbell) };
        let recorded = || u32::from_be(record.load_relaxed()) as u16;
        let rung = || (u64::from_be(doorbell.load_relaxed()) >> 40) as u16;
        let mut wait = Deadline::after_us(self.limit_us).wait();
        let mut empty = 0;
        loop {
            let named = if self.by_record { recorded() } else { rung() };
            let ahead = named.wrapping_sub(seen.told as u16) as i16;
            seen.went_back += u64::from(is_behind(named, seen.named));
            seen.named = named;
            if ahead <= 0 {
                empty += 1;
                if empty % EMPTY_LOOKS == 0 && self.is_over(seen.told) {
                    return Ok(());
                }
                if wait.expired() {
                    return Err(WaitError::Deadline.into());
                }
                continue;
            }
            let mut end = seen.told + ahead as u64;
            if self.record && !self.by_record {
                let recorded = recorded();
                seen.old_record += u64::from(is_behind(recorded, named));
                seen.went_back += u64::from(is_behind(recorded, seen.recorded));
                seen.recorded = recorded;
                // A record that is ahead names the newest.
                end += (recorded.wrapping_sub(named) as i16).max(0) as u64;
            }
            let newest = end - 1;
            seen.old_wqe += u64::from(!self.is_there(pair, newest));
            seen.looks += 1;
            seen.told = end;
            self.complete(pair, newest, brings);
        }
    }

    /// Whether all who post have ended, and this is all that they posted.
    #[inline(always)]
    fn is_over(&self, told: u64) -> bool {
        let mut posted = 0;
        for poster in 1..=self.posters {
            let word = self.ended.get(u64::from(block::index() + poster));
            match word.map_or(FAILED, |word| word.load_relaxed()) {
                0 => return false,
                FAILED => return true,
                ended => posted += ended - 1,
            }
        }
        told == posted
    }

    /// Whether the WQE in the slot of number `number` is that one, each octoword of it.
    #[inline(always)]
    fn is_there(&self, pair: &Pair<'_>, number: u64) -> bool {
        let slot = self.ring().slot(number);
        // SAFETY: the host made a ring of so many blocks of 64 bytes. Whoever posts does not store to one again
        // before its completion.
        let words = unsafe { &*pair.places.ring.add(slot).cast::<[Word64; 8]>() };
        let [control, target, compare, local] =
            [0, 2, 5, 7].map(|word: usize| u64::from_be(words[word].load_relaxed()));
        let tag = compare;
        let index = (control >> 40) as u16;
        let right = !self.numbered || tag == number;
        index == number as u16 && right && target == target_of(tag) && local == tag
    }

    /// Completes everything up to WQE number `number`, and brings data if it is asked for.
    #[inline(always)]
    fn complete(&self, pair: &Pair<'_>, number: u64, brings: bool) {
        // SAFETY: the host promises the places.
        let (completion, data) = unsafe { (&*pair.completion, &*pair.data) };
        let qpn = QpNumber::from_low_bits(self.qpn);
        let opcode = Opcode::ATOMIC_COMPARE_SWAP;
        let tail = CqeTail::new(CqeOpcode::REQUESTER, false, opcode, qpn, number as u16);
        let first = self.fault == Fault::CompletionFirst;
        if first {
            completion[7].store_relaxed(tail.0);
            let mut behind = Deadline::after_us(BEHIND_US).wait();
            while !behind.expired() {}
        }
        if brings {
            for word in data.iter().chain(&completion[..7]) {
                word.store_relaxed(number);
            }
        }
        // The reading of the WQE before the CQE's last word, because that one frees the slot; data and the rest of
        // the CQE before it, because it tells of them.
        match (self.fault, self.system) {
            (Fault::CompletionUnfenced, _) => {}
            (_, system) => fence_release(reach(system)),
        }
        if !first {
            completion[7].store_relaxed(tail.0);
        }
    }
}
