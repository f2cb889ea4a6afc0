//! Tokens to their experts.

use super::layout::HEADER;
use super::open::{blocks, warp, warps};
use super::route::quantise;
use super::word::{Count, Phase};
use super::{Error, Experts, Format, Way};
use warpbell::{Block, Deadline, Scope, block, thread, warp as lanes};

impl<M: Way> Experts<'_, M> {
    /// Sends this member's tokens to their experts, and waits for what comes from all members: both halves of it.
    ///
    /// # Errors
    /// As both. If the dispatch is refused, the wait is over, too.
    #[inline(always)]
    pub fn dispatch(&mut self, tokens: u32, limit: Deadline) -> Result<u32, Error> {
        let begun = self.dispatch_begin(tokens, limit);
        if let Err(Error::Order | Error::Blocks) = begun {
            return begun.map(|()| 0);
        }
        let finished = self.dispatch_finish(limit);
        match begun {
            Ok(()) => finished,
            Err(error) => Err(error),
        }
    }

    /// Begins a round: sends so many of this member's tokens to the experts that they chose.
    ///
    /// If the tokens are refused, the round has begun all the same: the other members hear that none comes from here, and
    /// the other halves of the round follow. This member's results of it are 0 then.
    ///
    /// # Errors
    /// [`Error::Order`], [`Error::Blocks`]. Those that refuse the tokens: [`Error::Tokens`], [`Error::Expert`],
    /// [`Error::Overflow`].
    #[inline(always)]
    pub fn dispatch_begin(&mut self, tokens: u32, limit: Deadline) -> Result<(), Error> {
        let limit = limit.fixed();
        self.begin_round(tokens)?;
        self.meet(limit)?;
        self.route(tokens);
        if let Format::Fp8 = self.shape().format {
            // SAFETY: blocks are whole warps, and all threads come here.
            unsafe { quantise(self.words, self.layout, self.tokens) };
        }
        self.meet(limit)?;
        let routed = self.routed();
        self.refused = routed.is_err();
        M::send_tokens(self, limit);
        routed
    }

    /// Copies words of the window, as a warp.
    #[inline(always)]
    pub(super) fn copy(&self, from: u64, to: u64, words: u32) {
        let (mut word, step) = (lanes::lane_id(), thread::warp_size());
        // Two loads under way at once.
        while word + step < words {
            let first = self.load(from + u64::from(word));
            let second = self.load(from + u64::from(word + step));
            self.words.store(to + u64::from(word), first);
            self.words.store(to + u64::from(word + step), second);
            word += 2 * step;
        }
        if word < words {
            let value = self.load(from + u64::from(word));
            self.words.store(to + u64::from(word), value);
        }
    }

    /// Waits until all members have said what they send to this member's experts, and says how many members are masked. The
    /// tokens that have come may be read then, and this member's own written.
    ///
    /// A member that does not come in time is masked, and nothing of it counts.
    ///
    /// # Errors
    /// [`Error::Order`], [`Error::Blocks`].
    #[inline(always)]
    pub fn dispatch_finish(&mut self, limit: Deadline) -> Result<u32, Error> {
        if self.phase != Phase::Dispatching {
            return Err(Error::Order);
        }
        let limit = limit.fixed();
        self.phase = Phase::Dispatched;
        M::hear_tokens(self, limit);
        // The warps have closed their queues.
        Block::sync();
        self.complete(limit);
        self.meet(limit)?;
        if M::UNPACKS {
            M::unpack(self);
            self.meet(limit)?;
        }
        Ok(self.masked())
    }
}

impl Experts<'_> {
    /// Copies the tokens for this member's own experts, each block those of the experts that it serves.
    #[inline(always)]
    pub(super) fn send_here(&self) {
        let (shape, own) = (self.shape(), self.rank());
        let mut local = block::index();
        while local < shape.local {
            let expert = own * shape.local + local;
            let sent = self.sends(expert).sent(shape.capacity);
            let mut slot = warp();
            while slot < sent {
                let listed = self.load(self.layout.listed(expert, slot));
                let (token, pair) = ((listed >> 32) as u32, listed as u32);
                let to = self.layout.received(self.round, local, own, slot);
                self.copy(self.layout.header(pair), to, HEADER as u32);
                self.copy(
                    self.layout.travelling(token),
                    to + HEADER,
                    shape.row_words(),
                );
                slot += warps();
            }
            local += blocks();
        }
        // All rows before their counts.
        Block::sync();
        let mut local = block::index() + Block::rank() * blocks();
        while local < shape.local {
            let Count(count) = self.sends(own * shape.local + local);
            // The rows that this thread has seen, which are the block's, before the count, by which others read them.
            thread::device_fence();
            self.words
                .store(self.layout.count(self.round, local, own), count);
            local += Block::size() * blocks();
        }
    }

    /// Waits until all members have said what they send to this member's experts, each thread for some of it.
    #[inline(always)]
    pub(super) fn hear_counts(&self, limit: Deadline) {
        let (shape, round) = (self.shape(), self.round);
        let said = (Count::least(round), Count::most(round));
        let mut number = thread::index();
        while number < shape.experts() {
            let (source, local) = shape.owner(number);
            let word = self.layout.count(round, local, source);
            self.hear(source, word, said, limit);
            number += blocks() * block::size();
        }
    }
}
