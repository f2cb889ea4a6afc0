//! One-sided requests to a member, with words of both windows by their offsets.

use core::marker::PhantomData;

use mlx5_wqe::{Local, Wqe};

use super::link::Span;
use super::{Error, Extent, Team, TeamHandle};
use crate::together::{Led, by_leader};
use warpbell::{Deadline, Exclusive};

/// A member, as a unit's threads send to it: [`Team::peer`].
///
/// All threads of the unit (the warp or the block) make each call together: one request is made for all, and all get its
/// result. What they stored before comes before it. Requests are carried out in order. Offsets count bytes from the
/// beginning of a window, and are multiples of 8, as all lengths are.
pub struct Peer<'t, 'a, X: Extent> {
    // Copies of the team's: a reference to it would have it in a GPU's local memory.
    handle: TeamHandle<'a>,
    channel: u32,
    rank: u32,
    queue: Led<'a, Exclusive, X::Unit>,
    _team: PhantomData<&'t mut Team<'a, X>>,
}

impl<'a, X: Extent> Team<'a, X> {
    /// Opens this unit's queue to a member. It is closed when it is dropped, before the next call of the team.
    ///
    /// # Errors
    /// [`Error::NoRank`], also for this member itself; [`Error::InUse`]; [`Error::Failed`].
    #[inline(always)]
    pub fn peer<'t>(&'t mut self, rank: u32) -> Result<Peer<'t, 'a, X>, Error> {
        if rank == self.rank() {
            return Err(Error::NoRank { rank });
        }
        let queue = Led::open(*self.handle.queue(self.channel, rank)?)?;
        Ok(Peer {
            handle: self.handle,
            channel: self.channel,
            rank,
            queue,
            _team: PhantomData,
        })
    }
}

impl<X: Extent> Peer<'_, '_, X> {
    /// Puts bytes of this window into the member's.
    ///
    /// # Errors
    /// [`Error::Uneven`], [`Error::Outside`], [`Error::TooLong`], [`Error::Incomplete`] without room in time,
    /// [`Error::Failed`].
    #[inline(always)]
    pub fn put(&mut self, from: u64, to: u64, bytes: u64, limit: Deadline) -> Result<(), Error> {
        let span = self.span(from, to, bytes)?;
        by_leader!(
            X::Unit,
            self.post(self.handle.write(self.rank, span)?, limit)
        )
        .map(drop)
    }

    /// Puts bytes, and behind them, under the same doorbell, a value into a word: to wait for by [`Team::signal`].
    ///
    /// # Errors
    /// As [`put`](Self::put). Of more than 512 KiB, which go in pieces, some may have been put then; the value never.
    #[inline(always)]
    pub fn put_signal(
        &mut self,
        from: u64,
        to: u64,
        bytes: u64,
        (signal, value): (u64, u64),
        limit: Deadline,
    ) -> Result<(), Error> {
        let span = self.span(from, to, bytes)?;
        let told = (self.handle.user_words(signal, 8)?, value);
        let (handle, rank) = (self.handle, self.rank);
        by_leader!(
            X::Unit,
            handle
                .write_and_tell(&mut self.queue, rank, span, told, limit)
                .result()
                .map(|()| 0)
        )
        .map(drop)
    }

    /// Puts a value into a word of the member.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline(always)]
    pub fn put_value(&mut self, to: u64, value: u64, limit: Deadline) -> Result<(), Error> {
        let to = self.handle.user_words(to, 8)?;
        let remote = self.handle.remote(self.rank, to)?;
        by_leader!(X::Unit, self.post(Wqe::write_value(value, remote), limit)).map(drop)
    }

    /// Adds to a word of the member, in one step for all NICs' additions: a counter that several members count in.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline(always)]
    pub fn add(&mut self, to: u64, value: u64, limit: Deadline) -> Result<(), Error> {
        let to = self.handle.user_words(to, 8)?;
        let remote = self.handle.remote(self.rank, to)?;
        let landing = self.landing()?;
        by_leader!(
            X::Unit,
            self.post(Wqe::fetch_add(landing, remote, value), limit)
        )
        .map(drop)
    }

    /// Gets bytes of the member's window into this one. They are here after [`flush`](Self::flush).
    ///
    /// # Errors
    /// As [`put`](Self::put).
    #[inline(always)]
    pub fn get(&mut self, from: u64, to: u64, bytes: u64, limit: Deadline) -> Result<(), Error> {
        let Span { from, to, words } = self.span(from, to, bytes)?;
        let local = self.handle.local(to, words)?;
        let remote = self.handle.remote(self.rank, from)?;
        by_leader!(X::Unit, self.post(Wqe::read(local, remote), limit)).map(drop)
    }

    /// Waits until all requests to this member are complete: what was put from this window may be overwritten, and what was
    /// got is here. The member may not see yet what was put: [`quiet`](Self::quiet).
    ///
    /// # Errors
    /// [`Error::Incomplete`], [`Error::Failed`].
    #[inline(always)]
    pub fn flush(&mut self, limit: Deadline) -> Result<(), Error> {
        by_leader!(X::Unit, self.wait(limit)).map(drop)
    }

    /// Waits until all that was put is in the member's memory: whoever is told of it by whatever way may read it there.
    ///
    /// A read of that memory goes behind the writes, because a NIC's answer says only that the NIC has them.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    #[inline(always)]
    pub fn quiet(&mut self, limit: Deadline) -> Result<(), Error> {
        let landing = self.landing()?;
        let remote = self.handle.remote(self.rank, 0)?;
        let limit = limit.fixed();
        by_leader!(
            X::Unit,
            match self.post(Wqe::read(landing, remote), limit) {
                Ok(_) => self.wait(limit),
                error => error,
            }
        )
        .map(drop)
    }

    #[inline(always)]
    fn span(&self, from: u64, to: u64, bytes: u64) -> Result<Span, Error> {
        Ok(Span {
            from: self.handle.user_words(from, bytes)?,
            to: self.handle.user_words(to, bytes)?,
            words: bytes / 8,
        })
    }

    #[inline(always)]
    fn landing(&self) -> Result<Local, Error> {
        let landing = self.handle.layout.landing(self.channel);
        self.handle.local(landing, 1)
    }

    /// As the leader.
    #[inline(always)]
    fn post(&mut self, wqe: Wqe<1>, limit: Deadline) -> Result<u32, Error> {
        let _ = self.queue.post(wqe.signalled(), limit)?;
        Ok(0)
    }

    /// As the leader.
    #[inline(always)]
    fn wait(&mut self, limit: Deadline) -> Result<u32, Error> {
        self.queue.wait_all(limit)?;
        Ok(0)
    }
}
