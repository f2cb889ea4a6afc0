//! Which words of a call are whose: the shares of a grid's blocks and of members, rounds, and the steps of a sum.

use super::link::Span;

/// Words that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Where they begin.
    pub first: u64,
    /// How many.
    pub words: u64,
}

impl Part {
    /// One of so many shares, of which none has two words more than another.
    #[inline(always)]
    pub const fn share(words: u64, shares: u32, number: u32) -> Self {
        let (shares, number) = (at_least_one(shares as u64), number as u64);
        let (each, more) = (words / shares, words % shares);
        Self {
            first: number * each + least(number, more),
            words: each + (number < more) as u64,
        }
    }

    /// One of the pieces of at most so many words; none are left behind the last.
    #[inline(always)]
    pub const fn piece(words: u64, most: u64, number: u64) -> Self {
        let first = least(number.saturating_mul(most), words);
        Self {
            first,
            words: least(most, words - first),
        }
    }
}

/// How a sum over all members is made.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Each member sends to the next one: the fewest bytes, for vectors of any size. A vector that is larger than the
    /// scratch goes in several rounds.
    Ring = 1,
    /// Members exchange all they have summed up with one other member at a time, whose number differs in one bit: few steps,
    /// for small vectors. The number of members is a power of 2.
    Doubling = 2,
    /// Each member sends to all others: one step, for small vectors.
    Direct = 3,
}

/// A sum, as one unit of one member makes its part of it.
///
/// # The order of sums
/// With the members' values `x_0`, `x_1`, … all members get the same bits, because each sum is made once, or by several
/// members of the same two values:
///
/// - [`Algorithm::Ring`]: the vector has a chunk for each member (see [`Part::share`]; the parts of a grid's blocks have
///   chunks each). Chunk `c` is `((x_c + x_(c+1)) + x_(c+2)) + …`, numbers modulo the members. In a scatter the sum begins
///   one member later and ends at member `c`, which wants it: `((x_(c+1) + x_(c+2)) + …) + x_c`.
/// - [`Algorithm::Direct`]: `((x_0 + x_1) + x_2) + …`.
/// - [`Algorithm::Doubling`]: by pairs, then pairs of pairs: `((x_0 + x_1) + (x_2 + x_3)) + …`.
///
/// # Why nothing is overwritten too early
/// A round begins when all members have said that they are there. Each of them has ended the round or call before: it has
/// added what lay in its scratch, and its NIC has read what it sent. Within a round:
///
/// - Ring, scratch. A slot for each adding step, which the member before writes once. A scatter adds in the slot, and sends
///   from there; nobody writes there again.
/// - Ring, `to`. A sum of some members is put there, and sent on from there; then the sum of all members comes. It has the
///   one that was there in it, so that the next member has got all of it: should the NIC read it again because an
///   answer was lost, the next member's NIC drops what it has. In place the same holds for the chunk that is sent in step 0:
///   all of it is in the sum that comes in its place. Each other chunk is read to be added before its sum is stored. A
///   scatter in place stores its sum where no NIC reads: nobody sends its own chunk.
/// - Doubling. A slot for each step, which that step's member writes once. What was sent in a step is complete before the
///   sum is stored in its place.
/// - Direct. A slot for each member. What was sent is complete before the sum is stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum {
    pub algorithm: Algorithm,
    /// Members.
    pub ranks: u32,
    /// This one.
    pub own: u32,
    /// The first word of what is summed.
    pub from: u64,
    /// Where the sum goes.
    pub to: u64,
    /// Words of the vector; in a scatter of each member's chunk.
    pub words: u64,
    /// Whether each member gets its own chunk alone.
    pub scatters: bool,
    /// In a scatter words from one member's chunk to the next's; else 0.
    pub stride: u64,
    /// The first word of the scratch.
    pub scratch: u64,
    /// Most words of a round.
    pub most: u64,
    /// Of the call.
    pub shape: u64,
}

/// What becomes of what comes in a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addition {
    /// Whether there is something to add; else it has come to its place.
    pub adds: bool,
    /// Where it comes.
    pub came: u64,
    /// What is added to it.
    pub own: u64,
    /// Where the sum goes.
    pub sum: u64,
    pub words: u64,
}

