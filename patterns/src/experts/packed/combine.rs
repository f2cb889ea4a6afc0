//! Sums out of outputs.

use super::TOKENS;
use super::index::Come;
use super::send::{Half, Parcel, Span};
use super::word::Arrived;
use crate::experts::combine::{NO_ROW, sum_rows};
use crate::experts::open::blocks;
use crate::experts::send::of_lane;
use crate::experts::word::Count;
use crate::experts::{Experts, Throughput};
use warpbell::{Block, Deadline, Scope, block, warp as lanes};

/// A combine: the sums of a piece's records.
pub(in crate::experts) enum Summed {}

impl Half for Summed {
    #[inline(always)]
    fn pieces(experts: &Experts<'_, Throughput>, rank: u32) -> u32 {
        let first = experts.layout.arrived(experts.round, rank, 0);
        // One lane's value, because a member that is late may be writing.
        let said = Arrived(Count(lanes::broadcast(experts.load(first))));
        match said.0.is_of(experts.round) {
            true => said.pieces().min(experts.shape().pieces()),
            false => 0,
        }
    }

    #[inline(always)]
    fn make(experts: &Experts<'_, Throughput>, rank: u32, piece: u32) -> Parcel {
        let (layout, own) = (experts.layout, experts.rank());
        let to = layout.summed(own, TOKENS * piece);
        let from = match rank == own {
            true => to,
            false => layout.partial(rank, piece),
        };
        let words = experts.sum_piece(rank, piece, from);
        Parcel {
            counts: Span { from, to, words: 0 },
            piece: Span { from, to, words },
            flag: layout.returned(own, piece),
            said: experts.round,
        }
    }
}

impl Experts<'_, Throughput> {
    /// Sums up the outputs of a source's piece, as a warp, and says how many words the sums have.
    #[inline(always)]
    fn sum_piece(&self, source: u32, piece: u32, at: u64) -> u32 {
        let (lane, hidden) = (lanes::lane_id(), self.shape().hidden_words());
        let Come {
            records,
            record,
            entries,
        } = self.come(source, piece);
        let (choices, trailer) = (record.choices().count_ones(), lanes::broadcast(entries));
        // Fewer than 2^11 words.
        let before = (entries - trailer) as u32;
        let mut number = 0;
        while number < records {
            // Each lane has one of the record's choices.
            let choices = of_lane(choices, number);
            let first = trailer + u64::from(of_lane(before, number));
            let (mut from, mut weight) = (NO_ROW, 0.0);
            if lane < choices {
                let entry = self.entry(first + u64::from(lane));
                if !entry.is_none() {
                    from = self.layout.output(entry.local(), source, entry.slot());
                    weight = f32::from_bits(entry.weight_bits());
                }
            }
            let to = at + u64::from(number) * u64::from(hidden);
            // SAFETY: all lanes come here with the same record, and a row has a multiple of 64 words.
            unsafe { sum_rows(self.words, (from, weight), choices, hidden, to) };
            number += 1;
        }
        records * hidden
    }

    /// Waits until the sums of this member's pieces have come from all members, each block for some, and its threads for some
    /// members. A member from which they do not come is masked.
    #[inline(always)]
    pub(in crate::experts) fn hear_sums(&self, limit: Deadline) {
        let mut rank = Block::rank();
        while rank < self.shape().ranks {
            let mut piece = block::index();
            while piece < self.own_pieces() {
                let word = self.layout.returned(rank, piece);
                self.hear(rank, word, (self.round, self.round), limit);
                piece += blocks();
            }
            rank += Block::size();
        }
    }

    /// Where the sum lies that a member has made for a choice, if its header says that it is the first one there.
    #[inline(always)]
    pub(in crate::experts) fn sum_of(&self, rank: u32, header: u64) -> u64 {
        let record = (header >> 32) as u32;
        match record == 0 {
            true => NO_ROW,
            false => self.layout.summed(rank, record - 1),
        }
    }
}
