//! This rank: its segments, its notifications.

use warpbell_gpu::arch::{Reach, Word64, fence_acquire};

use super::error::Error;
use super::handle::GaspiHandle;
use super::queue::Queue;
use super::{Notification, NotificationId, QueueId, Rank, SegmentId, Size, Timeout};
use crate::together::by_leader;
use crate::words::{exchange_relaxed64, load_relaxed64};
use warpbell::{FenceReach, Scope, Sharing};

/// Notifications that are loaded before the first of them is looked at, so that their ways to memory overlap.
const AT_ONCE: u32 = 4;

/// A rank of a GASPI program, for its kernels: [`GaspiHandle::open`].
#[derive(Clone, Copy, Debug)]
pub struct Gaspi<'a> {
    handle: GaspiHandle<'a>,
}

impl<'a> Gaspi<'a> {
    #[inline(always)]
    pub(super) fn new(handle: GaspiHandle<'a>) -> Self {
        Self { handle }
    }

    /// This rank's number.
    #[inline(always)]
    pub fn proc_rank(&self) -> Rank {
        self.handle.rank
    }

    /// How many ranks there are.
    #[inline(always)]
    pub fn proc_num(&self) -> u32 {
        self.handle.ranks
    }

    /// How many queues each rank has.
    #[inline(always)]
    pub fn queue_num(&self) -> u32 {
        self.handle.queues
    }

    /// How many notifications each segment has.
    #[inline(always)]
    pub fn notification_num(&self) -> u32 {
        self.handle.notifications
    }

    /// The longest transfer in bytes.
    #[inline(always)]
    pub fn transfer_size_max(&self) -> u32 {
        self.handle.transfer_size_max
    }

    /// The first byte of a segment of this rank.
    ///
    /// # Errors
    /// [`Error::InvalidSegment`].
    #[inline(always)]
    pub fn segment_ptr(&self, segment: SegmentId) -> Result<*mut u8, Error> {
        let entry = self.handle.segment(segment, self.handle.rank)?;
        Ok(core::ptr::with_exposed_provenance_mut(
            entry.address as usize,
        ))
    }

    /// Bytes of a rank's segment.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::InvalidSegment`].
    #[inline(always)]
    pub fn segment_size(&self, segment: SegmentId, rank: Rank) -> Result<Size, Error> {
        if rank >= self.handle.ranks {
            return Err(Error::InvalidRank { rank });
        }
        Ok(self.handle.segment(segment, rank)?.size)
    }

