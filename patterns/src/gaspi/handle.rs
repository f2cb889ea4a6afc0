//! What a kernel receives: one rank's view of the program.

use core::marker::PhantomData;

use warpbell_gpu::arch::Word64;

use super::error::Error;
use super::process::Gaspi;
use super::segment::{NotificationEntry, SegmentEntry};
use super::{NotificationId, QueueId, Rank, SegmentId};
use warpbell::FenceReach;
use warpbell::{ABI_VERSION, SendQueueHandle};

/// "WBGA", as it reads in memory on a little-endian machine.
const MAGIC: u32 = u32::from_le_bytes(*b"WBGA");

/// What the host puts into a [`GaspiHandle`].
#[derive(Clone, Copy, Debug)]
pub struct GaspiParts<'a> {
    /// This rank.
    pub rank: Rank,
    /// How many there are.
    pub ranks: u32,
    /// Queues of each rank.
    pub queues: u32,
    /// Which segments are there, at all ranks: bit n is segment n.
    pub segments: u64,
    /// Notifications of each segment.
    pub notifications: u32,
    /// Longest message in bytes.
    pub transfer_size_max: u32,
    /// Milliseconds after which [`GASPI_BLOCK`](super::GASPI_BLOCK) gives up.
    pub block_ms: u32,
    /// How far the fences reach that order what the NIC brought.
    pub reach: FenceReach,
    /// The send queue of each queue to each rank, at `queue * ranks + rank`;
    /// [`SendQueueHandle::none`] for a rank without a connection.
    pub send_queues: *const SendQueueHandle<'a>,
    /// Each segment at each rank, at `segment * ranks + rank`, up to the last segment that is there.
    pub segment_entries: *const SegmentEntry,
    /// Each rank's notifications.
    pub notification_entries: *const NotificationEntry,
    /// This rank's notifications: those of segment 0, then those of the next, up to the last segment that is there.
    pub notification_words: *const Word64,
}

/// One rank's view of a GASPI program, for its kernels. `repr(C)`, 80 bytes: the host hands it over by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GaspiHandle<'a> {
    magic: u32,
    version: u16,
    size: u16,
    pub(super) rank: Rank,
    pub(super) ranks: u32,
    pub(super) queues: u32,
    /// [`FenceReach`] as a number, because a handle of another version may hold anything.
    pub(super) reach: u32,
    pub(super) notifications: u32,
    pub(super) transfer_size_max: u32,
    pub(super) block_ms: u32,
    unused: u32,
    segments: u64,
    notification_words: *const Word64,
    send_queues: *const SendQueueHandle<'a>,
    segment_entries: *const SegmentEntry,
    notification_entries: *const NotificationEntry,
    _lifetime: PhantomData<&'a SegmentEntry>,
}

const _: () = {
    assert!(size_of::<GaspiHandle>() == 80);
    assert!(core::mem::offset_of!(GaspiHandle, rank) == 8);
    assert!(core::mem::offset_of!(GaspiHandle, reach) == 20);
    assert!(core::mem::offset_of!(GaspiHandle, segments) == 40);
    assert!(core::mem::offset_of!(GaspiHandle, notification_words) == 48);
    assert!(core::mem::offset_of!(GaspiHandle, notification_entries) == 72);
};

// SAFETY: a handle is a set of numbers, and of addresses of tables that every thread of a grid may read (the
// promise of `new`).
unsafe impl Send for GaspiHandle<'_> {}
// SAFETY: as for `Send`; the handle is never written.
unsafe impl Sync for GaspiHandle<'_> {}

