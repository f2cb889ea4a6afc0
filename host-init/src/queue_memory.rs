//! The memory of one queue pair: rings and doorbell records in one allocation, completion
//! rings and their records in another, the UAR page in a third, and the device-side states in a
//! fourth. The one entry of a send queue whose completion queue is common to many lies with the states,
//! because kernels alone write there.

use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::Ordering;

use mlx5_wqe::{DoorbellRecord, Octoword, UarPage};
use warpbell::{CompletionSlot, QueueState, RingBlock, RingSegment, SendDoorbell, Word32, Word64};

use crate::config::{Checked, CheckedCompletions};
use crate::outstanding::{AwaitedReceive, SendQueueImage, awaited_receive, stored_in};
use crate::placement::Area;
use crate::{Buffer, Error, Placement};

pub(crate) const PAGE: usize = 4096;
/// Bytes of a CQE and of a basic block.
pub(crate) const SLOT: usize = 64;
/// Doorbell records lie on cache lines of their own.
pub(crate) const RECORD: usize = 64;
/// Bytes of a queue's device-side state.
const STATE: usize = size_of::<QueueState>();
/// Behind both states: where a send queue's entry lies, if its completion queue is common to many.
const ENTRY: usize = (2 * STATE).next_multiple_of(SLOT);
/// Where a CQE says that it is valid, and what an unused one says there: opcode
/// 15 (invalid) and owner 1, because kernels of gpunetio look at the owner alone.
const OP_OWN_AT: usize = 63;
const OP_OWN_UNUSED: u8 = 0xf1;

/// Where each part of an allocation starts, one behind the other.
#[derive(Default)]
pub(crate) struct Parts {
    pub end: usize,
}

impl Parts {
    pub fn add(&mut self, bytes: usize, alignment: usize) -> usize {
        let start = self.end.next_multiple_of(alignment);
        self.end = start + bytes;
        start
    }
}

/// Where each part of the queues starts, in bytes from the start of their allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QueueLayout {
    receive_ring: usize,
    send_ring: usize,
    record: usize,
    end: usize,
}

/// The same of the completion queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CompletionLayout {
    send_ring: usize,
    receive_ring: usize,
    send_record: usize,
    receive_record: usize,
    end: usize,
}

impl QueueLayout {
    fn new(config: &Checked) -> Self {
        let receive_ring = config.receive.map_or(0, |receive| {
            size_of::<Octoword>() << (receive.depth_log2 + receive.stride_log2)
        });
        let mut parts = Parts::default();
        Self {
            // A card wants the receive ring on a page, and the send ring right behind it.
            receive_ring: parts.add(receive_ring, PAGE),
            send_ring: parts.add(SLOT << config.send_depth_log2, SLOT),
            record: parts.add(RECORD, RECORD),
            end: parts.end,
        }
    }
}

impl CompletionLayout {
    fn new(config: &Checked) -> Self {
        let receive_ring = config
            .receive
            .map_or(0, |receive| SLOT << receive.completions.depth_log2);
        let send_ring = match config.common_cqn {
            Some(_) => 0,
            None => SLOT << config.send_completions.depth_log2,
        };
        let mut parts = Parts::default();
        Self {
            // A card wants each ring on a page.
            send_ring: parts.add(send_ring, PAGE),
            receive_ring: match receive_ring {
                0 => parts.end,
                bytes => parts.add(bytes, PAGE),
            },
            send_record: parts.add(RECORD, RECORD),
            receive_record: parts.add(RECORD, RECORD),
            end: parts.end,
        }
    }
}

/// The addresses that a NIC needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueAddresses {
    /// All of the queues.
    pub queues: Area,
    /// All of the completion queues.
    pub completions: Area,
    /// A page of doorbells, for a device that has none of its own.
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
    queues: Buffer,
    queue_layout: QueueLayout,
    completions: Buffer,
    completion_layout: CompletionLayout,
    /// Where doorbells are rung.
    uar: Buffer,
    /// The send queue's state, then the receive queue's.
    states: Buffer,
    config: Checked,
}

