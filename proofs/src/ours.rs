//! A send queue of `warpbell` on memory that libmlx5 made: ring, doorbell record and send register.

use std::sync::atomic::Ordering;

use mlx5_wqe::{CqeOpcode, CqeTail, Opcode, QpNumber, WqeIndex};
use warpbell::{
    CompletionKind, CompletionParts, CompletionSlot, DoorbellPage, FenceReach, QueueState,
    SendDoorbell, SendParts, SendQueueHandle, Word32, Word64,
};

use crate::verbs::Verbs;

/// The longest message that the queue takes, in bytes.
pub const MAX_MESSAGE: u32 = 1 << 30;

/// A queue pair of libmlx5 that libmlx5 does not touch any more, and what else a send queue needs.
pub struct Ours {
    verbs: Verbs,
    completion: CompletionSlot,
    completion_record: Word32,
    state: QueueState,
}

impl Ours {
    /// A send queue on a queue pair to which nothing was posted.
    pub fn new(verbs: Verbs) -> Self {
        Self {
            verbs,
            completion: CompletionSlot::invalid(),
            completion_record: Word32::new(0),
            state: QueueState::new(),
        }
    }

    /// The queue, for whoever posts.
    pub fn handle(&self) -> SendQueueHandle<'_> {
        let at = self.verbs.addresses();
        let parts = SendParts {
            ring: at.send_ring as *mut _,
            // The record's second word is the send queue's.
            record: (at.record as *const Word32).wrapping_add(1),
            doorbell: at.doorbell as *const Word64,
            completions: CompletionParts {
                ring: &self.completion,
                record: &self.completion_record,
                depth_log2: 0,
                kind: CompletionKind::Collapsed,
            },
            state: &self.state,
            qpn: self.verbs.qpn(),
            max_message: MAX_MESSAGE,
            depth_log2: at.send_blocks.ilog2() as u8,
            reach: FenceReach::System,
            send_doorbell: SendDoorbell::WithRecord,
            doorbell_page: DoorbellPage::Memory,
        };
        // SAFETY: ring, record and register live as long as `verbs`, which gives nobody a way to post; the rest lives
        // in `self`.
        unsafe { SendQueueHandle::new(parts) }
    }

    /// The NIC's part: the WQE that begins at `newest`, and all before it, are done.
    pub fn complete(&self, newest: WqeIndex) {
        let opcode = CqeOpcode::REQUESTER;
        let tail = CqeTail::new(opcode, false, Opcode::RDMA_WRITE, self.qpn(), newest.0);
        self.completion.words()[7].store(tail.0, Ordering::Release);
    }

    /// The queue pair's number.
    pub fn qpn(&self) -> QpNumber {
        QpNumber::from_low_bits(self.verbs.qpn())
    }

    /// The 8 words of a block of the ring.
    pub fn block(&self, index: WqeIndex) -> [u64; 8] {
        let at = self.verbs.addresses();
        let slot = u64::from(index.0) % u64::from(at.send_blocks);
        // SAFETY: the slot lies in the ring, which lives as long as `verbs`; no post is under way on this thread.
        unsafe { ((at.send_ring + slot * 64) as *const [u64; 8]).read() }
    }

    /// The queue pair's doorbell record: receive, send.
    pub fn record(&self) -> [u32; 2] {
        self.verbs.record()
    }

    /// What was last stored to the send register.
    pub fn doorbell(&self) -> u64 {
        // SAFETY: the register lies in a page that lives as long as `verbs`.
        unsafe { (self.verbs.addresses().doorbell as *const u64).read_volatile() }
    }

    /// Destroys the queue pair, and closes the device.
    ///
    /// # Errors
    /// Not 0 where something could not be destroyed.
    pub fn close(self) -> Result<(), i32> {
        self.verbs.close()
    }
}
