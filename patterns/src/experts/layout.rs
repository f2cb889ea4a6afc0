//! Where things lie in the window of a member: the same at all members.

use super::packed::Pieces;
use super::{Format, Shape};

/// Words of the header in front of each token that comes: its values then begin at a multiple of 16 bytes.
pub(super) const HEADER: u64 = 2;

/// Words of a member's state: the call it is at, tokens of the round.
const STATE: u64 = 2;

/// Words for a round's errors: how many there were, and the first one.
const ERRORS: u64 = 2;

/// Where things lie in each member's window, in words of 8 bytes. For R members, L experts of each, E in all, K experts of a
/// token, T tokens and a capacity of C:
///
/// ```text
/// tokens    [T] rows in bf16                     the caller's
/// choices   [T][K] words                         the caller's
/// received  [2][L][R][C] headers and rows        from each source, by parity of the round
/// counts    [2][L][R] words                      from each source, by parity of the round
/// outputs   [L][R][C] rows in bf16               the caller's
/// landing   [E][C] rows in bf16                  from each expert
/// flags     [E] words                            from each expert
/// results   [T] rows in bf16                     the caller reads them
/// staging   [T] rows in fp8                      none for bf16
/// headers   [T][K] headers
/// lists     [E][C] words                         which token and choice has the slot
/// places    [T][K] words                         which expert and slot the choice has
/// counters  [2] times [E] words and two more     by parity of the round
/// state     2 words
/// ```
///
/// In the throughput mode there are no received rows, landing, flags and lists, and pieces follow instead. Its counts are
/// `[2][R][L]`, so that those of a source lie together.
///
/// Only one member's puts come into any row, count or flag: one that comes late, from a member that is masked, harms no
/// other's. `repr(C)`, 208 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub(super) shape: Shape,
    pub(super) choices: u64,
    received: u64,
    counts: u64,
    outputs: u64,
    landing: u64,
    flags: u64,
    results: u64,
    staging: u64,
    headers: u64,
    lists: u64,
    places: u64,
    counters: u64,
    pub(super) state: u64,
    pub(super) pieces: Pieces,
}

const _: () = assert!(size_of::<Layout>() == 208);

impl Layout {
    /// The layout of an exchange of this shape, whose numbers are those that a configuration may have: then no number
    /// wraps.
    pub const fn new(shape: Shape) -> Self {
        let (ranks, local) = (shape.ranks as u64, shape.local as u64);
        let (tokens, capacity) = (shape.tokens as u64, shape.capacity as u64);
        let (experts, pairs) = (ranks * local, tokens * shape.top_k as u64);
        let (hidden, row) = (shape.hidden_words() as u64, shape.row_words() as u64);
        let staged = match shape.format {
            Format::Bf16 => 0,
            Format::Fp8 => tokens * row,
        };
        let (slots, flagged) = match shape.is_packed() {
            true => (0, 0),
            false => (experts * capacity, experts),
        };
        let choices = tokens * hidden;
        // Rows begin at multiples of 16 bytes wherever it is without cost.
        let received = (choices + pairs).next_multiple_of(2);
        let counts = received + 2 * slots * (HEADER + row);
        let outputs = counts + 2 * experts;
        let landing = outputs + experts * capacity * hidden;
        let flags = landing + slots * hidden;
        let results = (flags + flagged).next_multiple_of(2);
        let staging = results + tokens * hidden;
        let headers = staging + staged;
        let lists = headers + HEADER * pairs;
        let places = lists + slots;
        let counters = places + pairs;
        let state = counters + 2 * (experts + ERRORS);
        Self {
            shape,
            choices,
            received,
            counts,
            outputs,
            landing,
            flags,
            results,
            staging,
            headers,
            lists,
            places,
            counters,
            state,
            pieces: Pieces::new(&shape, (state + STATE).next_multiple_of(2)),
        }
    }

