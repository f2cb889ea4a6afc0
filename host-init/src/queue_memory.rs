//! The memory of one queue pair: rings, completion rings, doorbell records, UAR
//! page and device-side states, in one allocation.

use mlx5_wqe::{DoorbellRecord, Octoword};
use warpbell::{CompletionSlot, QueueState, RingBlock, RingSegment, Word32, Word64};

use crate::config::Checked;
use crate::outstanding::SendQueueImage;
use crate::{Buffer, Error};

const PAGE: usize = 4096;
/// The doorbell register of a UAR page (BlueFlame).
const DOORBELL_AT: usize = 0x800;
/// Bytes of a CQE and of a basic block.
const SLOT: usize = 64;
/// Doorbell records lie on cache lines of their own.
const RECORD: usize = 64;
/// Where a CQE says that it is valid, and what an unused one says there: opcode
/// 15 (invalid) and owner 0.
const OP_OWN_AT: usize = 63;
const OP_OWN_UNUSED: u8 = 0xf0;

/// Where each part starts, in bytes from the start of the allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    uar: usize,
    send_ring: usize,
    send_completions: usize,
    receive_completions: usize,
    receive_ring: usize,
    send_state: usize,
    receive_state: usize,
    record: usize,
    send_completion_record: usize,
    receive_completion_record: usize,
    end: usize,
}

impl Layout {
    /// Parts in falling order of alignment, so that no gaps come up; every part
    /// but the last is a multiple of the next one's alignment.
    fn new(config: &Checked) -> Self {
        let mut end = 0usize;
        let mut part = |bytes: usize, alignment: usize| {
            let start = end.next_multiple_of(alignment);
            end = start + bytes;
            start
        };
        let receive = config.receive.as_ref();
        Self {
            uar: part(PAGE, PAGE),
            send_ring: part(SLOT << config.send_depth_log2, PAGE),
            send_completions: part(SLOT << config.send_completions.depth_log2, SLOT),
            receive_completions: part(
                receive.map_or(0, |receive| SLOT << receive.completions.depth_log2),
                SLOT,
            ),
            receive_ring: part(
                receive.map_or(0, |receive| {
                    size_of::<Octoword>() << (receive.depth_log2 + receive.stride_log2)
                }),
                SLOT,
            ),
            send_state: part(size_of::<QueueState>(), align_of::<QueueState>()),
            receive_state: part(size_of::<QueueState>(), align_of::<QueueState>()),
            record: part(RECORD, RECORD),
            send_completion_record: part(RECORD, RECORD),
            receive_completion_record: part(RECORD, RECORD),
            end,
        }
    }
}

/// The addresses that a NIC needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueAddresses {
    pub uar: u64,
    pub send_ring: u64,
    pub receive_ring: u64,
    pub record: u64,
    pub send_completions: u64,
    pub send_completion_record: u64,
    pub receive_completions: u64,
    pub receive_completion_record: u64,
}

/// One queue pair's memory.
#[derive(Debug)]
pub(crate) struct QueueMemory {
    buffer: Buffer,
    layout: Layout,
    config: Checked,
}

impl QueueMemory {
    pub fn new(config: &Checked) -> Result<Self, Error> {
        let layout = Layout::new(config);
        let mut memory = Self {
            buffer: Buffer::placed(config.placement, layout.end)?,
            layout,
            config: *config,
        };
        memory.clear()?;
        Ok(memory)
    }

    /// Makes everything as a fresh queue needs it: zeros, and unused CQEs.
    ///
    /// Neither NIC nor kernel may use the memory (`&mut self`).
    pub fn clear(&mut self) -> Result<(), Error> {
        let mut fresh = vec![0; self.buffer.len()];
        let mut mark_unused = |completions: usize, depth_log2: u8| {
            for entry in 0..1 << depth_log2 {
                fresh[completions + entry * SLOT + OP_OWN_AT] = OP_OWN_UNUSED;
            }
        };
        let (layout, config) = (&self.layout, &self.config);
        mark_unused(layout.send_completions, config.send_completions.depth_log2);
        if let Some(receive) = config.receive {
            mark_unused(layout.receive_completions, receive.completions.depth_log2);
        }
        self.buffer.write(0, &fresh)
    }

    fn at<T>(&self, offset: usize) -> *mut T {
        debug_assert!(offset < self.buffer.len());
        // SAFETY: every offset of the layout lies inside the allocation.
        unsafe { self.buffer.as_ptr().add(offset) }.cast()
    }

    fn address(&self, offset: usize) -> u64 {
        self.at::<u8>(offset).expose_provenance() as u64
    }

    pub fn addresses(&self) -> QueueAddresses {
        QueueAddresses {
            uar: self.address(self.layout.uar),
            send_ring: self.address(self.layout.send_ring),
            receive_ring: self.address(self.layout.receive_ring),
            record: self.address(self.layout.record),
            send_completions: self.address(self.layout.send_completions),
            send_completion_record: self.address(self.layout.send_completion_record),
            receive_completions: self.address(self.layout.receive_completions),
            receive_completion_record: self.address(self.layout.receive_completion_record),
        }
    }

    pub fn send_ring(&self) -> *mut RingBlock {
        self.at(self.layout.send_ring)
    }

    pub fn receive_ring(&self) -> *mut RingSegment {
        self.at(self.layout.receive_ring)
    }