    /// Opens a queue's part for a rank, for this thread, warp or block (scope `C`), shared as `S` says. Dropping
    /// it closes it again.
    ///
    /// # Errors
    /// A queue or a rank that is not there or not connected; [`Error::InUse`]; the queue has failed.
    #[inline(always)]
    pub fn queue<S: Sharing, C: Scope>(
        &self,
        queue: QueueId,
        rank: Rank,
    ) -> Result<Queue<'a, S, C>, Error> {
        Queue::open(self.handle, queue, rank)
    }

    /// Waits until all requests through a queue are done, to all ranks. It
    /// opens the queue's part for each rank that there is a connection to: for kernels that keep none open.
    ///
    /// # Errors
    /// As for [`queue`](Self::queue), and as for [`Queue::wait`].
    #[inline]
    pub fn wait<S: Sharing, C: Scope>(
        &self,
        queue: QueueId,
        timeout: Timeout,
    ) -> Result<(), Error> {
        by_leader!(C, self.wait_as_leader::<S>(queue, timeout)).map(drop)
    }

    /// Waits until one of the notifications from `begin` on, `num` of them, is there, and gives the first that is
    /// in the order of their numbers. What its sender wrote before it to this rank through the same queue may be
    /// read then. With `num` 0 it returns at once, with a number that says nothing.
    ///
    /// All that wait learn of it; who of them takes it is decided by [`notify_reset`](Self::notify_reset), which
    /// gives a value other than 0 to one alone.
    ///
    /// # Errors
    /// [`Error::Timeout`]; a segment or a notification that is not there.
    #[inline(always)]
    pub fn notify_waitsome<C: Scope>(
        &self,
        segment: SegmentId,
        begin: NotificationId,
        num: u32,
        timeout: Timeout,
    ) -> Result<NotificationId, Error> {
        by_leader!(C, self.waitsome(segment, begin, num, timeout))
    }

    /// Takes a notification: sets it back to 0 and gives the value from before, in one atomic step. 0 says that
    /// there was none, or that somebody else has taken it.
    ///
    /// # Errors
    /// A segment or a notification that is not there.
    #[inline(always)]
    pub fn notify_reset<C: Scope>(
        &self,
        segment: SegmentId,
        notification: NotificationId,
    ) -> Result<Notification, Error> {
        by_leader!(C, self.reset(segment, notification))
    }

    #[inline(always)]
    fn wait_as_leader<S: Sharing>(&self, queue: QueueId, timeout: Timeout) -> Result<u32, Error> {
        let deadline = timeout.deadline(self.handle.block_ms).fixed();
        for rank in 0..self.handle.ranks {
            let found = self.handle.send_queue(queue, rank)?;
            match found.open::<S>() {
                Ok(mut opened) => opened.wait_all(deadline)?,
                Err(error) => match Error::of_open(error, rank) {
                    Error::NotConnected { .. } => {}
                    error => return Err(error),
                },
            }
        }
        Ok(0)
    }

    #[inline(always)]
    fn reset(&self, segment: SegmentId, notification: NotificationId) -> Result<u32, Error> {
        let place = self.handle.notification_place(segment, notification, 1)?;
        // SAFETY: there is one in this place, and the promise of `GaspiHandle::new` makes it an atomic word.
        let word = unsafe { &*self.handle.notification_words(place) };
        // GPU scope: those who take notifications are this GPU's threads, and a GPU behind PCIe has no wider atomics
        // on host memory. It orders nothing by itself: the fence does, and nobody goes by the 0.
        let value = exchange_relaxed64(word, 0, Reach::Gpu);
        if value != 0 {
            // The notification before the data, because the NIC writes the data first.
            fence_acquire(self.reach());
        }
        Ok(value as Notification)
    }

    #[inline(always)]
    fn waitsome(
        &self,
        segment: SegmentId,
        begin: NotificationId,
        num: u32,
        timeout: Timeout,
    ) -> Result<NotificationId, Error> {
        let deadline = timeout.deadline(self.handle.block_ms);
        let place = self.handle.notification_place(segment, begin, num)?;
        let first = self.handle.notification_words(place);
        if num == 0 {
            return Ok(begin);
        }
        let mut found = find(first, num);
        if found.is_none() {
            let mut wait = deadline.wait();
            let mut late = false;
            while found.is_none() && !late {
                late = wait.expired();
                found = find(first, num);
            }
        }
        match found {
            Some(index) => {
                // The notification before the data, because the NIC writes the data first.
                fence_acquire(self.reach());
                Ok(begin + index)
            }
            None => Err(Error::Timeout),
        }
    }

    #[inline(always)]
    fn reach(&self) -> Reach {
        if self.handle.reach == FenceReach::Gpu as u32 {
            Reach::Gpu
        } else {
            Reach::System
        }
    }
}

/// The first of `num` words that is not 0.
#[inline(always)]
fn find(first: *const Word64, num: u32) -> Option<u32> {
    // SAFETY: the callers' words are there, and atomic: the promise of `GaspiHandle::new`.
    let load = |index: u32| load_relaxed64(unsafe { &*first.add(index as usize) }, Reach::System);
    let mut index = 0;
    while num - index >= AT_ONCE {
        let [a, b, c, d] = [
            load(index),
            load(index + 1),
            load(index + 2),
            load(index + 3),
        ];
        if a | b | c | d != 0 {
            return Some(match (a, b, c) {
                (0, 0, 0) => index + 3,
                (0, 0, _) => index + 2,
                (0, _, _) => index + 1,
                _ => index,
            });
        }
        index += AT_ONCE;
    }
    while index < num {
        if load(index) != 0 {
            return Some(index);
        }
        index += 1;
    }
    None
}
