//! What a rank registers: a segment's bytes, and its notifications.

use crate::gaspi::{NotificationEntry, SegmentEntry};

use crate::Error;
use warpbell_host_init::{Access, Buffer, MemoryRegion, Placement, ProtectionDomain};

/// Bytes of a notification.
const NOTIFICATION_BYTES: usize = 8;

/// A segment at one rank.
#[derive(Debug)]
pub(super) struct Segment(MemoryRegion);

impl Segment {
    pub(super) fn new(
        domain: &ProtectionDomain,
        placement: Placement,
        bytes: usize,
    ) -> Result<Self, Error> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = domain.register(Buffer::placed(placement, bytes)?, access)?;
        Ok(Self(region))
    }

    /// What kernels are told of it.
    pub(super) fn entry(&self) -> SegmentEntry {
        SegmentEntry {
            address: self.0.address(),
            size: self.0.len() as u64,
            local_key: self.0.lkey().0,
            remote_key: self.0.rkey().0,
        }
    }

    pub(super) fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.0.read(offset, into)?)
    }

    pub(super) fn write(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        Ok(self.0.write(offset, from)?)
    }
}

/// The notifications of all segments of a rank.
#[derive(Debug)]
pub(super) struct Notifications(MemoryRegion);

impl Notifications {
    pub(super) fn new(
        domain: &ProtectionDomain,
        placement: Placement,
        count: usize,
    ) -> Result<Self, Error> {
        let buffer = Buffer::placed(placement, count * NOTIFICATION_BYTES)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Ok(Self(domain.register(buffer, access)?))
    }

    /// What kernels are told of them.
    pub(super) fn entry(&self) -> NotificationEntry {
        NotificationEntry {
            address: self.0.address(),
            remote_key: self.0.rkey().0,
            unused: 0,
        }
    }

    /// The first of them.
    pub(super) fn words(&self) -> *const warpbell::Word64 {
        self.0.as_ptr().cast()
    }

    /// Takes back what a segment had, from its first notification on.
    pub(super) fn clear(&self, first: usize, count: usize) -> Result<(), Error> {
        let zeros = vec![0; count * NOTIFICATION_BYTES];
        Ok(self.0.write(first * NOTIFICATION_BYTES, &zeros)?)
    }
}
