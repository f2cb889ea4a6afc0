//! The memory of an HCA on a host, with faults on purpose before it where a test wants some: payloads that show late
//! and in any order, as those of a card may in a GPU's memory. Where somebody wants a trace, it keeps one.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::prelude::v1::*;
use std::sync::Arc;

use mlx5_wqe::QpNumber;
use warpbell_gpu::trace::{self, Trace};

use super::trace::{HcaTrace, Recorder};
use crate::engine::{DirectMemory, Memory};

/// Payloads whose stores show late, and in any order.
///
/// A card's writes into a GPU's memory are posted: nobody tells the card when a running kernel sees them, and not every
/// GPU promises that it sees them in the order in which they came. With these faults a payload that arrives is cut in
/// pieces, and each may be held back for a time of its own, while completions, doorbell records and atomics go on. So a
/// flag or a completion may be seen before the data in front of it, and a message in parts.
///
/// Two stores to the same bytes keep their order, whichever way they come. What is held back goes to its place before
/// anything is read from this memory for a peer (a READ's data, a message's), before an atomic on the same bytes, and
/// before a command.
#[derive(Clone, Copy, Debug)]
pub struct LateStores {
    /// The same seed, the same delays.
    pub seed: u64,
    /// Pieces end at multiples of so many bytes: a power of two.
    pub piece: u64,
    /// How many pieces of 1,000 are held back.
    pub late: u32,
    /// The longest time, in nanoseconds.
    pub longest_ns: u64,
}

/// The memory of an HCA on a host.
#[derive(Debug)]
pub struct HostMemory {
    late: Option<Box<RefCell<Late>>>,
    trace: Option<Recorder>,
}

/// What is held back, and until when.
#[derive(Debug)]
struct Late {
    options: LateStores,
    /// Of the SplitMix64 generator.
    random: u64,
    now: u64,
    /// By the address of their first byte; no two have a byte in common.
    held: BTreeMap<u64, Piece>,
}

#[derive(Debug)]
struct Piece {
    due: u64,
    bytes: Vec<u8>,
}

impl HostMemory {
    /// # Panics
    /// If pieces do not end at multiples of a power of two.
    pub(super) fn new(late: Option<LateStores>, trace: Option<Arc<HcaTrace>>) -> Self {
        let late = late.map(|options| {
            assert!(options.piece.is_power_of_two(), "pieces of 2^n bytes");
            Box::new(RefCell::new(Late {
                options,
                random: options.seed,
                now: 0,
                held: BTreeMap::new(),
            }))
        });
        let trace = trace.map(|trace| Recorder::new(&trace));
        Self { late, trace }
    }

    /// Brings what is due by now to its place; gives the number of pieces that are still held back.
    #[inline]
    pub(super) fn advance(&self, now: u64) -> usize {
        match &self.late {
            None => 0,
            Some(late) => late.borrow_mut().advance(now),
        }
    }

    /// Brings what is held back of some bytes to its place.
    #[inline]
    fn settle_range(&self, address: u64, length: u64) {
        if let Some(late) = &self.late {
            late.borrow_mut().settle_range(address, length);
        }
    }
}

impl Late {
    /// The next number of the SplitMix64 generator (Steele, Lea, Flood 2014).
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// # Safety
    /// As for [`Memory::copy`]; the destination stays writable until the bytes are in their place.
    unsafe fn copy(&mut self, source: u64, destination: u64, length: u64) {
        self.settle_range(destination, length);
        let mut done = 0;
        while done < length {
            let (from, to) = (source + done, destination + done);
            let piece = self.options.piece;
            let part = (piece - (to & (piece - 1))).min(length - done);
            done += part;
            if self.random() % 1000 >= u64::from(self.options.late) {
                // SAFETY: inside the caller's ranges.
                unsafe { DirectMemory.copy(from, to, part as usize) };
                continue;
            }
            let mut bytes = vec![0; part as usize];
            let copy = bytes.as_mut_ptr().expose_provenance() as u64;
            // SAFETY: the source is inside the caller's range, the copy is ours.
            unsafe { DirectMemory.copy(from, copy, part as usize) };
            let wait = 1 + self.random() % self.options.longest_ns.max(1);
            let due = self.now.saturating_add(wait);
            self.held.insert(to, Piece { due, bytes });
        }
    }

    fn advance(&mut self, now: u64) -> usize {
        self.now = now;
        self.held.retain(|address, piece| {
            let late = piece.due > now;
            if !late {
                place(*address, piece);
            }
            late
        });
        self.held.len()
    }

