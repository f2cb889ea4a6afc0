//! Send queues over one completion queue, in plain memory, and the test in the NIC's place.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use warpbell::wqe::{CqeErrorWord, CqeOpcode, CqeTail, Opcode, QpNumber, Syndrome, VendorCode};
use warpbell::{
    CompletionKind, CompletionMember, CompletionQueueHandle, CompletionQueueParts,
    CompletionQueueState, CompletionSlot, FenceReach,
};

use super::Rig;

#[cfg(loom)]
use loom::sync::atomic::fence;
#[cfg(not(loom))]
use std::sync::atomic::fence;

/// What `host-init` would allocate for a completion queue, and its queues.
pub struct Common {
    pub queues: Vec<Rig>,
    ring: Vec<CompletionSlot>,
    members: Vec<CompletionMember>,
    pub state: CompletionQueueState,
    /// CQEs written.
    written: Cell<usize>,
}

// SAFETY: only the test that plays the NIC uses `written`; the rest is as a rig.
unsafe impl Sync for Common {}

impl Common {
    /// So many queues of that depth, and a ring of so many CQEs.
    pub fn new(queues: u32, depth_log2: u8, ring: usize) -> Self {
        assert!(ring.is_power_of_two() && ring >= (queues as usize) << depth_log2);
        let rig =
            |index| Rig::new(depth_log2, CompletionKind::Collapsed).numbered(Self::qpn(index));
        let queues: Vec<_> = (0..queues).map(rig).collect();
        let places = (2 * queues.len()).next_power_of_two();
        let mut members = vec![CompletionMember::FREE; places];
        for (index, queue) in (0..).zip(&queues) {
            let entry = queue.entry();
            assert!(CompletionMember::enter(
                &mut members,
                Self::qpn(index),
                entry
            ));
        }
        Self {
            queues,
            ring: (0..ring).map(|_| CompletionSlot::invalid()).collect(),
            members,
            state: CompletionQueueState::new(),
            written: Cell::new(0),
        }
    }

    /// The number of a queue: far apart, as another program's queue pairs may lie in between.
    pub const fn qpn(index: u32) -> u32 {
        (0x00ab_cdef + index * 0x0001_0203) & 0xff_ffff
    }

    pub fn handle(&self) -> CompletionQueueHandle<'_> {
        let parts = CompletionQueueParts {
            ring: self.ring.as_ptr(),
            depth_log2: self.ring.len().ilog2() as u8,
            members: self.members.as_ptr(),
            members_log2: self.members.len().ilog2() as u8,
            state: &self.state,
            reach: FenceReach::System,
        };
        // SAFETY: all of it lives in `self`, which the handle borrows; the sizes are those of the vectors, and the ring
        // has room for all blocks of all queues.
        unsafe { CompletionQueueHandle::new(parts) }
    }

    /// The next CQE, as the NIC writes it: the last word last.
    pub fn write(&self, opcode: CqeOpcode, qpn: u32, index: u16, error: u64) {
        let number = self.written.get();
        self.written.set(number + 1);
        let owner = number / self.ring.len() % 2 == 1;
        let qpn = QpNumber::from_low_bits(qpn);
        let tail = CqeTail::new(opcode, owner, Opcode::RDMA_WRITE, qpn, index);
        let words = self.ring[number % self.ring.len()].words();
        words[6].store(error, Ordering::Relaxed);
        // Data and CQE before its last word, by which it counts as written.
        fence(Ordering::Release);
        words[7].store(tail.0, Ordering::Relaxed);
    }

    /// Completes the WQE of a queue whose first block has this index.
    pub fn complete(&self, queue: u32, index: u16) {
        self.write(CqeOpcode::REQUESTER, Self::qpn(queue), index, 0);
    }

    /// Fails it.
    pub fn fail(&self, queue: u32, index: u16, syndrome: Syndrome, vendor: u8) {
        let error = CqeErrorWord::new(syndrome, VendorCode(vendor)).0;
        let opcode = CqeOpcode::REQUESTER_ERROR;
        self.write(opcode, Self::qpn(queue), index, error);
    }
}
