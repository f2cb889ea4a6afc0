//! The host's side of a tag, while kernels trigger it: no atomic on the word that kernels store to.

use mlx5_wqe::Wqe;
use warpbell_gpu::arch::fence_full;

use super::tag::{CLOSED, EVERYWHERE, JointTag};
use super::words::Offer;
use crate::trigger::Error;
use crate::trigger::entry::ended;
use crate::trigger::table::check;
use crate::words::{compare_exchange64, load_relaxed64, store_release64};
use warpbell::held::{self, Outcome};
use warpbell::{Deadline, SendQueueHandle};

/// A thread of the host registers. Among themselves the host's threads have atomics.
const CLAIMED: u64 = 2;
/// Nobody knows yet who rings for the newest operation.
const UNSETTLED: u64 = 4;
/// What [`Tally::has_rung`](super::words::Tally::has_rung) said before that operation.
const HAD_RUNG: u64 = 8;
/// The host has rung for the newest operation.
const HOST_RANG: u64 = 16;

/// Who rings for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ringer {
    /// The thread with its last trigger, once that comes.
    Trigger,
    /// The host, which has: all triggers came before the registration.
    Host,
}

impl JointTag {
    /// Registers an operation once the one before is done. If all its triggers are there, and no thread of theirs rings,
    /// this one does.
    ///
    /// # Errors
    /// What is wrong with threshold or WQEs; [`Error::Closed`]; [`Error::InUse`] while another thread registers;
    /// [`Error::Untriggered`], [`Error::Timeout`] if the operation before was not done in time; the tag's queue has
    /// failed. Nothing is registered then. [`Error::Unsettled`]: it is registered, and [`settle`](Self::settle) is due.
    ///
    /// # Safety
    /// [`check`](SendQueueHandle::check) accepts `queue`, which is the tag's, with a state of the host's own; this thread
    /// reaches all its parts, and fences reach beyond a GPU. Its completions are a ring of as many entries as it has
    /// blocks, in which each CQE has the number of its WQE; it was unused when the tag was fresh. Since then nobody uses it
    /// but kernels that trigger the tag, and threads that call these functions.
    pub unsafe fn register<const N: usize>(
        &self,
        queue: &SendQueueHandle<'_>,
        threshold: u32,
        wqes: [Wqe<1>; N],
        deadline: Deadline,
    ) -> Result<Ringer, Error> {
        check(threshold)?;
        self.alone(|known| {
            let deadline = deadline.fixed();
            let before = self.offer();
            if before.0.is_registered() {
                // Where it cannot be settled, it is not done either, or a trigger of it has rung.
                let _ = self.find_ringer(queue, known, deadline);
                self.await_done(queue, before, deadline)?;
            }
            // SAFETY: the caller's promise; the operation before is done, and nobody else registers.
            let end = unsafe { held::hold(*queue, before.end(), wqes) }?;
            // Whoever rang for the operation before has said so before its doorbell.
            *known = match self.tally().has_rung() {
                true => UNSETTLED | HAD_RUNG,
                false => UNSETTLED,
            };
            let offer = before.next(end, threshold);
            // Release: the WQEs before the offer, because whoever sees the offer publishes them.
            store_release64(&self.offer, offer.0.to_bits(), EVERYWHERE);
            // The offer before the look at the tally, because a trigger counts before it looks at the offer: with a full
            // fence on either side, one of the two sees the other.
            fence_full(EVERYWHERE);
            self.find_ringer(queue, known, deadline)
        })
    }

    /// Finds out who rings for the newest operation, and rings if this thread is to.
    ///
    /// # Errors
    /// [`Error::NotRegistered`], [`Error::Unsettled`], [`Error::InUse`], [`Error::Closed`].
    ///
    /// # Safety
    /// As for [`register`](Self::register).
    pub unsafe fn settle(
        &self,
        queue: &SendQueueHandle<'_>,
        deadline: Deadline,
    ) -> Result<Ringer, Error> {
        self.alone(|known| match self.offer().0.is_registered() {
            true => self.find_ringer(queue, known, deadline),
            false => Err(Error::NotRegistered),
        })
    }

