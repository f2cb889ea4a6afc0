//! A detector's events, in each of which a circle is sought: a kernel is launched for each batch by a host that drives the
//! network, or one stays and drives it itself.

mod classic;
mod events;
mod series;

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::Serialize;
use warpbell::{Slice, Word64};
use warpbell_bench::cause;
use warpbell_bench::run::interrupt;
use warpbell_bench::run::memory::{self, Memory};
use warpbell_host_init::{Buffer, Grid, Launch, Node, Placement, entry};
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::place::Place;
use warpbell_paper_kernels::daq::{
    DaqDetector, DaqReceiver, EVENT_BYTES, daq_detector, daq_receiver,
};
use warpbell_paper_kernels::distribution::BUCKETS;
use warpbell_paper_kernels::path::Path;

use crate::Error;
use crate::application::Measurement;
use crate::distribution::Distribution;
use crate::rig::{Driver, Rig};

pub use series::{APPLICATION, Results, Series};

/// What comes, how fast, and for how long.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Case {
    /// Ways from the detector to the receiver, each with a queue, and a warp of the receiver that stays.
    pub ways: u32,
    /// Slots of a way's receive ring, a power of two.
    pub slots: u32,
    /// Events a second, of all ways.
    pub rate: u64,
    /// The most events.
    pub events: u64,
    /// Warm-up events, which do not count; at most a tenth of all.
    pub warm_up: u64,
    /// No event is sent later than that.
    pub limit: Duration,
    /// Whether an event without a slot is dropped; else it is held.
    pub drops: bool,
    /// How long a host waits for more events of a batch.
    pub gather: Duration,
    /// Seed of the events.
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Who drove the receiver's network: its host, with a launch for each batch, or the kernel that stays.
    pub driver: Driver,
    /// Events a second, as they come.
    pub rate: u64,
    /// Events sent.
    pub sent: u64,
    /// From the first event until no more was sent.
    pub seconds: f64,
    /// Events dropped because all slots of their way were taken.
    pub dropped: u64,
    /// Events held for that reason, and sent later.
    pub held: u64,
    /// Events that were there and were neither sent nor dropped when time was over.
    pub left: u64,
    /// Events that count and took longer than a millisecond.
    pub late: u64,
    /// Events sent whose primitive did not come.
    pub lost: u64,
    /// Primitives that differ from what their event was made of.
    pub wrong: u64,
    /// How long they took, from the moment in which an event was there until the trigger had its primitive.
    pub distribution: Distribution,
    /// Each event sent has one primitive, which is right, and nothing beside was touched.
    pub verified: bool,
}

/// The columns of [`Measurement::row`].
pub const HEADER: &str = "events/s   receiver      p50 µs   p90 µs   p99 µs  p99.9 µs  longest µs      late   \
    dropped      held      events";

/// What a driver makes of the receiver.
pub fn name(driver: Driver) -> &'static str {
    match driver {
        Driver::Host => "classic",
        Driver::Kernel | Driver::Triggered => "persistent",
    }
}

impl Measurement for Measured {
    fn row(&self) -> String {
        let [p50, p90, p99, p999, longest] = self.distribution.percentiles();
        format!(
            "{:<10} {:<11} {p50:>8.1} {p90:>8.1} {p99:>8.1} {p999:>9.1} {longest:>11.1} {:>9} {:>9} {:>9} {:>11}",
            self.rate,
            name(self.driver),
            self.late,
            self.dropped,
            self.held,
            self.sent,
        )
    }

    fn verified(&self) -> bool {
        self.verified
    }
}

impl Measured {
    /// What there is to say where events came faster than the receiver took them.
    pub fn overload(&self) -> Option<String> {
        let Self {
            rate,
            sent,
            dropped,
            held,
            left,
            ..
        } = *self;
        let taken = sent as f64 / self.seconds;
        let what = match (dropped, held) {
            (0, 0) => return None,
            (0, _) => format!("{held} were held, and {left} not sent when time was over"),
            _ => format!("{dropped} were dropped"),
        };
        Some(format!(
            "at {rate} events/s the {} receiver, which took {taken:.0} a second, had no slot at times: {what}",
            name(self.driver)
        ))
    }
}

/// Memory of both ends.
struct Data {
    /// The detector's events.
    kinds: Memory,
    /// Their hits and truths.
    truths: Buffer,
    /// Primitives at the trigger.
    found: Memory,
    /// The receive ring.
    ring: Memory,
    /// Primitives at the receiver.
    primitives: Memory,
    /// What the detector's warps share.
    shared: Buffer,
    /// What they count.
    histogram: Buffer,
}

