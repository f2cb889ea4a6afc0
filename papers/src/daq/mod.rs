//! A detector's events, in each of which rings are sought: a kernel is launched for each batch by a host that drives the
//! network, or one stays and drives it itself.

mod classic;
mod detector;
mod events;
mod receiver;
mod search;
mod series;

use std::time::Duration;

use detector::Detector;
use receiver::Receiver;
use serde::Serialize;
use warpbell_bench::cause;
use warpbell_bench::party::Party;
use warpbell_host_init::Node;
use warpbell_paper_kernels::daq::{EVENT_BYTES, PRIMITIVE_BYTES};

use crate::Error;
use crate::application::Measurement;
use crate::distribution::Distribution;
use crate::rig::{Driver, Ends};
use crate::together::together;

pub use events::Quality;
pub use search::Search;
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
    /// How long each event takes at least, as NaNet's stand-in for a search does.
    pub at_least: Duration,
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
    /// Events that count and took longer than 800 µs.
    pub late: u64,
    /// Those that took longer than 1 ms.
    pub too_late: u64,
    /// Events sent whose primitives did not come.
    pub lost: u64,
    /// Events whose primitives differ from what a search finds in it.
    pub wrong: u64,
    /// How long they took, from the moment in which an event was there until the trigger had its primitive.
    pub distribution: Distribution,
    /// Each event sent has its primitives, which are right, and nothing beside was touched.
    pub verified: bool,
}

/// The columns of [`Measurement::row`].
pub const HEADER: &str = "events/s   receiver      p50 µs   p90 µs   p99 µs  p99.9 µs  longest µs  > 800 µs    > 1 ms   \
    dropped      held      events";

/// What a driver makes of the receiver.
pub fn name(driver: Driver) -> &'static str {
    match driver {
        Driver::Host => "classic",
        Driver::Kernel | Driver::Triggered | Driver::Proxy => "persistent",
    }
}

impl Measurement for Measured {
    fn row(&self) -> String {
        let [p50, p90, p99, p999, longest] = self.distribution.percentiles();
        format!(
            "{:<10} {:<11} {p50:>8.1} {p90:>8.1} {p99:>8.1} {p999:>9.1} {longest:>11.1} {:>9} {:>9} {:>9} {:>9} {:>11}",
            self.rate,
            name(self.driver),
            self.late,
            self.too_late,
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

    /// Bytes of the receive ring.
    fn ring_bytes(&self) -> u32 {
        EVENT_BYTES * self.ways * self.slots
    }

    /// Bytes of the primitives of as many events.
    fn primitive_bytes(&self) -> u32 {
        PRIMITIVE_BYTES * self.ways * self.slots
    }

    fn at_least_ns(&self) -> u64 {
        self.at_least.as_nanos().try_into().unwrap_or(u64::MAX)
    }

    /// Sends events as they are due, and looks at every primitive. Of two ranks the first one has the detector, and what was
    /// measured.
    ///
    /// # Errors
    /// A kernel or the host failed, here or at another rank; no event counts; Ctrl-C before one did.
    pub fn measure(
        &self,
        party: &Party,
        node: &Node,
        driver: Driver,
    ) -> Result<Option<Measured>, Error> {
        let drivers = [Driver::Kernel, driver];
        let ends = Ends::new(party, node, drivers, [self.ways, self.slots], self.depth())?;
        let [near, far] = &ends.ends;
        let detector = near.as_ref();
        let detector = detector.map(|end| Detector::new(self, node, end));
        let detector = detector.transpose()?;
        let receiver = far.as_ref();
        let receiver = receiver.map(|end| Receiver::new(self, node, end));
        let receiver = receiver.transpose()?;
        let found = detector.as_ref().map(|detector| &detector.found);
        let ring = receiver.as_ref().map(|receiver| &receiver.ring);
        let targets = [(found, self.primitive_bytes()), (ring, self.ring_bytes())];
        let [back, there] = ends.begin(party, targets)?;
        let sends = detector.as_ref().map(|detector| detector.launch(there));
        let sends = sends.transpose()?;
        let pairs = ends.pairs();
        // No event comes before that.
        let ready = || party.all(true).map(drop).map_err(Error::from);
        let ran = match (&receiver, sends) {
            (Some(receiver), sends) => receiver.receive(driver, back, sends, &pairs, ready),
            (None, sends) => {
                ready().and_then(|()| Ok(node.run_for(sends.as_slice(), &pairs, self.limit)?))
            }
        };
        let sent = detector.as_ref().map(|of| ("the detector", &*of.outcome));
        let taken = receiver.as_ref().map(|of| ("the receiver", &*of.outcome));
        let ran = cause::ended(ran, sent.into_iter().chain(taken));
        let guarded = ran.map(|()| receiver.as_ref().is_none_or(Receiver::guarded));
        let guarded = together(party, guarded)?.into_iter().all(|guarded| guarded);
        let measured = match &detector {
            Some(detector) => detector.measured(driver, guarded)?,
            None => None,
        };
        party.go_on(detector.is_none() || measured.is_some())?;
        Ok(measured)
    }
}

/// Threads of a warp.
const WARP: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const CASE: Case = Case {
        ways: 2,
        slots: 4,
        rate: 1000,
        events: 10,
        warm_up: 0,
        limit: Duration::from_secs(1),
        drops: false,
        gather: Duration::ZERO,
        at_least: Duration::ZERO,
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
}
