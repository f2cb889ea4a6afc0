//! What has come to an expert.

use super::layout::HEADER;
use super::word::Count;
use super::{Format, Header, Layout};
use crate::number::{Bf16, E4m3};
use warpbell::Words;

/// What one source has sent to one own expert in a round: [`Experts::received`](super::Experts::received).
///
/// It holds until the member's next dispatch begins.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    pub(super) words: Words<'a>,
    pub(super) layout: &'a Layout,
    pub(super) round: u64,
    pub(super) local: u32,
    pub(super) source: u32,
    pub(super) count: Count,
}

impl<'a> Received<'a> {
    /// What has come to a window, where a host drives the exchange: `count` is what the source sent for this expert of the
    /// window's member in a round.
    #[inline(always)]
    pub const fn at(
        words: Words<'a>,
        layout: &'a Layout,
        (round, count): (u64, Count),
        local: u32,
        source: u32,
    ) -> Self {
        Self {
            words,
            layout,
            round,
            local,
            source,
            count,
        }
    }

    /// How many tokens have come, in slots from 0 on. Their order is that in which the source's threads came to a counter.
    #[inline(always)]
    pub const fn count(&self) -> u32 {
        self.count.sent(self.layout.shape.capacity)
    }

    /// How many tokens the source had for this expert that did not come.
    #[inline(always)]
    pub const fn dropped(&self) -> u32 {
        self.count.dropped(self.layout.shape.capacity)
    }

    /// Whether the source's dispatch was refused there, so that no token comes from it to any expert.
    #[inline(always)]
    pub const fn is_refused(&self) -> bool {
        self.count.is_refused()
    }

    /// Which token is in a slot.
    #[inline(always)]
    pub fn header(&self, slot: u32) -> Option<Header> {
        let place = self.place(slot)?;
        let first = self.words.load(place)?;
        let second = self.words.load(place + 1)?;
        Some(Header::from_words(first, second))
    }

    /// The values in a slot, in the exchange's format: bf16, 4 a word; or E4M3, 8 a word, and behind them their scales, an
    /// `f32` for each 128 values, 2 a word.
    #[inline(always)]
    pub fn row(&self, slot: u32) -> Option<Words<'a>> {
        let words = self.layout.shape.row_words();
        let mut row = self.place(slot)? + HEADER;
        if self.layout.shape.is_packed() {
            let record = (self.words.load(row - 1)? >> 32) as u32;
            row = self.layout.record(self.round, self.source, record);
        }
        self.words.part(row, words.into())
    }

    /// Eight values in a slot, from value number 8 times `group` on, whichever format they have.
    #[inline(always)]
    pub fn values(&self, slot: u32, group: u32) -> Option<[f32; 8]> {
        let (row, group) = (self.row(slot)?, u64::from(group));
        let values = u64::from(self.layout.shape.hidden / 8);
        if group >= values {
            return None;
        }
        if let Format::Bf16 = self.layout.shape.format {
            let [a, b, c, d] = Bf16::unpack(row.load(2 * group)?);
            let [e, f, g, h] = Bf16::unpack(row.load(2 * group + 1)?);
            return Some([a, b, c, d, e, f, g, h]);
        }
        // 16 words of values have a scale, which is a half of a word.
        let scales = row.load(values + group / 32)?;
        let scale = (scales >> (group / 16 % 2 * 32)) as u32;
        Some(E4m3::unpack(row.load(group)?, f32::from_bits(scale)))
    }

    /// The row that the expert makes of it, in bf16, for the caller to write until a combine begins.
    #[inline(always)]
    pub fn output(&self, slot: u32) -> Option<Words<'a>> {
        self.place(slot)?;
        let word = self.layout.output(self.local, self.source, slot);
        self.words
            .part(word, self.layout.shape.hidden_words().into())
    }

    /// Where the header is.
    #[inline(always)]
    fn place(&self, slot: u32) -> Option<u64> {
        if slot >= self.count() {
            return None;
        }
        let Self {
            layout,
            round,
            local,
            source,
            ..
        } = *self;
        Some(match layout.shape.is_packed() {
            true => layout.index(local, source, slot),
            false => layout.received(round, local, source, slot),
        })
    }
}
