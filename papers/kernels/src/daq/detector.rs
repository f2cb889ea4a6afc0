//! The detector of a stream: what reads it out sends its events when they are due, and the trigger behind the receiver
//! takes the primitives, and compares them with what the events were made of.

use warpbell::{Deadline, Exclusive, Signal, Slice, Stop, Word64, WordExt, block, kernel, thread};

use super::{END, EVENT_BYTES, Entry, HITS, RINGS, slot};
use crate::distribution::{BUCKETS, bucket};
use crate::path::Path;
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::place::Place;

/// Nanoseconds that an event's way to the trigger may take: 800 µs are the budget of the primitives (NaNet's poster), and
/// behind 1 ms data are lost (its abstract, section 2).
pub const BUDGETS_NS: [u64; 2] = [800_000, 1_000_000];

/// Words of an event's truth: its hits, as it says, and its primitives.
pub const TRUTH_WORDS: u32 = 1 + RINGS;

/// Which of so many kinds, a power of two, event `index` of all ways is: of another one than what lay in its slot before,
/// also where all slots are a multiple of the kinds.
#[inline(always)]
const fn kind(index: u64, kinds: u32) -> u32 {
    let laps = index >> kinds.trailing_zeros();
    (index + laps) as u32 & kinds.saturating_sub(1)
}

/// A block of two warps for each way: one reads the detector out, the other is the trigger.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DaqDetector<'a> {
    /// To the receiver and back: its signals are the trigger's event queue, a word for each slot.
    pub path: Path<'a>,
    /// Where primitives arrive, [`RINGS`] words for each slot.
    pub primitives: Place,
    /// Events that lie at the source, a power of two: they are sent in turn, each lap one later.
    pub kinds: u32,
    /// [`TRUTH_WORDS`] for each of them: its hits, as it says, and the primitives that a search finds in it.
    pub truths: Place,
    /// Slots of a way, a power of two.
    pub slots: u32,
    /// Picoseconds from one event to the next, of all ways.
    pub interval_ps: u64,
    /// Events before those that count.
    pub warm_up: u64,
    /// The most events, of all ways.
    pub events: u64,
    /// Nanoseconds after which no event is sent.
    pub nanoseconds: u64,
    /// Whether an event that finds no slot is dropped and counted; else the detector holds it until there is one.
    pub drops: bool,
    /// Ends it before.
    pub stop: Stop<'a>,
    /// Two words for each way, 0 at first, in memory of the kernel's own: primitives that came, and when it began.
    pub shared: Place,
    /// [`BUCKETS`] words for each way, 0 at first, likewise.
    pub histogram: Place,
    /// Takes [`Self::NUMBERS`] words for each way.
    pub numbers: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Sends events and takes primitives, until there were enough or time is over.
#[kernel]
pub fn daq_detector(p: DaqDetector<'_>) {
    let own = block::thread_index();
    let way = block::index();
    // The same for all threads, so that all of them come to the barrier or none.
    if let Err(failure) = p.fits(way) {
        return p.outcome.record(|| Err(failure));
    }
    if own == 0 {
        p.shared.store(2 * way + 1, thread::clock_ns());
    }
    // The beginning before anybody asks for it.
    thread::sync_threads();
    // Whole warps part here, and of each one lane goes on.
    if own == 0 {
        p.outcome.record(|| p.read_out(way));
    } else if own == thread::warp_size() {
        p.outcome.record(|| p.trigger(way));
    }
}

/// Events between two looks at the host's stop.
const LOOK: u64 = 64;
/// Nanoseconds of a pause that is long enough for such a look, too.
const PAUSE_NS: u64 = 1_000_000;

