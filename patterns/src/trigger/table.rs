//! The calls.

use core::marker::PhantomData;

use mlx5_wqe::Wqe;

use super::entry::TriggerEntry;
use super::error::Error;
use super::look::Look;
use super::own::OwnTag;
use super::{Counter, MAX_THRESHOLD, Tag};
use crate::together::{begin, by_leader, finish};
use warpbell::{Deadline, Scope};

/// A table of tags: [`TriggerHandle::open`](super::TriggerHandle::open). Every thread may use it at any time.
///
/// Each call has a scope: [`Thread`](warpbell::Thread), or all threads of a [`Warp`](warpbell::Warp) or a
/// [`Block`](warpbell::Block) together, at the same point and with the same arguments. They act once, and all get the
/// result.
#[derive(Clone, Copy, Debug)]
pub struct Triggers<'a> {
    entries: *const TriggerEntry<'a>,
    tags: u32,
    _table: PhantomData<&'a TriggerEntry<'a>>,
}

// SAFETY: it names a table that every thread may use (the promise of `TriggerHandle::new`).
unsafe impl Send for Triggers<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for Triggers<'_> {}

impl<'a> Triggers<'a> {
    /// # Safety
    /// As for [`TriggerHandle::new`](super::TriggerHandle::new).
    #[inline(always)]
    pub(super) unsafe fn new(entries: *const TriggerEntry<'a>, tags: u32) -> Self {
        Self {
            entries,
            tags,
            _table: PhantomData,
        }
    }

    /// How many tags there are.
    #[inline(always)]
    pub fn tags(&self) -> u32 {
        self.tags
    }

    /// Triggers a tag: adds 1 to its counter. If its operation has as many triggers then as it wants, it is sent: what
    /// all who triggered it stored before is part of it. Without an operation the trigger is kept for the next one, and
    /// so is one more than an operation wants.
    ///
    /// The leader's thread does so once all threads of the scope have come; the others do not wait for it.
    ///
    /// # Errors
    /// [`Error::InvalidTag`]. Whether the operation succeeds, [`wait`](Self::wait) tells.
    #[inline(always)]
    pub fn trigger<C: Scope>(&self, tag: Tag) -> Result<(), Error> {
        let entry = self.entry(tag)?;
        if begin::<C>() {
            entry.trigger();
        }
        Ok(())
    }

    /// Looks at a tag ahead of the work that its trigger is to end, so that [`Look::trigger`] need not wait for what it
    /// says.
    ///
    /// # Errors
    /// [`Error::InvalidTag`].
    #[inline(always)]
    pub fn look<C: Scope>(&self, tag: Tag) -> Result<Look<'a, C>, Error> {
        Ok(Look::at(self.entry(tag)?))
    }

    /// Registers an operation under a tag: the WQEs, each of which makes a CQE, are sent under one doorbell, in their order, once the tag was triggered `threshold` times; at once if it was already. Waits until the deadline
    /// for the operation before, since a tag has one at a time.
    ///
    /// # Errors
    /// What is wrong with tag, threshold or WQEs; [`Error::InUse`]; [`Error::Managed`];
    /// [`Error::Untriggered`] and [`Error::Timeout`] if the operation before was not done in time; the tag's queue has failed. Nothing is registered then.
    #[inline(always)]
    pub fn register<C: Scope, const N: usize>(
        &self,
        tag: Tag,
        threshold: u32,
        wqes: [Wqe<1>; N],
        deadline: Deadline,
    ) -> Result<(), Error> {
        let entry = self.entry(tag)?;
        check(threshold)?;
        // The operation may go at once.
        by_leader!(C, entry.register(threshold, wqes, deadline).map(|()| 0)).map(drop)
    }

    /// Waits until the newest operation of a tag is done: what was written has left and may be overwritten, what was
    /// read may be read. Any number of threads may wait.
    ///
    /// # Errors
    /// [`Error::InvalidTag`]; [`Error::NotRegistered`]; [`Error::Untriggered`] if the threshold was not reached until
    /// the deadline, [`Error::Timeout`] if it was, or if another tag's operation comes first; the tag's queue has
    /// failed.
    #[inline(always)]
    pub fn wait<C: Scope>(&self, tag: Tag, deadline: Deadline) -> Result<(), Error> {
        let entry = self.entry(tag)?;
        let mut result = Ok(0);
        if C::leads() {
            result = entry.wait(deadline).map(|()| 0);
        }
        finish::<C, _>(result).map(drop)
    }

    /// Takes a tag for this thread, warp or block alone, until the value is dropped: a trigger then has no atomic.
    ///
    /// # Errors
    /// [`Error::InvalidTag`]; [`Error::InUse`] while somebody else has it, or registers; [`Error::Managed`].
    #[inline(always)]
    pub fn own<C: Scope>(&self, tag: Tag) -> Result<OwnTag<'a, C>, Error> {
        OwnTag::take(self.entry(tag)?)
    }

    /// A tag's counter and threshold, as they are now.
    ///
    /// # Errors
    /// [`Error::InvalidTag`].
    #[inline(always)]
    pub fn counter(&self, tag: Tag) -> Result<Counter, Error> {
        Ok(self.entry(tag)?.counter())
    }

    #[inline(always)]
    fn entry(&self, tag: Tag) -> Result<&'a TriggerEntry<'a>, Error> {
        if tag >= self.tags {
            return Err(Error::InvalidTag { tag });
        }
        // SAFETY: there are so many entries (the promise of `TriggerHandle::new`).
        Ok(unsafe { &*self.entries.add(tag as usize) })
    }
}

/// Refuses a threshold that no operation has.
#[inline(always)]
pub(super) fn check(threshold: u32) -> Result<(), Error> {
    if threshold.wrapping_sub(1) >= MAX_THRESHOLD {
        return Err(Error::InvalidThreshold { threshold });
    }
    Ok(())
}
