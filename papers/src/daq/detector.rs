//! The detector's side, with the trigger: events that it sends, and what it sees of their primitives.

use std::sync::atomic::Ordering;

use warpbell::wqe::Remote;
use warpbell::{SendQueueHandle, Slice, Word64};
use warpbell_bench::run::interrupt;
use warpbell_bench::run::memory::{self, Memory};
use warpbell_host_init::{Buffer, Grid, Launch, Node, Placement, Shared, entry};
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::place::Place;
use warpbell_paper_kernels::daq::{DaqDetector, EVENT_BYTES, daq_detector};
use warpbell_paper_kernels::distribution::BUCKETS;

use super::events::{self, Event};
use super::search::search;
use super::{Case, Measured, WARP};
use crate::Error;
use crate::distribution::Distribution;
use crate::rig::{Driver, End};

/// The detector of a case.
pub(super) struct Detector<'d> {
    case: &'d Case,
    node: &'d Node,
    end: &'d End,
    handles: Shared<[SendQueueHandle<'d>]>,
    /// Its events.
    kinds: Memory,
    /// Their hits and truths.
    truths: Buffer,
    /// Primitives at the trigger.
    pub(super) found: Memory,
    /// What its warps share.
    shared: Buffer,
    /// What they count.
    histogram: Buffer,
    numbers: Shared<[Word64]>,
    pub(super) outcome: Shared<Outcome>,
}

fn word_of(buffer: &Buffer) -> Place {
    // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
    unsafe { memory::place(buffer) }
}

/// What the trigger compares with: of each event its hits, as it says, and what a search finds in it.
fn truths(node: &Node, events: &[Event]) -> Result<Vec<u8>, Error> {
    let found = search(node, events)?;
    let all = events.iter().zip(&found);
    let words = all.flat_map(|(event, found)| [&[event.count.into()], &found[..]].concat());
    Ok(words.flat_map(u64::to_ne_bytes).collect())
}

impl<'d> Detector<'d> {
    /// Prepares it at this end.
    pub(super) fn new(case: &'d Case, node: &'d Node, end: &'d End) -> Result<Self, Error> {
        let events = events::all(case.seed);
        let own = match node.gpu() {
            None => Placement::Host,
            Some(gpu) => Placement::Gpu(gpu),
        };
        let (kinds, truths) = (events::bytes(&events), truths(node, &events)?);
        let words = u64::from(case.ways) * DaqDetector::NUMBERS;
        let detector = Self {
            case,
            node,
            end,
            handles: end.handles(node)?,
            kinds: end.memory(node, kinds.len())?,
            truths: Buffer::placed(own, truths.len())?,
            found: end.memory(node, case.primitive_bytes() as usize)?,
            shared: Buffer::placed(own, 16 * case.ways as usize)?,
            histogram: Buffer::placed(own, 8 * (case.ways * BUCKETS) as usize)?,
            numbers: node.words(words as usize)?,
            outcome: node.shared(Outcome::new())?,
        };
        detector.kinds.write(0, &kinds);
        detector.truths.write(0, &truths)?;
        Ok(detector)
    }

