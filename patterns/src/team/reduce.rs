//! Sums over all members: all-reduce and reduce-scatter.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use super::error::Verdict;
use super::exchange::{ALL, Exchange};
use super::link::{Call, Span};
use super::local::{apart, words_of};
use super::plan::{Algorithm, Part, Sum};
use super::{Error, Extent, Team};
use crate::number::Number;
use warpbell::{Deadline, Scope};

/// A sum that has begun: [`Team::begin_all_reduce`], [`Team::begin_reduce_scatter`].
///
/// Until [`finish`](Self::finish) nobody stores to what the call reads, or touches what it writes.
#[must_use = "the call ends with `finish`"]
#[derive(Debug)]
pub struct Reducing<'t, 'a, X: Extent, T: Number> {
    team: ManuallyDrop<Team<'a, X>>,
    sum: Sum,
    /// Of this thread.
    begun: Verdict,
    _team: PhantomData<(&'t mut Team<'a, X>, T)>,
}

impl<X: Extent, T: Number> Reducing<'_, '_, X, T> {
    /// Ends the call, with all threads of the extent: the sums are there, and what was sent may be overwritten.
    ///
    /// # Errors
    /// Those of the call. What it writes is undetermined then.
    #[inline(always)]
    pub fn finish(mut self, limit: Deadline) -> Result<(), Error> {
        let limit = limit.fixed();
        let verdict = self.team.make_sum::<T, true>(&self.sum, self.begun, limit);
        self.team.settle(verdict, limit)
    }
}

impl<'a, X: Extent> Team<'a, X> {
    /// Adds up `count` numbers at `from` of all members, number by number, and puts the sums to all of them at `to`; in
    /// place if both are the same. The sums are the same at all members, bit by bit: [`Algorithm`] has the order.
    ///
    /// # Errors
    /// [`Error::Uneven`], [`Error::Outside`], [`Error::Overlap`], [`Error::Scratch`]; [`Error::Ranks`] for
    /// [`Algorithm::Doubling`] among members that are no power of 2; [`Error::Disagrees`]; [`Error::Masked`] if any
    /// member is; [`Error::Late`], [`Error::Failed`], [`Error::Blocks`].
    ///
    /// A member that does not come to the call is masked; so is by [`Algorithm::Direct`] one that sends nothing. By
    /// the other algorithms it is not: it may itself wait for another one.
    #[inline(always)]
    pub fn all_reduce<T: Number>(
        &mut self,
        algorithm: Algorithm,
        from: u64,
        to: u64,
        count: u64,
        limit: Deadline,
    ) -> Result<(), Error> {
        let limit = limit.fixed();
        let sum = self.all_reduce_plan::<T>(algorithm, from, to, count)?;
        self.enter(limit)?;
        let verdict = self.make_sum::<T, false>(&sum, Verdict::GOOD, limit);
        self.settle(verdict, limit)
    }

