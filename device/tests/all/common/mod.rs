//! A send queue in plain memory, and the test in the NIC's place.
#![allow(dead_code, reason = "each kind of build needs a part of it")]

pub mod completion_queue;
#[cfg(loom)]
pub mod model;

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering;

use warpbell::wqe::{
    Cqe64, CqeErrorWord, CqeOpcode, CqeTail, Doorbell, DoorbellRecord, Opcode, QpNumber, Syndrome,
    VendorCode, WqeIndex,
};
use warpbell::{
    CompletionKind, CompletionParts, CompletionSlot, DoorbellPage, FenceReach, QueueState,
    RingBlock, SendDoorbell, SendParts, SendQueueHandle, Word32, Word64,
};

#[cfg(loom)]
use loom::sync::atomic::fence;
#[cfg(not(loom))]
use std::sync::atomic::fence;

pub const QPN: u32 = 0x0012_3456;
pub const MAX_MESSAGE: u32 = 1 << 30;

/// What `host-init` would allocate for a send queue.
pub struct Rig {
    depth_log2: u8,
    ring: Vec<UnsafeCell<RingBlock>>,
    record: [Word32; 2],
    doorbell: Word64,
    kind: CompletionKind,
    completions: Vec<CompletionSlot>,
    completion_record: [Word32; 2],
    send_doorbell: SendDoorbell,
    doorbell_page: DoorbellPage,
    reach: FenceReach,
    qpn: u32,
    pub state: QueueState,
}

// SAFETY: the ring's blocks are atomics under loom; elsewhere no test uses a rig
// from two threads.
unsafe impl Sync for Rig {}
// SAFETY: nothing in a rig belongs to a thread.
unsafe impl Send for Rig {}

impl Rig {
    pub fn new(depth_log2: u8, kind: CompletionKind) -> Self {
        let depth = 1 << depth_log2;
        let entries = match kind {
            CompletionKind::Collapsed => 1,
            CompletionKind::Ordinary => depth,
        };
        Self {
            depth_log2,
            ring: (0..depth)
                .map(|_| UnsafeCell::new(RingBlock::zeroed()))
                .collect(),
            record: [Word32::new(0), Word32::new(0)],
            doorbell: Word64::new(0),
            kind,
            completions: (0..entries).map(|_| CompletionSlot::invalid()).collect(),
            completion_record: [Word32::new(0), Word32::new(0)],
            send_doorbell: SendDoorbell::WithRecord,
            doorbell_page: DoorbellPage::Memory,
            reach: FenceReach::System,
            qpn: QPN,
            state: QueueState::new(),
        }
    }

    /// The same, and the NIC takes the producer index from there.
    pub fn with_doorbell(self, send_doorbell: SendDoorbell) -> Self {
        Self {
            send_doorbell,
            ..self
        }
    }

    /// The same, and a CPU rings on a page of that kind.
    pub fn on_page(self, doorbell_page: DoorbellPage) -> Self {
        Self {
            doorbell_page,
            ..self
        }
    }

    /// The same, and the NIC is among the kernels.
    pub fn within_gpu(self) -> Self {
        Self {
            reach: FenceReach::Gpu,
            ..self
        }
    }

    /// The same, with another number.
    pub fn numbered(self, qpn: u32) -> Self {
        Self { qpn, ..self }
    }

    /// The first CQE's place.
    pub fn entry(&self) -> &CompletionSlot {
        &self.completions[0]
    }

