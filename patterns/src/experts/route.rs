//! Which token goes to which slot of which expert.

use super::open::{blocks, warp, warps};
use super::shape::split;
use super::word::{Phase, Place};
use super::{Choice, Error, Experts, Header, Layout, Mode, Way};
use crate::number::{Bf16, BlockScale, magnitude};
use warpbell::{Block, Scope, Words, block, thread, warp as lanes};

impl<M: Way> Experts<'_, M> {
    /// Begins a round with so many tokens; all blocks come to it.
    #[inline(always)]
    pub(super) fn begin_round(&mut self, tokens: u32) -> Result<(), Error> {
        if matches!(self.phase, Phase::Dispatching | Phase::Combining) {
            return Err(Error::Order);
        }
        self.round += 1;
        self.phase = Phase::Dispatching;
        self.refused = false;
        self.tokens = match tokens <= self.shape().tokens {
            true => tokens,
            false => 0,
        };
        Ok(())
    }

    /// Gives this round's choices their slots, each thread some of them, and makes the next round's counters zero. All
    /// blocks have come to the round, so that nobody reads these counters for the round before; and they meet behind it.
    #[inline(always)]
    pub(super) fn route(&self, tokens: u32) {
        let (own, all) = (thread::index(), blocks() * block::size());
        let mut word = own;
        while u64::from(word) < self.layout.counted() {
            let counter = self.layout.counter(self.round + 1, 0);
            self.words.store(counter + u64::from(word), 0);
            word += all;
        }
        if tokens > self.tokens {
            return self.keep(Error::Tokens { tokens });
        }
        let mut pair = own;
        while pair < tokens * self.shape().top_k {
            if let Err(error) = self.place(pair) {
                self.keep(error);
            }
            pair += all;
        }
    }

    /// Gives a choice its slot.
    #[inline(always)]
    fn place(&self, pair: u32) -> Result<(), Error> {
        let (shape, number) = (self.shape(), u64::from(pair));
        let choice = Choice(self.load(self.layout.choices + number));
        let mut place = Place::NONE;
        let mut result = Ok(());
        let expert = choice.expert();
        if choice.is_none() {
            // It goes nowhere.
        } else if expert >= shape.experts() {
            result = Err(Error::Expert { expert });
        } else {
            let counter = self.layout.counter(self.round, expert);
            let slot = self.words.fetch_add(counter, 1).unwrap_or(u64::MAX) as u32;
            if slot < shape.capacity {
                place = Place::new(expert, slot);
                let (token, k) = shape.choice(pair);
                let [first, second] = Header::words(token, k, choice);
                let header = self.layout.header(pair);
                self.words.store(header, first);
                self.words.store(header + 1, second);
                if let Mode::LowLatency = M::MODE {
                    let listed = (u64::from(token) << 32) | number;
                    self.words.store(self.layout.listed(expert, slot), listed);
                }
            } else if shape.refuses() {
                result = Err(Error::Overflow { expert });
            }
        }
        self.words.store(self.layout.place(pair), place.0);
        result
    }

    /// Keeps a round's error, if it is the first.
    #[inline(always)]
    fn keep(&self, error: Error) {
        let errors = self.layout.errors(self.round);
        if self.words.fetch_add(errors, 1) == Some(0) {
            self.words.store(errors + 1, error.to_bits());
        }
    }

    /// The round's first error, for all threads of the block, once all blocks have met behind [`route`](Self::route).
    #[inline(always)]
    pub(super) fn routed(&self) -> Result<(), Error> {
        let mut word = 0;
        if Block::leads() {
            word = self.load(self.layout.errors(self.round) + 1);
        }
        match Error::from_bits(Block::broadcast(word)) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// Makes so many tokens of a window E4M3 with scales, where the layout has them travel: all warps of the grid together, each
/// 256 values at a time. 16 lanes have the 128 of a scale.
///
/// # Safety
/// All threads of the grid call this, with the same numbers. Blocks are whole warps.
#[inline(always)]
pub unsafe fn quantise(words: Words<'_>, layout: &Layout, tokens: u32) {
    let (lane, parts) = (lanes::lane_id(), layout.shape.hidden / 256);
    let load = |word| words.load(word).unwrap_or(0);
    let mut part = block::index() * warps() + warp();
    while part < tokens * parts {
        let (token, number) = split(part, parts);
        let number = u64::from(number);
        let from = layout.token(token) + 64 * number + u64::from(2 * lane);
        let [a, b, c, d] = Bf16::unpack(load(from));
        let [e, f, g, h] = Bf16::unpack(load(from + 1));
        let largest = magnitude(a)
            .max(magnitude(b))
            .max(magnitude(c))
            .max(magnitude(d));
        let others = magnitude(e)
            .max(magnitude(f))
            .max(magnitude(g))
            .max(magnitude(h));
        let mut largest = largest.max(others);
        let mut apart = 8;
        while apart > 0 {
            // SAFETY: all lanes come here with the same parts, by the caller's promise.
            let (other, _) = unsafe { lanes::warp_shuffle_xor(u32::MAX, largest, apart, 16) };
            largest = largest.max(other);
            apart >>= 1;
        }
        let scale = BlockScale::of(largest);
        let to = layout.travelling(token);
        let packed = scale.pack([a, b, c, d, e, f, g, h]);
        words.store(to + 32 * number + u64::from(lane), packed);
        let own = scale.scale();
        // SAFETY: as above.
        let (upper, _) = unsafe { lanes::warp_shuffle_idx(u32::MAX, own, 16, 32) };
        if lane == 0 {
            let scales = to + u64::from(layout.shape.hidden / 8) + number;
            let both = u64::from(upper.to_bits()) << 32 | u64::from(own.to_bits());
            words.store(scales, both);
        }
        part += blocks() * warps();
    }
}
