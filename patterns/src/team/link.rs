//! What a thread posts to another member, and what it waits for from there.

use mlx5_wqe::{Local, Wqe};

use super::error::Verdict;
use super::open::CALL;
use super::{Error, Extent, Team, TeamHandle};
use warpbell::{Deadline, Exclusive, SendQueue, Thread, WaitError};

/// A queue in one thread's hands.
pub(crate) type OwnQueue<'a> = SendQueue<'a, Exclusive, Thread>;

/// Words of 8 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The first one at this member.
    pub from: u64,
    /// The first one at the other member.
    pub to: u64,
    /// How many.
    pub words: u64,
}

/// Most words of a write; more go in several.
const MOST: u64 = 1 << 16;

impl<'a> TeamHandle<'a> {
    /// Stores a word at a member, behind all that the queue has written there.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(crate) fn tell(
        &self,
        queue: &mut OwnQueue<'a>,
        rank: u32,
        (word, value): (u64, u64),
        limit: Deadline,
    ) -> Verdict {
        match self.remote(rank, word) {
            Ok(there) => post(queue, Wqe::write_value(value, there).signalled(), limit),
            Err(error) => Verdict::bad(error),
        }
    }

    /// Writes words to a member, and behind them a word, with one doorbell for the last piece and the word.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(crate) fn write_and_tell(
        &self,
        queue: &mut OwnQueue<'a>,
        rank: u32,
        mut span: Span,
        told: (u64, u64),
        limit: Deadline,
    ) -> Verdict {
        let there = match self.remote(rank, told.0) {
            Ok(there) => there,
            Err(error) => return Verdict::bad(error),
        };
        loop {
            let (words, last) = match span.words > MOST {
                true => (MOST, false),
                false => (span.words, true),
            };
            let write = match self.write(rank, Span { words, ..span }) {
                // Signalled, because a ring that is full of others could not be waited for.
                Ok(write) => write.signalled(),
                Err(error) => return Verdict::bad(error),
            };
            // A write of no words would be refused.
            let blocks = u32::from(words > 0) + u32::from(last);
            match queue.batch(blocks, limit) {
                // Behind the reservation nothing is refused any more.
                Ok(mut both) => {
                    if words > 0 {
                        let _ = both.post(write);
                    }
                    if last {
                        let _ = both.post(Wqe::write_value(told.1, there).signalled());
                    }
                }
                Err(error) => return Verdict::bad(error),
            }
            if last {
                return Verdict::GOOD;
            }
            span = Span {
                from: span.from + words,
                to: span.to + words,
                words: span.words - words,
            };
        }
    }

    /// The write of words, as many as a message has.
    #[inline(always)]
    pub(crate) fn write(&self, rank: u32, span: Span) -> Result<Wqe<1>, Error> {
        Ok(Wqe::write(
            self.local(span.from, span.words)?,
            self.remote(rank, span.to)?,
        ))
    }

    /// Words of this member's window, for a request.
    #[inline(always)]
    pub(crate) fn local(&self, word: u64, words: u64) -> Result<Local, Error> {
        let words = u32::try_from(words).unwrap_or(u32::MAX);
        let local = self.window.local(word, words);
        local.ok_or(Error::outside(8 * word))
    }
}

/// Posts a request.
#[cfg_attr(target_arch = "nvptx64", inline(always))]
pub(crate) fn post(queue: &mut OwnQueue<'_>, wqe: Wqe<1>, limit: Deadline) -> Verdict {
    match queue.post(wqe, limit) {
        Ok(_) => Verdict::GOOD,
        Err(error) => Verdict::bad(error),
    }
}