impl<'a> DaqDetector<'a> {
    /// Events sent.
    pub const SENT: u64 = 0;
    /// The sum of their numbers.
    pub const SENT_SUM: u64 = 1;
    /// Events dropped.
    pub const DROPPED: u64 = 2;
    /// Events that were sent later than they could have been, because there was no slot.
    pub const HELD: u64 = 3;
    /// Nanoseconds until no more was sent.
    pub const NANOSECONDS: u64 = 4;
    /// Primitives taken.
    pub const TAKEN: u64 = 5;
    /// The sum of their events' numbers.
    pub const TAKEN_SUM: u64 = 6;
    /// Those that differ from what a search finds in the event.
    pub const WRONG: u64 = 7;
    /// Those that count and came behind the first of [`BUDGETS_NS`].
    pub const LATE: u64 = 8;
    /// Those behind the second one.
    pub const TOO_LATE: u64 = 9;
    /// The longest time of those that count, in nanoseconds.
    pub const LONGEST: u64 = 10;
    /// Words of a way.
    pub const NUMBERS: u64 = 11;

    /// Whether all that belongs to a way is there.
    #[inline(always)]
    fn fits(&self, way: u32) -> Result<(), Failure> {
        let ways = u64::from(way) + 1;
        let primitives = ways * u64::from(self.slots);
        self.primitives
            .holds(primitives.saturating_mul(RINGS.into()))?;
        let truths = u64::from(TRUTH_WORDS) * u64::from(self.kinds.max(1));
        self.truths.holds(truths)?;
        self.shared.holds(2 * ways)?;
        self.histogram.holds(ways * u64::from(BUCKETS))
    }

    #[inline(always)]
    fn began(&self, way: u32) -> u64 {
        self.shared.load(2 * way + 1)
    }