    /// Begins an [`all_reduce`](Self::all_reduce): what can be sent before anything is added is sent.
    ///
    /// # Errors
    /// What is refused before anything is sent; all else [`Reducing::finish`] says.
    #[inline(always)]
    pub fn begin_all_reduce<'t, T: Number>(
        &'t mut self,
        algorithm: Algorithm,
        from: u64,
        to: u64,
        count: u64,
        limit: Deadline,
    ) -> Result<Reducing<'t, 'a, X, T>, Error> {
        let sum = self.all_reduce_plan::<T>(algorithm, from, to, count)?;
        self.begin_sum(sum, limit.fixed())
    }

    #[inline(always)]
    fn all_reduce_plan<T: Number>(
        &self,
        algorithm: Algorithm,
        from: u64,
        to: u64,
        count: u64,
    ) -> Result<Sum, Error> {
        let words = words_of::<T>(count)?;
        let (first, end) = (
            self.handle.user_span(from, words)?,
            self.handle.user_span(to, words)?,
        );
        if first != end {
            apart((first, words), (end, words))?;
        }
        let part = self.part(words);
        let sum = Sum {
            algorithm,
            from: first + part.first,
            to: end + part.first,
            words: part.words,
            ..self.no_sum()
        };
        let shape = self.shape::<T>(Call::AllReduce, algorithm as u32, end, words);
        self.in_scratch(Sum { shape, ..sum }, words)
    }

    /// Adds up `count` numbers at `from` of all members, number by number, and puts a share of the sums to each of them at
    /// `to`: the first `count / ranks` to member 0, and so on. It is made in place if `to` is where this member's share of
    /// the numbers lies.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce); [`Error::Uneven`] also if the shares are no multiples of 8 bytes;
    /// [`Error::Algorithm`] for [`Algorithm::Doubling`].
    #[inline(always)]
    pub fn reduce_scatter<T: Number>(
        &mut self,
        algorithm: Algorithm,
        from: u64,
        to: u64,
        count: u64,
        limit: Deadline,
    ) -> Result<(), Error> {
        let limit = limit.fixed();
        let sum = self.reduce_scatter_plan::<T>(algorithm, from, to, count)?;
        self.enter(limit)?;
        let verdict = self.make_sum::<T, false>(&sum, Verdict::GOOD, limit);
        self.settle(verdict, limit)
    }

    /// Begins a [`reduce_scatter`](Self::reduce_scatter): what can be sent before anything is added is sent.
    ///
    /// # Errors
    /// What is refused before anything is sent; all else [`Reducing::finish`] says.
    #[inline(always)]
    pub fn begin_reduce_scatter<'t, T: Number>(
        &'t mut self,
        algorithm: Algorithm,
        from: u64,
        to: u64,
        count: u64,
        limit: Deadline,
    ) -> Result<Reducing<'t, 'a, X, T>, Error> {
        let sum = self.reduce_scatter_plan::<T>(algorithm, from, to, count)?;
        self.begin_sum(sum, limit.fixed())
    }

    #[inline(always)]
    fn reduce_scatter_plan<T: Number>(
        &self,
        algorithm: Algorithm,
        from: u64,
        to: u64,
        count: u64,
    ) -> Result<Sum, Error> {
        if algorithm == Algorithm::Doubling {
            return Err(Error::Algorithm);
        }
        let all = words_of::<T>(count)?;
        let ranks = match u64::from(self.ranks()) {
            0 => 1,
            ranks => ranks,
        };
        let words = all / ranks;
        if words * ranks != all {
            return Err(Error::uneven(count));
        }
        let (first, end) = (
            self.handle.user_span(from, all)?,
            self.handle.user_span(to, words)?,
        );
        if end != first + words * u64::from(self.rank()) {
            apart((first, all), (end, words))?;
        }
        let part = self.part(words);
        let sum = Sum {
            algorithm,
            from: first + part.first,
            to: end + part.first,
            words: part.words,
            scatters: true,
            stride: words,
            ..self.no_sum()
        };
        let shape = self.shape::<T>(Call::ReduceScatter, algorithm as u32, 0, words);
        self.in_scratch(Sum { shape, ..sum }, words)
    }

    #[inline(always)]
    const fn no_sum(&self) -> Sum {
        Sum {
            algorithm: Algorithm::Ring,
            ranks: self.ranks(),
            own: self.rank(),
            from: 0,
            to: 0,
            words: 0,
            scatters: false,
            stride: 0,
            scratch: self.handle.layout.scratch(self.channel),
            most: 0,
            shape: 0,
        }
    }

    /// The sum of a unit, of so many words of all units, with as many rounds as the scratch is enough for.
    #[inline(always)]
    fn in_scratch(&self, sum: Sum, words: u64) -> Result<Sum, Error> {
        if sum.algorithm == Algorithm::Doubling && 1 << sum.doublings() != sum.ranks {
            return Err(Error::Ranks { ranks: sum.ranks });
        }
        // All of a grid's blocks refuse what is too much for the one with the most.
        let most = Sum {
            words: Part::share(words, X::units(), 0).words,
            ..sum
        };
        let there = self.handle.layout.scratch_words();
        match most.scratch() > there {
            true => Err(Error::scratch(most.scratch())),
            false => Ok(sum.in_scratch(there)),
        }
    }

    /// Begins a sum, with all threads of the extent: what can be sent before anything is added is sent.
    #[inline(always)]
    fn begin_sum<'t, T: Number>(
        &'t mut self,
        sum: Sum,
        limit: Deadline,
    ) -> Result<Reducing<'t, 'a, X, T>, Error> {
        self.enter(limit)?;
        let round = sum.round(0);
        let begun = match sum.algorithm {
            _ if sum.ranks <= 1 => Verdict::GOOD,
            Algorithm::Direct => self.send_to_slots(&round, limit),
            Algorithm::Ring => {
                let came = self.come(&round, true, limit);
                self.go_round::<T>(&round, (0, 1), came, limit)
            }
            Algorithm::Doubling => {
                let came = self.come(&round, true, limit);
                self.double::<T>(&round, (0, 1), came, limit)
            }
        };
        let team = self.copied();
        // Each round is a call of its own to the other members.
        self.calls += sum.rounds() - 1;
        Ok(Reducing {
            team,
            sum,
            begun,
            _team: PhantomData,
        })
    }

    /// Makes a sum, with all threads of the extent, from its beginning or from behind what [`begin_sum`](Self::begin_sum)
    /// has done.
    #[inline(always)]
    fn make_sum<T: Number, const BEGUN: bool>(
        &mut self,
        sum: &Sum,
        begun: Verdict,
        limit: Deadline,
    ) -> Verdict {
        if sum.ranks <= 1 {
            self.copy(sum.from, sum.to, sum.words);
            return begun;
        }
        match sum.algorithm {
            Algorithm::Ring => self.ring::<T, BEGUN>(sum, begun, limit),
            Algorithm::Doubling => {
                let (came, first) = match BEGUN {
                    true => (begun, 1),
                    false => (self.come(sum, true, limit), 0),
                };
                self.double::<T>(sum, (first, sum.doublings() + 1), came, limit)
            }
            Algorithm::Direct => {
                let sent = match BEGUN {
                    true => begun,
                    false => self.send_to_slots(sum, limit),
                };
                let verdict = sent.and(self.take(ALL, sent, limit));
                if X::Unit::any(verdict.is_bad()) {
                    return verdict;
                }
                // What each thread has seen come, before what the others add.
                X::Unit::sync();
                self.add_all::<T>(sum);
                verdict
            }
        }
    }

    /// Makes all rounds of a ring. To the other members each is a call of its own.
    #[inline(always)]
    fn ring<T: Number, const BEGUN: bool>(
        &mut self,
        sum: &Sum,
        begun: Verdict,
        limit: Deadline,
    ) -> Verdict {
        let (rounds, last) = (sum.rounds(), self.calls + sum.rounds() - 1);
        let (mut number, mut verdict, mut first) = (0, begun, u32::from(BEGUN));
        while number < rounds {
            let round = sum.round(number);
            if first == 0 {
                // All threads have read the scratch before any says that the member is there.
                X::Unit::sync();
                verdict = self.come(&round, number == 0, limit);
            }
            verdict = self.go_round::<T>(&round, (first, round.steps() + 1), verdict, limit);
            if X::Unit::any(verdict.is_bad()) {
                break;
            }
            number += 1;
            first = 0;
            self.calls += u64::from(number < rounds);
        }
        // The same at all members, wherever one has stopped.
        self.calls = last;
        verdict
    }

    /// Comes to a round, whose sum needs all members.
    #[inline(always)]
    fn come(&self, sum: &Sum, masks: bool, limit: Deadline) -> Verdict {
        let came = self.assemble(sum.shape, masks, limit);
        came.and(self.none_is_masked())
    }

    /// Sends to the slots of all other members.
    #[inline(always)]
    fn send_to_slots(&self, sum: &Sum, limit: Deadline) -> Verdict {
        let what = Exchange {
            from: sum.from,
            stride: sum.stride,
            to: sum.slot(sum.own),
            words: sum.words,
            own: 0,
            root: ALL,
            shape: sum.shape,
        };
        let sent = self.send_as_they_come(&what, limit);
        sent.and(self.none_is_masked())
    }

    /// Takes steps of a ring, with all threads of the unit: in each a slice of what came in the step before is added, and
    /// sent on before the next one is waited for. Step 0 sends only, and the step behind the last takes only. Nothing is done
    /// if any thread has come with an error.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn go_round<T: Number>(
        &self,
        sum: &Sum,
        (mut step, end): (u32, u32),
        came: Verdict,
        limit: Deadline,
    ) -> Verdict {
        if X::Unit::any(came.is_bad()) {
            return came;
        }
        let (before, after) = sum.neighbours();
        let word = self.handle.layout.arrived(self.channel, sum.own);
        let (steps, slices) = (sum.steps(), sum.slices());
        let (mut slice, mut verdict) = (0, Verdict::GOOD);
        while step < end {
            if step > 0 {
                if X::Unit::leads() && !verdict.is_bad() {
                    verdict = self.arrived(before, sum.told(step - 1, slice), limit);
                }
                verdict = self.shared(verdict);
                if verdict.is_bad() {
                    return verdict;
                }
                let what = sum.incoming(step - 1, slice);
                if what.adds {
                    self.add::<T>(what.came, what.own, what.sum, what.words);
                    // All threads' sums before the post.
                    X::Unit::sync();
                }
            }
            if step < steps && X::Unit::leads() {
                let (span, told) = (sum.outgoing(step, slice), self.said(sum.told(step, slice)));
                verdict = self.post(after, span, (word, told), limit);
            }
            slice += 1;
            if slice == slices {
                (step, slice) = (step + 1, 0);
            }
        }
        if end > 1 && X::Unit::leads() {
            verdict = self.complete(after, limit);
        }
        verdict
    }

    /// Takes steps of recursive doubling, with all threads of the unit: each takes what was sent in the step before, and
    /// sends. Nothing is done if any thread has come with an error.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    fn double<T: Number>(
        &self,
        sum: &Sum,
        (mut step, end): (u32, u32),
        came: Verdict,
        limit: Deadline,
    ) -> Verdict {
        if X::Unit::any(came.is_bad()) {
            return came;
        }
        let word = self.handle.layout.arrived(self.channel, sum.own);
        let mut verdict = Verdict::GOOD;
        while step < end {
            if step > 0 {
                let peer = sum.own ^ 1 << (step - 1);
                if X::Unit::leads() && !verdict.is_bad() {
                    verdict = self.arrived(peer, 1, limit);
                    // What the NIC reads, before the sum is stored there.
                    if !verdict.is_bad() {
                        verdict = self.complete(peer, limit);
                    }
                }
                verdict = self.shared(verdict);
                if verdict.is_bad() {
                    return verdict;
                }
                let Span { from, words, .. } = sum.doubled(step - 1);
                self.add::<T>(sum.slot(step - 1), from, sum.to, words);
                // All threads' sums before the post.
                X::Unit::sync();
            }
            if step < sum.doublings() && X::Unit::leads() {
                let peer = sum.own ^ 1 << step;
                let (span, told) = (sum.doubled(step), (word, self.said(1)));
                verdict = self.post(peer, span, told, limit);
            }
            step += 1;
        }
        verdict
    }

    /// The leader's verdict, for all threads of the unit. What the leader has seen come, they may read.
    #[inline(always)]
    fn shared(&self, leader: Verdict) -> Verdict {
        let verdict = leader.of_leader::<X::Unit>();
        // The leader's load before the others' reading; a warp's shuffle orders no memory.
        X::Unit::sync();
        verdict
    }

    /// Whether no member is masked that this thread serves.
    #[inline(always)]
    fn none_is_masked(&self) -> Verdict {
        for rank in self.others() {
            if self.handle.is_masked(rank) {
                return Verdict::bad(Error::Masked { rank });
            }
        }
        Verdict::GOOD
    }
}