impl<'a, X: Extent> Team<'a, X> {
    /// Opens this unit's queue to a member, for this thread.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn link(&self, rank: u32) -> Result<OwnQueue<'a>, Verdict> {
        let handle = match self.handle.queue(self.channel, rank) {
            Ok(handle) => handle,
            Err(error) => return Err(Verdict::bad(error)),
        };
        match handle.open::<Exclusive>() {
            Ok(queue) => Ok(queue),
            Err(error) => Err(Verdict::bad(error)),
        }
    }

    /// What a signal says in this call, by its low bits.
    #[inline(always)]
    pub(super) const fn said(&self, low: u64) -> u64 {
        self.calls << CALL | low & ((1 << CALL) - 1)
    }

    /// Says to a member, as one thread, that this one has come to the call, whose shape is so.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn announce(
        &self,
        queue: &mut OwnQueue<'a>,
        rank: u32,
        shape: u64,
        limit: Deadline,
    ) -> Verdict {
        let word = self
            .handle
            .layout
            .ready(self.channel, self.calls, self.rank());
        self.handle
            .tell(queue, rank, (word, self.said(shape)), limit)
    }

    /// Waits, as one thread, until a member has come to the call, which must have the same shape there.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn hear(&self, rank: u32, shape: u64, limit: Deadline) -> Verdict {
        let word = self.handle.layout.ready(self.channel, self.calls, rank);
        match self.signalled(word, self.said(0), limit) {
            0 => Verdict::bad(Error::Late { rank }),
            said if said == self.said(shape) => Verdict::GOOD,
            _ => Verdict::bad(Error::Disagrees { rank }),
        }
    }

    /// Waits, as one thread, until a member has sent so much of what it sends in this call.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn arrived(&self, rank: u32, step: u64, limit: Deadline) -> Verdict {
        let word = self.handle.layout.arrived(self.channel, rank);
        match self.signalled(word, self.said(step), limit) {
            0 => Verdict::bad(Error::Late { rank }),
            _ => Verdict::GOOD,
        }
    }

    /// Waits until a word of the window is at least so much, and gives it; 0 if that takes too long.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn signalled(&self, word: u64, least: u64, limit: Deadline) -> u64 {
        match self.handle.window.signal(word) {
            Some(signal) => signal.wait(least, limit).unwrap_or(0),
            None => 0,
        }
    }

    /// Comes to the call with all other members that are not masked: each thread says so to those that it serves, and then
    /// hears from them. A member that does not come is masked, if it `masks`.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn assemble(&self, shape: u64, masks: bool, limit: Deadline) -> Verdict {
        let mut verdict = self.announce_all(shape, limit);
        for rank in self.others() {
            if self.handle.is_masked(rank) {
                continue;
            }
            let heard = self.hear(rank, shape, limit);
            if masks {
                let _ = self.or_masked(rank, heard);
            }
            verdict = verdict.and(heard);
        }
        verdict
    }

    /// Says to the members that this thread serves that this one has come. All say so before anybody waits: two that wait
    /// for each other first would do so for ever.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn announce_all(&self, shape: u64, limit: Deadline) -> Verdict {
        let mut verdict = Verdict::GOOD;
        for rank in self.others() {
            if self.handle.is_masked(rank) {
                continue;
            }
            let said = match self.link(rank) {
                Ok(mut queue) => self.announce(&mut queue, rank, shape, limit),
                Err(verdict) => verdict,
            };
            verdict = verdict.and(self.or_masked(rank, said));
        }
        verdict
    }

    /// Waits, as one thread, until all is complete that this unit has posted to a member.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn complete(&self, queue: &mut OwnQueue<'a>, rank: u32, limit: Deadline) -> Verdict {
        match queue.wait_all(limit) {
            Ok(()) => Verdict::GOOD,
            Err(WaitError::Failed(error)) => Verdict::bad(Error::Failed(error)),
            Err(_) => Verdict::bad(Error::Late { rank }),
        }
    }

    /// Masks a member of which a verdict says that it is not there.
    #[inline(always)]
    pub(super) fn or_masked(&self, rank: u32, verdict: Verdict) -> Verdict {
        if verdict.is_gone() {
            self.handle.set_mask(rank, true);
        }
        verdict
    }
}

/// A number of a call's shape: which call it is, and its numbers. Members compare it.
#[inline(always)]
pub(super) const fn shape(call: Call, numbers: [u64; 3]) -> u64 {
    let [one, two, three] = numbers;
    let mut mixed = call as u64;
    mixed = mix(mixed ^ one);
    mixed = mix(mixed ^ two);
    mixed = mix(mixed ^ three);
    mixed & ((1 << CALL) - 1)
}

/// A bijection that spreads each bit (its constants are those of splitmix64).
#[inline(always)]
const fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// The calls that members compare.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(super) enum Call {
    /// [`Team::barrier`].
    Barrier = 1,
    /// [`Team::broadcast`].
    Broadcast,
    /// [`Team::all_gather`].
    AllGather,
    /// [`Team::all_to_all`].
    AllToAll,
    /// [`Team::all_to_all_v`].
    AllToAllV,
    /// [`Team::all_reduce`].
    AllReduce,
    /// [`Team::reduce_scatter`].
    ReduceScatter,
}
