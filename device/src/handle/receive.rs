//! The handle of a receive queue.

use core::marker::PhantomData;

use warpbell_gpu::arch::{Reach, RingSegment, Word32};

use super::{CompletionParts, Completions, FenceReach, Header};
use crate::error::OpenError;
use crate::processor::Processor;
use crate::queue::{ReceiveQueue, Scope, Sharing, Thread};
use crate::state::QueueState;

/// "WBRQ", as it reads in memory on a little-endian machine.
const RECEIVE_MAGIC: u32 = u32::from_le_bytes(*b"WBRQ");

/// Where a receive queue lies.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveParts {
    /// Ring of `1 << depth_log2` receive WQEs of `16 << stride_log2` bytes.
    pub ring: *mut RingSegment,
    /// Word 0 of the queue pair's doorbell record (the receive queue's).
    pub record: *const Word32,
    /// The completion queue that belongs to this receive queue alone; ordinary.
    pub completions: CompletionParts,
    /// The queue's device-side state, cleared.
    pub state: *const QueueState,
    /// Number of the queue pair.
    pub qpn: u32,
    /// Longest message in bytes that the card takes.
    pub max_message: u32,
    /// Base-2 logarithm of the number of receive WQEs.
    pub depth_log2: u8,
    /// Base-2 logarithm of the data segments in a receive WQE.
    pub stride_log2: u8,
    /// How far the queue's fences reach.
    pub reach: FenceReach,
}

/// What a kernel needs to know of one receive queue.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReceiveQueueHandle<'a> {
    header: Header,
    pub(crate) qpn: u32,
    pub(crate) max_message: u32,
    pub(crate) ring: *mut RingSegment,
    pub(crate) record: *const Word32,
    pub(crate) state: *const QueueState,
    pub(crate) completions: Completions,
    pub(crate) depth_log2: u8,
    pub(crate) stride_log2: u8,
    reach: u8,
    unused: u8,
    pub(crate) processor: Processor,
    _lifetime: PhantomData<&'a QueueState>,
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<ReceiveQueueHandle>() == 72);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, qpn) == 8);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, max_message) == 12);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, ring) == 16);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, record) == 24);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, state) == 32);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, completions) == 40);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, depth_log2) == 64);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, stride_log2) == 65);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, reach) == 66);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, processor) == 68);
};

// SAFETY: as for `SendQueueHandle`.
unsafe impl Send for ReceiveQueueHandle<'_> {}
// SAFETY: as for `SendQueueHandle`.
unsafe impl Sync for ReceiveQueueHandle<'_> {}

impl<'a> ReceiveQueueHandle<'a> {
    /// Makes the handle of a receive queue.
    ///
    /// # Safety
    /// As for [`SendQueueHandle::new`](crate::SendQueueHandle::new); the completion queue is ordinary and
    /// has at least as many entries as the ring has receive WQEs.
    pub const unsafe fn new(parts: ReceiveParts) -> Self {
        Self {
            header: Header::of::<Self>(RECEIVE_MAGIC),
            qpn: parts.qpn,
            max_message: parts.max_message,
            ring: parts.ring,
            record: parts.record,
            state: parts.state,
            completions: Completions::new(parts.completions),
            depth_log2: parts.depth_log2,
            stride_log2: parts.stride_log2,
            reach: parts.reach as u8,
            unused: 0,
            processor: Processor::UNKNOWN,
            _lifetime: PhantomData,
        }
    }

    /// The handle for kernels of one processor, as [`SendQueueHandle::on`](crate::SendQueueHandle::on).
    ///
    /// # Safety
    /// As there.
    pub const unsafe fn on(self, processor: Processor) -> Self {
        Self { processor, ..self }
    }

    /// Checks magic, version, size and the reach of fences.
    #[inline(always)]
    pub fn check(&self) -> Result<(), OpenError> {
        self.header.check::<Self>(RECEIVE_MAGIC)?;
        FenceReach::check(self.reach)
    }

    /// As [`SendQueueHandle::reach`](crate::SendQueueHandle::reach).
    #[inline(always)]
    pub(crate) const fn reach(&self) -> Reach {
        FenceReach::of(self.reach)
    }

    /// Opens the queue for this thread, as [`SendQueueHandle::open`](crate::SendQueueHandle::open) does.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn open<S: Sharing>(self) -> Result<ReceiveQueue<'a, S, Thread>, OpenError> {
        // SAFETY: a thread makes its calls together with itself.
        unsafe { self.open_together() }
    }

    /// Opens the queue for all threads of a scope, as
    /// [`SendQueueHandle::open_together`](crate::SendQueueHandle::open_together) does.
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub unsafe fn open_together<S: Sharing, C: Scope>(
        self,
    ) -> Result<ReceiveQueue<'a, S, C>, OpenError> {
        self.check()?;
        ReceiveQueue::open(self)
    }
}
