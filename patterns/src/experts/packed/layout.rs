//! Where pieces lie in a window.

use super::TOKENS;
use crate::experts::layout::HEADER;
use crate::experts::{Layout, Shape};

/// Where the parts of the throughput mode lie in each member's window, in words of 8 bytes. For R members, L experts of
/// each, a capacity of C and G pieces of a member's tokens:
///
/// ```text
/// received  [2][R][G] pieces              from each source, by parity of the round
/// arrived   [2][R][G] words               from each source, by parity of the round
/// index     [L][R][C] headers             which record is in the slot
/// packing   [R][G] pieces                 to each member
/// partial   [R][G][32] rows in bf16       sums for each source
/// landing   [R][G][32] rows in bf16       sums from each member
/// returned  [R][G] words                  from each member
/// ```
///
/// As in the low-latency mode, only one member's puts come into any piece, landing or word. `repr(C)`, 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::experts) struct Pieces {
    received: u64,
    arrived: u64,
    index: u64,
    packing: u64,
    partial: u64,
    landing: u64,
    returned: u64,
    /// Behind the last word of the window.
    pub end: u64,
}

impl Pieces {
    /// The pieces of an exchange of this shape, from a word on; none in the low-latency mode.
    pub const fn new(shape: &Shape, first: u64) -> Self {
        let (ranks, capacity) = (shape.ranks as u64, shape.capacity as u64);
        let pieces = match shape.is_packed() {
            true => ranks * shape.pieces() as u64,
            false => 0,
        };
        let slots = match shape.is_packed() {
            true => shape.experts() as u64 * capacity,
            false => 0,
        };
        let rows = pieces * TOKENS as u64 * shape.hidden_words() as u64;
        let arrived = first + 2 * pieces * shape.piece_words();
        let index = arrived + 2 * pieces;
        let packing = index + HEADER * slots;
        let partial = packing + pieces * shape.piece_words();
        let landing = partial + rows;
        let returned = landing + rows;
        Self {
            received: first,
            arrived,
            index,
            packing,
            partial,
            landing,
            returned,
            end: returned + pieces,
        }
    }
}

impl Pieces {
    /// Its words, in their order.
    #[cfg(feature = "host")]
    pub fn to_words(self) -> [u64; 8] {
        let Self {
            received,
            arrived,
            index,
            packing,
            partial,
            landing,
            returned,
            end,
        } = self;
        [
            received, arrived, index, packing, partial, landing, returned, end,
        ]
    }
}

impl Shape {
    /// How many pieces a member's tokens make at most.
    #[inline(always)]
    pub(in crate::experts) const fn pieces(&self) -> u32 {
        self.tokens.div_ceil(TOKENS)
    }

    /// Words of a piece at most: rows, a record's word for each, and a word for each of their choices.
    #[inline(always)]
    const fn piece_words(&self) -> u64 {
        TOKENS as u64 * (self.row_words() as u64 + 1 + self.top_k as u64)
    }
}

impl Layout {
    /// Bytes of the longest message that is a piece.
    #[cfg(feature = "host")]
    pub(in crate::experts) fn longest_piece(&self) -> u64 {
        let back = TOKENS * self.shape.hidden_words();
        8 * self.shape.piece_words().max(back.into())
    }

    /// A piece that comes from a source, by the round's parity: its rows.
    #[inline(always)]
    pub(in crate::experts) const fn piece(&self, round: u64, source: u32, piece: u32) -> u64 {
        self.pieces.received + self.in_round(round, source, piece) * self.shape.piece_words()
    }

    /// The row of a source's record.
    #[inline(always)]
    pub(in crate::experts) const fn record(&self, round: u64, source: u32, record: u32) -> u64 {
        let row = (record % TOKENS) as u64 * self.shape.row_words() as u64;
        self.piece(round, source, record / TOKENS) + row
    }

    /// The word by which a source says that a piece has come, by the round's parity.
    #[inline(always)]
    pub(super) const fn arrived(&self, round: u64, source: u32, piece: u32) -> u64 {
        self.pieces.arrived + self.in_round(round, source, piece)
    }

    #[inline(always)]
    const fn in_round(&self, round: u64, source: u32, piece: u32) -> u64 {
        (round & 1) * self.of_member(self.shape.ranks, 0) + self.of_member(source, piece)
    }

    #[inline(always)]
    const fn of_member(&self, rank: u32, piece: u32) -> u64 {
        rank as u64 * self.shape.pieces() as u64 + piece as u64
    }

    /// The header of what a source has sent to an own expert's slot. The record's number is in the upper half of its second
    /// word.
    #[inline(always)]
    pub(in crate::experts) const fn index(&self, local: u32, source: u32, slot: u32) -> u64 {
        let list = local as u64 * self.shape.ranks as u64 + source as u64;
        self.pieces.index + HEADER * (list * self.shape.capacity as u64 + slot as u64)
    }

    /// Where a piece for a member is packed.
    #[inline(always)]
    pub(super) const fn packing(&self, rank: u32, piece: u32) -> u64 {
        self.pieces.packing + self.of_member(rank, piece) * self.shape.piece_words()
    }

    /// The sums for a source's piece, made here.
    #[inline(always)]
    pub(super) const fn partial(&self, source: u32, piece: u32) -> u64 {
        self.pieces.partial + self.sums(source, TOKENS * piece)
    }

    /// Where the sum comes that a member has made of an own record.
    #[inline(always)]
    pub(super) const fn summed(&self, rank: u32, record: u32) -> u64 {
        self.pieces.landing + self.sums(rank, record)
    }

    #[inline(always)]
    const fn sums(&self, rank: u32, record: u32) -> u64 {
        let rows = self.of_member(rank, 0) * TOKENS as u64 + record as u64;
        rows * self.shape.hidden_words() as u64
    }

    /// The word by which a member says that its sums of a piece have come.
    #[inline(always)]
    pub(super) const fn returned(&self, rank: u32, piece: u32) -> u64 {
        self.pieces.returned + self.of_member(rank, piece)
    }
}

#[cfg(all(test, not(loom)))]
impl Layout {
    /// Names all words of pieces, for a test that each has one use.
    pub(in crate::experts) fn pieces_of(&self, mut take: impl FnMut(u64, u64)) {
        let Shape { ranks, top_k, .. } = self.shape;
        let (row, hidden) = (self.shape.row_words(), self.shape.hidden_words());
        let trailer = u64::from(TOKENS * (1 + top_k));
        for rank in 0..ranks {
            for piece in 0..self.shape.pieces() {
                for round in 0..2 {
                    for record in TOKENS * piece..TOKENS * (piece + 1) {
                        take(self.record(round, rank, record), row.into());
                    }
                    let rows = u64::from(TOKENS * row);
                    take(self.piece(round, rank, piece) + rows, trailer);
                    take(self.arrived(round, rank, piece), 1);
                }
                take(self.packing(rank, piece), self.shape.piece_words());
                take(self.partial(rank, piece), (TOKENS * hidden).into());
                take(self.summed(rank, TOKENS * piece), (TOKENS * hidden).into());
                take(self.returned(rank, piece), 1);
            }
        }
    }
}
