//! When a wait ends at the latest. Nothing in this library waits without one.

use crate::arch;

/// A point in time, on the GPU's global timer or the CPU's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline {
    at_ns: u64,
}

impl Deadline {
    /// `nanoseconds` from now. The GPU's timer may step by a microsecond.
    #[inline]
    pub fn after_ns(nanoseconds: u64) -> Self {
        Self {
            at_ns: arch::now_ns().saturating_add(nanoseconds),
        }
    }

    /// `microseconds` from now.
    #[inline]
    pub fn after_us(microseconds: u64) -> Self {
        Self::after_ns(microseconds.saturating_mul(1_000))
    }

    /// `milliseconds` from now.
    #[inline]
    pub fn after_ms(milliseconds: u64) -> Self {
        Self::after_ns(milliseconds.saturating_mul(1_000_000))
    }

    /// Whether it has passed. Reads the clock.
    #[inline]
    pub fn expired(self) -> bool {
        arch::now_ns() >= self.at_ns
    }

    /// Begins a waiting loop that looks at the clock only now and then.
    ///
    /// ```
    /// # use warpbell::deadline::Deadline;
    /// # let ready = || true;
    /// let mut wait = Deadline::after_ms(1).wait();
    /// while !ready() {
    ///     if wait.expired() {
    ///         break; // a time-out, as a value
    ///     }
    /// }
    /// ```
    #[inline]
    pub fn wait(self) -> Wait {
        Wait {
            until: self,
            turns: 0,
        }
    }
}

/// Turns of a waiting loop between two looks at the clock. A CPU's turn may be a switch to other lanes or a
/// short sleep, so it looks every time.
const TURNS_PER_LOOK: u32 = if cfg!(target_arch = "nvptx64") { 16 } else { 1 };

/// A waiting loop under way: [`Deadline::wait`].
#[derive(Debug)]
pub struct Wait {
    until: Deadline,
    turns: u32,
}

impl Wait {
    /// Takes one turn, which lets others run, and says whether the deadline has been seen to pass.
    #[inline]
    pub fn expired(&mut self) -> bool {
        arch::spin();
        self.turns = self.turns.wrapping_add(1);
        self.turns.is_multiple_of(TURNS_PER_LOOK) && self.until.expired()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn passes_after_its_time_and_not_before() {
        let soon = Deadline::after_us(1);
        let late = Deadline::after_ms(u64::MAX);
        assert!(soon < late);
        let mut looks = 0;
        while !soon.expired() {
            looks += 1;
            assert!(looks < 100, "1 µs is ten looks at the one-thread clock");
        }
        assert!(!late.expired());
    }

    #[test]
    fn a_wait_ends() {
        let mut wait = Deadline::after_us(100).wait();
        while !wait.expired() {}
        assert!(Deadline::after_ns(0).expired());
    }
}