    /// Its words, in the order of its bytes on a little-endian machine.
    #[cfg(feature = "host")]
    pub(super) fn to_words(self) -> [u64; 26] {
        let Self {
            shape,
            choices,
            received,
            counts,
            outputs,
            landing,
            flags,
            ..
        } = self;
        let [a, b, c, d, e, f, g, end] = self.pieces.to_words();
        let two = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        [
            two(shape.ranks, shape.local),
            two(shape.hidden, shape.top_k),
            two(shape.tokens, shape.capacity),
            two(shape.format as u32, shape.overflow as u32),
            two(shape.mode as u32, 0),
            choices,
            received,
            counts,
            outputs,
            landing,
            flags,
            self.results,
            self.staging,
            self.headers,
            self.lists,
            self.places,
            self.counters,
            self.state,
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            end,
        ]
    }

    /// The numbers of the exchange.
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// Words of the window.
    pub const fn words(&self) -> u64 {
        self.pieces.end
    }

    /// The row that a member sends: its first word.
    #[inline(always)]
    pub const fn token(&self, token: u32) -> u64 {
        token as u64 * self.shape.hidden_words() as u64
    }

    /// The word of a token's choice number `k`.
    #[inline(always)]
    pub const fn choice(&self, token: u32, k: u32) -> u64 {
        self.choices + token as u64 * self.shape.top_k as u64 + k as u64
    }

    /// The header of what a source sends to an own expert, by the round's parity; the row follows.
    #[inline(always)]
    pub const fn received(&self, round: u64, local: u32, source: u32, slot: u32) -> u64 {
        let words = HEADER + self.shape.row_words() as u64;
        let slots = self.by_parity(round, local, source) * self.shape.capacity as u64;
        self.received + (slots + slot as u64) * words
    }

    /// The word by which a source says how much it sends to an own expert, by the round's parity.
    #[inline(always)]
    pub const fn count(&self, round: u64, local: u32, source: u32) -> u64 {
        self.counts + self.by_parity(round, local, source)
    }

    /// The word in which a source counts its tokens for an own expert, by the round's parity, where tokens travel packed.
    #[inline(always)]
    pub const fn packed_count(&self, round: u64, local: u32, source: u32) -> u64 {
        let member = (round & 1) * self.shape.ranks as u64 + source as u64;
        self.counts + member * self.shape.local as u64 + local as u64
    }

    #[inline(always)]
    const fn by_parity(&self, round: u64, local: u32, source: u32) -> u64 {
        let expert = (round & 1) * self.shape.local as u64 + local as u64;
        expert * self.shape.ranks as u64 + source as u64
    }

    /// The row that an own expert makes of what a source sent.
    #[inline(always)]
    pub const fn output(&self, local: u32, source: u32, slot: u32) -> u64 {
        let pair = local as u64 * self.shape.ranks as u64 + source as u64;
        self.outputs + self.row(pair, slot)
    }

    /// Where the row comes back that an expert made of what this member sent.
    #[inline(always)]
    pub const fn landing(&self, expert: u32, slot: u32) -> u64 {
        self.landing + self.row(expert as u64, slot)
    }

    #[inline(always)]
    const fn row(&self, list: u64, slot: u32) -> u64 {
        (list * self.shape.capacity as u64 + slot as u64) * self.shape.hidden_words() as u64
    }

    /// The word by which an expert says that its rows have come back.
    #[inline(always)]
    pub const fn flag(&self, expert: u32) -> u64 {
        self.flags + expert as u64
    }

    /// The row of a token's weighted sum.
    #[inline(always)]
    pub const fn result(&self, token: u32) -> u64 {
        self.results + token as u64 * self.shape.hidden_words() as u64
    }

    /// The row of a token as it travels.
    #[inline(always)]
    pub const fn travelling(&self, token: u32) -> u64 {
        match self.shape.format {
            Format::Bf16 => self.token(token),
            Format::Fp8 => self.staging + token as u64 * self.shape.row_words() as u64,
        }
    }

