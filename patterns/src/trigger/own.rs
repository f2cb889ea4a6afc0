//! A tag that one thread, warp or block has to itself for a while: no atomics.

use core::marker::PhantomData;

use mlx5_wqe::{Wqe, WqeIndex};

use super::counter::Counter;
use super::entry::TriggerEntry;
use super::error::Error;
use super::table::check;
use crate::together::{begin, finish};
use warpbell::SendQueueHandle;
use warpbell::held;
use warpbell::{Deadline, Scope};

/// A tag of one thread, warp or block (scope `C`): [`Triggers::own`](super::Triggers::own).
///
/// Its counter and its queue lie in registers, so that a trigger is an addition, and the last one record and doorbell.
/// To all others the tag has no operation meanwhile: what they trigger is kept, and counts once this is dropped. A value
/// that is leaked keeps the tag until the host makes it anew.
pub struct OwnTag<'a, C: Scope> {
    entry: &'a TriggerEntry<'a>,
    queue: SendQueueHandle<'a>,
    counter: Counter,
    _scope: PhantomData<C>,
}

impl<'a, C: Scope> OwnTag<'a, C> {
    #[inline(always)]
    pub(super) fn take(entry: &'a TriggerEntry<'a>) -> Result<Self, Error> {
        let (mut result, mut found) = (Ok(0), Counter::FRESH);
        if C::leads() {
            match entry.take() {
                Ok(counter) => found = counter,
                Err(error) => result = Err(error),
            }
        }
        finish::<C, _>(result)?;
        Ok(Self {
            entry,
            queue: entry.queue(),
            counter: Counter::from_bits(C::broadcast(found.to_bits())),
            _scope: PhantomData,
        })
    }

    /// Triggers, as [`Triggers::trigger`](super::Triggers::trigger) does.
    #[inline(always)]
    pub fn trigger(&mut self) {
        // The others' stores before the leader's doorbell.
        C::sync();
        let sends = self.counter.lacked_one();
        self.counter = self.counter.triggered();
        if sends && C::leads() {
            // SAFETY: the operation was held, the tag is this scope's alone, and this was the last trigger missing.
            unsafe { held::publish(&self.queue, self.counter.end()) };
        }
    }

    /// Registers an operation, as [`Triggers::register`](super::Triggers::register) does.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn register<const N: usize>(
        &mut self,
        threshold: u32,
        wqes: [Wqe<1>; N],
        deadline: Deadline,
    ) -> Result<(), Error> {
        check(threshold)?;
        let mut result = Ok(0);
        let end = self.counter.end().0.wrapping_add(N as u16);
        let next = self.counter.next(WqeIndex(end), threshold);
        // The operation may go at once.
        if begin::<C>() {
            result = self.store(wqes, next, deadline).map(|()| 0);
        }
        finish::<C, _>(result)?;
        self.counter = next;
        Ok(())
    }

    #[inline(always)]
    fn store<const N: usize>(
        &self,
        wqes: [Wqe<1>; N],
        next: Counter,
        deadline: Deadline,
    ) -> Result<(), Error> {
        if self.counter.is_registered() {
            self.await_done(deadline)?;
        }
        // SAFETY: the operation before is done, and with it all that was published; the tag is ours alone.
        let end = unsafe { held::hold(self.queue, self.counter.end(), wqes) }?;
        if next.missing() == 0 {
            // SAFETY: just held, and the tag is this scope's alone.
            unsafe { held::publish(&self.queue, end) };
        }
        Ok(())
    }

    /// Waits until the operation is done, as [`Triggers::wait`](super::Triggers::wait) does.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn wait(&self, deadline: Deadline) -> Result<(), Error> {
        let mut result = Ok(0);
        if C::leads() {
            result = self.await_done(deadline).map(|()| 0);
        }
        finish::<C, _>(result).map(drop)
    }

    #[inline(always)]
    fn await_done(&self, deadline: Deadline) -> Result<(), Error> {
        let counter = self.counter;
        TriggerEntry::await_done(&self.queue, counter, deadline, || counter)
    }

    /// The counter as this scope sees it.
    #[inline(always)]
    pub fn counter(&self) -> Counter {
        self.counter
    }
}

impl<C: Scope> Drop for OwnTag<'_, C> {
    #[inline(always)]
    fn drop(&mut self) {
        // The others' stores before the leader's addition, which may send.
        C::sync();
        if C::leads() {
            self.entry.give_back(self.counter);
        }
    }
}