/// Words of a slice of a ring's chunk: large enough for the bandwidth of a NIC, small enough that steps overlap.
const SLICE: u64 = 1 << 11;

/// Most slices of a chunk: what they say is to fit into a signal, for all steps of as many members as there may be.
const SLICES: u64 = 1 << 12;

impl Sum {
    /// Words of scratch without which the sum cannot be made.
    #[inline(always)]
    pub const fn scratch(&self) -> u64 {
        let slots = match self.algorithm {
            _ if self.ranks <= 1 || self.words == 0 => 0,
            // A word for each; with more there are fewer rounds.
            Algorithm::Ring => return self.ranks as u64 - 1,
            Algorithm::Doubling => self.doublings(),
            Algorithm::Direct => self.ranks,
        };
        self.words.saturating_mul(slots as u64)
    }

    /// The sum, with rounds for which so much scratch is enough.
    #[inline(always)]
    pub const fn in_scratch(self, there: u64) -> Self {
        let chunks = match self.algorithm {
            Algorithm::Ring if self.scatters => 1,
            Algorithm::Ring => self.ranks as u64,
            _ => {
                let most = self.words;
                return Self { most, ..self };
            }
        };
        let slot = there / at_least_one((self.ranks as u64).saturating_sub(1));
        let most = slot * chunks;
        Self { most, ..self }
    }

    /// How many rounds there are: at least one.
    #[inline(always)]
    pub const fn rounds(&self) -> u64 {
        at_least_one(self.words.div_ceil(at_least_one(self.most)))
    }

    /// One of the rounds, as a sum of its own.
    #[inline(always)]
    pub const fn round(&self, number: u64) -> Self {
        let part = Part::piece(self.words, self.most, number);
        Self {
            from: self.from + part.first,
            to: self.to + part.first,
            words: part.words,
            ..*self
        }
    }

    /// Steps by which a power of 2 is doubled from 1.
    #[inline(always)]
    pub const fn doublings(&self) -> u32 {
        31 - (self.ranks | 1).leading_zeros()
    }

    /// The members before and behind this one in a ring.
    #[inline(always)]
    pub const fn neighbours(&self) -> (u32, u32) {
        let last = self.ranks - 1;
        let before = if self.own == 0 { last } else { self.own - 1 };
        let after = if self.own == last { 0 } else { self.own + 1 };
        (before, after)
    }

    /// Messages of a ring that each member sends, in slices each.
    #[inline(always)]
    pub const fn steps(&self) -> u32 {
        match self.scatters {
            true => self.ranks - 1,
            false => 2 * (self.ranks - 1),
        }
    }

    /// Words of a slot: of a chunk at most.
    #[inline(always)]
    const fn slot_words(&self) -> u64 {
        match self.algorithm {
            Algorithm::Ring if !self.scatters => {
                self.words.div_ceil(at_least_one(self.ranks as u64))
            }
            _ => self.words,
        }
    }

    /// A slot's first word.
    #[inline(always)]
    pub const fn slot(&self, number: u32) -> u64 {
        self.scratch + number as u64 * self.slot_words()
    }

    #[inline(always)]
    const fn slice(&self) -> u64 {
        let least = self.slot_words().div_ceil(SLICES);
        if least > SLICE { least } else { SLICE }
    }

    /// Slices of each of a ring's messages: at least one.
    #[inline(always)]
    pub const fn slices(&self) -> u32 {
        at_least_one(self.slot_words().div_ceil(at_least_one(self.slice()))) as u32
    }

    /// What a ring's signal says behind a slice, from 1 on.
    #[inline(always)]
    pub const fn told(&self, step: u32, slice: u32) -> u64 {
        step as u64 * self.slices() as u64 + slice as u64 + 1
    }

    /// A chunk of what is summed, from its first word on.
    #[inline(always)]
    const fn chunk(&self, behind: u32) -> Part {
        // The first sum of a scatter is one member further from its end, which is this member.
        let number = (self.own + 2 * self.ranks - behind - self.scatters as u32) as u64;
        let number = number % at_least_one(self.ranks as u64);
        match self.scatters {
            true => Part {
                first: number * self.stride,
                words: self.words,
            },
            false => Part::share(self.words, self.ranks, number as u32),
        }
    }

