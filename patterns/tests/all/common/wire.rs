//! Lanes of active messages between two queues in plain memory, with the test in the place of the NIC.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use warpbell::{CompletionKind, SendQueueHandle, Word64};
use warpbell_patterns::active::{
    ActiveParts, BufferEntry, FunctionEntry, InitiatorHandle, STATE_WORDS, TargetHandle,
    answer_bytes,
};

use super::{MAX_MESSAGE, Rig};

/// Where the words of either end lie for the other one, and under which keys.
pub const SLOTS_AT: u64 = 0x10_0000;
pub const SLOTS_KEY: u32 = 11;
pub const ANSWERS_AT: u64 = 0x20_0000;
pub const ANSWERS_KEY: u32 = 22;
/// Where the target has what its tasks answer with, and under which key.
pub const RESULTS_AT: u64 = 0x40_0000;
pub const RESULTS_KEY: u32 = 55;
/// Words there.
const RESULT_WORDS: usize = 64;
/// The target's buffer 0; buffer 1 has no bytes.
pub const BUFFER: BufferEntry = BufferEntry {
    address: 0x30_0000,
    size: 256,
    remote_key: 33,
    unused: 0,
};

/// What a payload's write asked for: address, length, key at the initiator; address and key at the target.
pub type Moved = (u64, u32, u32, u64, u32);

/// What marks the words of a message: the highest bit of each half.
pub const MARKS: u64 = 1 << 63 | 1 << 31;

/// Half a word of what an inline write carries, on its way to the words of the other end: number of the half, and bits.
pub type Half = (usize, u32);

/// Both ends of a lane.
pub struct Wire {
    pub near: Rig,
    pub far: Rig,
    slots_log2: u32,
    pub slots: Vec<Word64>,
    pub answers: Vec<Word64>,
    /// What the target's tasks answer with.
    pub results: Vec<Word64>,
    max_result: u32,
    states: [Vec<Word64>; 2],
    pub functions: Vec<FunctionEntry>,
    buffers: [BufferEntry; 2],
    /// WQEs that the NIC has executed at either end.
    executed: [Cell<u64>; 2],
}

