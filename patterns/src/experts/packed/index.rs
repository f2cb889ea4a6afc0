//! Which record is in which slot.

use super::TOKENS;
use super::word::{Arrived, Entry, Record};
use crate::experts::open::{blocks, warp, warps};
use crate::experts::send::sum_up_to_here;
use crate::experts::word::{Choice, Count, Header};
use crate::experts::{Experts, Throughput};
use warpbell::{block, warp as lanes};

/// A piece that has come, as the lanes of a warp have it: one record each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Come {
    /// How many records it has.
    pub records: u32,
    /// This lane's; without choices, if there are fewer.
    pub record: Record,
    /// The word of the first one of its choices.
    pub entries: u64,
}

impl Experts<'_, Throughput> {
    /// Says for each slot of each own expert which record is there, each block for some pieces, and its warps for some
    /// members. All pieces have come.
    #[inline(always)]
    pub(in crate::experts) fn unpack_all(&self) {
        let mut source = warp();
        while source < self.shape().ranks {
            let mut piece = block::index();
            while piece < self.shape().pieces() && !lanes::any(self.is_masked(source)) {
                self.unpack_piece(source, piece);
                piece += blocks();
            }
            source += warps();
        }
    }

    #[inline(always)]
    fn unpack_piece(&self, source: u32, piece: u32) {
        let Come {
            record, entries, ..
        } = self.come(source, piece);
        let number = TOKENS * piece + lanes::lane_id();
        let (mut left, mut from) = (record.choices(), entries);
        while left != 0 {
            let entry = self.entry(from);
            if !entry.is_none() {
                let (local, slot) = (entry.local(), entry.slot());
                let choice = Choice((entry.weight_bits() as u64) << 32);
                let [first, second] = Header::words(record.token(), left.trailing_zeros(), choice);
                let index = self.layout.index(local, source, slot);
                self.words.store(index, first);
                self.words
                    .store(index + 1, u64::from(number) << 32 | second);
            }
            from += 1;
            left &= left - 1;
        }
    }

    /// A piece that has come from a source; without records, if there is none in this round.
    #[inline(always)]
    pub(super) fn come(&self, source: u32, piece: u32) -> Come {
        let (lane, word) = (
            lanes::lane_id(),
            self.layout.arrived(self.round, source, piece),
        );
        // One lane's value, because a member that is late may be writing.
        let said = Arrived(Count(lanes::broadcast(self.load(word))));
        let records = said.tokens(self.round);
        let row = u64::from(self.shape().row_words());
        let trailer = self.layout.piece(self.round, source, piece) + u64::from(records) * row;
        let mut record = Record(0);
        if lane < records {
            record = Record(self.load(trailer + u64::from(lane)));
        }
        let count = record.choices().count_ones();
        let before = sum_up_to_here(count) - count;
        Come {
            records,
            record,
            entries: trailer + u64::from(records + before),
        }
    }

    /// One of a record's choices, or none if it names what is not there.
    #[inline(always)]
    pub(super) fn entry(&self, word: u64) -> Entry {
        let entry = Entry(self.load(word));
        match entry.local() < self.shape().local && entry.slot() < self.shape().capacity {
            true => entry,
            false => Entry::NONE,
        }
    }
}