impl Data {
    fn new(case: &Case, node: &Node, rig: &Rig) -> Result<Self, Error> {
        let events = events::all(case.seed);
        let slots = (case.ways * case.slots) as usize;
        let own = match node.gpu() {
            None => Placement::Host,
            Some(gpu) => Placement::Gpu(gpu),
        };
        let (kinds, truths) = (events::bytes(&events), events::truths(&events));
        let data = Self {
            kinds: rig.near.memory(node, kinds.len())?,
            truths: Buffer::placed(own, truths.len())?,
            found: rig.near.memory(node, 8 * slots)?,
            ring: rig.far.memory(node, EVENT_BYTES as usize * slots)?,
            primitives: rig.far.memory(node, 8 * slots)?,
            shared: Buffer::placed(own, 16 * case.ways as usize)?,
            histogram: Buffer::placed(own, 8 * (case.ways * BUCKETS) as usize)?,
        };
        data.kinds.write(0, &kinds);
        data.truths.write(0, &truths)?;
        Ok(data)
    }

    /// Whether nothing beside them was touched.
    fn guarded(&self) -> bool {
        let all = [&self.kinds, &self.found, &self.ring, &self.primitives];
        all.iter().all(|memory| memory.check_guards().is_ok())
    }
}

fn word_of(buffer: &Buffer) -> Place {
    // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
    unsafe { memory::place(buffer) }
}

/// Picoseconds of a second.
const SECOND_PS: u64 = 1_000_000_000_000;

impl Case {
    /// Picoseconds from one event to the next.
    fn interval_ps(&self) -> u64 {
        SECOND_PS / self.rate.clamp(1, SECOND_PS)
    }

    /// How many events there are.
    fn due(&self) -> u64 {
        let nanoseconds = self.limit.as_nanos() * 1000;
        let due = nanoseconds.div_ceil(self.interval_ps().into());
        u64::try_from(due).unwrap_or(u64::MAX).min(self.events)
    }

    /// Blocks of 64 bytes of a queue: two for each slot, under one doorbell where a host posts them.
    fn depth(&self) -> u32 {
        (4 * self.slots).max(16)
    }

    /// Sends events as they are due, and looks at every primitive.
    ///
    /// # Errors
    /// A kernel or the host failed; no event counts; Ctrl-C before one did.
    pub fn measure(&self, node: &Node, driver: Driver) -> Result<Measured, Error> {
        interrupt::check()?;
        let drivers = [Driver::Kernel, driver];
        let rig = Rig::with_signals(node, drivers, self.ways, self.slots, self.depth())?;
        let data = Data::new(self, node, &rig)?;
        let handles = [rig.handles(&rig.near)?, rig.handles(&rig.far)?];
        let there = (&data.kinds, &data.ring);
        let back = (&data.primitives, &data.found);
        let there = rig.near.path(&rig.far, &handles[0], there, EVENT_BYTES);
        let back = rig.far.path(&rig.near, &handles[1], back, 8);

        let words = u64::from(self.ways) * DaqDetector::NUMBERS;
        let numbers = node.words(words as usize)?;
        let outcomes = [node.shared(Outcome::new())?, node.shared(Outcome::new())?];
        let due = self.due();
        let detector = DaqDetector {
            path: there,
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            primitives: unsafe { data.found.place() },
            kinds: events::KINDS,
            truths: word_of(&data.truths),
            bound: events::BOUND,
            slots: self.slots,
            interval_ps: self.interval_ps(),
            warm_up: self.warm_up.min(due / 10),
            events: self.events,
            nanoseconds: self.limit.as_nanos().try_into().unwrap_or(u64::MAX),
            drops: self.drops,
            stop: interrupt::stop(node.placement())?,
            shared: word_of(&data.shared),
            histogram: word_of(&data.histogram),
            numbers: Slice::new(&numbers),
            outcome: &outcomes[0],
        };
        let grid = Grid {
            blocks: self.ways,
            threads_per_block: 2 * WARP,
        };
        let detector = Launch::new(entry!(daq_detector), grid, detector);
        let ran = match driver {
            Driver::Kernel | Driver::Triggered => {
                self.receive_by_kernel(node, &rig, &data, detector, back, &outcomes[1])
            }
            Driver::Host => classic::receive(self, node, &rig, &data, detector, back),
        };
        let kernels = [
            ("the detector", &*outcomes[0]),
            ("the receiver", &*outcomes[1]),
        ];
        cause::ended(ran, kernels)?;
        self.measured(driver, due, &numbers, &data)
    }