/// What the handles point to.
pub struct Tables<'w> {
    wire: &'w Wire,
    queues: [[SendQueueHandle<'w>; 1]; 2],
}

impl Wire {
    /// One lane of `1 << slots_log2` slots, whose next message has that index; functions take so many arguments each,
    /// 9 for one that is not registered.
    pub fn new(slots_log2: u32, depth_log2: u8, first: u32, functions: &[u32]) -> Self {
        Self::with_depths(slots_log2, [depth_log2; 2], first, functions)
    }

    /// The same with room for results of so many bytes.
    pub fn with_results(
        slots_log2: u32,
        depths_log2: [u8; 2],
        first: u32,
        functions: &[u32],
        max_result: u32,
    ) -> Self {
        let mut wire = Self::with_depths(slots_log2, depths_log2, first, functions);
        let words = (answer_bytes(max_result) as usize / 8) << slots_log2;
        wire.answers.resize_with(words, || Word64::new(0));
        wire.max_result = max_result;
        wire
    }

    /// The same with queues of two depths.
    pub fn with_depths(
        slots_log2: u32,
        depths_log2: [u8; 2],
        first: u32,
        functions: &[u32],
    ) -> Self {
        let [near, far] = depths_log2.map(|log2| Rig::new(log2, CompletionKind::Collapsed));
        let words = |count| (0..count).map(|_| Word64::new(0)).collect::<Vec<_>>();
        let wire = Self {
            near,
            far,
            slots_log2,
            slots: words(8 << slots_log2),
            answers: words(1 << slots_log2),
            results: words(RESULT_WORDS),
            max_result: 0,
            states: [words(STATE_WORDS), words(STATE_WORDS)],
            functions: functions
                .iter()
                .map(|&arguments| match arguments {
                    9 => FunctionEntry::new(0),
                    _ => FunctionEntry::new(FunctionEntry::word(arguments)),
                })
                .collect(),
            buffers: [BUFFER, BufferEntry::default()],
            executed: [Cell::new(0), Cell::new(0)],
        };
        // As the messages before have left them: of each slot's next one the first word has other marks, which for the
        // first of a lane are those of memory that nobody has written.
        for index in (0..1 << slots_log2).map(|slot| first.wrapping_add(slot)) {
            if index >> slots_log2 & 1 != 0 {
                let slot = index as usize & ((1 << slots_log2) - 1);
                wire.slots[8 * slot].store(MARKS, Ordering::Relaxed);
            }
        }
        let [near, far] = &wire.states;
        for word in [&near[0], &near[1], &far[0]] {
            word.store(first.into(), Ordering::Relaxed);
        }
        wire
    }

    pub fn tables(&self) -> Tables<'_> {
        Tables {
            wire: self,
            queues: [[self.near.handle()], [self.far.handle()]],
        }
    }

    /// The initiator's NIC executes a WQE, if there is one; what it moved, if that was a payload.
    pub fn near_step(&self) -> Option<Option<Moved>> {
        let (moved, halves) = self.step(0, &self.near, (SLOTS_AT, SLOTS_KEY))?;
        bring_words(&self.slots, &halves);
        Some(moved)
    }

    /// The same, but that what it brings to the slots is given, and not brought.
    pub fn near_step_without(&self) -> Option<(Option<Moved>, Vec<Half>)> {
        self.step(0, &self.near, (SLOTS_AT, SLOTS_KEY))
    }

    /// Brings half a word to the slots.
    pub fn bring(&self, (half, bits): Half) {
        let (word, shift) = (&self.slots[half / 2], half % 2 * 32);
        let other = word.load(Ordering::Relaxed) & !(u64::from(u32::MAX) << shift);
        word.store(other | u64::from(bits) << shift, Ordering::Relaxed);
    }

    /// The target's NIC executes a WQE, if there is one.
    pub fn far_step(&self) -> bool {
        let Some((moved, halves)) = self.step(1, &self.far, (ANSWERS_AT, ANSWERS_KEY)) else {
            return false;
        };
        assert_eq!(moved, None, "answers have no payload");
        bring_words(&self.answers, &halves);
        true
    }

    /// Everything that is posted at either end.
    pub fn settle(&self) {
        while self.near_step().is_some() || self.far_step() {}
    }

    /// How many WQEs are posted at the initiator and not executed.
    pub fn posted(&self) -> u16 {
        self.near
            .producer_index()
            .wrapping_sub(self.executed[0].get() as u16)
    }

    fn step(
        &self,
        end: usize,
        rig: &Rig,
        (first, key): (u64, u32),
    ) -> Option<(Option<Moved>, Vec<Half>)> {
        let executed = self.executed[end].get();
        if rig.producer_index() == executed as u16 {
            return None;
        }
        let block = executed as usize;
        let word = |at| u64::from_be(rig.ring_word(block, at));
        let (address, remote_key) = (word(2), (word(3) >> 32) as u32);
        let length = (word(4) >> 32) as u32;
        let (mut moved, mut halves) = (None, Vec::new());
        if (length >> 31 == 0) & (remote_key == ANSWERS_KEY) {
            self.bring_result((word(5), word(4) as u32), address, length);
        } else if length >> 31 == 0 {
            moved = Some((word(5), length, word(4) as u32, address, remote_key));
        } else {
            assert_eq!(remote_key, key, "the key of the other end's words");
            // Inline bytes begin in the middle of a word.
            let inline = (4..8).flat_map(|at| rig.ring_word(block, at).to_ne_bytes());
            let inline: Vec<u8> = inline.skip(4).take(length as usize & 0x3ff).collect();
            let place = (address - first) as usize / 4;
            let bits = |bytes: &[u8]| u32::from_ne_bytes(bytes.try_into().unwrap());
            halves.extend((place..).zip(inline.chunks_exact(4).map(bits)));
        }
        if rig.signalled(block) {
            rig.complete(0, executed as u16);
        }
        self.executed[end].set(executed + 1);
        Some((moved, halves))
    }

    /// Brings a result from the target's memory to the room for it, which begins with a word: a store for each word.
    fn bring_result(&self, (from, key): (u64, u32), to: u64, length: u32) {
        assert_eq!(key, RESULTS_KEY, "the key of the target's results");
        let (from, first) = (from - RESULTS_AT, (to - ANSWERS_AT) as usize / 8);
        let byte = |at: u64| {
            let word = &self.results[at as usize / 8];
            word.load(Ordering::Relaxed).to_le_bytes()[at as usize % 8]
        };
        let bytes: Vec<u8> = (from..from + u64::from(length)).map(byte).collect();
        for (bytes, word) in bytes.chunks(8).zip(&self.answers[first..]) {
            let mut value = match bytes.len() {
                8 => [0; 8],
                _ => word.load(Ordering::Relaxed).to_le_bytes(),
            };
            value[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(value), Ordering::Relaxed);
        }
    }
}

/// Brings whole words.
fn bring_words(words: &[Word64], halves: &[Half]) {
    for pair in halves.chunks_exact(2) {
        let [(low, bits), (_, high)] = [pair[0], pair[1]];
        words[low / 2].store(u64::from(high) << 32 | u64::from(bits), Ordering::Relaxed);
    }
}

impl Tables<'_> {
    fn parts(&self, end: usize) -> ActiveParts<'_> {
        let wire = self.wire;
        let (words, remote_address, remote_key) = match end {
            0 => (&wire.answers, SLOTS_AT, SLOTS_KEY),
            _ => (&wire.slots, ANSWERS_AT, ANSWERS_KEY),
        };
        ActiveParts {
            lanes: 1,
            slots_log2: wire.slots_log2,
            max_result: wire.max_result,
            queues: self.queues[end].as_ptr(),
            states: wire.states[end].as_ptr(),
            words: words.as_ptr(),
            remote_address,
            remote_key,
            buffers: 2,
            buffer_entries: wire.buffers.as_ptr(),
        }
    }

    pub fn initiator(&self) -> InitiatorHandle<'_> {
        // SAFETY: the tables are vectors of these lengths, the words are atomics, and all of it lives as long as `self`.
        unsafe { InitiatorHandle::new(self.parts(0), MAX_MESSAGE) }
    }

    pub fn target(&self) -> TargetHandle<'_> {
        let functions = &self.wire.functions;
        // SAFETY: as above.
        unsafe { TargetHandle::new(self.parts(1), functions.len() as u32, functions.as_ptr()) }
    }
}