impl QueueMemory {
    /// Allocates it, the UAR page at `registers`.
    pub fn new(config: &Checked, registers: Placement) -> Result<Self, Error> {
        let (queue_layout, completion_layout) =
            (QueueLayout::new(config), CompletionLayout::new(config));
        let states = match config.common_cqn {
            Some(_) => ENTRY + SLOT,
            None => 2 * STATE,
        };
        let mut memory = Self {
            queues: Buffer::placed(config.placement, queue_layout.end)?,
            queue_layout,
            completions: Buffer::placed(config.completion_placement, completion_layout.end)?,
            completion_layout,
            uar: Buffer::placed(registers, PAGE)?,
            states: Buffer::placed(config.state_placement, states)?,
            config: *config,
        };
        memory.clear()?;
        Ok(memory)
    }

    /// Makes everything as a fresh queue needs it: zeros, and unused CQEs.
    ///
    /// Neither NIC nor kernel may use the memory (`&mut self`).
    pub fn clear(&mut self) -> Result<(), Error> {
        let mut fresh = vec![0; self.completions.len()];
        let mut states = vec![0; self.states.len()];
        let (layout, config) = (&self.completion_layout, &self.config);
        let send_completions = match config.common_cqn {
            Some(_) => &mut states[ENTRY..],
            None => &mut fresh[layout.send_ring..],
        };
        mark_unused(send_completions, config.send_completions);
        if let Some(receive) = config.receive {
            mark_unused(&mut fresh[layout.receive_ring..], receive.completions);
        }
        self.completions.write(0, &fresh)?;
        self.uar.write(0, &[0; PAGE])?;
        self.states.write(0, &states)?;
        self.queues.write(0, &vec![0; self.queues.len()])
    }

    /// A part of the queues.
    fn queue<T>(&self, offset: usize) -> *mut T {
        at(&self.queues, offset)
    }

    /// A part of the completion queues.
    fn completion<T>(&self, offset: usize) -> *mut T {
        at(&self.completions, offset)
    }

    pub fn addresses(&self) -> QueueAddresses {
        let queue = |offset| self.queue::<u8>(offset).expose_provenance() as u64;
        let completion = |offset| self.completion::<u8>(offset).expose_provenance() as u64;
        QueueAddresses {
            queues: self.queues.area(),
            completions: self.completions.area(),
            uar: at::<u8>(&self.uar, 0).expose_provenance() as u64,
            send_ring: queue(self.queue_layout.send_ring),
            receive_ring: queue(self.queue_layout.receive_ring),
            record: queue(self.queue_layout.record),
            send_completions: completion(self.completion_layout.send_ring),
            send_completion_record: completion(self.completion_layout.send_record),
            receive_completions: completion(self.completion_layout.receive_ring),
            receive_completion_record: completion(self.completion_layout.receive_record),
        }
    }

    pub fn send_ring(&self) -> *mut RingBlock {
        self.queue(self.queue_layout.send_ring)
    }

    pub fn receive_ring(&self) -> *mut RingSegment {
        self.queue(self.queue_layout.receive_ring)
    }

    pub fn doorbell(&self) -> *const Word64 {
        at(&self.uar, self.register())
    }

    /// Where in its page the doorbell is.
    fn register(&self) -> usize {
        match self.config.send_doorbell {
            SendDoorbell::WithRecord => UarPage::DOORBELLS[0],
            SendDoorbell::WithoutRecord => UarPage::DOORBELL_WITHOUT_RECORD,
        }
    }

    /// Word 0 of the queue pair's doorbell record; word 1 is the send queue's.
    pub fn record(&self) -> *const Word32 {
        self.queue(self.queue_layout.record)
    }

    /// Bytes of the completion queues, and of the entry for the CQEs of a common one.
    pub fn completion_bytes(&self) -> usize {
        self.completions.len() + self.states.len() - 2 * STATE
    }

    pub fn send_completions(&self) -> (*const CompletionSlot, *const Word32) {
        let (buffer, start) = self.send_entries();
        let record = self.completion(self.completion_layout.send_record);
        (at(buffer, start), record)
    }

    /// Where kernels find the CQEs of the send queue.
    fn send_entries(&self) -> (&Buffer, usize) {
        match self.config.common_cqn {
            Some(_) => (&self.states, ENTRY),
            None => (&self.completions, self.completion_layout.send_ring),
        }
    }

    pub fn receive_completions(&self) -> (*const CompletionSlot, *const Word32) {
        (
            self.completion(self.completion_layout.receive_ring),
            self.completion(self.completion_layout.receive_record),
        )
    }

    pub fn send_state(&self) -> *const QueueState {
        at(&self.states, 0)
    }

    pub fn receive_state(&self) -> *const QueueState {
        at(&self.states, STATE)
    }