    /// The kernel that sends events as they are due, and looks at every primitive, where the receiver's ring and signals begin
    /// there.
    pub(super) fn launch(&self, there: [Remote; 2]) -> Result<Launch<'_>, Error> {
        let case = self.case;
        let detector = DaqDetector {
            path: self
                .end
                .path_to(&self.handles, &self.kinds, there, EVENT_BYTES),
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            primitives: unsafe { self.found.place() },
            kinds: events::KINDS,
            truths: word_of(&self.truths),
            slots: case.slots,
            interval_ps: case.interval_ps(),
            warm_up: case.warm_up.min(case.due() / 10),
            events: case.events,
            nanoseconds: case.limit.as_nanos().try_into().unwrap_or(u64::MAX),
            drops: case.drops,
            stop: interrupt::stop(self.node.placement())?,
            shared: word_of(&self.shared),
            histogram: word_of(&self.histogram),
            numbers: Slice::new(&self.numbers),
            outcome: &self.outcome,
        };
        let grid = Grid::new(case.ways, 2 * WARP);
        Ok(Launch::new(entry!(daq_detector), grid, detector))
    }

    /// Puts together what all ways counted; nothing if Ctrl-C came before an event counted. `guarded` says whether nothing
    /// beside the receiver's memory was touched.
    ///
    /// # Errors
    /// No event counts, for another reason.
    pub(super) fn measured(
        &self,
        driver: Driver,
        guarded: bool,
    ) -> Result<Option<Measured>, Error> {
        let case = self.case;
        let of_ways = |number: u64| {
            let ways = self.numbers.chunks(DaqDetector::NUMBERS as usize);
            ways.map(move |way| way[number as usize].load(Ordering::Relaxed))
        };
        let sum = |number| of_ways(number).fold(0, u64::wrapping_add);
        let most = |number| of_ways(number).max().unwrap_or(0);
        let sent = sum(DaqDetector::SENT);
        let longest = most(DaqDetector::LONGEST);
        let counts = memory::words(&self.histogram)?;
        let Some(distribution) = Distribution::new(&counts, longest) else {
            return match interrupt::requested() {
                true => Ok(None),
                false => Err(Error::NoneCounts { events: sent }),
            };
        };
        let dropped = sum(DaqDetector::DROPPED);
        let left = case.due().saturating_sub(sent + dropped);
        let lost = sent.abs_diff(sum(DaqDetector::TAKEN));
        let wrong = sum(DaqDetector::WRONG);
        let same = sum(DaqDetector::SENT_SUM) == sum(DaqDetector::TAKEN_SUM);
        let mut own = [&self.kinds, &self.found].into_iter();
        let guarded = guarded && own.all(|memory| memory.check_guards().is_ok());
        Ok(Some(Measured {
            driver,
            rate: case.rate,
            sent,
            seconds: most(DaqDetector::NANOSECONDS) as f64 / 1e9,
            dropped,
            held: sum(DaqDetector::HELD),
            // Those that nobody waited for are none that were left.
            left: if interrupt::requested() { 0 } else { left },
            late: sum(DaqDetector::LATE),
            too_late: sum(DaqDetector::TOO_LATE),
            lost,
            wrong,
            distribution,
            verified: (wrong, lost) == (0, 0) && same && guarded,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::CASE;
    use super::*;
    use crate::rig::Rig;

    #[test]
    fn what_is_lost_or_wrong_or_another_shows() {
        let node = Node::cpu();
        let rig = Rig::with_signals(&node, [Driver::Kernel; 2], 2, 4, 16).unwrap();
        let detector = Detector::new(&CASE, &node, &rig.near).unwrap();
        let measured = || detector.measured(Driver::Kernel, true);
        assert!(matches!(measured(), Err(Error::NoneCounts { events: 0 })));
        let one = 1u64.to_ne_bytes();
        detector.histogram.write(0, &one).unwrap();
        let set = |way: u64, number: u64, value: u64| {
            let word = &detector.numbers[(way * DaqDetector::NUMBERS + number) as usize];
            word.store(value, Ordering::Relaxed);
        };
        for (number, value) in [
            (DaqDetector::SENT, 4),
            (DaqDetector::TAKEN, 4),
            (DaqDetector::SENT_SUM, 12),
            (DaqDetector::TAKEN_SUM, 12),
            (DaqDetector::LONGEST, 7),
        ] {
            set(0, number, value);
            set(1, number, value + 1);
        }
        let right = measured().unwrap().unwrap();
        assert!(right.verified);
        assert_eq!((right.sent, right.lost, right.left), (9, 0, 1));
        assert_eq!(right.distribution.longest_us, 0.008);
        for (number, usual) in [
            (DaqDetector::TAKEN, 5),
            (DaqDetector::TAKEN_SUM, 13),
            (DaqDetector::WRONG, 0),
        ] {
            set(1, number, usual + 1);
            assert!(!measured().unwrap().unwrap().verified);
            set(1, number, usual);
        }
        let touched = detector.measured(Driver::Kernel, false);
        assert!(!touched.unwrap().unwrap().verified);
    }
}
