//! What the words of a piece say.

use crate::experts::word::Count;

/// Bits for a piece's tokens: 0 to 32.
const TOKENS: u32 = 6;

/// The word behind a piece: a [`Count`] of a round, of how many pieces its source sends (17 bits), and of how many tokens
/// are in this one (6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrived(pub Count);

impl Arrived {
    #[inline(always)]
    pub const fn new(round: u64, refused: bool, pieces: u32, tokens: u32) -> Self {
        Self(Count::new(round, pieces << TOKENS | tokens, refused))
    }

    #[inline(always)]
    pub const fn pieces(self) -> u32 {
        self.0.wanted() >> TOKENS
    }

    /// How many tokens came in this round.
    #[inline(always)]
    pub const fn tokens(self, round: u64) -> u32 {
        match self.0.is_of(round) {
            true => self.0.wanted() & ((1 << TOKENS) - 1),
            false => 0,
        }
    }
}

/// A record: the token's number at its source (32 bits), and which of its choices are of experts here (32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record(pub u64);

impl Record {
    #[inline(always)]
    pub const fn new(token: u32, choices: u32) -> Self {
        Self((choices as u64) << 32 | token as u64)
    }

    #[inline(always)]
    pub const fn token(self) -> u32 {
        self.0 as u32
    }

    /// A bit for each choice, from bit 0 on.
    #[inline(always)]
    pub const fn choices(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Bits for a slot: capacities go up to 2^21.
const SLOT: u32 = 21;

/// One of a record's choices: a slot (21 bits) of an expert of the member's (11), and the weight's bits (32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(pub u64);

impl Entry {
    /// None: an expert that is not there.
    pub const NONE: Self = Self(u64::MAX);

    #[inline(always)]
    pub const fn new(local: u32, slot: u32, weight_bits: u32) -> Self {
        Self((weight_bits as u64) << 32 | (local << SLOT | slot) as u64)
    }

    #[inline(always)]
    pub const fn is_none(self) -> bool {
        self.0 == Self::NONE.0
    }

    #[inline(always)]
    pub const fn local(self) -> u32 {
        self.0 as u32 >> SLOT
    }

    #[inline(always)]
    pub const fn slot(self) -> u32 {
        self.0 as u32 & ((1 << SLOT) - 1)
    }

    #[inline(always)]
    pub const fn weight_bits(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_keep_what_they_are_made_of() {
        for (round, refused, pieces, tokens) in [(1, false, 2048, 32), (7, true, 1, 0)] {
            let word = Arrived::new(round, refused, pieces, tokens);
            assert!(word.0.is_of(round) && word.0.is_refused() == refused);
            assert_eq!((word.pieces(), word.tokens(round)), (pieces, tokens));
            assert_eq!(word.tokens(round + 2), 0);
        }
        let record = Record::new(65_535, 1 << 31 | 1);
        assert_eq!((record.token(), record.choices()), (65_535, 1 << 31 | 1));
        for (local, slot) in [(1023, 0), (0, (1 << 21) - 1), (5, 7)] {
            let entry = Entry::new(local, slot, 0x8000_0001);
            assert_eq!((entry.local(), entry.slot()), (local, slot));
            assert_eq!(entry.weight_bits(), 0x8000_0001);
        }
    }
}
