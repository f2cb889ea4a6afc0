//! Records out of tokens.

use super::TOKENS;
use super::send::{Half, Parcel, Span};
use super::word::{Arrived, Entry, Record};
use crate::experts::open::blocks;
use crate::experts::send::{of_lane, sum_up_to_here};
use crate::experts::word::{Count, Place};
use crate::experts::{Experts, Throughput};
use warpbell::{Block, Deadline, Scope, block, warp as lanes};

/// A dispatch: the records of a piece's tokens.
pub(in crate::experts) enum Packed {}

impl Half for Packed {
    #[inline(always)]
    fn pieces(experts: &Experts<'_, Throughput>, _: u32) -> u32 {
        experts.own_pieces()
    }

    #[inline(always)]
    fn make(experts: &Experts<'_, Throughput>, rank: u32, piece: u32) -> Parcel {
        let (layout, round, own) = (experts.layout, experts.round, experts.rank());
        let to = layout.piece(round, own, piece);
        let from = match rank == own {
            true => to,
            false => layout.packing(rank, piece),
        };
        let (tokens, words) = experts.pack(rank, piece, from);
        let local = layout.shape.local;
        let counts = Span {
            from: layout.counter(round, rank * local),
            to: layout.packed_count(round, 0, own),
            words: match piece {
                0 => local,
                _ => 0,
            },
        };
        let said = Arrived::new(round, experts.refused, experts.own_pieces(), tokens);
        Parcel {
            counts,
            piece: Span { from, to, words },
            flag: layout.arrived(round, own, piece),
            said: said.0.0,
        }
    }
}

impl Experts<'_, Throughput> {
    /// How many pieces this member's tokens of the round make. The first one goes out even if nothing is in it, because the
    /// others learn from it how many there are.
    #[inline(always)]
    pub(super) fn own_pieces(&self) -> u32 {
        match self.refused || self.tokens == 0 {
            true => 1,
            false => self.tokens.div_ceil(TOKENS),
        }
    }

    /// Packs a piece for a member, as a warp, from a word on: how many records it has, and words.
    #[inline(always)]
    fn pack(&self, rank: u32, piece: u32, at: u64) -> (u32, u32) {
        let (first, row) = (TOKENS * piece, self.shape().row_words());
        // Each lane has a token.
        let token = first + lanes::lane_id();
        let choices = self.choices_at(rank, token);
        let (record, records) = lanes::rank_and_count(choices != 0);
        let mut present = lanes::ballot(choices != 0);
        let mut to = at;
        while present != 0 {
            let from = self.layout.travelling(first + present.trailing_zeros());
            self.copy(from, to, row);
            to += u64::from(row);
            present &= present - 1;
        }
        let count = choices.count_ones();
        let end = sum_up_to_here(count);
        if choices != 0 {
            let word = to + u64::from(record);
            self.words.store(word, Record::new(token, choices).0);
            let entries = to + u64::from(records + end - count);
            self.write_entries(rank, (token, choices), entries, first + record);
        }
        (records, records * (row + 1) + of_lane(end, TOKENS - 1))
    }

    /// Which of a token's choices have a slot at a member: a bit for each.
    #[inline(always)]
    fn choices_at(&self, rank: u32, token: u32) -> u32 {
        let shape = self.shape();
        let (mut choices, mut k) = (0, 0);
        while k < shape.top_k && token < self.tokens && !self.refused {
            let place = Place(self.load(self.layout.place(token * shape.top_k + k)));
            let local = place.expert().wrapping_sub(rank * shape.local);
            if !place.is_none() && local < shape.local {
                choices |= 1 << k;
            }
            k += 1;
        }
        choices
    }

    /// Writes what a record says of its choices. The first one's header keeps the record's number, by which the sum is found
    /// that comes back, and those of the others none.
    #[inline(always)]
    fn write_entries(&self, rank: u32, (token, choices): (u32, u32), mut to: u64, record: u32) {
        let (shape, mut left, mut kept) = (self.shape(), choices, u64::from(record) + 1);
        while left != 0 {
            let pair = token * shape.top_k + left.trailing_zeros();
            let place = Place(self.load(self.layout.place(pair)));
            let weight = self.layout.header(pair) + 1;
            let bits = self.load(weight) as u32;
            let local = place.expert().wrapping_sub(rank * shape.local);
            let entry = Entry::new(local, place.slot(), bits);
            self.words.store(to, entry.0);
            self.words.store(weight, kept << 32 | u64::from(bits));
            kept = 0;
            to += 1;
            left &= left - 1;
        }
    }

    /// Waits until all pieces of this round have come from all members, each block for some, and its threads for some
    /// members. A member from which they do not come is masked.
    #[inline(always)]
    pub(in crate::experts) fn hear_pieces(&self, limit: Deadline) {
        let said = (Count::least(self.round), Count::most(self.round));
        let mut source = Block::rank();
        while source < self.shape().ranks {
            let first = self.layout.arrived(self.round, source, 0);
            self.hear(source, first, said, limit);
            let pieces = Arrived(Count(self.load(first))).pieces();
            let mut piece = block::index();
            while piece < pieces.min(self.shape().pieces()) {
                let word = self.layout.arrived(self.round, source, piece);
                self.hear(source, word, said, limit);
                piece += blocks();
            }
            source += Block::size();
        }
    }

    /// What a source says of its tokens for an own expert in this round.
    #[inline(always)]
    pub(in crate::experts) fn packed_count(&self, local: u32, source: u32) -> Count {
        let said = Count(self.load(self.layout.arrived(self.round, source, 0)));
        let wanted = Count(self.load(self.layout.packed_count(self.round, local, source)));
        match said.is_of(self.round) {
            true => Count::new(self.round, wanted.wanted(), said.is_refused()),
            false => Count::NOTHING,
        }
    }
}
