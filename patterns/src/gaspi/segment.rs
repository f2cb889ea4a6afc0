//! What is known of a rank's memory: its segments, its notifications.

use mlx5_wqe::{Local, LocalKey, Remote, RemoteKey};

use super::error::Error;
use super::{Offset, SegmentId, Size};

/// A segment of one rank, as the host describes it to all.
///
/// `repr(C)`, 24 bytes; all zero where there is no such segment.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentEntry {
    /// Address of the first byte.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Key for this rank's own requests; means nothing at another one.
    pub local_key: u32,
    /// Key for the other ranks' requests.
    pub remote_key: u32,
}

/// Where a rank has its notifications, as the host describes it to all: those of segment 0, then those of the next.
///
/// `repr(C)`, 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotificationEntry {
    /// Address of the first: 8 bytes for each, aligned to them, the value in the low half.
    pub address: u64,
    /// Key for the other ranks' requests.
    pub remote_key: u32,
    /// Nothing.
    pub unused: u32,
}

const _: () = {
    assert!(size_of::<SegmentEntry>() == 24);
    assert!(size_of::<NotificationEntry>() == 16);
};

/// Bytes from one notification to the next.
const NOTIFICATION_BYTES: u64 = 8;

impl SegmentEntry {
    /// The entry in words, in the order of its bytes on a little-endian machine.
    pub const fn to_words(self) -> [u64; 3] {
        let keys = (self.remote_key as u64) << 32 | self.local_key as u64;
        [self.address, self.size, keys]
    }

    /// Whether these bytes lie in it.
    #[inline(always)]
    fn has(&self, offset: Offset, size: Size) -> bool {
        // No sum, which could wrap.
        size <= self.size && offset <= self.size - size
    }

    /// Bytes of this rank's own segment, for a request.
    #[inline(always)]
    pub(super) fn local(
        &self,
        segment: SegmentId,
        offset: Offset,
        size: Size,
    ) -> Result<Local, Error> {
        if !self.has(offset, size) {
            return Err(Error::InvalidLocalOffset { segment });
        }
        Ok(Local {
            address: self.address + offset,
            // The caller has compared it with the longest message.
            length: size as u32,
            key: LocalKey(self.local_key),
        })
    }

    /// Bytes of another rank's segment, for a request.
    #[inline(always)]
    pub(super) fn remote(
        &self,
        segment: SegmentId,
        offset: Offset,
        size: Size,
    ) -> Result<Remote, Error> {
        if !self.has(offset, size) {
            return Err(Error::InvalidRemoteOffset { segment });
        }
        Ok(Remote {
            address: self.address + offset,
            key: RemoteKey(self.remote_key),
        })
    }
}

impl NotificationEntry {
    /// The entry in words, in the order of its bytes on a little-endian machine.
    pub const fn to_words(self) -> [u64; 2] {
        [self.address, self.remote_key as u64]
    }

    /// The notification in this place, for a request.
    #[inline(always)]
    pub(super) fn remote(&self, place: u64) -> Remote {
        Remote {
            address: self.address + NOTIFICATION_BYTES * place,
            key: RemoteKey(self.remote_key),
        }
    }
}
