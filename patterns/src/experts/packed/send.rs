//! A piece, its word, and the counts under one doorbell.

use crate::experts::open::{blocks, warp, warps};
use crate::experts::post::Request;
use crate::experts::{Experts, Throughput};
use warpbell::{Deadline, block, thread, warp as lanes};

/// What a half of a round sends, piece by piece.
pub(in crate::experts) trait Half {
    /// How many pieces go to a member.
    fn pieces(experts: &Experts<'_, Throughput>, rank: u32) -> u32;

    /// Makes a piece for a member, as a warp. For this member itself it is made where it belongs.
    fn make(experts: &Experts<'_, Throughput>, rank: u32, piece: u32) -> Parcel;
}

/// Words that go to a member: they have the same place in all windows.
#[derive(Clone, Copy, Debug)]
pub(in crate::experts) struct Span {
    pub from: u64,
    pub to: u64,
    pub words: u32,
}

/// A piece that is to go to a member.
#[derive(Clone, Copy, Debug)]
pub(in crate::experts) struct Parcel {
    /// What goes in front of it: the counts, or nothing.
    pub counts: Span,
    pub piece: Span,
    /// The word behind them.
    pub flag: u64,
    pub said: u64,
}

impl Experts<'_, Throughput> {
    /// Sends a half of the round to all members that are not masked, this one included. One to which not all could be posted
    /// is masked. Each block has every so many pieces, and each of its warps some members.
    #[inline(always)]
    pub(in crate::experts) fn send_pieces<H: Half>(&self, limit: Deadline) {
        let mut next = 1 + warp();
        // This member is the last one, because nobody waits for a NIC there.
        while next <= self.shape().ranks {
            let rank = self.behind(next);
            // The lanes of a warp decide alike, while others may be masking the member.
            if !lanes::any(self.is_masked(rank)) && !self.send_pieces_to::<H>(rank, limit) {
                self.team.set_mask(rank, true);
            }
            next += warps();
        }
    }

    /// Sends a block's pieces to one member, as a warp; whether all were posted.
    #[inline(always)]
    fn send_pieces_to<H: Half>(&self, rank: u32, limit: Deadline) -> bool {
        let (pieces, mut piece) = (H::pieces(self, rank), block::index());
        while piece < pieces {
            let parcel = H::make(self, rank, piece);
            if rank == self.rank() {
                self.keep_piece(parcel);
            } else if !self.post_piece(rank, parcel, limit) {
                return false;
            }
            piece += blocks();
        }
        true
    }

    /// Ends a piece for this member itself, as a warp.
    #[inline(always)]
    fn keep_piece(&self, parcel: Parcel) {
        let Parcel { counts, .. } = parcel;
        self.copy(counts.from, counts.to, counts.words);
        // All lanes' stores before the fence of the first one.
        lanes::sync();
        if lanes::lane_id() == 0 {
            // The piece before its word, by which others read it.
            thread::device_fence();
            self.words.store(parcel.flag, parcel.said);
        }
    }

    /// Posts a piece, as a warp. Its lanes' stores come before the doorbell, for which a post by the warp cares.
    #[inline(always)]
    fn post_piece(&self, rank: u32, parcel: Parcel, limit: Deadline) -> bool {
        let Parcel {
            counts,
            piece,
            flag,
            said,
        } = parcel;
        let request = match lanes::lane_id() {
            0 => Request::write((counts.from, counts.words), counts.to),
            1 => Request::write((piece.from, piece.words), piece.to),
            2 => Request::value(said, flag),
            _ => Request::NOTHING,
        };
        // SAFETY: all lanes of the warp come here with the same member, and leave together.
        unsafe { self.post(rank, request, limit) }
    }
}
