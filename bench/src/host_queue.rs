//! A queue in the host's hands.

use warpbell::wqe::Wqe;
use warpbell::{Deadline, Exclusive, SendQueue, SendQueueHandle, Thread, Ticket};
use warpbell_host_init::QueuePair;
use warpbell_kernels::outcome::Failure;

use crate::Error;
use crate::run::StageError;
use crate::run::launch::LIMIT_US;

/// A queue in the host's hands.
pub struct HostQueue<'q> {
    queue: SendQueue<'q, Exclusive, Thread>,
    /// The newest request, whose completion tells of all before.
    newest: Option<Ticket>,
}

impl<'q> HostQueue<'q> {
    /// Opens a queue.
    ///
    /// # Errors
    /// A queue that is open elsewhere, or failed before.
    pub fn open(pair: &'q QueuePair) -> Result<Self, Error> {
        Self::of(pair.send_queue()?)
    }

    /// Opens the queue of this handle.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of(handle: SendQueueHandle<'q>) -> Result<Self, Error> {
        Ok(Self {
            queue: handle.open::<Exclusive>().map_err(failed)?,
            newest: None,
        })
    }

    /// Posts requests under one doorbell. The last one is signalled, beside those that the queue needs for its own room.
    ///
    /// # Errors
    /// The queue failed, or has no room for too long.
    pub fn post(&mut self, wqes: impl ExactSizeIterator<Item = Wqe<1>>) -> Result<(), Error> {
        let last = wqes.len().saturating_sub(1);
        let mut batch = self.queue.batch(wqes.len() as u32, LIMIT).map_err(failed)?;
        for (index, wqe) in wqes.enumerate() {
            let wqe = if index == last { wqe.signalled() } else { wqe };
            self.newest = Some(batch.post(wqe).map_err(failed)?);
        }
        Ok(())
    }

    /// Posts requests under as few doorbells as the ring allows: a batch takes up to half of it.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub fn post_all(&mut self, wqes: &[Wqe<1>]) -> Result<(), Error> {
        let most = (self.queue.depth() / 2).max(1) as usize;
        let mut batches = wqes.chunks(most);
        batches.try_for_each(|batch| self.post(batch.iter().copied()))
    }

    /// Waits until all is done.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub fn drain(&mut self) -> Result<(), Error> {
        match self.newest.take() {
            Some(newest) => self.queue.wait(newest, LIMIT).map_err(failed),
            None => Ok(()),
        }
    }
}

const LIMIT: Deadline = Deadline::after_us(LIMIT_US);

fn failed(error: impl Into<Failure>) -> Error {
    let failure = error.into();
    let what = "what the host posts".into();
    StageError::Kernel { what, failure }.into()
}