    pub fn doorbell(&self) -> *const Word64 {
        self.at(self.layout.uar + DOORBELL_AT)
    }

    /// Word 0 of the queue pair's doorbell record; word 1 is the send queue's.
    pub fn record(&self) -> *const Word32 {
        self.at(self.layout.record)
    }

    pub fn send_completions(&self) -> (*const CompletionSlot, *const Word32) {
        (
            self.at(self.layout.send_completions),
            self.at(self.layout.send_completion_record),
        )
    }

    pub fn receive_completions(&self) -> (*const CompletionSlot, *const Word32) {
        (
            self.at(self.layout.receive_completions),
            self.at(self.layout.receive_completion_record),
        )
    }

    pub fn send_state(&self) -> *const QueueState {
        self.at(self.layout.send_state)
    }

    pub fn receive_state(&self) -> *const QueueState {
        self.at(self.layout.receive_state)
    }

    /// Both states as they are now, the send queue's first; as new on a GPU that is
    /// lost.
    pub fn states(&self) -> [QueueState; 2] {
        [self.layout.send_state, self.layout.receive_state].map(|offset| {
            let mut bytes = [0; size_of::<QueueState>()];
            match self.buffer.read(offset, &mut bytes) {
                // SAFETY: a state is atomic words, for which any bytes will do.
                Ok(()) => unsafe { std::mem::transmute::<[u8; 256], QueueState>(bytes) },
                Err(_) => QueueState::new(),
            }
        })
    }

    /// The send queue as it lies in memory now; none on a GPU that is lost.
    pub fn sends(&self) -> Option<SendQueueImage> {
        let slots = |offset: usize, count: usize| {
            let mut slots = vec![[0; SLOT]; count];
            self.buffer.read(offset, slots.as_flattened_mut()).ok()?;
            Some(slots)
        };
        let mut record = [0; 8];
        self.buffer.read(self.layout.record, &mut record).ok()?;
        let [_, word] =
            [0, 4].map(|at| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| record[at + byte])));
        let config = &self.config;
        Some(SendQueueImage {
            ring: slots(self.layout.send_ring, 1 << config.send_depth_log2)?,
            completions: slots(
                self.layout.send_completions,
                1 << config.send_completions.depth_log2,
            )?,
            producer: DoorbellRecord::producer(word),
        })
    }

    /// For tests that work the queues by hand.
    #[cfg(test)]
    pub fn config(&self) -> &Checked {
        &self.config
    }

    /// Leaves the memory to a device that would not let go of it.
    pub fn leak(self) {
        std::mem::forget(self.buffer);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Completions, Limits, QueuePairConfig};

    const LIMITS: Limits = Limits {
        max_depth: 32_768,
        max_completion_depth: 1 << 22,
        max_receive_segments: 32,
        max_message: 1 << 30,
    };

    proptest! {
        /// No part overlaps another, and each is aligned as the NIC wants it.
        #[test]
        fn parts_are_apart_and_aligned(
            send in 0u32..=15,
            receive in 0u32..=15,
            segments in 0u32..=5,
            collapsed: bool,
        ) {
            let config = QueuePairConfig {
                send_depth: 1 << send,
                receive_depth: 1 << receive,
                receive_segments: 1 << segments,
                send_completions: if collapsed { Completions::Collapsed } else { Completions::ORDINARY },
                ..QueuePairConfig::default()
            };
            let layout = Layout::new(&config.check(&LIMITS).unwrap());
            let send_cqes = if collapsed { 1 } else { 1 << send };
            let mut parts = [
                (layout.uar, 4096, 4096),
                (layout.send_ring, 64 << send, 64),
                (layout.send_completions, 64 * send_cqes, 64),
                (layout.receive_completions, 64 << receive, 64),
                (layout.receive_ring, 16 << (receive + segments), 16),
                (layout.send_state, 256, 128),
                (layout.receive_state, 256, 128),
                (layout.record, 8, 8),
                (layout.send_completion_record, 8, 8),
                (layout.receive_completion_record, 8, 8),
            ];
            parts.sort();
            let mut end = 0;
            for (start, bytes, alignment) in parts {
                prop_assert!(start >= end && start % alignment == 0, "{layout:?}");
                end = start + bytes;
            }
            prop_assert!(end <= layout.end);
        }
    }

    #[test]
    fn a_cleared_memory_is_as_fresh() {
        let config = QueuePairConfig::default().check(&LIMITS).unwrap();
        let mut memory = QueueMemory::new(&config).unwrap();
        let all = |memory: &QueueMemory| {
            let mut bytes = vec![0; memory.buffer.len()];
            memory.buffer.read(0, &mut bytes).unwrap();
            bytes
        };
        let fresh = all(&memory);
        let unused = fresh.iter().filter(|byte| **byte == 0xf0).count();
        assert_eq!(unused, 1 + 128, "one collapsed CQE and 128 receive CQEs");
        assert_eq!(fresh[memory.layout.receive_completions + 63], 0xf0);
        assert_eq!(fresh.iter().filter(|byte| **byte != 0).count(), unused);

        memory.buffer.write(0, &vec![0x5a; fresh.len()]).unwrap();
        memory.clear().unwrap();
        assert!(all(&memory) == fresh);
    }
}