    /// The header of a choice, numbered over all tokens.
    #[inline(always)]
    pub const fn header(&self, pair: u32) -> u64 {
        self.headers + HEADER * pair as u64
    }

    /// The word that says which expert and slot a choice has, numbered over all tokens.
    #[inline(always)]
    pub const fn place(&self, pair: u32) -> u64 {
        self.places + pair as u64
    }

    /// The word that says which token and choice has an expert's slot.
    #[inline(always)]
    pub const fn listed(&self, expert: u32, slot: u32) -> u64 {
        self.lists + expert as u64 * self.shape.capacity as u64 + slot as u64
    }

    /// The word that counts the tokens for an expert, by the round's parity.
    #[inline(always)]
    pub const fn counter(&self, round: u64, expert: u32) -> u64 {
        self.counters + (round & 1) * self.counted() + expert as u64
    }

    /// The word that counts a round's errors, by its parity; the first one is in the next word.
    #[inline(always)]
    pub const fn errors(&self, round: u64) -> u64 {
        self.counter(round, self.shape.experts())
    }

    /// Words from the first counter of a round to behind its errors.
    #[inline(always)]
    pub const fn counted(&self) -> u64 {
        self.shape.experts() as u64 + ERRORS
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Mode, Overflow};
    use super::*;

    /// Each word has one use, for every format, and few have none.
    #[test]
    fn nothing_overlaps() {
        for (format, mode) in [
            (Format::Bf16, Mode::LowLatency),
            (Format::Fp8, Mode::LowLatency),
            (Format::Bf16, Mode::Throughput),
            (Format::Fp8, Mode::Throughput),
        ] {
            let shape = Shape {
                ranks: 3,
                local: 2,
                hidden: 256,
                top_k: 3,
                tokens: 5,
                capacity: 4,
                format,
                overflow: Overflow::Drop,
                mode,
            };
            let layout = Layout::new(shape);
            let mut used = vec![false; layout.words() as usize];
            let mut take = |word: u64, words: u64| {
                for used in &mut used[word as usize..(word + words) as usize] {
                    assert!(!std::mem::replace(used, true));
                }
            };
            for token in 0..5 {
                take(layout.token(token), 64);
                take(layout.result(token), 64);
                if format == Format::Fp8 {
                    take(layout.travelling(token), 33);
                }
                (0..3).for_each(|k| take(layout.choice(token, k), 1));
            }
            for pair in 0..15 {
                take(layout.header(pair), 2);
                take(layout.place(pair), 1);
            }
            for round in 0..2 {
                for (local, source) in (0..2).flat_map(|local| (0..3).map(move |s| (local, s))) {
                    match shape.is_packed() {
                        true => take(layout.packed_count(round, local, source), 1),
                        false => take(layout.count(round, local, source), 1),
                    }
                    for slot in 0..4 {
                        if !shape.is_packed() {
                            let row = u64::from(shape.row_words());
                            take(layout.received(round, local, source, slot), 2 + row);
                        } else if round == 0 {
                            take(layout.index(local, source, slot), 2);
                        }
                        if round == 0 {
                            take(layout.output(local, source, slot), 64);
                        }
                    }
                }
                (0..6).for_each(|expert| take(layout.counter(round, expert), 1));
                take(layout.errors(round), 2);
            }
            if shape.is_packed() {
                layout.pieces_of(&mut take);
            }
            for expert in (0..6).filter(|_| !shape.is_packed()) {
                take(layout.flag(expert), 1);
                for slot in 0..4 {
                    take(layout.landing(expert, slot), 64);
                    take(layout.listed(expert, slot), 1);
                }
            }
            take(layout.state, 2);
            let unused = used.iter().filter(|used| !**used).count();
            assert!(unused <= 3, "{unused}");
        }
    }
}
