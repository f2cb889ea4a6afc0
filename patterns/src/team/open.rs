//! A channel that a warp, a block or a grid has open, and what every call of it begins and ends with.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;

use super::error::Verdict;
use super::{Error, Extent, TeamHandle};
use crate::together::by_leader;
use warpbell::{Deadline, Scope, Signal, thread};

/// How much longer a grid's blocks wait for each other at a call's end than each waits for members.
const GRACE_US: u64 = 1_000_000;

/// Bits of a signal below the number of its call.
pub(super) const CALL: u32 = 24;

/// One member's channels, as the threads of an extent have them open: [`TeamHandle::open`].
///
/// All members make the same calls on a channel, in the same order and with the same numbers. Each call returns at a member
/// once its part is done there: what it was to get is there, and what it gave may be overwritten.
#[derive(Debug)]
pub struct Team<'a, X: Extent> {
    pub(super) handle: TeamHandle<'a>,
    /// The channel of the first unit.
    base: u32,
    /// This unit's.
    pub(super) channel: u32,
    /// Calls of this unit's channel, with the one under way.
    pub(super) calls: u64,
    /// The same of the first unit's.
    meetings: u64,
    _extent: PhantomData<X>,
}

impl<'a, X: Extent> Team<'a, X> {
    #[inline(always)]
    pub(super) fn open(handle: TeamHandle<'a>, base: u32) -> Result<Self, Error> {
        let channels = handle.channels();
        // No sum, which could wrap.
        if base >= channels || X::units() > channels - base {
            return Err(Error::NoChannel { channel: base });
        }
        let channel = base + X::unit();
        by_leader!(X::Unit, claim::<X>(&handle, base, channel))?;
        let (mut calls, mut meetings) = (0, 0);
        if X::Unit::leads() {
            calls = handle.state(channel)?.calls();
            meetings = handle.state(base)?.calls();
        }
        Ok(Self {
            handle,
            base,
            channel,
            calls: X::Unit::broadcast(calls),
            meetings: X::Unit::broadcast(meetings),
            _extent: PhantomData,
        })
    }

    /// The number of this member in the team, from 0.
    #[inline(always)]
    pub const fn rank(&self) -> u32 {
        self.handle.rank()
    }

    /// How many members there are.
    #[inline(always)]
    pub const fn ranks(&self) -> u32 {
        self.handle.ranks()
    }

