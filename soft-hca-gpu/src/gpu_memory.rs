//! The memory of a GPU, and host memory that is mapped there.
//!
//! Order is made by PTX fences of the reach that is needed. A release fence lasts until the stores
//! before it can be seen, so there is one only where there are stores to wait for; an acquire
//! fence empties the L1 cache, so there is one only where something new was found.

mod out_of_line;

use core::cell::Cell;

use warpbell_gpu::arch;
use warpbell_gpu::arch::address::{
    self, BLOCKS, copy_blocks, copy16, copy64, load8, load128, load512, store8, store128,
};

use crate::memory::{LaneMemory, MemoryScope, Small};
use out_of_line::{copy_rest, load_word, store_word};
use warpbell_soft_hca::engine::Memory;
use warpbell_soft_hca::engine::memory::INLINE;

/// Memory in a GPU's global address space.
#[derive(Clone, Debug)]
pub struct GpuMemory {
    reach: MemoryScope,
    /// Something was stored since the last release fence.
    unordered: Cell<bool>,
}

impl GpuMemory {
    /// Memory whose users are within `reach`.
    pub const fn new(reach: MemoryScope) -> Self {
        Self {
            reach,
            unordered: Cell::new(false),
        }
    }
}

/// Relaxed accesses to a word of one width.
macro_rules! word {
    ($load:ident, $store:ident, $word:ty) => {
        /// # Safety
        /// `address` is readable, and aligned to the word's width.
        #[inline(always)]
        unsafe fn $load(&self, address: u64) -> $word {
            // SAFETY: the caller's promise.
            unsafe { address::$load(address, self.scope()) }
        }

        /// # Safety
        /// `address` is writable, and aligned to the word's width.
        #[inline(always)]
        unsafe fn $store(&self, address: u64, value: $word) {
            // SAFETY: the caller's promise.
            unsafe { address::$store(address, value, self.scope()) }
        }
    };
}

impl GpuMemory {
    word!(load16, store16, u16);
    word!(load32, store32, u32);
    word!(load64, store64, u64);

    /// The reach as the instructions have it.
    #[inline(always)]
    const fn scope(&self) -> arch::Reach {
        match self.reach {
            MemoryScope::Gpu => arch::Reach::Gpu,
            MemoryScope::System => arch::Reach::System,
        }
    }

    /// Every earlier store before every later one.
    #[inline(always)]
    fn fence_release(&self) {
        if !self.unordered.replace(false) {
            return;
        }
        arch::fence_release(self.scope());
    }

    /// Every earlier load before every later access.
    #[inline(always)]
    fn fence_acquire(&self) {
        arch::fence_acquire(self.scope());
    }

    /// Copies what is not to be one store.
    ///
    /// # Safety
    /// As for [`Memory::copy`].
    unsafe fn copy_many(&self, mut source: u64, mut destination: u64, mut length: u64) {
        // SAFETY: the caller vouches for both ranges; each piece lies inside, and is aligned to its
        // width at both ends.
        unsafe {
            if (source ^ destination) % 16 == 0 {
                while destination % 16 != 0 && length > 0 {
                    store8(destination, load8(source));
                    (source, destination, length) = (source + 1, destination + 1, length - 1);
                }
                while length >= 64 {
                    copy64(source, destination);
                    (source, destination, length) = (source + 64, destination + 64, length - 64);
                }
                while length >= 16 {
                    copy16(source, destination);
                    (source, destination, length) = (source + 16, destination + 16, length - 16);
                }
            } else if (source ^ destination) % 4 == 0 {
                while destination % 4 != 0 && length > 0 {
                    store8(destination, load8(source));
                    (source, destination, length) = (source + 1, destination + 1, length - 1);
                }
                while length >= 4 {
                    self.store32(destination, self.load32(source));
                    (source, destination, length) = (source + 4, destination + 4, length - 4);
                }
            }
            for byte in 0..length {
                store8(destination + byte, load8(source + byte));
            }
        }
    }
}

