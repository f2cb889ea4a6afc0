//! Simulated time.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

use nexosim::time::MonotonicTime;
use serde::{Deserialize, Serialize};

/// A time or a duration, in picoseconds: a byte on a link of 100 Gbit/s takes 80.
///
/// The engine counts nanoseconds, which is too coarse. So its nanosecond stands for a picosecond.
///
/// Sums stop at [`Time::LAST`], after 213 days.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Time(u64);

impl Time {
    /// The start.
    pub const ZERO: Self = Self(0);

    /// The last time that can be counted.
    pub const LAST: Self = Self(u64::MAX);

    /// From nanoseconds, rounded.
    pub fn from_nanoseconds(nanoseconds: f64) -> Self {
        Self((nanoseconds * 1e3).round() as u64)
    }

    /// Its picoseconds.
    pub fn picoseconds(self) -> u64 {
        self.0
    }

    /// In microseconds.
    pub fn microseconds(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The engine's clock.
    pub(super) fn of(clock: MonotonicTime) -> Self {
        let since = clock.duration_since(MonotonicTime::EPOCH);
        // A step beyond the last time is still the last time.
        Self(since.as_nanos().try_into().unwrap_or(u64::MAX))
    }

    /// As the engine counts.
    pub(super) fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl Add for Time {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Time {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Time {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} µs", self.microseconds())
    }
}

/// Something that serves one after the other: a thread, a pipeline, a link.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Server {
    free: Time,
}

impl Server {
    /// Serves for `duration`, from `at` or as soon as the server is free; gives the start. Callers come in order of `at`.
    pub(super) fn serve(&mut self, at: Time, duration: Time) -> Time {
        let start = self.free.max(at);
        self.free = start + duration;
        start
    }

    /// When it could serve what comes at this time.
    pub(super) fn free_from(&self, at: Time) -> Time {
        self.free.max(at)
    }
}