    /// Puts together what all ways counted.
    fn measured(
        &self,
        driver: Driver,
        due: u64,
        numbers: &[Word64],
        data: &Data,
    ) -> Result<Measured, Error> {
        let of_ways = |number: u64| {
            let ways = numbers.chunks(DaqDetector::NUMBERS as usize);
            ways.map(move |way| way[number as usize].load(Ordering::Relaxed))
        };
        let sum = |number| of_ways(number).fold(0, u64::wrapping_add);
        let most = |number| of_ways(number).max().unwrap_or(0);
        let sent = sum(DaqDetector::SENT);
        let longest = most(DaqDetector::LONGEST);
        let Some(distribution) = Distribution::new(&memory::words(&data.histogram)?, longest)
        else {
            interrupt::check()?;
            return Err(Error::NoneCounts { events: sent });
        };
        let dropped = sum(DaqDetector::DROPPED);
        let left = due.saturating_sub(sent + dropped);
        let lost = sent.abs_diff(sum(DaqDetector::TAKEN));
        let wrong = sum(DaqDetector::WRONG);
        let same = sum(DaqDetector::SENT_SUM) == sum(DaqDetector::TAKEN_SUM);
        Ok(Measured {
            driver,
            rate: self.rate,
            sent,
            seconds: most(DaqDetector::NANOSECONDS) as f64 / 1e9,
            dropped,
            held: sum(DaqDetector::HELD),
            // Those that nobody waited for are none that were left.
            left: if interrupt::requested() { 0 } else { left },
            late: sum(DaqDetector::LATE),
            lost,
            wrong,
            distribution,
            verified: (wrong, lost) == (0, 0) && same && data.guarded(),
        })
    }

    fn receive_by_kernel(
        &self,
        node: &Node,
        rig: &Rig,
        data: &Data,
        detector: Launch<'_>,
        path: Path<'_>,
        outcome: &Outcome,
    ) -> Result<(), Error> {
        let receiver = DaqReceiver {
            path,
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            events: unsafe { data.ring.place() },
            slots: self.slots,
            outcome,
        };
        let grid = Grid {
            blocks: self.ways,
            threads_per_block: WARP,
        };
        let receiver = Launch::new(entry!(daq_receiver), grid, receiver);
        Ok(node.run_for(&[receiver, detector], &rig.pairs(), self.limit)?)
    }
}

/// Threads of a warp.
const WARP: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    const CASE: Case = Case {
        ways: 2,
        slots: 4,
        rate: 1000,
        events: 10,
        warm_up: 0,
        limit: Duration::from_secs(1),
        drops: false,
        gather: Duration::ZERO,
        seed: 1,
    };

    #[test]
    fn all_events_that_are_due_within_the_time_are_there() {
        let due = |rate, events, limit| {
            Case {
                rate,
                events,
                limit,
                ..CASE
            }
            .due()
        };
        assert_eq!(due(1000, 10, Duration::from_secs(1)), 10);
        assert_eq!(due(1000, u64::MAX, Duration::from_secs(3)), 3000);
        // The first one is there at once, the others a millisecond apart.
        assert_eq!(due(1000, u64::MAX, Duration::from_micros(1001)), 2);
        assert_eq!(
            due(100_000_000, u64::MAX, Duration::from_secs(86_400)),
            8_640_000_000_000
        );
    }

    #[test]
    fn what_is_lost_or_wrong_or_another_shows() {
        let node = Node::cpu();
        let rig = Rig::with_signals(&node, [Driver::Kernel; 2], 2, 4, 16).unwrap();
        let data = Data::new(&CASE, &node, &rig).unwrap();
        let numbers = node.words(2 * DaqDetector::NUMBERS as usize).unwrap();
        let measured = || CASE.measured(Driver::Kernel, 10, &numbers, &data);
        assert!(matches!(measured(), Err(Error::NoneCounts { events: 0 })));
        data.histogram.write(0, &1u64.to_ne_bytes()).unwrap();
        let set = |way: u64, number: u64, value: u64| {
            let word = &numbers[(way * DaqDetector::NUMBERS + number) as usize];
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
        let right = measured().unwrap();
        assert!(right.verified);
        assert_eq!((right.sent, right.lost, right.left), (9, 0, 1));
        assert_eq!(right.distribution.longest_us, 0.008);
        for (number, usual) in [
            (DaqDetector::TAKEN, 5),
            (DaqDetector::TAKEN_SUM, 13),
            (DaqDetector::WRONG, 0),
        ] {
            set(1, number, usual + 1);
            assert!(!measured().unwrap().verified);
            set(1, number, usual);
        }
    }
}
