//! An exchange that a grid has open.

use super::word::{Count, Phase, State};
use super::{Choice, Error, Layout, LowLatency, Received, Shape, Way};
use crate::team::{Grid, Team, TeamHandle};
use core::marker::PhantomData;
use warpbell::{Block, Deadline, Exclusive, Scope, Words, block, thread};

/// One member's exchange, as the threads of a grid have it open: [`ExpertsHandle::open`](super::ExpertsHandle::open).
///
/// All threads of the grid make each call, in the same order and with the same numbers, and so do all members. What the
/// grid's threads have stored before a call, the call may send; what a call has brought, all of them may read behind it.
///
/// `M` is the mode, [`LowLatency`] or [`Throughput`](super::Throughput). The calls are the same in both.
#[derive(Debug)]
pub struct Experts<'a, M = LowLatency> {
    pub(super) team: TeamHandle<'a>,
    pub(super) layout: &'a Layout,
    pub(super) words: Words<'a>,
    /// Meets the other blocks, and holds the channels.
    grid: Team<'a, Grid>,
    pub(super) round: u64,
    pub(super) phase: Phase,
    /// Whether this round's dispatch was refused.
    pub(super) refused: bool,
    /// This round's tokens.
    pub(super) tokens: u32,
    _mode: PhantomData<M>,
}

impl<'a, M: Way> Experts<'a, M> {
    #[inline(always)]
    pub(super) fn open(team: TeamHandle<'a>, layout: &'a Layout) -> Result<Self, Error> {
        let threads = block::size();
        if !threads.is_multiple_of(thread::warp_size()) {
            return Err(Error::Threads { threads });
        }
        if layout.shape.mode as u32 != M::MODE as u32 {
            return Err(Error::Mode);
        }
        let grid = team.open::<Grid>(0)?;
        let words = team.words();
        let (mut state, mut tokens) = (0, 0);
        if Block::leads() {
            state = words.load(layout.state).unwrap_or(0);
            tokens = words.load(layout.state + 1).unwrap_or(0);
        }
        let state = State(Block::broadcast(state));
        Ok(Self {
            team,
            layout,
            words,
            grid,
            round: state.round(),
            phase: state.phase(),
            refused: state.is_refused(),
            tokens: Block::broadcast(tokens) as u32,
            _mode: PhantomData,
        })
    }

    /// The numbers of the exchange.
    #[inline(always)]
    pub const fn shape(&self) -> Shape {
        self.layout.shape
    }

    /// The number of this member, from 0.
    #[inline(always)]
    pub const fn rank(&self) -> u32 {
        self.team.rank()
    }

    /// The number of the last round that has begun; the first one is 1.
    #[inline(always)]
    pub const fn round(&self) -> u64 {
        self.round
    }

    /// Whether a member is masked: nothing is sent to it, and nothing of it counts.
    #[inline(always)]
    pub fn is_masked(&self, rank: u32) -> bool {
        self.team.is_masked(rank)
    }

