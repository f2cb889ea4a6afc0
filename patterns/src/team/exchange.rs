//! Calls in which each member sends to others what they want of it, directly: broadcast, all-gather, all-to-all.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use super::error::Verdict;
use super::link::{Call, Span, shape};
use super::local::{apart, words_of};
use super::{Error, Extent, Team};
use crate::number::Number;
use warpbell::Deadline;

/// All members send.
pub(super) const ALL: u32 = u32::MAX;

/// What a unit of a member sends to each other one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange {
    /// The first word of what goes to member 0.
    pub from: u64,
    /// Words from what goes to one member to what goes to the next.
    pub stride: u64,
    /// Where it goes, at each of them.
    pub to: u64,
    /// How many.
    pub words: u64,
    /// Where this member's own words lie.
    pub own: u64,
    /// Who sends: one member, or [`ALL`].
    pub root: u32,
    /// Of the call.
    pub shape: u64,
}

/// An exchange that has begun: [`Team::begin_all_gather`] and its likes.
///
/// Until [`finish`](Self::finish) nobody stores to what the call reads, or touches what it writes.
#[must_use = "the call ends with `finish`"]
#[derive(Debug)]
pub struct Exchanging<'t, 'a, X: Extent> {
    team: ManuallyDrop<Team<'a, X>>,
    root: u32,
    /// Of this thread.
    begun: Verdict,
    _team: PhantomData<&'t mut Team<'a, X>>,
}

impl<'a, X: Extent> Exchanging<'_, 'a, X> {
    #[inline(always)]
    pub(super) fn new(team: &mut Team<'a, X>, root: u32, begun: Verdict) -> Self {
        Self {
            team: team.copied(),
            root,
            begun,
            _team: PhantomData,
        }
    }

    /// Ends the call, with all threads of the extent: what was to come is here, and what was sent may be overwritten.
    ///
    /// # Errors
    /// Those of the call. What members sent that the error does not name has come all the same, unless they disagree.
    #[inline(always)]
    pub fn finish(self, limit: Deadline) -> Result<(), Error> {
        self.team.end_exchange(self.root, self.begun, limit.fixed())
    }
}

impl<'a, X: Extent> Team<'a, X> {
    /// Copies `count` numbers of member `root` at `from` to all members at `to`; in place if both are the same.
    ///
    /// A member that does not come in time is masked, and the others go on without it.
    ///
    /// # Errors
    /// [`Error::NoRank`], [`Error::Uneven`], [`Error::Outside`], [`Error::Overlap`]; [`Error::Disagrees`];
    /// [`Error::Masked`] if `root` is; [`Error::Late`], [`Error::Failed`], [`Error::Blocks`].
    #[inline(always)]
    pub fn broadcast<T: Number>(
        &mut self,
        root: u32,
        from: u64,
        to: u64,
        count: u64,
        limit: Deadline,
    ) -> Result<(), Error> {
        let limit = limit.fixed();
        let what = self.broadcast_plan::<T>(root, from, to, count)?;
        let begun = self.begin_exchange(&what, limit)?;
        self.end_exchange(what.root, begun, limit)
    }

