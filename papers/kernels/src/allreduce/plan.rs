//! Which rank sends what in which step of an all-reduce, and what becomes of what comes.

use warpbell::block;

use warpbell_kernels::place::Place;

/// Who sends what to whom, and where it lies: the same for all ranks.
///
/// A vector has a part for each block of a rank; the parts have nothing to do with each other, so that no block waits for
/// another one of its rank. In a ring a part has a chunk for each rank: `ranks - 1` steps add a chunk each, and as many hand
/// the sums on. In recursive doubling it is one chunk: in step `s` ranks whose numbers differ in bit `s` exchange what they
/// have summed up, and both add. A chunk goes in slices, each of them one write with its signal behind it, so that the next
/// step's begins while this one's is under way.
///
/// A rank's memory has [`Self::INPUTS`] vectors to be summed, which take turns, `rounds` sums, and slots for what comes.
///
/// # Why no slot is overwritten too early
/// A rank's block does its steps in order, and a step's message is sent behind the message of the step before, which it
/// needed. From this follows, without credits:
///
/// - Ring. A slot for each adding step. The next round's message for it is sent by a rank that has ended the round, and so
///   has got the last chunk's sum of that round, which the rank with the slot completed: in its last adding step.
/// - Ring, a chunk of the sums. What is there before its sum comes is a sum of some ranks, which was sent on: the sum that
///   comes has it in it, so that the NIC has read it.
/// - Doubling. A slot for each step, three times: rounds take turns. What comes is added in place, and sent from there to
///   the next step's partner. A rank sends to the slot again three rounds later. Then it has ended the round before that, for
///   which this rank sent it this step's message; which did so behind the end of the round before that one, for which the
///   next step's partner sent it a message; which did so behind its own end of the slot's round, in which it added what
///   was sent from here. With two turns the last of these steps is missing, and the NIC might still read; with one, a
///   partner that is late might not have added.
/// - Each round has a place of its own for its sum, and nobody writes to the inputs.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Recursive doubling, for which the ranks are a power of two; else a ring.
    pub doubling: bool,
    /// Values are `f32`; else `u32`, whose sum wraps.
    pub floats: bool,
    /// Ranks, at least 2.
    pub ranks: u32,
    /// Parts of the vector, at least 1.
    pub parts: u32,
    /// Words of 8 bytes of the vector, two values each; as many for each chunk.
    pub words: u32,
    /// Words of a slice at most, at least 1.
    pub slice: u32,
    /// How often vectors are summed.
    pub rounds: u32,
}

/// What a rank sends in a step, in words of its and its peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Where it lies.
    pub from: u32,
    /// Where it goes.
    pub to: u32,
}

/// What becomes of what comes in a step, in words of the rank's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Whether there is something to add; else it has come to its place.
    pub adds: bool,
    /// Where it comes.
    pub came: u32,
    /// What is added to it.
    pub own: u32,
    /// Where the sum goes.
    pub sum: u32,
}

impl Plan {
    /// Vectors of a rank that are summed in turn.
    pub const INPUTS: u32 = 2;
    /// Rounds that take turns with the slots of recursive doubling.
    const TURNS: u32 = 3;

    /// Messages that a rank sends in a round, in slices each.
    #[inline(always)]
    pub const fn steps(&self) -> u32 {
        match self.doubling {
            true => 31 - (self.ranks | 1).leading_zeros(),
            false => 2 * (self.ranks - 1),
        }
    }

    /// Peers that a rank sends to, each with a queue for each part: that of part `p` to peer `w` is number `w * parts + p`.
    #[inline(always)]
    pub const fn ways(&self) -> u32 {
        match self.doubling {
            true => self.steps(),
            false => 1,
        }
    }

    /// The peer of a step's messages, and of the same step's that come.
    #[inline(always)]
    pub const fn way(&self, step: u32) -> u32 {
        match self.doubling {
            true => step,
            false => 0,
        }
    }

    /// The rank that a rank sends to.
    pub const fn peer(&self, rank: u32, way: u32) -> u32 {
        match self.doubling {
            true => rank ^ (1 << way),
            false => (rank + 1) % self.ranks,
        }
    }

    /// Words of a chunk.
    #[inline(always)]
    pub const fn chunk(&self) -> u32 {
        let chunks = match self.doubling {
            true => self.parts,
            false => self.parts * self.ranks,
        };
        // Never 0, which the compiler does not know: a division by 0 would be a panic.
        self.words / at_least_one(chunks)
    }

    /// Slices of a chunk.
    #[inline(always)]
    pub const fn slices(&self) -> u32 {
        self.chunk().div_ceil(at_least_one(self.slice))
    }

    /// Where a slice of a chunk begins, and how many words it has.
    #[inline(always)]
    pub const fn bounds(&self, slice: u32) -> (u32, u32) {
        let start = slice * self.slice;
        let left = self.chunk() - start;
        (start, if left < self.slice { left } else { self.slice })
    }

    /// The number that the signal behind a slice says.
    #[inline(always)]
    pub const fn number(&self, round: u32, step: u32, slice: u32) -> u64 {
        let before = (round as u64 * self.steps() as u64 + step as u64) * self.slices() as u64;
        before + slice as u64 + 1
    }

    /// Whether nothing goes to a step's peer behind this slice.
    #[inline(always)]
    pub const fn is_last(&self, round: u32, step: u32, slice: u32) -> bool {
        (round + 1 == self.rounds)
            & (self.doubling | (step + 1 == self.steps()))
            & (slice + 1 == self.slices())
    }