    /// Both states as they are now, the send queue's first; as new on a GPU that is
    /// lost.
    pub fn states(&self) -> [QueueState; 2] {
        [0, STATE].map(|offset| self.states.queue_state(offset))
    }

    /// Where something lies that a CPU does not reach, which would post, ring and poll here.
    pub fn out_of_reach(&self) -> Option<Placement> {
        let buffers = [&self.queues, self.send_entries().0, &self.uar];
        let mut placements = buffers.into_iter().map(Buffer::placement);
        placements.find(|placement| !placement.is_host())
    }

    /// The send queue of that number as it lies in memory now; none on a GPU that is lost.
    pub fn sends(&self, qpn: u32) -> Option<SendQueueImage> {
        let config = &self.config;
        let ring = self.send_blocks()?;
        let producer = match config.send_doorbell {
            SendDoorbell::WithRecord => self.producers()?[1],
            SendDoorbell::WithoutRecord => stored_in(&ring, qpn),
        };
        Some(SendQueueImage {
            ring,
            completions: self.read_send_completions().ok()?,
            producer,
        })
    }

    /// The send ring as it is now.
    fn send_blocks(&self) -> Option<Vec<[u8; SLOT]>> {
        let start = self.queue_layout.send_ring;
        slots(&self.queues, start, self.config.send_depth_log2)
    }

    /// What the receive queue waits for; none on a GPU that is lost.
    pub fn awaited_receive(&self, qpn: u32) -> Option<AwaitedReceive> {
        let [producer, _] = self.producers()?;
        let receive = self.config.receive?;
        let completions = slots(
            &self.completions,
            self.completion_layout.receive_ring,
            receive.completions.depth_log2,
        )?;
        awaited_receive(qpn, &completions, producer, 1 << receive.depth_log2)
    }

    /// The producer indices of the doorbell record: the receive queue's, the send queue's.
    fn producers(&self) -> Option<[u16; 2]> {
        let mut record = [0; 8];
        self.queues
            .read(self.queue_layout.record, &mut record)
            .ok()?;
        let word = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|byte| record[at + byte]));
        Some([word(0), word(4)].map(DoorbellRecord::producer))
    }

    /// A number that changes with everything that is posted and completed; none on a
    /// GPU that is lost.
    pub fn mark(&self) -> Option<u64> {
        let mut record = [0; 8];
        let mut completions = vec![0; self.completions.len()];
        self.queues
            .read(self.queue_layout.record, &mut record)
            .ok()?;
        self.completions.read(0, &mut completions).ok()?;
        let mut hasher = DefaultHasher::new();
        hasher.write(&record);
        if self.config.send_doorbell == SendDoorbell::WithoutRecord {
            hasher.write(self.send_blocks()?.as_flattened());
        }
        hasher.write(&completions);
        if self.config.common_cqn.is_some() {
            hasher.write(self.read_send_completions().ok()?.as_flattened());
        }
        Some(hasher.finish())
    }

    /// Stores a block of the send ring.
    pub fn write_send(&self, slot: usize, block: &[u8; SLOT]) -> Result<(), Error> {
        let start = self.queue_layout.send_ring + slot * SLOT;
        self.queues.write(start, block)
    }

    /// The CQEs of the send queue as they are now, written or not.
    pub fn read_send_completions(&self) -> Result<Vec<[u8; SLOT]>, Error> {
        let mut found = vec![[0; SLOT]; 1 << self.config.send_completions.depth_log2];
        let (buffer, start) = self.send_entries();
        buffer.read(start, found.as_flattened_mut())?;
        Ok(found)
    }

    /// Stores the send queue's word of the doorbell record, then rings the doorbell with these words, as kernels would.
    pub fn publish(&self, record: u32, doorbell: u64) -> Result<(), Error> {
        if self.queues.placement().is_host() {
            // SAFETY: the record's second word, in memory that lives as long as `self`.
            let word = unsafe { &*self.record().add(1) };
            // The WQEs before the record, because the NIC fetches up to its index.
            word.store(record, Ordering::Release);
        } else {
            // A copy to a GPU is done when the call returns.
            let at = self.queue_layout.record + size_of::<u32>();
            self.queues.write(at, &record.to_ne_bytes())?;
        }
        let register = self.register();
        if self.uar.placement().is_host() {
            // SAFETY: inside the page, which lives as long as `self`.
            let word = unsafe { &*at::<Word64>(&self.uar, register) };
            // The record before the doorbell, because the NIC reads it when the doorbell rings.
            word.store(doorbell, Ordering::Release);
            Ok(())
        } else {
            self.uar.write(register, &doorbell.to_ne_bytes())
        }
    }

    /// For tests that work the queues by hand.
    #[cfg(test)]
    pub fn config(&self) -> &Checked {
        &self.config
    }

    /// Leaves the memory to a device that would not let go of it.
    pub fn leak(self) {
        std::mem::forget((self.queues, self.completions, self.uar, self.states));
    }
}