    /// The row of a token to send, in bf16: 4 values a word. It may be written until a dispatch begins, and again when that
    /// has finished.
    #[inline(always)]
    pub fn token(&self, token: u32) -> Option<Words<'a>> {
        self.row(token, self.layout.token(token))
    }

    /// Says to which expert a token goes, as its choice number `k`, if both are there, which the answer says. It may be said
    /// when [`token`](Self::token) may be written.
    #[inline(always)]
    pub fn choose(&self, token: u32, k: u32, choice: Choice) -> bool {
        let there = token < self.shape().tokens && k < self.shape().top_k;
        there
            && self
                .words
                .store(self.layout.choice(token, k), choice.to_bits())
    }

    /// The row of a token's weighted sum, in bf16, once a combine has finished.
    #[inline(always)]
    pub fn result(&self, token: u32) -> Option<Words<'a>> {
        self.row(token, self.layout.result(token))
    }

    #[inline(always)]
    fn row(&self, token: u32, word: u64) -> Option<Words<'a>> {
        if token >= self.shape().tokens {
            return None;
        }
        self.words.part(word, self.shape().hidden_words().into())
    }

    /// What a source has sent to an own expert in this round, once the dispatch has finished. There is nothing of one that
    /// is masked, or not there.
    #[inline(always)]
    pub fn received(&self, local: u32, source: u32) -> Received<'a> {
        let mut count = Count::NOTHING;
        if local < self.shape().local && source < self.shape().ranks {
            count = self.count(local, source);
        }
        Received {
            words: self.words,
            layout: self.layout,
            round: self.round,
            local,
            source,
            count,
        }
    }

    /// What a source says of its tokens for an own expert in this round.
    #[inline(always)]
    pub(super) fn count(&self, local: u32, source: u32) -> Count {
        let count = Count(M::said(self, local, source));
        match count.is_of(self.round) && !self.is_masked(source) {
            true => count,
            false => Count::NOTHING,
        }
    }

    /// How many tokens of this member for an expert found a slot or not. All blocks have routed.
    #[inline(always)]
    pub(super) fn sends(&self, expert: u32) -> Count {
        let wanted = self.load(self.layout.counter(self.round, expert)) as u32;
        Count::new(self.round, wanted, self.refused)
    }

    /// How many of this member's tokens of this round did not go to an expert, because it had no slot for them.
    #[inline(always)]
    pub fn dropped(&self, expert: u32) -> u32 {
        match expert < self.shape().experts() {
            true => self.sends(expert).dropped(self.shape().capacity),
            false => 0,
        }
    }

    /// A word that is there by the layout.
    #[inline(always)]
    pub(super) fn load(&self, word: u64) -> u64 {
        self.words.load(word).unwrap_or(0)
    }

    /// Waits for all blocks. What any thread did before, all see then.
    #[inline(always)]
    pub(super) fn meet(&mut self, limit: Deadline) -> Result<(), Error> {
        Ok(self.grid.rendezvous(limit)?)
    }

    /// Waits, as one thread, until a word of a member's says that it has come to this round. One that says a later round goes
    /// on without this member.
    #[inline(always)]
    pub(super) fn hear(&self, rank: u32, word: u64, (least, most): (u64, u64), limit: Deadline) {
        if self.is_masked(rank) {
            return;
        }
        let heard = match self.words.signal(word) {
            Some(signal) => signal.wait(least, limit).is_ok_and(|found| found <= most),
            None => false,
        };
        if !heard {
            self.team.set_mask(rank, true);
        }
    }

    /// Waits until all is complete that this block has posted, each thread for some members. A member to whom it does not
    /// come is masked.
    #[inline(always)]
    pub(super) fn complete(&self, limit: Deadline) {
        let mut next = 1 + Block::rank();
        while next < self.shape().ranks {
            let rank = self.behind(next);
            if !self.is_masked(rank) {
                let complete = match self.team.queue(block::index(), rank) {
                    Ok(queue) => match queue.open::<Exclusive>() {
                        Ok(mut queue) => queue.wait_all(limit).is_ok(),
                        Err(_) => false,
                    },
                    Err(_) => false,
                };
                if !complete {
                    self.team.set_mask(rank, true);
                }
            }
            next += Block::size();
        }
    }

    /// The member so far behind this one, so that not all members begin with the same.
    #[inline(always)]
    pub(super) const fn behind(&self, next: u32) -> u32 {
        let rank = self.rank() + next;
        match rank < self.shape().ranks {
            true => rank,
            false => rank - self.shape().ranks,
        }
    }

    /// How many members are masked.
    #[inline(always)]
    pub(super) fn masked(&self) -> u32 {
        let (mut masked, mut first) = (0, 0);
        while first < self.shape().ranks {
            let rank = first + Block::rank();
            let here = rank < self.shape().ranks && self.is_masked(rank);
            masked += Block::rank_and_count(here).1;
            first += Block::size();
        }
        masked
    }
}

impl<M> Drop for Experts<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        // Before the first channel is closed, which the same thread does behind it.
        if thread::first() {
            let state = State::new(self.round, self.phase, self.refused);
            self.words.store(self.layout.state, state.0);
            self.words.store(self.layout.state + 1, self.tokens.into());
        }
    }
}

/// Blocks of the grid.
#[inline(always)]
pub(super) fn blocks() -> u32 {
    use crate::team::Extent;
    Grid::units()
}

/// Warps of each block.
#[inline(always)]
pub(super) fn warps() -> u32 {
    block::size() / thread::warp_size()
}

/// The number of this warp in its block.
#[inline(always)]
pub(super) fn warp() -> u32 {
    block::thread_index() / thread::warp_size()
}