    /// Words of a rank's memory; all else counts them in 32 bits, which are enough where this fits into them.
    pub const fn memory(&self) -> u64 {
        let vector = self.words as u64;
        let vectors = vector.saturating_mul(Self::INPUTS as u64 + self.rounds as u64);
        vectors.saturating_add(match self.doubling {
            true => Self::TURNS as u64 * self.steps() as u64 * vector,
            false => {
                let chunks = (self.ranks as u64).saturating_sub(1) * self.parts as u64;
                chunks.saturating_mul(self.chunk() as u64)
            }
        })
    }

    /// The vector that a round sums.
    #[inline(always)]
    pub const fn input(&self, round: u32) -> u32 {
        round % Self::INPUTS * self.words
    }

    /// Where its sum goes.
    #[inline(always)]
    pub const fn sum(&self, round: u32) -> u32 {
        (Self::INPUTS + round) * self.words
    }

    /// The slots of a step in recursive doubling, or of step 0 in a ring.
    #[inline(always)]
    const fn slots(&self, turn: u32) -> u32 {
        self.sum(self.rounds) + turn * self.words
    }

    #[inline(always)]
    const fn doubling_slot(&self, round: u32, step: u32) -> u32 {
        self.slots(round % Self::TURNS * self.steps() + step)
    }

    #[inline(always)]
    const fn ring_slot(&self, step: u32) -> u32 {
        self.slots(0) + step * self.parts * self.chunk()
    }

    /// Where what a rank has summed up before a step lies, in recursive doubling.
    #[inline(always)]
    const fn doubled(&self, round: u32, step: u32) -> u32 {
        match step {
            0 => self.input(round),
            _ => self.doubling_slot(round, step - 1),
        }
    }

    /// What part `part` of a rank sends in a step.
    #[inline(always)]
    pub const fn outgoing(&self, rank: u32, part: u32, round: u32, step: u32) -> Outgoing {
        let chunk = self.chunk();
        if self.doubling {
            let at = part * chunk;
            return Outgoing {
                from: self.doubled(round, step) + at,
                to: self.doubling_slot(round, step) + at,
            };
        }
        let ranks = at_least_one(self.ranks);
        // The chunk that came in the step before, if there was one: both for adding and for handing on.
        let which = (rank + 2 * ranks - step) % ranks;
        let at = (part * ranks + which) * chunk;
        let from = match step {
            0 => self.input(round),
            _ => self.sum(round),
        };
        let to = match step < ranks - 1 {
            true => self.ring_slot(step) + part * chunk,
            false => self.sum(round) + at,
        };
        Outgoing {
            from: from + at,
            to,
        }
    }

    /// What becomes of what comes to part `part` of a rank in a step.
    #[inline(always)]
    pub const fn incoming(&self, rank: u32, part: u32, round: u32, step: u32) -> Incoming {
        let chunk = self.chunk();
        if self.doubling {
            let at = part * chunk;
            let came = self.doubling_slot(round, step);
            let sum = match step + 1 == self.steps() {
                true => self.sum(round),
                false => came,
            };
            return Incoming {
                adds: true,
                came: came + at,
                own: self.doubled(round, step) + at,
                sum: sum + at,
            };
        }
        let ranks = at_least_one(self.ranks);
        let which = (rank + 2 * ranks - 1 - step) % ranks;
        let at = (part * ranks + which) * chunk;
        Incoming {
            adds: step < ranks - 1,
            came: self.ring_slot(step) + part * chunk,
            own: self.input(round) + at,
            sum: self.sum(round) + at,
        }
    }

    /// The sum of two words, each of which is two values.
    #[inline(always)]
    const fn add(&self, one: u64, other: u64) -> u64 {
        let (low, high) = (one as u32, (one >> 32) as u32);
        let (other_low, other_high) = (other as u32, (other >> 32) as u32);
        let (low, high) = (
            self.add_values(low, other_low),
            self.add_values(high, other_high),
        );
        low as u64 | (high as u64) << 32
    }

    #[inline(always)]
    const fn add_values(&self, one: u32, other: u32) -> u32 {
        match self.floats {
            true => (f32::from_bits(one) + f32::from_bits(other)).to_bits(),
            false => one.wrapping_add(other),
        }
    }

    /// Adds a slice of what has come, as one block.
    #[inline(always)]
    pub(super) fn add_slice(&self, memory: Place, what: Incoming, slice: u32) {
        let (start, words) = self.bounds(slice);
        let load = |place: u32, at: u32| memory.load(place + start + at);
        let (size, mut at) = (block::size(), block::thread_index());
        while at < words {
            let sum = self.add(load(what.came, at), load(what.own, at));
            memory.store(what.sum + start + at, sum);
            at += size;
        }
    }
}

#[inline(always)]
pub(super) const fn at_least_one(number: u32) -> u32 {
    if number == 0 { 1 } else { number }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    #[test]
    fn the_last_slice_to_each_peer_is_known() {
        for (doubling, ranks) in [(false, 3), (false, 8), (true, 2), (true, 8)] {
            let plan = Plan {
                doubling,
                floats: false,
                ranks,
                parts: 1,
                words: 5 * ranks,
                slice: 2,
                rounds: 3,
            };
            let steps =
                (0..plan.rounds).flat_map(|round| (0..plan.steps()).map(move |step| (round, step)));
            let slices = steps.flat_map(|(round, step)| {
                (0..plan.slices()).map(move |slice| (round, step, slice))
            });
            let slices: Vec<_> = slices.collect();
            for (index, &(round, step, slice)) in slices.iter().enumerate() {
                let mut behind = slices[index + 1..].iter();
                let more = behind.any(|(_, later, _)| plan.way(*later) == plan.way(step));
                assert_eq!(
                    plan.is_last(round, step, slice),
                    !more,
                    "{plan:?} {round} {step} {slice}"
                );
            }
        }
    }
}