// SAFETY: every method accesses exactly the bytes named. Aligned accesses of up to 8 bytes are single-copy
// atomic on a GPU, and the fences give the stated order.
unsafe impl Memory for GpuMemory {
    #[inline]
    unsafe fn copy(&self, source: u64, destination: u64, length: usize) {
        // SAFETY: the caller vouches for both ranges.
        unsafe {
            match length {
                2 | 4 | 8 if destination & (length as u64 - 1) == 0 => {
                    let word = load_word(self.reach, source, length as u32);
                    // All earlier copies before this word, because who polls it goes on to read them.
                    self.fence_release();
                    match length {
                        8 => self.store64(destination, word),
                        4 => self.store32(destination, word as u32),
                        _ => self.store16(destination, word as u16),
                    }
                }
                1 => {
                    let byte = load8(source);
                    // As above.
                    self.fence_release();
                    store8(destination, byte);
                }
                _ => {
                    if length <= INLINE {
                        // As above.
                        self.fence_release();
                    }
                    self.copy_many(source, destination, length as u64);
                }
            }
        }
        self.unordered.set(true);
    }

    #[inline(always)]
    fn acquire(&self) {
        self.fence_acquire();
    }

    #[inline(always)]
    fn release(&self) {
        self.unordered.set(true);
        self.fence_release();
    }

    #[inline]
    unsafe fn read(&self, address: u64, bytes: &mut [u8]) {
        let aligned = address % 16 == 0;
        let (blocks, rest) = bytes.as_chunks_mut::<64>();
        let mut at = address;
        // SAFETY: the caller vouches for the range.
        unsafe {
            for block in blocks {
                *block = match aligned {
                    true => zerocopy::transmute!(load512(at)),
                    false => core::array::from_fn(|byte| load8(at + byte as u64)),
                };
                at += 64;
            }
            let (words, rest) = rest.as_chunks_mut::<16>();
            for word in words {
                *word = match aligned {
                    true => zerocopy::transmute!(load128(at)),
                    false => core::array::from_fn(|byte| load8(at + byte as u64)),
                };
                at += 16;
            }
            for byte in rest {
                *byte = load8(at);
                at += 1;
            }
        }
    }

    #[inline]
    unsafe fn read_block(&self, address: u64) -> [u64; 8] {
        // SAFETY: the caller's promise.
        unsafe { load512(address) }
    }

    #[inline]
    unsafe fn write_u64(&self, address: u64, value: u64) {
        // SAFETY: the caller's promise.
        unsafe { self.store64(address, value) };
        self.unordered.set(true);
    }

    #[inline]
    unsafe fn write(&self, address: u64, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut at = address;
        // SAFETY: the caller vouches for the range; each store is aligned.
        unsafe {
            for word in words {
                if at % 8 == 0 {
                    self.store64(at, u64::from_ne_bytes(*word));
                } else {
                    for (byte, value) in word.iter().enumerate() {
                        store8(at + byte as u64, *value);
                    }
                }
                at += 8;
            }
            for byte in rest {
                store8(at, *byte);
                at += 1;
            }
        }
        self.unordered.set(true);
    }

