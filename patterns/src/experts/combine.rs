//! What the experts made of the tokens, back to their owner.

use super::open::{blocks, warp, warps};
use super::word::{Phase, Place};
use super::{Error, Experts, Way};
use crate::number::Bf16;
use warpbell::{Block, Deadline, Scope, Words, block, thread, warp as lanes};

/// In place of a row's first word: no row.
pub const NO_ROW: u64 = u64::MAX;

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
            let (mut from, mut weight) = (NO_ROW, 0.0);
            if lane < self.shape().top_k {
                (from, weight) = self.contribution(token * self.shape().top_k + lane);
            }
            let to = self.layout.result(token);
            let (rows, words) = (self.shape().top_k, self.shape().hidden_words());
            // SAFETY: all lanes come here with the same token, and a row has a multiple of 64 words.
            unsafe { sum_rows(self.words, (from, weight), rows, words, to) };
            token += blocks() * warps();
        }
    }

    /// Where a choice's row lies, and its weight.
    #[inline(always)]
    fn contribution(&self, pair: u32) -> (u64, f32) {
        let place = Place(self.load(self.layout.place(pair)));
        if self.refused || place.is_none() {
            return (NO_ROW, 0.0);
        }
        let (rank, _) = self.shape().owner(place.expert());
        if rank != self.rank() && self.is_masked(rank) {
            return (NO_ROW, 0.0);
        }
        M::addend(self, place.0, self.load(self.layout.header(pair) + 1))
    }
}

/// Makes a row of so many words, as a warp: the weighted sum of the rows that so many lanes name, in the order of the lanes.
/// A lane names its row by its first word in the window, or [`NO_ROW`]. Each product and each sum is rounded to `f32`, and the
/// last one to bf16.
///
/// # Safety
/// All lanes of the warp come here together, with the same numbers but for their rows and weights. The words are a multiple
/// of 64.
#[inline(always)]
pub unsafe fn sum_rows(
    window: Words<'_>,
    (from, weight): (u64, f32),
    rows: u32,
    words: u32,
    to: u64,
) {
    let mut word = 2 * lanes::lane_id();
    while word < words {
        let place = u64::from(word);
        let (mut first, mut second) = ([0.0; 4], [0.0; 4]);
        let mut k = 0;
        while k < rows {
            // SAFETY: all lanes go on together, as the caller promises.
            let row = unsafe { lanes::warp_shuffle_idx(u32::MAX, from, k, 32).0 };
            // SAFETY: as above.
            let weight = unsafe { lanes::warp_shuffle_idx(u32::MAX, weight, k, 32).0 };
            if row != NO_ROW {
                first = add(first, weight, window.load(row + place).unwrap_or(0));
                second = add(second, weight, window.load(row + place + 1).unwrap_or(0));
            }
            k += 1;
        }
        window.store(to + place, Bf16::pack(first));
        window.store(to + place + 1, Bf16::pack(second));
        word += 2 * thread::warp_size();
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
