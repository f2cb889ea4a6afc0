//! What the words of an exchange say.

use super::layout::HEADER;

/// One of a token's experts, and the weight of what that one makes of it: a word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice(pub u64);

impl Choice {
    /// No expert.
    pub const NONE: Self = Self(u32::MAX as u64);

    /// This expert, with this weight.
    #[inline(always)]
    pub const fn new(expert: u32, weight: f32) -> Self {
        Self((weight.to_bits() as u64) << 32 | expert as u64)
    }

    /// The word, as it stands in a window.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The expert's number; none is the largest number of 32 bits.
    #[inline(always)]
    pub const fn expert(self) -> u32 {
        self.0 as u32
    }

    /// Whether it is [`NONE`](Self::NONE), with any weight.
    #[inline(always)]
    pub const fn is_none(self) -> bool {
        self.expert() == u32::MAX
    }

    /// The bits of its weight.
    #[inline(always)]
    pub(super) const fn weight_bits(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Bits of a count below its round.
const ROUND: u32 = 24;

const REFUSED: u64 = 1 << (ROUND - 1);

/// How many tokens a member wants to send to an expert in a round. From the low bits up: how many (23), whether none comes
/// because the member's dispatch was refused (1), the round (40).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u64);

impl Count {
    /// Nothing, in no round.
    pub const NOTHING: Self = Self(0);

    /// So many, below 2^23, in a round below 2^40.
    #[inline(always)]
    pub const fn new(round: u64, wanted: u32, refused: bool) -> Self {
        Self(round << ROUND | (refused as u64) << (ROUND - 1) | wanted as u64)
    }

    /// The least count of a round.
    #[inline(always)]
    pub const fn least(round: u64) -> u64 {
        round << ROUND
    }

    /// The greatest count of a round.
    #[inline(always)]
    pub const fn most(round: u64) -> u64 {
        Self::least(round) | ((1 << ROUND) - 1)
    }

    /// Whether it is of this round.
    #[inline(always)]
    pub const fn is_of(self, round: u64) -> bool {
        self.0 >> ROUND == round
    }

    /// Whether the dispatch was refused.
    #[inline(always)]
    pub const fn is_refused(self) -> bool {
        self.0 & REFUSED != 0
    }

    /// How many come.
    #[inline(always)]
    pub const fn sent(self, capacity: u32) -> u32 {
        let wanted = self.wanted();
        match self.is_refused() {
            true => 0,
            false if wanted < capacity => wanted,
            false => capacity,
        }
    }

    /// How many do not, because there is no slot for them.
    #[inline(always)]
    pub const fn dropped(self, capacity: u32) -> u32 {
        self.wanted() - self.sent(capacity)
    }

    /// How many tokens chose the expert, with those that found no slot.
    #[inline(always)]
    pub const fn wanted(self) -> u32 {
        (self.0 & (REFUSED - 1)) as u32
    }
}

/// An expert and a slot, as a choice has them; or none: a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(pub u64);

impl Place {
    /// None.
    pub const NONE: Self = Self(u64::MAX);

    /// This slot of this expert.
    #[inline(always)]
    pub const fn new(expert: u32, slot: u32) -> Self {
        Self((expert as u64) << 32 | slot as u64)
    }

    /// Whether there is none.
    #[inline(always)]
    pub const fn is_none(self) -> bool {
        self.0 == u64::MAX
    }

    /// The expert's number.
    #[inline(always)]
    pub const fn expert(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The number of the slot.
    #[inline(always)]
    pub const fn slot(self) -> u32 {
        self.0 as u32
    }
}

/// What stands in front of a token that has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Header {
    /// Its number at its source.
    pub token: u32,
    /// Which of its choices this is.
    pub k: u32,
    /// The choice's weight. The source applies it when it sums up what comes back.
    pub weight: f32,
}

impl Header {
    /// How many words it has, in front of its token's row.
    pub const WORDS: u32 = HEADER as u32;

    /// The two words of it; the second one has the weight.
    #[inline(always)]
    pub const fn words(token: u32, k: u32, choice: Choice) -> [u64; 2] {
        [(k as u64) << 32 | token as u64, choice.weight_bits() as u64]
    }

    #[inline(always)]
    pub(super) const fn from_words(first: u64, second: u64) -> Self {
        Self {
            token: first as u32,
            k: (first >> 32) as u32,
            weight: f32::from_bits(second as u32),
        }
    }
}

/// Which half of a round a member is at.
#[repr(u64)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Between rounds.
    Idle = 0,
    /// A dispatch has begun.
    Dispatching = 1,
    /// A dispatch has finished.
    Dispatched = 2,
    /// A combine has begun.
    Combining = 3,
}

/// Where a member is, as a word that outlives its kernels: the phase (2 bits), whether its dispatch was refused (1), the
/// round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(pub u64);

impl State {
    /// As far as a count's round goes.
    #[cfg(any(feature = "host", all(test, not(loom))))]
    pub const LAST_ROUND: u64 = (1 << 40) - 1;

    #[inline(always)]
    pub const fn new(round: u64, phase: Phase, refused: bool) -> Self {
        Self(round << 3 | (refused as u64) << 2 | phase as u64)
    }

    #[inline(always)]
    pub const fn round(self) -> u64 {
        self.0 >> 3
    }

    #[inline(always)]
    pub const fn is_refused(self) -> bool {
        self.0 & 4 != 0
    }

    #[inline(always)]
    pub const fn phase(self) -> Phase {
        match self.0 & 3 {
            0 => Phase::Idle,
            1 => Phase::Dispatching,
            2 => Phase::Dispatched,
            _ => Phase::Combining,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_keep_what_they_are_made_of() {
        for round in [1, 7, State::LAST_ROUND] {
            for (wanted, capacity, sent) in [(0, 4, 0), (4, 4, 4), ((1 << 23) - 1, 4, 4)] {
                let count = Count::new(round, wanted, false);
                assert!(count.is_of(round) && !count.is_of(round - 1) && !count.is_refused());
                assert!(count.0 >= Count::least(round) && count.0 <= Count::most(round));
                assert_eq!(count.sent(capacity), sent);
                assert_eq!(count.dropped(capacity), wanted - sent);
                let refused = Count::new(round, wanted, true);
                assert!(refused.is_of(round) && refused.is_refused());
                assert_eq!(refused.sent(capacity), 0);
            }
            for phase in [
                Phase::Idle,
                Phase::Dispatching,
                Phase::Dispatched,
                Phase::Combining,
            ] {
                for refused in [false, true] {
                    let state = State::new(round, phase, refused);
                    let found = (state.round(), state.phase(), state.is_refused());
                    assert_eq!(found, (round, phase, refused));
                }
            }
        }
        assert!(!Count::NOTHING.is_of(1));
        let place = Place::new(7, 9);
        assert_eq!(
            (place.expert(), place.slot(), place.is_none()),
            (7, 9, false)
        );
        assert!(Place::NONE.is_none() && Choice::NONE.is_none());
        let choice = Choice::new(5, 0.25);
        assert_eq!((choice.expert(), choice.is_none()), (5, false));
        let [first, second] = Header::words(3, 2, choice);
        let header = Header {
            token: 3,
            k: 2,
            weight: 0.25,
        };
        assert_eq!(Header::from_words(first, second), header);
    }
}
