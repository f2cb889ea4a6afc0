//! All-to-all with a number of its own for each pair of members.

use super::error::Verdict;
use super::exchange::{ALL, Exchanging};
use super::link::{Call, Span};
use super::local::{apart, words_of};
use super::plan::Part;
use super::{Error, Extent, Team};
use crate::number::Number;
use warpbell::{Deadline, Scope};

/// Words of a table for each member: where its numbers lie in this window, in bytes, and how many there are.
const ENTRY: u64 = 2;

/// What a signal says in place of 1, where the two members' counts differ and nothing was sent.
const REFUSED: u64 = 2;

impl<'a, X: Extent> Team<'a, X> {
    /// Sends each member as many numbers as a table says, from where it says; what comes goes where a second table says.
    ///
    /// The tables lie in this window, at the offsets `sends` and `takes`. They have two words for each member, with this one:
    /// an offset in this window, in bytes, and a count. What a member takes from another one is as much as that one sends to
    /// it. Nothing that comes overlaps with anything that goes, with anything else that comes, or with a table.
    ///
    /// A thread may have stored the tables before; if it is another block's, the blocks have met since, by any call. A member
    /// that does not come in time is masked, and the others go on without it.
    ///
    /// # Errors
    /// [`Error::Uneven`], [`Error::Outside`], also beyond 32 GiB; [`Error::Overlap`]; [`Error::Disagrees`] also with a
    /// member whose count differs, which could be this one; [`Error::Late`], [`Error::Failed`], [`Error::Blocks`].
    #[inline(always)]
    pub fn all_to_all_v<T: Number>(
        &mut self,
        sends: u64,
        takes: u64,
        limit: Deadline,
    ) -> Result<(), Error> {
        let limit = limit.fixed();
        let begun = self.begin_on_terms::<T>(sends, takes, limit)?;
        self.end_exchange(ALL, begun, limit)
    }

    /// Begins an [`all_to_all_v`](Self::all_to_all_v). The tables may be changed as soon as all threads are back.
    ///
    /// # Errors
    /// What is refused before anything is sent; all else [`Exchanging::finish`] says.
    #[inline(always)]
    pub fn begin_all_to_all_v<'t, T: Number>(
        &'t mut self,
        sends: u64,
        takes: u64,
        limit: Deadline,
    ) -> Result<Exchanging<'t, 'a, X>, Error> {
        let begun = self.begin_on_terms::<T>(sends, takes, limit.fixed())?;
        Ok(Exchanging::new(self, ALL, begun))
    }

    #[inline(always)]
    fn begin_on_terms<T: Number>(
        &mut self,
        sends: u64,
        takes: u64,
        limit: Deadline,
    ) -> Result<Verdict, Error> {
        let words = ENTRY * u64::from(self.ranks());
        let (sends, takes) = (
            self.handle.user_span(sends, words)?,
            self.handle.user_span(takes, words)?,
        );
        // The threads' stores, before any of them looks.
        X::Unit::sync();
        self.check_tables::<T>(sends, takes)?;
        self.enter(limit)?;
        let (from, to) = (
            self.entry::<T>(sends, self.rank())?,
            self.entry::<T>(takes, self.rank())?,
        );
        let part = self.part(from.words);
        self.copy(from.first + part.first, to.first + part.first, part.words);
        Ok(self.send_on_terms::<T>(sends, takes, limit))
    }

    /// Looks at all entries, with all threads of the unit: they get the same answer.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn check_tables<T: Number>(&self, sends: u64, takes: u64) -> Result<(), Error> {
        let table = ENTRY * u64::from(self.ranks());
        let mut rank = 0;
        while rank < self.ranks() {
            let (sent, taken) = (self.entry::<T>(sends, rank)?, self.entry::<T>(takes, rank)?);
            if rank == self.rank() && sent.words != taken.words {
                return Err(Error::Disagrees { rank });
            }
            rank += 1;
        }
        // Each thread has its share of what comes.
        let (mut overlaps, mut row) = (false, X::Unit::rank());
        while row < self.ranks() {
            let Part { first, words } = self.entry::<T>(takes, row)?;
            let comes = (first, words);
            overlaps |= apart(comes, (sends, table)).is_err();
            overlaps |= apart(comes, (takes, table)).is_err();
            let mut rank = 0;
            while rank < self.ranks() {
                let Part { first, words } = self.entry::<T>(sends, rank)?;
                overlaps |= apart(comes, (first, words)).is_err();
                let Part { first, words } = self.entry::<T>(takes, rank)?;
                overlaps |= rank != row && apart(comes, (first, words)).is_err();
                rank += 1;
            }
            row += X::Unit::size();
        }
        match X::Unit::any(overlaps) {
            true => Err(Error::Overlap),
            false => Ok(()),
        }
    }

    /// A member's entry of a table: words of this window, as many as terms can say.
    #[inline(always)]
    fn entry<T: Number>(&self, table: u64, rank: u32) -> Result<Part, Error> {
        let (window, place) = (self.handle.window, table + ENTRY * u64::from(rank));
        let offset = window.load(place).unwrap_or(u64::MAX);
        let words = words_of::<T>(window.load(place + 1).unwrap_or(u64::MAX))?;
        let first = self.handle.user_span(offset, words)?;
        match (first | words) >> 32 {
            0 => Ok(Part { first, words }),
            _ => Err(Error::outside(offset)),
        }
    }

    /// Says to the members that this thread serves where this one takes what comes, and that it is here; sends to each of them
    /// once it has said the same.
    ///
    /// The terms lie there until they are read: a member says new ones in the next such call alone, and so has got what was
    /// sent in this one by them.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn send_on_terms<T: Number>(&self, sends: u64, takes: u64, limit: Deadline) -> Verdict {
        let shape = self.shape::<T>(Call::AllToAllV, 0, 0, 0);
        let mut verdict = Verdict::GOOD;
        for rank in self.others() {
            if self.handle.is_masked(rank) {
                continue;
            }
            let said = match self.entry::<T>(takes, rank) {
                Ok(Part { first, words }) => {
                    let word = self.handle.layout.terms(self.channel, self.rank());
                    let said = self.tell(rank, (word, first << 32 | words), limit);
                    match said.is_bad() {
                        true => said,
                        false => self.announce(rank, shape, limit),
                    }
                }
                Err(error) => Verdict::bad(error),
            };
            verdict = verdict.and(self.or_masked(rank, said));
        }
        for rank in self.others() {
            if self.handle.is_masked(rank) {
                continue;
            }
            let mut came = self.hear(rank, shape, limit);
            if !came.is_bad() {
                came = match self.entry::<T>(sends, rank) {
                    Ok(sent) => self.send_if_agreed(rank, sent, limit),
                    Err(error) => Verdict::bad(error),
                };
            }
            verdict = verdict.and(self.or_masked(rank, came));
        }
        verdict
    }

    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn send_if_agreed(&self, rank: u32, Part { first, words }: Part, limit: Deadline) -> Verdict {
        let word = self.handle.layout.terms(self.channel, rank);
        // Behind the member's announcement, which came behind it.
        let terms = self.handle.window.load(word).unwrap_or(0);
        let agreed = terms & u64::from(u32::MAX) == words;
        let part = self.part(if agreed { words } else { 0 });
        let span = Span {
            from: first + part.first,
            to: (terms >> 32) + part.first,
            words: part.words,
        };
        let says = if agreed { 1 } else { REFUSED };
        match (self.send(rank, span, says, limit), agreed) {
            (sent, true) => sent,
            (sent, false) => sent.and(Verdict::bad(Error::Disagrees { rank })),
        }
    }
}
