//! Requests to one rank.

use mlx5_wqe::{Local, Remote, Wqe};

use super::error::Error;
use super::handle::GaspiHandle;
use super::segment::NotificationEntry;
use super::{Notification, NotificationId, Offset, Rank, SegmentId, Size, Timeout};
use crate::together::{Led, by_leader};
use warpbell::{Deadline, Scope, Sharing};

/// A queue's part for one rank: [`Gaspi::queue`](super::Gaspi::queue).
///
/// As in GPI-2, a queue is one connection to each rank, and its requests to a rank are carried out in order.
/// Each call returns once the request is posted; [`wait`](Self::wait) waits until it is done. The bytes at this
/// end may be used again only then.
pub struct Queue<'a, S: Sharing, C: Scope> {
    handle: GaspiHandle<'a>,
    rank: Rank,
    /// The rank's notifications: in registers, because a notification is to be quick.
    notifications: NotificationEntry,
    queue: Led<'a, S, C>,
}

impl<'a, S: Sharing, C: Scope> Queue<'a, S, C> {
    #[inline(always)]
    pub(super) fn open(handle: GaspiHandle<'a>, queue: u32, rank: Rank) -> Result<Self, Error> {
        let found = handle.send_queue(queue, rank)?;
        let opened = Led::open(found).map_err(|error| Error::of_open(error, rank))?;
        Ok(Self {
            notifications: handle.notification_entry(rank),
            handle,
            rank,
            queue: opened,
        })
    }

    /// Posts the transfer of `size` bytes of a local segment into a segment of the rank. Writes of one queue to
    /// one rank arrive in order; a later [`notify`](Self::notify) says that they are there.
    ///
    /// # Errors
    /// [`Error::QueueFull`]; a segment, an offset or a size that is refused; the queue has failed.
    #[inline(always)]
    pub fn write(
        &mut self,
        segment_local: SegmentId,
        offset_local: Offset,
        segment_remote: SegmentId,
        offset_remote: Offset,
        size: Size,
        timeout: Timeout,
    ) -> Result<(), Error> {
        let from = (segment_local, offset_local);
        let to = (segment_remote, offset_remote);
        by_leader!(C, self.post_transfer(Wqe::write, from, to, size, timeout)).map(drop)
    }

    /// Posts the transfer of `size` bytes of a segment of the rank into a local segment; they are there after
    /// [`wait`](Self::wait).
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    #[inline(always)]
    pub fn read(
        &mut self,
        segment_local: SegmentId,
        offset_local: Offset,
        segment_remote: SegmentId,
        offset_remote: Offset,
        size: Size,
        timeout: Timeout,
    ) -> Result<(), Error> {
        let from = (segment_local, offset_local);
        let to = (segment_remote, offset_remote);
        by_leader!(C, self.post_transfer(Wqe::read, from, to, size, timeout)).map(drop)
    }

    /// Posts a notification to the rank. It arrives behind all that was written before to the same rank through
    /// the same queue.
    ///
    /// # Errors
    /// [`Error::QueueFull`]; a segment, a notification or a value that is refused; the queue has failed.
    #[inline(always)]
    pub fn notify(
        &mut self,
        segment_remote: SegmentId,
        notification: NotificationId,
        value: Notification,
        timeout: Timeout,
    ) -> Result<(), Error> {
        by_leader!(
            C,
            self.post_notify(segment_remote, (notification, value), timeout)
        )
        .map(drop)
    }