    #[inline]
    unsafe fn peek_u64(&self, address: u64) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { self.load64(address) }
    }

    #[inline(always)]
    unsafe fn peek_u32(&self, address: u64) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.load32(address) }
    }

    #[inline]
    unsafe fn load_u32(&self, address: u64) -> u32 {
        // SAFETY: the caller's promise.
        let value = unsafe { self.load32(address) };
        // This word before what is read because of it: WQEs behind a record, CQEs before an index.
        self.fence_acquire();
        value
    }

    #[inline]
    unsafe fn load_u64(&self, address: u64) -> u64 {
        // SAFETY: the caller's promise.
        let value = unsafe { self.load64(address) };
        // This word before what is read because of it.
        self.fence_acquire();
        value
    }

    #[inline]
    unsafe fn store_u64(&self, address: u64, value: u64) {
        // Payload and the rest of a CQE before its last word, because who sees that word reads them.
        self.fence_release();
        // SAFETY: the caller's promise.
        unsafe { self.store64(address, value) };
        self.unordered.set(true);
    }

    #[inline]
    unsafe fn swap_u64(&self, address: u64, value: u64) -> u64 {
        // SAFETY: the caller's promise.
        let found = unsafe { address::exchange64(address, value, self.scope()) };
        // The doorbell before the record and the WQEs, which were written before it.
        self.fence_acquire();
        found
    }

    #[inline]
    unsafe fn compare_exchange_u32(
        &self,
        address: u64,
        current: u32,
        new: u32,
    ) -> Result<u32, u32> {
        // SAFETY: the caller's promise.
        let result = unsafe { address::compare_exchange32(address, current, new, self.scope()) };
        self.unordered.set(true);
        result
    }

    #[inline]
    unsafe fn compare_exchange_u64(
        &self,
        address: u64,
        current: u64,
        new: u64,
    ) -> Result<u64, u64> {
        // SAFETY: the caller's promise.
        let result = unsafe { address::compare_exchange64(address, current, new, self.scope()) };
        self.unordered.set(true);
        result
    }
}

// SAFETY: as above.
unsafe impl LaneMemory for GpuMemory {
    #[inline(always)]
    unsafe fn copy_part(&self, source: u64, destination: u64, length: u64, part: u32, parts: u32) {
        // The parts are interleaved, so that what a warp loads together lies together.
        let whole = match (source | destination) % 16 {
            0 => length as u32 & !15,
            _ => 0,
        };
        let stride = 16 * parts;
        let mut at = 16 * part;
        // SAFETY: inside the caller's ranges, and aligned.
        unsafe {
            while at < whole {
                let [source, destination] =
                    [source, destination].map(|range| range + u64::from(at));
                copy_blocks(source, destination, whole - at, stride);
                at += BLOCKS * stride;
            }
            let whole = u64::from(whole);
            if whole != length {
                let [source, destination] = [source, destination].map(|range| range + whole);
                copy_rest(self.reach, source, destination, length - whole, part, parts);
            }
        }
    }

    #[inline(always)]
    unsafe fn load_small(&self, source: u64, length: u64) -> Small {
        let mut data = Small::default();
        // SAFETY: the caller's promise; what is no word is aligned to 16.
        unsafe {
            match length as u32 {
                length @ 9.. => {
                    [data[0], data[1]] = load128(source);
                    if length > 16 {
                        [data[2], data[3]] = load128(source + 16);
                    }
                    if length > 32 {
                        [data[4], data[5]] = load128(source + 32);
                    }
                    if length > 48 {
                        [data[6], data[7]] = load128(source + 48);
                    }
                }
                8 if source % 8 == 0 => data[0] = self.load64(source),
                4 if source % 4 == 0 => data[0] = self.load32(source).into(),
                width => data[0] = load_word(self.reach, source, width),
            }
        }
        data
    }

    #[inline(always)]
    unsafe fn store_small(&self, destination: u64, length: u64, data: &Small) {
        // SAFETY: as above.
        unsafe {
            match length as u32 {
                length @ 9.. => {
                    store128(destination, [data[0], data[1]]);
                    if length > 16 {
                        store128(destination + 16, [data[2], data[3]]);
                    }
                    if length > 32 {
                        store128(destination + 32, [data[4], data[5]]);
                    }
                    if length > 48 {
                        store128(destination + 48, [data[6], data[7]]);
                    }
                }
                8 => self.store64(destination, data[0]),
                4 => self.store32(destination, data[0] as u32),
                width => store_word(self.reach, destination, width, data[0]),
            }
        }
    }
}
