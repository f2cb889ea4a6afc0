//! When a wait ends at the latest. Nothing in this library waits without one.

use crate::arch;

/// How long a call may wait, on the GPU's global timer or the CPU's clock.
///
/// `after_*` counts from the moment in which a call finds that it has to wait,
/// so that a call that need not wait never reads a clock. [`fixed`](Self::fixed)
/// makes it a point in time, for several calls that share one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nanoseconds from the beginning of the wait.
    After(u64),
    /// A reading of the clock in nanoseconds.
    At(u64),
}

impl Deadline {
    /// No wait at all: one look.
    pub const PASSED: Self = Self(Kind::At(0));

    /// `nanoseconds` of waiting. The GPU's timer may step by a microsecond.
    #[inline(always)]
    pub const fn after_ns(nanoseconds: u64) -> Self {
        Self(Kind::After(nanoseconds))
    }

    /// `microseconds` of waiting.
    #[inline(always)]
    pub const fn after_us(microseconds: u64) -> Self {
        Self::after_ns(microseconds.saturating_mul(1_000))
    }

    /// `milliseconds` of waiting.
    #[inline(always)]
    pub const fn after_ms(milliseconds: u64) -> Self {
        Self::after_ns(milliseconds.saturating_mul(1_000_000))
    }

    /// The point in time that lies this far from now. Reads the clock.
    #[inline]
    pub fn fixed(self) -> Self {
        Self(Kind::At(self.point()))
    }

    /// This one, or so many microseconds from now, whichever comes first.
    #[inline]
    pub fn at_most_us(self, microseconds: u64) -> Self {
        let most = microseconds.saturating_mul(1_000);
        Self(match self.0 {
            Kind::After(nanoseconds) => Kind::After(nanoseconds.min(most)),
            Kind::At(0) => Kind::At(0),
            Kind::At(point) => Kind::At(point.min(arch::now_ns().saturating_add(most))),
        })
    }

    /// The deadline so many microseconds behind this one.
    #[inline(always)]
    pub const fn later_us(self, microseconds: u64) -> Self {
        let later = microseconds.saturating_mul(1_000);
        Self(match self.0 {
            Kind::After(nanoseconds) => Kind::After(nanoseconds.saturating_add(later)),
            Kind::At(0) => Kind::At(0),
            Kind::At(point) => Kind::At(point.saturating_add(later)),
        })
    }

    /// Begins a waiting loop that looks at the clock only now and then.
    ///
    /// ```
    /// # use warpbell_gpu::Deadline;
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
            until_ns: self.point(),
            turns: 0,
        }
    }

    #[inline]
    fn point(self) -> u64 {
        match self.0 {
            Kind::After(nanoseconds) => arch::now_ns().saturating_add(nanoseconds),
            Kind::At(point) => point,
        }
    }
}

/// Turns of a waiting loop between two looks at the clock. A CPU's turn may be a switch to other lanes or a
/// short sleep, so it looks every time.
const TURNS_PER_LOOK: u32 = if cfg!(target_arch = "nvptx64") { 16 } else { 1 };

/// A waiting loop under way: [`Deadline::wait`].
#[derive(Debug)]
pub struct Wait {
    until_ns: u64,
    turns: u32,
}

impl Wait {
    /// Whether the deadline has been seen to pass; if not, takes one turn of
    /// waiting, which lets others run.
    #[inline]
    pub fn expired(&mut self) -> bool {
        if self.turns.is_multiple_of(TURNS_PER_LOOK)
            && (self.until_ns == 0 || arch::now_ns() >= self.until_ns)
        {
            return true;
        }
        arch::spin(self.turns);
        self.turns = self.turns.wrapping_add(1);
        false
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Turns of a wait; without a grid each look at the clock takes 100 ns.
    fn turns(deadline: Deadline) -> u32 {
        let mut wait = deadline.wait();
        let mut turns = 0;
        while !wait.expired() {
            turns += 1;
        }
        turns
    }

    #[test]
    fn passes_after_its_time_and_not_before() {
        assert!(turns(Deadline::after_us(10)) > 0);
        assert_eq!(turns(Deadline::after_ns(0)), 0);
        assert_eq!(turns(Deadline::PASSED), 0);
    }

    #[test]
    fn counts_from_the_wait_unless_fixed() {
        let lazy = Deadline::after_us(10);
        let fixed = lazy.fixed();
        assert!(turns(fixed) > 0);
        assert!(turns(lazy) > 0, "a wait of its own");
        assert_eq!(turns(fixed), 0, "the point in time is past");
    }

    #[test]
    fn the_longest_wait_does_not_wrap() {
        let mut wait = Deadline::after_ms(u64::MAX).wait();
        assert!(!wait.expired());
    }
}
