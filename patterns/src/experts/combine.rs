//! What the experts made of the tokens, back to their owner.

use super::open::{blocks, warp, warps};
use super::send::Combine;
use super::word::{Phase, Place};
use super::{Error, Experts};
use crate::number::Bf16;
use warpbell::{Block, Deadline, Scope, block, thread, warp as lanes};

/// A place from which nothing comes.
const NOTHING: u64 = u64::MAX;

impl Experts<'_> {
    /// Sends back what this member's experts made, waits for what the others made, and sums it up: both halves of it.
    ///
    /// # Errors
    /// As both.
    #[inline(always)]
    pub fn combine(&mut self, limit: Deadline) -> Result<u32, Error> {
        self.combine_begin(limit)?;
        self.combine_finish(limit)
    }

    /// Sends back the outputs of this member's experts.
    ///
    /// # Errors
    /// [`Error::Order`], [`Error::Blocks`].
    #[inline(always)]
    pub fn combine_begin(&mut self, limit: Deadline) -> Result<(), Error> {
        if self.phase != Phase::Dispatched {
            return Err(Error::Order);
        }
        let limit = limit.fixed();
        self.phase = Phase::Combining;
        self.meet(limit)?;
        self.send::<Combine>(limit);
        Ok(())
    }

    /// Waits until the outputs have come for this member's tokens, sums them up, and says how many members are masked. The
    /// outputs of this member's experts may be written again then.
    ///
    /// A token's result is the sum over its choices, in their order from 0 on, of weight times output: each product and
    /// each sum is rounded to `f32`, beginning with 0, and the last one to bf16. Left out are choices without an expert,
    /// those that were dropped, and those whose expert's member is masked; the other weights stay what they are.
    ///
    /// # Errors
    /// [`Error::Order`], [`Error::Blocks`].
    #[inline(always)]
    pub fn combine_finish(&mut self, limit: Deadline) -> Result<u32, Error> {
        if self.phase != Phase::Combining {
            return Err(Error::Order);
        }
        let limit = limit.fixed();
        self.phase = Phase::Idle;
        let (shape, own) = (self.shape(), self.rank());
        let mut expert = thread::index();
        while expert < shape.experts() {
            let (rank, _) = shape.owner(expert);
            if rank != own && self.sends(expert).sent(shape.capacity) != 0 {
                let flag = self.layout.flag(expert);
                self.hear(rank, flag, (self.round, self.round), limit);
            }
            expert += blocks() * block::size();
        }
        // The warps have closed their queues.
        Block::sync();
        self.complete(limit);
        self.meet(limit)?;
        self.sum_up();
        self.meet(limit)?;
        Ok(self.masked())
    }

    /// Makes the results, each warp those of some tokens.
    #[inline(always)]
    fn sum_up(&self) {
        let (lane, hidden) = (lanes::lane_id(), self.shape().hidden_words());
        let mut token = block::index() * warps() + warp();
        while token < self.tokens {
            // Each lane has a choice.
            let (mut from, mut weight) = (NOTHING, 0.0);
            if lane < self.shape().top_k {
                (from, weight) = self.contribution(token * self.shape().top_k + lane);
            }
            let mut word = 2 * lane;
            while word < hidden {
                let [first, second] = self.sum(from, weight, word.into());
                let to = self.layout.result(token) + u64::from(word);
                self.words.store(to, first);
                self.words.store(to + 1, second);
                // A row has a multiple of 64 words, so that all lanes go on together.
                word += 2 * thread::warp_size();
            }
            token += blocks() * warps();
        }
    }

    /// Where a choice's row lies, and its weight.
    #[inline(always)]
    fn contribution(&self, pair: u32) -> (u64, f32) {
        let place = Place(self.load(self.layout.place(pair)));
        if self.refused || place.is_none() {
            return (NOTHING, 0.0);
        }
        let (expert, slot) = (place.expert(), place.slot());
        let (rank, local) = self.shape().owner(expert);
        let from = if rank == self.rank() {
            self.layout.output(local, rank, slot)
        } else if self.is_masked(rank) {
            NOTHING
        } else {
            self.layout.landing(expert, slot)
        };
        let weight = self.load(self.layout.header(pair) + 1) as u32;
        (from, f32::from_bits(weight))
    }

    /// Two words of the sum of the rows that the lanes name, in the order of the lanes.
    #[inline(always)]
    fn sum(&self, from: u64, weight: f32, word: u64) -> [u64; 2] {
        let (mut first, mut second) = ([0.0; 4], [0.0; 4]);
        let mut k = 0;
        while k < self.shape().top_k {
            // SAFETY: blocks are whole warps, all of whose lanes come here.
            let row = unsafe { lanes::warp_shuffle_idx(u32::MAX, from, k, 32).0 };
            // SAFETY: as above.
            let weight = unsafe { lanes::warp_shuffle_idx(u32::MAX, weight, k, 32).0 };
            if row != NOTHING {
                first = add(first, weight, self.load(row + word));
                second = add(second, weight, self.load(row + word + 1));
            }
            k += 1;
        }
        [Bf16::pack(first), Bf16::pack(second)]
    }
}

/// Adds the weighted values of a word.
#[inline(always)]
fn add([a, b, c, d]: [f32; 4], weight: f32, word: u64) -> [f32; 4] {
    let [e, f, g, h] = Bf16::unpack(word);
    [
        a + weight * e,
        b + weight * f,
        c + weight * g,
        d + weight * h,
    ]
}
