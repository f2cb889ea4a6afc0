//! What kernels and host say of a tag, in a word each.

use mlx5_wqe::WqeIndex;

use crate::trigger::counter::{COUNTER_SHIFT, Counter};

/// Triggers are counted modulo so many.
const TRIGGERS: u32 = 1 << (u64::BITS - COUNTER_SHIFT);

/// What kernels say: how many triggers came, in the place where a [`Counter`] has them; whether a trigger rings; how many
/// threads are between their addition and their look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tally(pub u64);

/// Bits of the threads that look. No machine has so many.
const LOOKING_BITS: u32 = 24;
/// Changes with each operation that a trigger rings for. One bit that changes, because a sum would run over.
const RUNG: u64 = 1 << LOOKING_BITS;

impl Tally {
    /// What a trigger adds: itself, and a thread that looks.
    pub const ENTER: u64 = (1 << COUNTER_SHIFT) + 1;

    /// What a thread adds once it has looked. If it rings, this is what it found since the operation before.
    #[inline(always)]
    pub const fn leave(self, rings: bool) -> u64 {
        let rung = match (rings, self.has_rung()) {
            (false, _) => 0,
            (true, false) => RUNG,
            // Taken off again.
            (true, true) => RUNG.wrapping_neg(),
        };
        rung.wrapping_sub(1)
    }

    /// How many triggers came, modulo 2^28.
    #[inline(always)]
    pub const fn counted(self) -> u32 {
        (self.0 >> COUNTER_SHIFT) as u32
    }

    /// The number of the trigger that found this, from 1.
    #[inline(always)]
    pub const fn number(self) -> u32 {
        (self.counted() + 1) % TRIGGERS
    }

    /// Whether an odd number of operations went by a trigger.
    #[inline(always)]
    pub const fn has_rung(self) -> bool {
        self.0 & RUNG != 0
    }

    /// How many threads have not looked yet.
    #[inline(always)]
    pub const fn looking(self) -> u32 {
        self.0 as u32 & (RUNG as u32 - 1)
    }
}

/// What the host says: the newest operation, and the number of the last trigger that it wants. A [`Counter`] whose count
/// is that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer(pub Counter);

impl Offer {
    /// The number of the last trigger that the newest operation wants, modulo 2^28.
    #[inline(always)]
    pub const fn last(self) -> u32 {
        self.0.counted()
    }

    /// Whether so many triggers are no more than all operations want.
    #[inline(always)]
    pub const fn takes(self, number: u32) -> bool {
        // A difference, because the numbers wrap.
        let beyond = self.last().wrapping_sub(number) % TRIGGERS;
        self.0.is_registered() & (beyond < TRIGGERS / 2)
    }

    /// Whether they are no more than the operations before the newest one wanted.
    #[inline(always)]
    pub const fn has_taken(self, number: u32) -> bool {
        let beyond = self.before().wrapping_sub(number) % TRIGGERS;
        beyond < TRIGGERS / 2
    }

    /// The number of the last trigger that the operations before the newest one wanted.
    #[inline(always)]
    const fn before(self) -> u32 {
        self.last().wrapping_sub(self.0.threshold()) % TRIGGERS
    }

    /// Whether the trigger of that number is the last one that the newest operation wants.
    #[inline(always)]
    pub const fn ends_with(self, number: u32) -> bool {
        self.0.is_registered() & (self.last() == number)
    }

    /// The index behind the newest operation's WQEs.
    #[inline(always)]
    pub const fn end(self) -> WqeIndex {
        self.0.end()
    }

    /// The offer of the next operation.
    #[cfg(not(target_arch = "nvptx64"))]
    pub const fn next(self, end: WqeIndex, threshold: u32) -> Self {
        Self(Counter::new(end, threshold, self.last() + threshold))
    }

    /// The tag's counter, as one word would have it, where so many triggers came.
    #[inline(always)]
    pub const fn counter(self, tally: Tally) -> Counter {
        let counted = tally.counted().wrapping_sub(self.before()) % TRIGGERS;
        Counter::new(self.end(), self.0.threshold(), counted)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn threads_come_and_go() {
        let mut tally = Tally(0);
        for number in 1..=3 {
            assert_eq!(tally.number(), number);
            tally.0 += Tally::ENTER;
            assert_eq!((tally.counted(), tally.looking()), (number, number));
        }
        for (left, rings, rung) in [(2, true, true), (1, true, false), (0, false, false)] {
            tally.0 = tally.0.wrapping_add(tally.leave(rings));
            assert_eq!((tally.looking(), tally.has_rung()), (left, rung));
            assert_eq!(tally.counted(), 3);
        }
    }

    #[test]
    fn numbers_wrap() {
        let near = TRIGGERS - 2;
        let offer = Offer(Counter::new(WqeIndex(7), 5, near)).next(WqeIndex(9), 4);
        assert_eq!((offer.last(), offer.end()), (2, WqeIndex(9)));
        let taken = [near, near + 1, 0, 1, 2].map(|number| offer.takes(number));
        assert_eq!(taken, [true; 5]);
        assert!(!offer.takes(3) && !offer.takes(TRIGGERS / 2));
        assert!(offer.ends_with(2) && !offer.ends_with(1));
        let gone = [near - 1, near, near + 1, 0, 2].map(|number| offer.has_taken(number));
        assert_eq!(gone, [true, true, false, false, false]);
        let tally = Tally(u64::from(TRIGGERS - 1) << COUNTER_SHIFT);
        assert_eq!(tally.number(), 0);
        let counter = offer.counter(tally);
        assert_eq!((counter.counted(), counter.missing()), (1, 3));
        // The next number falls off the word's end, and touches nothing else.
        assert_eq!(tally.0.wrapping_add(Tally::ENTER), 1);
    }

    #[test]
    fn nothing_is_offered_at_first() {
        let fresh = Offer(Counter::FRESH);
        assert!(!fresh.takes(0) && !fresh.ends_with(0));
        assert_eq!(fresh.counter(Tally(0)), Counter::FRESH);
    }
}