    /// A word of this member's window to wait for: at a multiple of 8 bytes from its beginning.
    ///
    /// # Errors
    /// [`Error::Uneven`], [`Error::Outside`].
    #[inline(always)]
    pub fn signal(&self, offset: u64) -> Result<Signal<'a>, Error> {
        let word = self.handle.user_words(offset, 8)?;
        self.signal_at(word)
    }

    /// A word of this member's window.
    #[inline(always)]
    pub(super) fn signal_at(&self, word: u64) -> Result<Signal<'a>, Error> {
        let signal = self.handle.window.signal(word);
        signal.ok_or(Error::outside(8 * word))
    }

    /// The other members that this thread serves: every thread of a unit has its share. It begins behind this member, so
    /// that not all members begin with the same.
    #[inline(always)]
    pub(super) fn others(&self) -> Others {
        Others {
            own: self.rank(),
            ranks: self.ranks(),
            next: 1 + X::Unit::rank(),
            step: X::Unit::size(),
        }
    }

    /// Begins a call, with all threads of the extent: it is counted, and what they stored before may be sent.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn enter(&mut self, limit: Deadline) -> Result<(), Error> {
        self.calls += 1;
        self.meetings += 1;
        // The threads' stores before the post of any one of them.
        X::Unit::sync();
        match X::WIDE {
            true => self.meet(0, limit),
            false => Ok(()),
        }
    }

    /// Ends a call, with all threads of the extent: all get the first error of one, or none. What any of them may read, all
    /// may read then.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn settle(&self, verdict: Verdict, limit: Deadline) -> Result<(), Error> {
        let first = self.handle.state(self.base)?;
        let failed = X::Unit::any(verdict.is_bad());
        if verdict.is_bad() {
            first.keep(verdict);
        }
        // What each thread has seen come, and its verdict, before what the others do.
        X::Unit::sync();
        if X::WIDE {
            self.meet(1, limit.later_us(GRACE_US))?;
        } else if !failed {
            return Ok(());
        }
        let mut verdict = Verdict::GOOD;
        if X::Unit::leads() {
            verdict = first.verdict();
            if !X::WIDE {
                // In a grid the first unit does so at the next call.
                first.forget();
            }
        }
        verdict.of_leader::<X::Unit>().result()
    }

    /// Waits, with all threads of the extent, until all units are here: what any thread did before, all may read then. It
    /// counts as a call.
    #[inline(always)]
    pub(crate) fn rendezvous(&mut self, limit: Deadline) -> Result<(), Error> {
        self.calls += 1;
        self.meetings += 1;
        match X::WIDE {
            true => self.meet(1, limit.later_us(GRACE_US)),
            false => {
                X::Unit::sync();
                Ok(())
            }
        }
    }

    /// A copy for the second half of a call, which closes nothing. A reference would have the team in a GPU's local memory.
    #[inline(always)]
    pub(super) fn copied(&self) -> ManuallyDrop<Self> {
        ManuallyDrop::new(Self {
            handle: self.handle,
            ..*self
        })
    }

    /// Waits until all units are here, for the first or second time in the call.
    #[inline(always)]
    fn meet(&self, which: u64, limit: Deadline) -> Result<(), Error> {
        let (base, number) = (self.base, 2 * self.meetings + which);
        let (own, first) = (self.handle.state(self.channel)?, self.handle.state(base)?);
        // What the unit's threads did, before its word.
        X::Unit::sync();
        let mut late = false;
        if self.channel == base {
            let mut other = 1 + X::Unit::rank();
            while other < X::units() {
                late |= self
                    .handle
                    .state(base + other)?
                    .wait(base, number, limit)
                    .is_err();
                other += X::Unit::size();
            }
            // All words before the first unit's, by which the others go on.
            late = X::Unit::any(late);
        }
        if X::Unit::leads() & !late {
            if (self.channel == base) & (which == 0) {
                first.forget();
            }
            // What the unit did, and in the first one what all others did, before its word.
            thread::device_fence();
            own.come(base, number);
            if self.channel != base {
                late = first.wait(base, number, limit).is_err();
            }
        }
        // The word before anybody goes on.
        match X::Unit::any(late) {
            true => Err(Error::Blocks),
            false => Ok(()),
        }
    }
}

impl<X: Extent> Drop for Team<'_, X> {
    #[inline(always)]
    fn drop(&mut self) {
        // What the unit's threads did, before others have the channel.
        X::Unit::sync();
        if !X::Unit::leads() {
            return;
        }
        if let Ok(own) = self.handle.state(self.channel) {
            own.set_calls(self.calls);
            own.release();
        }
        if X::WIDE
            && let Ok(first) = self.handle.state(self.base)
        {
            first.leave();
        }
    }
}

/// Opens a unit's channel, and in a grid counts it in at the first one's.
#[inline(always)]
fn claim<X: Extent>(handle: &TeamHandle<'_>, base: u32, channel: u32) -> Result<u32, Error> {
    let own = handle.state(channel)?;
    own.claim()?;
    if X::WIDE
        && let Err(error) = handle.state(base)?.join()
    {
        own.release();
        return Err(error);
    }
    Ok(0)
}

/// The other members that a thread serves.
pub(super) struct Others {
    own: u32,
    ranks: u32,
    /// Members from this one to the next to serve.
    next: u32,
    step: u32,
}

impl Iterator for Others {
    type Item = u32;

    #[inline(always)]
    fn next(&mut self) -> Option<u32> {
        if self.next >= self.ranks {
            return None;
        }
        let (rank, left) = (self.own + self.next, self.ranks);
        self.next += self.step;
        Some(if rank < left { rank } else { rank - left })
    }
}
