//! What is copied seldom, or is not aligned to 16: functions of their own, because what they want in registers is taken from whoever
//! they are part of.

use warpbell_gpu::arch::address::{load8, store8};

use super::GpuMemory;
use crate::memory::MemoryScope;

/// Copies one of `parts` parts, as [`LaneMemory::copy_part`](crate::memory::LaneMemory::copy_part), of what is not aligned to 16, or not as long. Out of the way:
/// what is copied at length is aligned.
///
/// # Safety
/// As for that.
#[inline(never)]
pub(super) unsafe fn copy_rest(
    reach: MemoryScope,
    source: u64,
    destination: u64,
    length: u64,
    part: u32,
    parts: u32,
) {
    let memory = GpuMemory::new(reach);
    let (part, parts) = (u64::from(part), u64::from(parts));
    // The parts are interleaved, so that what a warp loads together lies together.
    // SAFETY: inside the caller's ranges, and aligned where the two are.
    unsafe {
        if (source | destination) % 4 == 0 {
            let whole = length & !3;
            let mut at = 4 * part;
            while at < whole {
                memory.store32(destination + at, memory.load32(source + at));
                at += 4 * parts;
            }
            let mut at = whole + part;
            while at < length {
                store8(destination + at, load8(source + at));
                at += parts;
            }
        } else {
            let mut at = part;
            while at < length {
                store8(destination + at, load8(source + at));
                at += parts;
            }
        }
    }
}

/// Loads a word of 1, 2, 4 or 8 bytes from an address of any alignment, as its width's low bytes. Out of the way,
/// because most words are of 8 or 4 bytes and aligned.
///
/// # Safety
/// `address` is readable for `width` bytes.
#[inline(never)]
pub(super) unsafe fn load_word(reach: MemoryScope, address: u64, width: u32) -> u64 {
    let memory = GpuMemory::new(reach);
    // SAFETY: the caller's promise; each load is aligned.
    unsafe {
        // A width is a power of two; a remainder would be some hundred instructions.
        match (width, address & (u64::from(width) - 1) == 0) {
            (8, true) => memory.load64(address),
            (4, true) => memory.load32(address).into(),
            (2, true) => memory.load16(address).into(),
            (8, false) if address % 4 == 0 => {
                let [low, high] = [0, 4].map(|at| u64::from(memory.load32(address + at)));
                low | high << 32
            }
            _ => (0..u64::from(width)).fold(0, |word, byte| {
                word | u64::from(load8(address + byte)) << (8 * byte)
            }),
        }
    }
}

/// Stores a word of 1 or 2 bytes. Out of the way, because such words are rare.
///
/// # Safety
/// `address` is writable for `width` bytes and aligned to them.
#[inline(never)]
pub(super) unsafe fn store_word(reach: MemoryScope, address: u64, width: u32, value: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        match width {
            2 => GpuMemory::new(reach).store16(address, value as u16),
            _ => store8(address, value as u8),
        }
    }
}