    /// Posts a write and, with the same doorbell, the notification that says that its bytes are there.
    ///
    /// # Errors
    /// As for [`write`](Self::write) and [`notify`](Self::notify). Neither was posted then.
    #[inline(always)]
    #[expect(
        clippy::too_many_arguments,
        reason = "those of the specification, but for rank and queue"
    )]
    pub fn write_notify(
        &mut self,
        segment_local: SegmentId,
        offset_local: Offset,
        segment_remote: SegmentId,
        offset_remote: Offset,
        size: Size,
        notification: NotificationId,
        value: Notification,
        timeout: Timeout,
    ) -> Result<(), Error> {
        let from = (segment_local, offset_local);
        let to = (segment_remote, offset_remote);
        by_leader!(
            C,
            self.post_write_notify(from, to, size, (notification, value), timeout)
        )
        .map(drop)
    }

    /// Waits until all requests to this rank through this queue are done, whichever thread posted them. Written bytes
    /// have left then, and read bytes are there.
    ///
    /// # Errors
    /// [`Error::Timeout`]; the queue has failed.
    #[inline(always)]
    pub fn wait(&mut self, timeout: Timeout) -> Result<(), Error> {
        by_leader!(C, self.wait_as_leader(timeout)).map(drop)
    }

    /// The rank that its requests go to.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    #[inline(always)]
    fn deadline(&self, timeout: Timeout) -> Deadline {
        timeout.deadline(self.handle.block_ms)
    }

    /// Posts a transfer, which `request` makes of its bytes at both ends.
    #[inline(always)]
    fn post_transfer(
        &mut self,
        request: impl FnOnce(Local, Remote) -> Wqe<1>,
        from: Place,
        to: Place,
        size: Size,
        timeout: Timeout,
    ) -> Result<u32, Error> {
        let (local, remote) = self.both(from, to, size)?;
        self.post(request(local, remote), timeout)
    }

    /// Posts one request.
    #[inline(always)]
    fn post(&mut self, request: Wqe<1>, timeout: Timeout) -> Result<u32, Error> {
        let deadline = self.deadline(timeout);
        let _ = self.queue.post(request.signalled(), deadline)?;
        Ok(0)
    }

    #[inline(always)]
    fn post_notify(
        &mut self,
        segment: SegmentId,
        told: (NotificationId, Notification),
        timeout: Timeout,
    ) -> Result<u32, Error> {
        self.post(self.told(segment, told)?, timeout)
    }

    #[inline(always)]
    fn post_write_notify(
        &mut self,
        from: Place,
        to: Place,
        size: Size,
        told: (NotificationId, Notification),
        timeout: Timeout,
    ) -> Result<u32, Error> {
        let (local, remote) = self.both(from, to, size)?;
        let told = self.told(to.0, told)?.signalled();
        let deadline = self.deadline(timeout);
        // Room for both or neither. Behind it nothing is refused any more, so that no queue is left with one of them.
        let mut both = self.queue.batch(2, deadline)?;
        let _ = both.post(Wqe::write(local, remote))?;
        let _ = both.post(told)?;
        Ok(0)
    }

    #[inline(always)]
    fn wait_as_leader(&mut self, timeout: Timeout) -> Result<u32, Error> {
        let deadline = self.deadline(timeout);
        self.queue.wait_all(deadline)?;
        Ok(0)
    }

    /// The bytes of a transfer at both ends.
    #[inline(always)]
    fn both(&self, from: Place, to: Place, size: Size) -> Result<(Local, Remote), Error> {
        let limit = self.handle.transfer_size_max;
        // One comparison for "none" and "too many".
        if size.wrapping_sub(1) >= limit as u64 {
            return Err(Error::InvalidSize { limit });
        }
        let local = self.handle.segment(from.0, self.handle.rank)?;
        let local = local.local(from.0, from.1, size)?;
        let remote = self.handle.segment(to.0, self.rank)?;
        let remote = remote.remote(to.0, to.1, size)?;
        Ok((local, remote))
    }

    /// The write of a notification, of 8 bytes, which arrive whole.
    #[inline(always)]
    fn told(
        &self,
        segment: SegmentId,
        (notification, value): (NotificationId, Notification),
    ) -> Result<Wqe<1>, Error> {
        let place = self.handle.notification_place(segment, notification, 1)?;
        if value == 0 {
            return Err(Error::InvalidNotificationValue);
        }
        let remote = self.notifications.remote(place);
        Ok(Wqe::write_value(value as u64, remote))
    }
}

/// A segment, and an offset in it.
type Place = (SegmentId, Offset);
