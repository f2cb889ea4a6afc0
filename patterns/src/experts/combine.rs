//! What the experts made of the tokens, back to their owner.

use super::open::{blocks, warp, warps};
use super::word::{Phase, Place};
use super::{Error, Experts, Way};
use crate::number::Bf16;
use warpbell::{Block, Deadline, Scope, block, thread, warp as lanes};

/// A place from which nothing comes.
pub(super) const NOTHING: u64 = u64::MAX;

impl<M: Way> Experts<'_, M> {
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
        M::send_outputs(self, limit);
        Ok(())
    }

    /// Waits until the outputs have come for this member's tokens, sums them up, and says how many members are masked. The
    /// outputs of this member's experts may be written again then.
    ///
    /// A token's result is the sum over its choices, in their order from 0 on, of weight times output: each product and
    /// each sum is rounded to `f32`, beginning with 0, and the last one to bf16. Left out are choices without an expert,
    /// those that were dropped, and those whose expert's member is masked; the other weights stay what they are.
    ///
    /// In the throughput mode ([`Mode`](super::Mode)), each member sums up so, over the choices of its own experts, and rounds
    /// to bf16. The result is the sum of these sums, in the order of the members' first choices, in `f32` and beginning
    /// with 0, and rounded to bf16. So it is rounded twice where a token goes to several members.
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
        M::hear_outputs(self, limit);
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
        let lane = lanes::lane_id();
        let mut token = block::index() * warps() + warp();
        while token < self.tokens {
            // Each lane has a choice.
            let (mut from, mut weight) = (NOTHING, 0.0);
            if lane < self.shape().top_k {
                (from, weight) = self.contribution(token * self.shape().top_k + lane);
            }
            let to = self.layout.result(token);
            self.sum_rows(from, weight, self.shape().top_k, to);
            token += blocks() * warps();
        }
    }

    /// Makes a row, as a warp: the sum of the rows that so many lanes name, in the order of the lanes.
    #[inline(always)]
    pub(super) fn sum_rows(&self, from: u64, weight: f32, rows: u32, to: u64) {
        let mut word = 2 * lanes::lane_id();
        while word < self.shape().hidden_words() {
            let to = to + u64::from(word);
            let [first, second] = self.sum(from, weight, rows, word.into());
            self.words.store(to, first);
            self.words.store(to + 1, second);
            // A row has a multiple of 64 words, so that all lanes go on together.
            word += 2 * thread::warp_size();
        }
    }

    /// Where a choice's row lies, and its weight.
    #[inline(always)]
    fn contribution(&self, pair: u32) -> (u64, f32) {
        let place = Place(self.load(self.layout.place(pair)));
        if self.refused || place.is_none() {
            return (NOTHING, 0.0);
        }
        let (rank, _) = self.shape().owner(place.expert());
        if rank != self.rank() && self.is_masked(rank) {
            return (NOTHING, 0.0);
        }
        M::addend(self, place.0, self.load(self.layout.header(pair) + 1))
    }

    /// Two words of the sum of the rows that so many lanes name, in the order of the lanes.
    #[inline(always)]
    fn sum(&self, from: u64, weight: f32, rows: u32, word: u64) -> [u64; 2] {
        let (mut first, mut second) = ([0.0; 4], [0.0; 4]);
        let mut k = 0;
        while k < rows {
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

impl Experts<'_> {
    /// Waits until the outputs have come for this member's tokens, each thread for some of them.
    #[inline(always)]
    pub(super) fn hear_flags(&self, limit: Deadline) {
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
    }
}