    /// What a step of recursive doubling sends: all that is summed up.
    #[inline(always)]
    pub const fn doubled(&self, step: u32) -> Span {
        Span {
            from: if step == 0 { self.from } else { self.to },
            to: self.slot(step),
            words: self.words,
        }
    }

    /// What a ring's member sends in a step.
    #[inline(always)]
    pub const fn outgoing(&self, step: u32, slice: u32) -> Span {
        let chunk = self.chunk(step);
        let part = Part::piece(chunk.words, self.slice(), slice as u64);
        let from = match step {
            0 => self.from + chunk.first,
            _ if self.scatters => self.slot(step - 1),
            _ => self.to + chunk.first,
        };
        let to = match step + 1 < self.ranks {
            true => self.slot(step),
            false => self.to + chunk.first,
        };
        Span {
            from: from + part.first,
            to: to + part.first,
            words: part.words,
        }
    }

    /// What becomes of what comes in a step of a ring.
    #[inline(always)]
    pub const fn incoming(&self, step: u32, slice: u32) -> Addition {
        let chunk = self.chunk(step + 1);
        let part = Part::piece(chunk.words, self.slice(), slice as u64);
        let sum = match self.scatters {
            false => self.to + chunk.first,
            true if step + 2 == self.ranks => self.to,
            true => self.slot(step),
        };
        Addition {
            adds: step + 1 < self.ranks,
            came: self.slot(step) + part.first,
            own: self.from + chunk.first + part.first,
            sum: sum + part.first,
            words: part.words,
        }
    }
}

/// Never 0, which the compiler does not know: a division by 0 would be a panic.
#[inline(always)]
const fn at_least_one(number: u64) -> u64 {
    if number == 0 { 1 } else { number }
}

#[inline(always)]
const fn least(one: u64, other: u64) -> u64 {
    if one < other { one } else { other }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn shares_and_pieces_follow_each_other() {
        for words in [0, 1, 7, 8, 9, 1000] {
            for shares in [1, 3, 8] {
                let mut next = 0;
                for number in 0..shares {
                    let part = Part::share(words, shares, number);
                    assert_eq!(part.first, next);
                    assert!(part.words.abs_diff(words / u64::from(shares)) <= 1);
                    next += part.words;
                }
                assert_eq!(next, words);
                let most = u64::from(shares);
                let parts = (0..words / most + 2).map(|number| Part::piece(words, most, number));
                let end = parts.fold(0, |next, part| {
                    assert_eq!(part.first, next);
                    assert!(part.words == most || part.first + part.words == words);
                    next + part.words
                });
                assert_eq!(end, words);
            }
        }
    }

    /// What a step's member sends is what the next one's step takes, and lies where it takes it.
    #[test]
    fn members_of_a_ring_agree_about_each_step() {
        for (ranks, words, stride, there) in [
            (2, 9, 0, 3),
            (3, 30, 40, 8),
            (5, 3, 0, 99),
            (4, 40_000, 0, 60_000),
        ] {
            let member = |own| {
                let sum = Sum {
                    algorithm: Algorithm::Ring,
                    ranks,
                    own,
                    from: 100,
                    to: 100_000,
                    words,
                    scatters: stride != 0,
                    stride,
                    scratch: 200_000,
                    most: 0,
                    shape: 0,
                };
                assert!(sum.scratch() <= there);
                sum.in_scratch(there)
            };
            for own in 0..ranks {
                let (one, next) = (member(own), member((own + 1) % ranks));
                for round in 0..one.rounds() {
                    let (one, next) = (one.round(round), next.round(round));
                    assert_eq!(one.slices(), next.slices());
                    for step in 0..one.steps() {
                        for slice in 0..one.slices() {
                            let (sent, taken) =
                                (one.outgoing(step, slice), next.incoming(step, slice));
                            assert_eq!(sent.words, taken.words);
                            assert_eq!(sent.to, if taken.adds { taken.came } else { taken.sum });
                            assert!(!taken.adds || sent.to + sent.words <= 200_000 + there);
                            if step + 1 < next.steps() {
                                assert_eq!(next.outgoing(step + 1, slice).from, taken.sum);
                            }
                        }
                    }
                }
            }
        }
    }
}