    /// Begins a [`broadcast`](Self::broadcast).
    ///
    /// # Errors
    /// What is refused before anything is sent; all else [`Exchanging::finish`] says.
    #[inline(always)]
    pub fn begin_broadcast<'t, T: Number>(
        &'t mut self,
        root: u32,
        from: u64,
        to: u64,
        count: u64,
        limit: Deadline,
    ) -> Result<Exchanging<'t, 'a, X>, Error> {
        let what = self.broadcast_plan::<T>(root, from, to, count)?;
        let begun = self.begin_exchange(&what, limit.fixed())?;
        Ok(Exchanging::new(self, what.root, begun))
    }

    #[inline(always)]
    fn broadcast_plan<T: Number>(
        &self,
        root: u32,
        from: u64,
        to: u64,
        count: u64,
    ) -> Result<Exchange, Error> {
        if root >= self.ranks() {
            return Err(Error::NoRank { rank: root });
        }
        let words = words_of::<T>(count)?;
        let (from, to) = (
            self.handle.user_span(from, words)?,
            self.handle.user_span(to, words)?,
        );
        if from != to {
            apart((from, words), (to, words))?;
        }
        let part = self.part(words);
        let own = match self.rank() == root {
            true => from,
            false => to,
        };
        Ok(Exchange {
            from: from + part.first,
            stride: 0,
            to: to + part.first,
            words: part.words,
            own: own + part.first,
            root,
            shape: self.shape::<T>(Call::Broadcast, root, to, words),
        })
    }

    /// Puts `count` numbers of each member at `from` one behind the other at `to`, in the members' order, at all of them; in
    /// place if `from` is where they go at this member.
    ///
    /// A member that does not come in time is masked, and the others go on without it.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast), but for `Masked` and `NoRank`.
    #[inline(always)]
    pub fn all_gather<T: Number>(
        &mut self,
        from: u64,
        to: u64,
        count: u64,
        limit: Deadline,
    ) -> Result<(), Error> {
        let limit = limit.fixed();
        let what = self.all_gather_plan::<T>(from, to, count)?;
        let begun = self.begin_exchange(&what, limit)?;
        self.end_exchange(what.root, begun, limit)
    }

    /// Begins an [`all_gather`](Self::all_gather).
    ///
    /// # Errors
    /// What is refused before anything is sent; all else [`Exchanging::finish`] says.
    #[inline(always)]
    pub fn begin_all_gather<'t, T: Number>(
        &'t mut self,
        from: u64,
        to: u64,
        count: u64,
        limit: Deadline,
    ) -> Result<Exchanging<'t, 'a, X>, Error> {
        let what = self.all_gather_plan::<T>(from, to, count)?;
        let begun = self.begin_exchange(&what, limit.fixed())?;
        Ok(Exchanging::new(self, what.root, begun))
    }

    #[inline(always)]
    fn all_gather_plan<T: Number>(
        &self,
        from: u64,
        to: u64,
        count: u64,
    ) -> Result<Exchange, Error> {
        let words = words_of::<T>(count)?;
        let all = words.saturating_mul(self.ranks().into());
        let (from, to) = (
            self.handle.user_span(from, words)?,
            self.handle.user_span(to, all)?,
        );
        let own = to + words * u64::from(self.rank());
        if from != own {
            apart((from, words), (to, all))?;
        }
        let part = self.part(words);
        Ok(Exchange {
            from: from + part.first,
            stride: 0,
            to: own + part.first,
            words: part.words,
            own: from + part.first,
            root: ALL,
            shape: self.shape::<T>(Call::AllGather, 0, to, words),
        })
    }

    /// Sends `count` numbers to each member: those for member 0 at `from`, then those for member 1, and so on; what
    /// comes lies at `to` in the same order. It is not made in place.
    ///
    /// A member that does not come in time is masked, and the others go on without it.
    ///
    /// # Errors
    /// As [`all_gather`](Self::all_gather).
    #[inline(always)]
    pub fn all_to_all<T: Number>(
        &mut self,
        from: u64,
        to: u64,
        count: u64,
        limit: Deadline,
    ) -> Result<(), Error> {
        let limit = limit.fixed();
        let what = self.all_to_all_plan::<T>(from, to, count)?;
        let begun = self.begin_exchange(&what, limit)?;
        self.end_exchange(what.root, begun, limit)
    }

    /// Begins an [`all_to_all`](Self::all_to_all).
    ///
    /// # Errors
    /// What is refused before anything is sent; all else [`Exchanging::finish`] says.
    #[inline(always)]
    pub fn begin_all_to_all<'t, T: Number>(
        &'t mut self,
        from: u64,
        to: u64,
        count: u64,
        limit: Deadline,
    ) -> Result<Exchanging<'t, 'a, X>, Error> {
        let what = self.all_to_all_plan::<T>(from, to, count)?;
        let begun = self.begin_exchange(&what, limit.fixed())?;
        Ok(Exchanging::new(self, what.root, begun))
    }

    #[inline(always)]
    fn all_to_all_plan<T: Number>(
        &self,
        from: u64,
        to: u64,
        count: u64,
    ) -> Result<Exchange, Error> {
        let words = words_of::<T>(count)?;
        let all = words.saturating_mul(self.ranks().into());
        let (from, to) = (
            self.handle.user_span(from, all)?,
            self.handle.user_span(to, all)?,
        );
        apart((from, all), (to, all))?;
        let (part, own) = (self.part(words), words * u64::from(self.rank()));
        Ok(Exchange {
            from: from + part.first,
            stride: words,
            to: to + own + part.first,
            words: part.words,
            own: from + own + part.first,
            root: ALL,
            shape: self.shape::<T>(Call::AllToAll, 0, to, words),
        })
    }

    /// Begins an exchange, with all threads of the extent.
    #[inline(always)]
    fn begin_exchange(&mut self, what: &Exchange, limit: Deadline) -> Result<Verdict, Error> {
        self.enter(limit)?;
        let sent = self.send_as_they_come(what, limit);
        self.copy(what.own, what.to, what.words);
        Ok(sent.and(self.is_there(what.root)))
    }

    /// Ends it.
    #[inline(always)]
    pub(super) fn end_exchange(
        &self,
        root: u32,
        begun: Verdict,
        limit: Deadline,
    ) -> Result<(), Error> {
        let taken = self.take(root, begun, limit);
        self.settle(begun.and(taken), limit)
    }

    /// Says to the members that this thread serves that this one is here, and sends to each of them once it is, too.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn send_as_they_come(&self, what: &Exchange, limit: Deadline) -> Verdict {
        let mut verdict = self.announce_all(what.shape, limit);
        for rank in self.others() {
            if self.handle.is_masked(rank) {
                continue;
            }
            let mut came = self.hear(rank, what.shape, limit);
            if !came.is_bad() && self.sends(what.root) {
                let span = Span {
                    from: what.from + what.stride * u64::from(rank),
                    to: what.to,
                    words: what.words,
                };
                came = self.send(rank, span, 1, limit);
            }
            verdict = verdict.and(self.or_masked(rank, came));
        }
        verdict
    }

    /// Waits until what is sent to this member has come from those that this thread serves, and until what was sent to them
    /// is complete.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn take(&self, root: u32, begun: Verdict, limit: Deadline) -> Verdict {
        // Who makes another call sends nothing.
        let waits = !begun.is_disagreement();
        let mut verdict = Verdict::GOOD;
        for rank in self.others() {
            if self.handle.is_masked(rank) {
                continue;
            }
            let mut done = Verdict::GOOD;
            if waits & (root == ALL || root == rank) {
                done = self.taken(rank, limit);
            }
            if self.sends(root) {
                done = done.and(self.complete(rank, limit));
            }
            verdict = verdict.and(self.or_masked(rank, done));
        }
        verdict
    }

    /// Sends all that a member gets in this call, and behind it what `says` that.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn send(&self, rank: u32, span: Span, says: u64, limit: Deadline) -> Verdict {
        let word = self.handle.layout.arrived(self.channel, self.rank());
        self.post(rank, span, (word, self.said(says)), limit)
    }

    /// Waits, as one thread, until all has come that a member sends in this call.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn taken(&self, rank: u32, limit: Deadline) -> Verdict {
        let word = self.handle.layout.arrived(self.channel, rank);
        match self.signalled(word, self.said(1), limit) {
            0 => Verdict::bad(Error::Late { rank }),
            said if said == self.said(1) => Verdict::GOOD,
            // It has sent nothing, because the counts differ.
            _ => Verdict::bad(Error::Disagrees { rank }),
        }
    }

    #[inline(always)]
    fn sends(&self, root: u32) -> bool {
        root == ALL || root == self.rank()
    }

    /// Whether the one that all others need is not masked.
    #[inline(always)]
    fn is_there(&self, root: u32) -> Verdict {
        match self.handle.is_masked(root) {
            true => Verdict::bad(Error::Masked { rank: root }),
            false => Verdict::GOOD,
        }
    }

    /// A call's shape: its numbers, those of the type and of the grid's blocks.
    #[inline(always)]
    pub(super) fn shape<T: Number>(&self, call: Call, which: u32, to: u64, words: u64) -> u64 {
        let kinds = u64::from(T::KIND) << 60 | u64::from(which) << 28 | u64::from(X::units());
        shape(call, [kinds, to, words])
    }
}
