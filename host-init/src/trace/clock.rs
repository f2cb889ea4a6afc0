//! Bringing clocks together.

use std::time::{Instant, SystemTime};

use warpbell::trace::ticks;

/// How often a clock is read to find the reading that is known best.
const TRIES: usize = 64;

/// The host's clock, in nanoseconds since the Unix epoch: the system's time when it was started, and a clock that never
/// goes back from there.
#[derive(Debug)]
pub(super) struct CpuClock {
    start: Instant,
    unix_ns: u64,
}

/// What another clock showed at a time of the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub ticks: u64,
    pub unix_ns: u64,
    /// By how much `unix_ns` may be wrong.
    pub error_ns: u64,
}

impl Reading {
    /// A clock that showed `ticks` at some time between two.
    pub const fn between(before_ns: u64, ticks: u64, after_ns: u64) -> Self {
        let half = after_ns.saturating_sub(before_ns) / 2;
        Self {
            ticks,
            unix_ns: before_ns + half,
            error_ns: half,
        }
    }
}

impl CpuClock {
    pub fn start() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            start: Instant::now(),
            unix_ns: since.map_or(0, |since| since.as_nanos() as u64),
        }
    }

    /// Now.
    pub fn now_ns(&self) -> u64 {
        self.unix_ns + self.start.elapsed().as_nanos() as u64
    }

    /// The best of several readings of the clock that a CPU's events have.
    pub fn read(&self) -> Reading {
        let read = |_| {
            let before = self.now_ns();
            let ticks = ticks();
            Reading::between(before, ticks, self.now_ns())
        };
        let readings = (0..TRIES).map(read);
        let best = readings.min_by_key(|reading| reading.error_ns);
        best.expect("several tries")
    }
}

/// A clock between two readings, which runs evenly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    first: Reading,
    last: Reading,
}

impl Clock {
    pub const fn new(first: Reading, last: Reading) -> Self {
        Self { first, last }
    }

    /// When it shows `ticks`.
    pub fn unix_ns(&self, ticks: u64) -> u64 {
        let Self { first, last } = self;
        let ran = i128::from(last.ticks) - i128::from(first.ticks);
        let took = i128::from(last.unix_ns) - i128::from(first.unix_ns);
        let since = i128::from(ticks) - i128::from(first.ticks);
        // Two readings of one moment say nothing of its rate.
        let ns = if ran > 0 { since * took / ran } else { 0 };
        (i128::from(first.unix_ns) + ns).clamp(0, u64::MAX.into()) as u64
    }

    /// By how much a time may be wrong, at both ends.
    pub fn error_ns(&self) -> u64 {
        self.first.error_ns.max(self.last.error_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_of_any_rate_is_brought_to_the_hosts() {
        let first = Reading::between(1_000, 5_000_000, 1_200);
        assert_eq!((first.unix_ns, first.error_ns), (1_100, 100));
        let last = Reading::between(1_001_100, 8_000_000, 1_001_140);
        let clock = Clock::new(first, last);
        assert_eq!(clock.unix_ns(5_000_000), 1_100);
        assert_eq!(clock.unix_ns(8_000_000), 1_001_120);
        assert_eq!(clock.unix_ns(6_500_000), 501_110);
        // Before and after, too.
        assert_eq!(clock.unix_ns(4_999_997), 1_099);
        assert_eq!(clock.unix_ns(0), 0, "not before the epoch");
        assert_eq!(clock.error_ns(), 100);
        let still = Clock::new(first, first);
        assert_eq!(still.unix_ns(u64::MAX), 1_100);
    }

    /// The host's own time lies between the times that events before and after it get.
    #[test]
    fn events_of_a_cpu_are_on_the_hosts_clock() {
        let host = CpuClock::start();
        let first = host.read();
        let (before, ticks, after) = (host.now_ns(), ticks(), host.now_ns());
        // Long enough for a rate: until the host's clock has gone on for ten times what a reading may be wrong.
        while host.now_ns() < first.unix_ns + 10 * (first.error_ns + 1_000_000) {}
        let clock = Clock::new(first, host.read());
        let found = clock.unix_ns(ticks);
        let error = clock.error_ns() + 1_000;
        assert!(
            before - error <= found && found <= after + error,
            "{before} {found} {after}"
        );
    }
}