    /// Waits until the newest operation is done.
    ///
    /// # Errors
    /// [`Error::NotRegistered`]; [`Error::Untriggered`], [`Error::Timeout`] if it is not done in time; the tag's queue has
    /// failed.
    ///
    /// # Safety
    /// As for [`register`](Self::register).
    pub unsafe fn await_newest(
        &self,
        queue: &SendQueueHandle<'_>,
        deadline: Deadline,
    ) -> Result<(), Error> {
        let newest = self.offer();
        match newest.0.is_registered() {
            true => self.await_done(queue, newest, deadline),
            false => Err(Error::NotRegistered),
        }
    }

    /// Says that no more operations will come, so that no kernel waits for one. Nothing happens if it was said before.
    ///
    /// # Errors
    /// [`Error::InUse`]; [`Error::Unsettled`] if the newest operation is. The tag is not closed then.
    pub fn close(&self) -> Result<(), Error> {
        let closed = self.alone(|known| match *known & UNSETTLED {
            0 => {
                *known |= CLOSED;
                Ok(())
            }
            _ => Err(Error::Unsettled),
        });
        match closed {
            Err(Error::Closed) => Ok(()),
            closed => closed,
        }
    }

    /// Lets one thread of the host act at a time, on what the host knows.
    fn alone<R>(&self, act: impl FnOnce(&mut u64) -> Result<R, Error>) -> Result<R, Error> {
        let found = load_relaxed64(&self.host, EVERYWHERE);
        if found & CLOSED != 0 {
            return Err(Error::Closed);
        }
        // Acquire: what the thread before stored, before what this one loads.
        let claim = || compare_exchange64(&self.host, found, found | CLAIMED, EVERYWHERE);
        if found & CLAIMED != 0 || claim().is_err() {
            return Err(Error::InUse);
        }
        let mut known = found;
        let result = act(&mut known);
        // Release: what this thread stored before what the next one stores; and the last offer before the end of offers.
        store_release64(&self.host, known, EVERYWHERE);
        result
    }

    /// Who rings for the newest operation, which is offered; rings if nobody does.
    fn find_ringer(
        &self,
        queue: &SendQueueHandle<'_>,
        known: &mut u64,
        deadline: Deadline,
    ) -> Result<Ringer, Error> {
        if *known & UNSETTLED == 0 {
            return Ok(match *known & HOST_RANG {
                0 => Ringer::Trigger,
                _ => Ringer::Host,
            });
        }
        let offer = self.offer();
        let mut wait = deadline.wait();
        let mut late = false;
        loop {
            // Acquire: the data of the triggers that came, before record and doorbell.
            let tally = self.tally();
            // The last trigger comes behind the offer, and sees it.
            let is_to_come = offer.counter(tally).missing() > 0;
            // All have looked; the one that rings has said so with its leave.
            let have_looked = tally.looking() == 0;
            if is_to_come || have_looked {
                *known &= !UNSETTLED;
                let has_rung = tally.has_rung() != (*known & HAD_RUNG != 0);
                if is_to_come || has_rung {
                    return Ok(Ringer::Trigger);
                }
                *known |= HOST_RANG;
                // SAFETY: the promise of `register`; its WQEs were held, and publishing is this thread's: of the threads
                // whose triggers the operation wants, all have looked, and none rings.
                unsafe { held::publish(queue, offer.end()) };
                return Ok(Ringer::Host);
            }
            if late {
                return Err(Error::Unsettled);
            }
            late = wait.expired();
        }
    }

    /// Waits until the newest operation is done.
    fn await_done(
        &self,
        queue: &SendQueueHandle<'_>,
        newest: Offer,
        deadline: Deadline,
    ) -> Result<(), Error> {
        // SAFETY: the promise of `register`; `hold` signals each WQE.
        let look = || unsafe { held::outcome(queue, newest.end()) };
        let mut outcome = look();
        let mut wait = deadline.wait();
        let mut late = false;
        while outcome == Outcome::UnderWay && !late {
            late = wait.expired();
            outcome = look();
        }
        ended(queue, outcome, || self.counter())
    }
}
