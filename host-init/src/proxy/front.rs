//! The memory of a queue that kernels share with a proxy.

use warpbell::{
    CompletionKind, CompletionParts, CompletionSlot, DoorbellPage, FenceReach, QueueState,
    SendDoorbell, SendParts, SendQueueHandle, Word32, Word64,
};

use crate::config::Checked;
use crate::queue_memory::{STATE, state_in, states_placement};
use crate::{Buffer, Error, Placement, QueuePair};

/// Bytes between what kernels write and what the proxy writes: two cache lines, which CPUs fetch together.
const APART: usize = 128;
const SLOT: usize = size_of::<CompletionSlot>();

/// A doorbell, a CQE, perhaps a ring, and the kernels' own words.
#[derive(Debug)]
pub(super) struct Front {
    /// The CQE, the doorbell, the ring if it has one.
    shared: Buffer,
    state: Buffer,
    config: Checked,
}

impl Front {
    /// A fresh one beside a queue of that configuration, where kernels and proxy reach it; with a ring of its own, or
    /// for kernels that write to the NIC's.
    pub fn new(config: &Checked, kernels: Placement, own_ring: bool) -> Result<Self, Error> {
        if !kernels.is_host() {
            let what = "what kernels share with a proxy";
            let placement = kernels;
            return Err(Error::OutOfReach { what, placement });
        }
        let ring = match own_ring {
            true => SLOT << config.send_depth_log2,
            false => 0,
        };
        let front = Self {
            shared: Buffer::placed(kernels, 2 * APART + ring)?,
            state: Buffer::placed(states_placement(kernels), STATE)?,
            config: *config,
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
    /// The memory lives as long as the handle is used, and so does the queue pair, whose configuration is that of
    /// `new`.
    pub unsafe fn handle<'a>(&self, pair: &QueuePair) -> SendQueueHandle<'a> {
        let ring = match self.shared.len() > 2 * APART {
            true => self.at(2 * APART),
            false => pair.send_ring(),
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
            state: self.state.as_ptr().cast::<QueueState>(),
            qpn: pair.qpn(),
            max_message: self.config.max_message,
            depth_log2: self.config.send_depth_log2,
            reach: FenceReach::System,
            send_doorbell: SendDoorbell::WithoutRecord,
            doorbell_page: DoorbellPage::Memory,
        };
        // SAFETY: all pointers lead into the memory of `self`, or to the queue pair's ring, which has room for that depth,
        // and both of which the caller keeps. Its kernels run where the state lies. Kernels and the proxy alone write there; the proxy takes the producer index from the doorbell.
        unsafe { SendQueueHandle::new(parts).on(self.state.placement().processor()) }
    }

    /// The kernels' own words, as they are now; as new on a GPU that is lost.
    pub fn state(&self) -> QueueState {
        state_in(&self.state, 0)
    }
}