    pub fn handle(&self) -> SendQueueHandle<'_> {
        self.handle_on(self)
    }

    /// A queue whose ring is that of another rig of the same depth.
    pub fn handle_on<'a>(&'a self, other: &'a Self) -> SendQueueHandle<'a> {
        assert_eq!(self.depth_log2, other.depth_log2);
        let completions_log2 = self.completions.len().trailing_zeros() as u8;
        let parts = SendParts {
            ring: other.ring.as_ptr().cast_mut().cast(),
            record: &self.record[1],
            doorbell: &self.doorbell,
            completions: CompletionParts {
                ring: self.completions.as_ptr(),
                record: &self.completion_record[0],
                depth_log2: completions_log2,
                kind: self.kind,
            },
            state: &self.state,
            qpn: self.qpn,
            max_message: MAX_MESSAGE,
            depth_log2: self.depth_log2,
            reach: self.reach,
            send_doorbell: self.send_doorbell,
            doorbell_page: self.doorbell_page,
        };
        // SAFETY: all of it lives in `self`, which the handle borrows; the
        // sizes are those of the vectors.
        unsafe { SendQueueHandle::new(parts) }
    }

    /// Stores the record, in no order.
    pub fn store_record(&self, end: WqeIndex) {
        self.record[1].store(DoorbellRecord::word(end.0), Ordering::Relaxed);
    }

    /// Rings the doorbell, in no order.
    pub fn ring(&self, end: WqeIndex) {
        let doorbell = Doorbell::of_producer(end, QpNumber::from_low_bits(QPN));
        self.doorbell.store(doorbell.0, Ordering::Relaxed);
    }

    /// The producer index that the doorbell carries, if it was ever rung.
    pub fn doorbell_index(&self) -> Option<u16> {
        // The doorbell before the record, as the NIC reads them. No fence: loom's acquires what the thread that rang has
        // seen, too, whether or not that thread acquired it.
        let word = self.doorbell.load(Ordering::Acquire);
        (word != 0).then(|| (u64::from_be(word) >> 40) as u16)
    }

    /// The same, taken out of the register: the next one that is found was rung later.
    pub fn take_doorbell(&self) -> Option<u16> {
        let word = self.doorbell.swap(0, Ordering::Acquire);
        (word != 0).then(|| (u64::from_be(word) >> 40) as u16)
    }

    /// The record's producer index.
    pub fn producer_index(&self) -> u16 {
        // The record before the WQEs, as the NIC reads them.
        u32::from_be(self.record[1].load(Ordering::Acquire)) as u16
    }

    /// A word of the ring as the NIC reads it: block, then word 0 to 7.
    pub fn ring_word(&self, block: usize, word: usize) -> u64 {
        let block = self.ring[block & (self.ring.len() - 1)].get();
        #[cfg(loom)]
        // SAFETY: the words are atomics, so a shared reference will do.
        let value = unsafe { &*block }.0[word].load(Ordering::Relaxed);
        #[cfg(not(loom))]
        // SAFETY: a block is 64 plain bytes; no test posts at the same time.
        let value = unsafe { block.cast::<u64>().add(word).read() };
        value
    }

    /// Overwrites the first 16 bytes of a block, as a kernel does that leaves this library aside.
    #[cfg(not(loom))]
    pub fn overwrite(&self, block: usize, words: [u64; 2]) {
        let block = self.ring[block & (self.ring.len() - 1)].get();
        // SAFETY: a block is 64 plain bytes; no test posts at the same time.
        unsafe { block.cast::<[u64; 2]>().write(words) };
    }

    /// Stores to the doorbell, as such a kernel does.
    pub fn ring_by_hand(&self, word: u64) {
        self.doorbell.store(word, Ordering::Relaxed);
    }

    /// Index and opcode in the control segment of a block.
    pub fn control(&self, block: usize) -> (u16, Opcode) {
        let word = u64::from_be(self.ring_word(block, 0));
        ((word >> 40) as u16, Opcode((word >> 32) as u8))
    }

    /// Whether the WQE at a block asks for a CQE.
    pub fn signalled(&self, block: usize) -> bool {
        u64::from_be(self.ring_word(block, 1)) >> 32 & 0x08 != 0
    }

    /// Writes CQE number `number` as the NIC does: the last word last.
    pub fn write_cqe(&self, number: usize, cqe: Cqe64, release: bool) {
        let slot = &self.completions[number & (self.completions.len() - 1)];
        let words = cqe.to_words();
        for (word, value) in slot.words().iter().zip(words).take(7) {
            word.store(value, Ordering::Relaxed);
        }
        if release {
            // Data and CQE before its last word, by which it counts as written.
            fence(Ordering::Release);
        }
        slot.words()[7].store(words[7], Ordering::Relaxed);
    }

    /// Completes the WQE whose first block has this index, as CQE `number`.
    pub fn complete(&self, number: usize, wqe_counter: u16) {
        self.write_cqe(number, self.completion(number, wqe_counter), true);
    }

    /// The CQE that completes the WQE whose first block has this index.
    pub fn completion(&self, number: usize, wqe_counter: u16) -> Cqe64 {
        self.cqe(number, CqeOpcode::REQUESTER, wqe_counter)
    }

    /// Fails the WQE whose first block has this index, as CQE `number`.
    pub fn fail(&self, number: usize, wqe_counter: u16, syndrome: Syndrome, vendor: u8) {
        let mut words = self
            .cqe(number, CqeOpcode::REQUESTER_ERROR, wqe_counter)
            .to_words();
        words[6] = CqeErrorWord::new(syndrome, VendorCode(vendor)).0;
        self.write_cqe(number, Cqe64::from_words(words), true);
    }

    fn cqe(&self, number: usize, opcode: CqeOpcode, wqe_counter: u16) -> Cqe64 {
        let owner = match self.kind {
            CompletionKind::Collapsed => false,
            CompletionKind::Ordinary => number / self.completions.len() % 2 == 1,
        };
        let qpn = QpNumber::from_low_bits(self.qpn);
        let tail = CqeTail::new(opcode, owner, Opcode::RDMA_WRITE, qpn, wqe_counter);
        Cqe64::from_words([0, 0, 0, 0, 0, 0, 0, tail.0])
    }

    /// The completion record's consumer index.
    pub fn completion_consumer(&self) -> u32 {
        u32::from_be(self.completion_record[0].load(Ordering::Relaxed))
    }
}
