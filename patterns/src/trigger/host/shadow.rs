//! A tag's queue as the host sees it while no kernel runs, wherever it lies: what kernels' code does to it is carried
//! over.

use std::sync::atomic::Ordering;

use crate::trigger::{Counter, Error, MAX_THRESHOLD, TriggerEntry, TriggerHandle};
use warpbell::wqe::{Cqe64, Wqe, WqeIndex};
use warpbell::{
    CompletionKind, CompletionParts, CompletionSlot, Deadline, DoorbellPage, FenceReach,
    QueueState, RingBlock, SendParts, SendQueueHandle, Thread, Word32, Word64,
};

use warpbell_host_init::QueuePair;

/// Bytes of a basic block.
const BLOCK: usize = 64;

pub(super) struct Shadow {
    ring: Box<[RingBlock]>,
    record: Word32,
    doorbell: Word64,
    completions: Box<[CompletionSlot]>,
    completion_record: Word32,
    state: QueueState,
}

/// What a registration changed.
pub(super) struct Changes {
    /// The tag's word.
    pub counter: Counter,
    /// Blocks of the ring, with their slots.
    pub blocks: Vec<(usize, [u8; BLOCK])>,
    /// The words of record and doorbell, if the operation goes at once.
    pub published: Option<(u32, u64)>,
}

impl Shadow {
    /// A queue with those CQEs, one for each block. The ring's blocks need not be known: they are only stored to.
    pub(super) fn new(found: &[[u8; BLOCK]]) -> Self {
        let slot = |bytes: &[u8; BLOCK]| {
            let slot = CompletionSlot::invalid();
            let words = Cqe64::from_bytes(*bytes).to_words();
            for (word, value) in slot.words().iter().zip(words) {
                word.store(value, Ordering::Relaxed);
            }
            slot
        };
        Self {
            ring: found.iter().map(|_| RingBlock::zeroed()).collect(),
            record: Word32::new(0),
            doorbell: Word64::new(0),
            completions: found.iter().map(slot).collect(),
            completion_record: Word32::new(0),
            state: QueueState::new(),
        }
    }

    /// Registers an operation with the kernels' own code.
    pub(super) fn register<const N: usize>(
        &mut self,
        pair: &QueuePair,
        before: Counter,
        threshold: u32,
        wqes: [Wqe<1>; N],
    ) -> Result<Changes, Error> {
        let ring = self.ring.as_mut_ptr();
        let real = pair.send_parts();
        let parts = SendParts {
            ring,
            record: &self.record,
            doorbell: &self.doorbell,
            completions: CompletionParts {
                ring: self.completions.as_ptr(),
                record: &self.completion_record,
                depth_log2: real.depth_log2,
                kind: CompletionKind::Ordinary,
            },
            state: &self.state,
            qpn: real.qpn,
            max_message: real.max_message,
            depth_log2: real.depth_log2,
            reach: FenceReach::System,
            send_doorbell: real.send_doorbell,
            doorbell_page: DoorbellPage::Memory,
        };
        // SAFETY: all of it lies in `self`, whose ring is of that depth, and nobody else knows of it.
        let entry = unsafe { TriggerEntry::new(SendQueueHandle::new(parts), before) };
        // SAFETY: a table of one, which outlives the handle.
        let triggers = unsafe { TriggerHandle::new(&entry, 1) }.open()?;
        triggers.register::<Thread, N>(0, threshold, wqes, Deadline::PASSED)?;
        let counter = triggers.counter(0)?;
        let slots = 1usize << real.depth_log2;
        let blocks = (0..N)
            .map(|number| {
                let slot = (usize::from(before.end().0) + number) % slots;
                // SAFETY: inside the ring; a block is 64 plain bytes, and nobody stores to it now.
                let block = unsafe { ring.add(slot).cast::<[u8; BLOCK]>().read() };
                (slot, block)
            })
            .collect();
        let doorbell = self.doorbell.load(Ordering::Relaxed);
        let published =
            (counter.missing() == 0).then(|| (self.record.load(Ordering::Relaxed), doorbell));
        Ok(Changes {
            counter,
            blocks,
            published,
        })
    }

    /// Stores WQEs from an index on, under no tag: all that was there before is done, or is held back as they are.
    pub(super) fn store<const N: usize>(
        &mut self,
        pair: &QueuePair,
        index: WqeIndex,
        wqes: [Wqe<1>; N],
    ) -> Result<Changes, Error> {
        self.register(pair, Counter::new(index, 0, 0), MAX_THRESHOLD, wqes)
    }
}

impl Changes {
    /// How many CQEs its WQEs make: one for each block.
    pub(super) fn completions(&self) -> u32 {
        self.blocks.len() as u32
    }
}
