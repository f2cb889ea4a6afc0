//! The memory of a queue that kernels share with a proxy.

use warpbell::{
    CompletionKind, CompletionParts, CompletionSlot, DoorbellPage, FenceReach, QueueState,
    SendDoorbell, SendParts, SendQueueHandle, Word32, Word64,
};

use super::lines::{Line, ProducerLines};
use crate::Error;
use warpbell_host_init::{Buffer, Error as StartError, Placement, QueuePair};

/// Bytes between what kernels write and what the proxy writes: two cache lines, which CPUs fetch together.
const APART: usize = 128;
const SLOT: usize = size_of::<CompletionSlot>();

/// A doorbell, a CQE, perhaps a ring, and the kernels' own words.
#[derive(Debug)]
pub(super) struct Front {
    /// The CQE, the doorbell, the ring if it has one.
    shared: Buffer,
    line: Line,
}

impl Front {
    /// A fresh one beside the send queue of `pair`, where kernels and proxy reach it; with a ring of its own, or for
    /// kernels that write to the NIC's. The kernels' own words are in `lines`, if there are such.
    pub fn new(
        pair: &QueuePair,
        kernels: Placement,
        own_ring: bool,
        lines: Option<&ProducerLines>,
    ) -> Result<Self, Error> {
        if !kernels.is_host() {
            let what = "what kernels share with a proxy";
            let placement = kernels;
            return Err(StartError::OutOfReach { what, placement }.into());
        }
        let ring = match own_ring {
            true => SLOT << pair.send_parts().depth_log2,
            false => 0,
        };
        let line = match lines {
            Some(lines) => lines.take(kernels)?,
            None => ProducerLines::new(kernels, 1)?.take(kernels)?,
        };
        let front = Self {
            shared: Buffer::placed(kernels, 2 * APART + ring)?,
            line,
        };
        // SAFETY: it lies inside, and any bytes are a slot.
        unsafe { &*front.at::<CompletionSlot>(0) }.invalidate();
        Ok(front)
    }

    /// A part of the shared memory.
    fn at<T>(&self, offset: usize) -> *mut T {
        debug_assert!(offset < self.shared.len());
        // SAFETY: every offset lies inside.
        unsafe { self.shared.as_ptr().add(offset) }.cast()
    }

    /// The queue that kernels post to, and a proxy takes from, beside that queue pair.
    ///
    /// # Safety
    /// The memory lives as long as the handle is used, and so does the queue pair, which is that of `new`.
    pub unsafe fn handle<'a>(&self, pair: &QueuePair) -> SendQueueHandle<'a> {
        let nic = pair.send_parts();
        let ring = match self.shared.len() > 2 * APART {
            true => self.at(2 * APART),
            false => nic.ring,
        };
        let parts = SendParts {
            ring,
            // Never touched: without a record, and with collapsed completions.
            record: std::ptr::null::<Word32>(),
            doorbell: self.at::<Word64>(APART),
            completions: CompletionParts {
                ring: self.at(0),
                record: std::ptr::null::<Word32>(),
                depth_log2: 0,
                kind: CompletionKind::Collapsed,
            },
            state: self.line.words(),
            qpn: nic.qpn,
            max_message: nic.max_message,
            depth_log2: nic.depth_log2,
            reach: FenceReach::System,
            send_doorbell: SendDoorbell::WithoutRecord,
            doorbell_page: DoorbellPage::Memory,
        };
        // SAFETY: all pointers lead into the memory of `self`, or to the queue pair's ring, which has room for that
        // depth, and both of which the caller keeps. Its kernels run where the state lies. Kernels and the proxy alone
        // write there; the proxy takes the producer index from the doorbell.
        unsafe { SendQueueHandle::new(parts).on(self.line.placement().processor()) }
    }

    /// The kernels' own words, as they are now; as new on a GPU that is lost.
    pub fn state(&self) -> QueueState {
        self.line.state()
    }
}