impl<'a> GaspiHandle<'a> {
    /// Makes the handle of a rank.
    ///
    /// # Safety
    /// For the lifetime `'a`, the tables are as long as `parts` says and are not written; every send queue in
    /// them fulfils the promise of [`SendQueueHandle::new`]; this rank's notifications and
    /// the bytes of its segments are there for every thread that gets the handle, and are touched by NICs and as
    /// atomics only. With [`FenceReach::Gpu`] the promise of
    /// [`SendQueueHandle::new`] about it holds for the segments, too.
    pub const unsafe fn new(parts: GaspiParts<'a>) -> Self {
        Self {
            magic: MAGIC,
            version: ABI_VERSION,
            size: size_of::<Self>() as u16,
            rank: parts.rank,
            ranks: parts.ranks,
            queues: parts.queues,
            reach: parts.reach as u32,
            notifications: parts.notifications,
            transfer_size_max: parts.transfer_size_max,
            block_ms: parts.block_ms,
            unused: 0,
            segments: parts.segments,
            notification_words: parts.notification_words,
            send_queues: parts.send_queues,
            segment_entries: parts.segment_entries,
            notification_entries: parts.notification_entries,
            _lifetime: PhantomData,
        }
    }

    /// Checks magic, version, size and the reach of fences, and gives the rank's calls.
    ///
    /// # Errors
    /// [`Error::Handle`].
    #[inline(always)]
    pub fn open(self) -> Result<Gaspi<'a>, Error> {
        let good = self.magic == MAGIC
            && self.version == ABI_VERSION
            && self.size as usize == size_of::<Self>()
            && self.reach <= FenceReach::Gpu as u32;
        match good {
            true => Ok(Gaspi::new(self)),
            false => Err(Error::Handle),
        }
    }

    /// The send queue to a rank.
    #[inline(always)]
    pub(super) fn send_queue(
        &self,
        queue: QueueId,
        rank: Rank,
    ) -> Result<SendQueueHandle<'a>, Error> {
        if queue >= self.queues {
            return Err(Error::InvalidQueue { queue });
        }
        if rank >= self.ranks {
            return Err(Error::InvalidRank { rank });
        }
        let place = queue as usize * self.ranks as usize + rank as usize;
        // SAFETY: the table has queues * ranks places (the promise of `new`).
        Ok(unsafe { *self.send_queues.add(place) })
    }

    /// Refuses a segment that is not there.
    #[inline(always)]
    pub(super) fn check_segment(&self, segment: SegmentId) -> Result<(), Error> {
        // A shift by 64 or more would be one by less.
        if segment < u64::BITS && self.segments >> segment & 1 != 0 {
            return Ok(());
        }
        Err(Error::InvalidSegment { segment })
    }

    /// A segment at a rank that there is.
    #[inline(always)]
    pub(super) fn segment(&self, segment: SegmentId, rank: Rank) -> Result<SegmentEntry, Error> {
        self.check_segment(segment)?;
        let place = segment as usize * self.ranks as usize + rank as usize;
        // SAFETY: the table reaches to the last segment that is there (the promise of `new`), and the rank is one of
        // its: the caller's own, or one that `send_queue` has checked.
        Ok(unsafe { *self.segment_entries.add(place) })
    }

    /// The notifications of a rank that there is.
    #[inline(always)]
    pub(super) fn notification_entry(&self, rank: Rank) -> NotificationEntry {
        // SAFETY: the table has a place for each rank (the promise of `new`), and `send_queue` has checked this one.
        unsafe { *self.notification_entries.add(rank as usize) }
    }

    /// The place of a segment's notifications from `begin` on, if `num` of them are there.
    #[inline(always)]
    pub(super) fn notification_place(
        &self,
        segment: SegmentId,
        begin: NotificationId,
        num: u32,
    ) -> Result<u64, Error> {
        self.check_segment(segment)?;
        // No sum, which could wrap.
        if num > self.notifications || begin > self.notifications - num {
            return Err(Error::InvalidNotification {
                notification: begin,
            });
        }
        Ok(segment as u64 * self.notifications as u64 + begin as u64)
    }

    /// This rank's own notifications from a place on.
    #[inline(always)]
    pub(super) fn notification_words(&self, place: u64) -> *const Word64 {
        // SAFETY: `notification_place` gave the place of one that is there, or of the end behind the last.
        unsafe { self.notification_words.add(place as usize) }
    }
}