    /// Primitives that came.
    #[inline(always)]
    fn came(&self, way: u32) -> Result<Signal<'a>, Failure> {
        self.shared.signal(2 * way)
    }

    /// The number among all ways' of event `number` of a way.
    #[inline(always)]
    fn index(&self, way: u32, number: u64) -> u64 {
        number * u64::from(self.path.parts) + u64::from(way)
    }

    /// Nanoseconds from the beginning until an event is there.
    #[inline(always)]
    fn due(&self, index: u64) -> u64 {
        index * self.interval_ps / 1000
    }

    #[inline(always)]
    fn keep(&self, way: u32, number: u64, value: u64) {
        self.numbers
            .store(u64::from(way) * Self::NUMBERS + number, value);
    }

    /// Waits until an event is there; gives whether it is to be sent.
    #[inline(always)]
    fn await_event(&self, number: u64, due: u64, began: u64) -> bool {
        let mut looks = number.is_multiple_of(LOOK);
        loop {
            if looks && self.stop.requested() {
                return false;
            }
            let now = thread::clock_ns() - began;
            if now >= due {
                return now < self.nanoseconds;
            }
            let pause = due - now;
            looks = pause > PAUSE_NS;
            let mut wait = Deadline::after_ns(pause.min(PAUSE_NS)).wait();
            while !wait.expired() {}
        }
    }

    /// Sends the events of a way.
    #[inline(always)]
    fn read_out(&self, way: u32) -> Result<(), Failure> {
        let path = &self.path;
        let Some(queue) = path.queues.get(way.into()) else {
            return Ok(());
        };
        let mut queue = queue.open::<Exclusive>()?;
        let began = self.began(way);
        let came = self.came(way)?;
        let (mut number, mut sent, mut sum) = (0u64, 0u64, 0u64);
        let (mut dropped, mut held, mut free) = (0u64, 0u64, u64::from(self.slots));
        loop {
            let index = self.index(way, number);
            let due = self.due(index);
            let over = (index >= self.events) | (due >= self.nanoseconds);
            if over || !self.await_event(number, due, began) {
                break;
            }
            if sent >= free {
                // A slot is free again once its event's primitive came.
                free = came.read() + u64::from(self.slots);
            }
            if sent >= free {
                if self.drops {
                    dropped += 1;
                    number += 1;
                    continue;
                }
                held += 1;
                let least = sent + 1 - u64::from(self.slots);
                free = came.wait(least, path.limit())? + u64::from(self.slots);
            }
            let kind = kind(index, self.kinds);
            let hits = self.truths.load(TRUTH_WORDS * kind) as u32;
            let slot = slot(way, self.slots, sent as u32);
            let from = u64::from(kind) * u64::from(EVENT_BYTES);
            let to = u64::from(slot) * u64::from(EVENT_BYTES);
            let mut both = queue.batch(2, path.limit())?;
            let _ = both.post(path.write(from, to, 4 * hits.clamp(1, HITS)))?;
            let _ = both.post(path.tell(slot, Entry::new(number, hits).0))?;
            drop(both);
            sent += 1;
            sum = sum.wrapping_add(index);
            number += 1;
        }
        self.keep(way, Self::NANOSECONDS, thread::clock_ns() - began);
        self.keep(way, Self::SENT, sent);
        self.keep(way, Self::SENT_SUM, sum);
        self.keep(way, Self::DROPPED, dropped);
        self.keep(way, Self::HELD, held);
        if sent >= u64::from(self.slots) {
            let _ = came.wait(sent + 1 - u64::from(self.slots), path.limit())?;
        }
        let end = path.tell(slot(way, self.slots, sent as u32), END);
        let _ = queue.post(end, path.limit())?;
        Ok(queue.drain(path.limit())?)
    }

    /// Takes the primitives of a way.
    #[inline(always)]
    fn trigger(&self, way: u32) -> Result<(), Failure> {
        let path = &self.path;
        let began = self.began(way);
        let (mut taken, mut sum, mut least) = (0u64, 0u64, Entry::FIRST);
        let (mut wrong, mut late, mut too_late, mut longest) = (0u64, 0u64, 0u64, 0u64);
        loop {
            let slot = slot(way, self.slots, taken as u32);
            let told = path.signal(slot)?.wait(least, path.limit())?;
            if told == END {
                break;
            }
            let now = thread::clock_ns();
            let entry = Entry(told);
            let index = self.index(way, entry.number());
            // Not as arrays, whose comparison would keep them in local memory.
            let found = |ring: u32| self.primitives.load(RINGS * slot + ring);
            let found = (found(0), found(1), found(2));
            taken += 1;
            // What is in the slot has been read before the detector fills it again.
            if let Some(came) = self.shared.word(2 * way) {
                came.store_release(taken);
            }
            let kind = kind(index, self.kinds);
            let truth = |word: u32| self.truths.load(TRUTH_WORDS * kind + word);
            let right = (truth(1), truth(2), truth(3)) == found;
            wrong += u64::from(!(right & (u64::from(entry.hits()) == truth(0))));
            sum = sum.wrapping_add(index);
            if index >= self.warm_up {
                let took = now.saturating_sub(began + self.due(index));
                late += u64::from(took > BUDGETS_NS[0]);
                too_late += u64::from(took > BUDGETS_NS[1]);
                longest = longest.max(took);
                // This thread's alone.
                let counted = way * BUCKETS + bucket(took);
                self.histogram
                    .store(counted, self.histogram.load(counted) + 1);
            }
            least = entry.next();
        }
        self.keep(way, Self::TAKEN, taken);
        self.keep(way, Self::TAKEN_SUM, sum);
        self.keep(way, Self::WRONG, wrong);
        self.keep(way, Self::LATE, late);
        self.keep(way, Self::TOO_LATE, too_late);
        self.keep(way, Self::LONGEST, longest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_an_event_of_another_kind_each_time() {
        for (ways, slots) in [(1, 1), (2, 64), (3, 512), (16, 64), (32, 64), (32, 1024)] {
            for index in (0..100_000).chain(u64::from(u32::MAX)..(1 << 32) + 2000) {
                let next = index + ways * slots;
                assert_ne!(
                    kind(index, 1024),
                    kind(next, 1024),
                    "{ways} {slots} {index}"
                );
            }
        }
    }

    #[test]
    fn each_kind_comes_once_in_a_lap() {
        for lap in 0..20 {
            let kinds = (8 * lap..8 * lap + 8).map(|index| kind(index, 8));
            assert_eq!(kinds.fold(0, |all, kind| all | 1 << kind), 0xff);
        }
    }
}