/// Makes the entries of a ring of zeros unused ones.
pub(crate) fn mark_unused(ring: &mut [u8], completions: CheckedCompletions) {
    for entry in ring.chunks_mut(SLOT).take(1 << completions.depth_log2) {
        entry[OP_OWN_AT] = OP_OWN_UNUSED;
    }
}

/// Entries of a ring, as they are now.
fn slots(buffer: &Buffer, offset: usize, depth_log2: u8) -> Option<Vec<[u8; SLOT]>> {
    let mut slots = vec![[0; SLOT]; 1 << depth_log2];
    buffer.read(offset, slots.as_flattened_mut()).ok()?;
    Some(slots)
}

/// A part of an allocation.
pub(crate) fn at<T>(buffer: &Buffer, offset: usize) -> *mut T {
    debug_assert!(offset < buffer.len());
    // SAFETY: every offset of a layout lies inside its allocation.
    unsafe { buffer.as_ptr().add(offset) }.cast()
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
        without_record: true,
        cross_channel: true,
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
            let config = config.check(&LIMITS, Placement::Host).unwrap();
            let (queues, completions) = (QueueLayout::new(&config), CompletionLayout::new(&config));
            let send_cqes = if collapsed { 1 } else { 1 << send };
            apart_and_aligned(
                &mut [
                    (queues.send_ring, 64 << send, 64),
                    (queues.receive_ring, 16 << (receive + segments), 16),
                    (queues.record, 8, 8),
                ],
                queues.end,
            );
            apart_and_aligned(
                &mut [
                    (completions.send_ring, 64 * send_cqes, 64),
                    (completions.receive_ring, 64 << receive, 64),
                    (completions.send_record, 8, 8),
                    (completions.receive_record, 8, 8),
                ],
                completions.end,
            );
        }
    }

    /// Parts as start, bytes and alignment, in an allocation of `len` bytes.
    fn apart_and_aligned(parts: &mut [(usize, usize, usize)], len: usize) {
        parts.sort();
        let mut end = 0;
        for &mut (start, bytes, alignment) in parts {
            assert!(
                start >= end && start % alignment == 0,
                "{bytes} bytes at {start}"
            );
            end = start + bytes;
        }
        assert!(end <= len);
    }

    fn buffers(memory: &QueueMemory) -> [&Buffer; 4] {
        let QueueMemory {
            queues,
            completions,
            uar,
            states,
            ..
        } = memory;
        [queues, completions, uar, states]
    }

    #[test]
    fn a_cleared_memory_is_as_fresh() {
        let config = QueuePairConfig::default()
            .check(&LIMITS, Placement::Host)
            .unwrap();
        let mut memory = QueueMemory::new(&config, Placement::Host).unwrap();
        let all = |memory: &QueueMemory| {
            buffers(memory).map(|buffer| {
                let mut bytes = vec![0; buffer.len()];
                buffer.read(0, &mut bytes).unwrap();
                bytes
            })
        };
        let fresh = all(&memory);
        let count = |counted: fn(&u8) -> bool| {
            let bytes = fresh[1].iter();
            bytes.filter(|byte| counted(byte)).count()
        };
        let unused = count(|byte| *byte == 0xf1);
        assert_eq!(unused, 128 + 128, "a CQE for each block and receive");
        assert_eq!(fresh[1][memory.completion_layout.receive_ring + 63], 0xf1);
        assert_eq!(count(|byte| *byte != 0), unused);
        let others = [&fresh[0], &fresh[2], &fresh[3]];
        assert!(others.into_iter().flatten().all(|byte| *byte == 0));

        for buffer in buffers(&memory) {
            buffer.write(0, &vec![0x5a; buffer.len()]).unwrap();
        }
        memory.clear().unwrap();
        assert!(all(&memory) == fresh);
    }
}