    fn settle(&mut self) {
        for (address, piece) in core::mem::take(&mut self.held) {
            place(address, &piece);
        }
    }

    fn settle_range(&mut self, address: u64, length: u64) {
        let end = address + length;
        // No two pieces overlap, so that they end in the order in which they begin.
        while let Some((&first, piece)) = self.held.range(..end).next_back()
            && first + piece.bytes.len() as u64 > address
        {
            place(first, piece);
            self.held.remove(&first);
        }
    }
}

/// Stores a piece.
fn place(address: u64, piece: &Piece) {
    let source = piece.bytes.as_ptr().expose_provenance() as u64;
    // SAFETY: the bytes are ours. The destination was writable when they came, and stays so: memory is deregistered by
    // a command, and before one nothing is held back any more.
    unsafe { DirectMemory.copy(source, address, piece.bytes.len()) };
}

/// Passes calls on to [`DirectMemory`].
macro_rules! directly {
    ($(unsafe fn $name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        $(#[inline]
        unsafe fn $name(&self, $($argument: $kind),*) $(-> $result)? {
            // SAFETY: the caller's promise is passed on unchanged.
            unsafe { DirectMemory.$name($($argument),*) }
        })*
    };
    // Of bytes that may be held back: what came before is in its place first.
    ($(settled($address:expr, $bytes:expr) unsafe fn $name:ident($($argument:ident: $kind:ty),*) $(-> $result:ty)?;)*) => {
        $(#[inline]
        unsafe fn $name(&self, $($argument: $kind),*) $(-> $result)? {
            self.settle_range($address, $bytes);
            // SAFETY: the caller's promise is passed on unchanged.
            unsafe { DirectMemory.$name($($argument),*) }
        })*
    };
}

// SAFETY: every access is `DirectMemory`'s, now or later; later ones keep their order where they meet.
unsafe impl Memory for HostMemory {
    #[inline]
    unsafe fn copy(&self, source: u64, destination: u64, length: usize) {
        match &self.late {
            // SAFETY: the caller's promise is passed on unchanged.
            None => unsafe { DirectMemory.copy(source, destination, length) },
            // SAFETY: the same, and see `place`.
            Some(late) => unsafe {
                late.borrow_mut().copy(source, destination, length as u64);
            },
        }
    }

    #[inline]
    fn settle(&self) {
        if let Some(late) = &self.late {
            late.borrow_mut().settle();
        }
    }

    #[inline]
    fn now(&self) -> u64 {
        self.trace
            .as_ref()
            .map_or(0, |recorder| recorder.writer().now())
    }

    #[inline]
    fn record_at(&self, ticks: u64, kind: trace::Kind, qpn: QpNumber, value: u32) {
        if let Some(recorder) = &self.trace {
            recorder.writer().record_at(ticks, kind, qpn, value);
        }
    }

    #[inline]
    fn acquire(&self) {
        DirectMemory.acquire();
    }

    #[inline]
    fn release(&self) {
        DirectMemory.release();
    }

    #[inline]
    fn prefetch(&self, address: u64) {
        DirectMemory.prefetch(address);
    }

    directly! {
        unsafe fn read(address: u64, bytes: &mut [u8]);
        unsafe fn read_block(address: u64) -> [u64; 8];
        unsafe fn peek_u64(address: u64) -> u64;
        unsafe fn peek_u32(address: u64) -> u32;
        unsafe fn swap_u64(address: u64, value: u64) -> u64;
    }

    directly! {
        settled(address, 4) unsafe fn load_u32(address: u64) -> u32;
        settled(address, 8) unsafe fn load_u64(address: u64) -> u64;
        settled(address, 8) unsafe fn store_u64(address: u64, value: u64);
        settled(address, 8) unsafe fn write_u64(address: u64, value: u64);
        settled(address, bytes.len() as u64) unsafe fn write(address: u64, bytes: &[u8]);
        settled(address, 4) unsafe fn compare_exchange_u32(address: u64, current: u32, new: u32) -> Result<u32, u32>;
        settled(address, 8) unsafe fn compare_exchange_u64(address: u64, current: u64, new: u64) -> Result<u64, u64>;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALWAYS: LateStores = LateStores {
        seed: 1,
        piece: 8,
        late: 1000,
        longest_ns: 1000,
    };

    fn address(bytes: &mut [u8]) -> u64 {
        bytes.as_mut_ptr().expose_provenance() as u64
    }

    /// Copies `value` into some bytes of a target.
    fn fill(memory: &HostMemory, target: u64, offset: u64, bytes: usize, value: u8) {
        let source = vec![value; bytes];
        let from = source.as_ptr().expose_provenance() as u64;
        // SAFETY: both are long enough.
        unsafe { memory.copy(from, target + offset, bytes) };
    }

    /// Whatever is held back, in the end each byte is what the last copy to it said, and others are untouched.
    #[test]
    fn everything_comes_in_the_end_and_the_last_store_wins() {
        for seed in 0..200 {
            let memory = HostMemory::new(
                Some(LateStores {
                    seed,
                    late: 700,
                    ..ALWAYS
                }),
                None,
            );
            let mut random = Late {
                options: ALWAYS,
                random: !seed,
                now: 0,
                held: BTreeMap::new(),
            };
            let (mut target, mut expected) = ([0u8; 96], [0u8; 96]);
            let to = address(&mut target);
            for value in 1..60u8 {
                let offset = random.random() % 90;
                let bytes = 1 + (random.random() % (96 - offset)) as usize;
                fill(&memory, to, offset, bytes, value);
                expected[offset as usize..][..bytes].fill(value);
                memory.advance(u64::from(value) * 100);
            }
            assert_eq!(memory.advance(u64::MAX), 0);
            assert_eq!(target, expected, "seed {seed}");
        }
    }

    #[test]
    fn pieces_come_when_their_time_has_come_and_not_in_order() {
        let memory = HostMemory::new(Some(ALWAYS), None);
        let mut target = [0u8; 64];
        let to = address(&mut target);
        fill(&memory, to, 0, 64, 7);
        assert_eq!(target, [0; 64]);
        let mut overtaken = false;
        let mut left = 64 / 8 + 1;
        for now in 0..=1000 {
            let held = memory.advance(now);
            assert!(held <= left);
            left = held;
            let there = target.chunks(8).map(|piece| piece == [7; 8]);
            overtaken |= !there.is_sorted_by(|before, after| before >= after);
        }
        assert_eq!((left, target), (0, [7; 64]));
        assert!(overtaken, "a later piece came first");
    }

    #[test]
    fn what_reads_finds_what_came_before_it() {
        let memory = HostMemory::new(Some(ALWAYS), None);
        let mut target = [0u64; 4].map(u64::to_ne_bytes).concat();
        let to = address(&mut target);
        fill(&memory, to, 0, 32, 1);
        // SAFETY: the words lie in the target, which is aligned enough in a vector.
        unsafe {
            assert_eq!(memory.peek_u64(to + 8), 0);
            assert_eq!(memory.load_u64(to + 8), u64::from_ne_bytes([1; 8]));
            assert_eq!(memory.peek_u64(to + 16), 0);
            assert_eq!(memory.load_u32(to + 16), u32::from_ne_bytes([1; 4]));
            let one = u64::from_ne_bytes([1; 8]);
            assert_eq!(memory.compare_exchange_u64(to + 24, one, 5), Ok(one));
            assert_eq!(memory.peek_u64(to), 0, "nobody has asked for it");
        }
        memory.settle();
        assert_eq!(target[..24], [1; 24]);
    }

    /// An atomic's result, a datagram's header: neither is overwritten by what came before it.
    #[test]
    fn stores_that_are_not_held_back_come_behind_what_is() {
        let memory = HostMemory::new(Some(ALWAYS), None);
        let mut target = [0u64; 8].map(u64::to_ne_bytes).concat();
        let to = address(&mut target);
        fill(&memory, to, 0, 64, 1);
        let new = u64::from_ne_bytes([2; 8]);
        // SAFETY: all of it lies in the target, which is aligned enough in a vector.
        unsafe {
            memory.store_u64(to, new);
            memory.write_u64(to + 8, new);
            memory.write(to + 16, &[2; 3]);
        }
        memory.advance(u64::MAX);
        let mut expected = [1; 64];
        expected[..19].fill(2);
        assert_eq!(target, expected);
    }

    #[test]
    fn without_faults_nothing_is_held_back() {
        let memory = HostMemory::new(None, None);
        let mut target = [0u8; 64];
        let to = address(&mut target);
        fill(&memory, to, 1, 62, 9);
        assert_eq!((target[0], target[1], target[62], target[63]), (0, 9, 9, 0));
        assert_eq!(memory.advance(0), 0);
    }
}
