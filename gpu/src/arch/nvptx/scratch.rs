//! Shared memory of a block.

use core::arch::{asm, global_asm};

// Shared memory of every block: at 0 the word of a broadcast, at 8 one counter for each of 32 warps.
global_asm!(".shared .align 8 .b8 warpbell_block_scratch[136];");

/// Stores the word of a broadcast into the block's shared memory.
#[inline(always)]
pub(crate) fn scratch_store(value: u64) {
    // SAFETY: writes memory that only these functions use.
    unsafe {
        asm!("st.shared.b64 [warpbell_block_scratch], {value};", value = in(reg64) value,
            options(preserves_flags, nostack));
    }
}

/// Loads the word of a broadcast from the block's shared memory.
#[inline(always)]
pub(crate) fn scratch_load() -> u64 {
    let value: u64;
    // SAFETY: reads memory that only these functions use.
    unsafe {
        asm!("ld.shared.b64 {value}, [warpbell_block_scratch];", value = out(reg64) value,
            options(preserves_flags, nostack));
    }
    value
}

/// The shared address of a warp's counter, 0 to 31.
#[inline(always)]
fn counter_address(warp: u32) -> u32 {
    let base: u32;
    // SAFETY: takes an address and touches no memory.
    unsafe {
        asm!("mov.u32 {base}, warpbell_block_scratch;", base = out(reg32) base,
            options(nomem, preserves_flags, nostack));
    }
    base + 8 + 4 * (warp & 31)
}

/// Stores a warp's counter into the block's shared memory.
#[inline(always)]
pub(crate) fn scratch_count_store(warp: u32, count: u32) {
    // SAFETY: writes memory that only these functions use, in bounds for every warp.
    unsafe {
        asm!("st.shared.b32 [{counter}], {count};", counter = in(reg32) counter_address(warp),
            count = in(reg32) count, options(preserves_flags, nostack));
    }
}

/// Loads a warp's counter from the block's shared memory.
#[inline(always)]
pub(crate) fn scratch_count_load(warp: u32) -> u32 {
    let count: u32;
    // SAFETY: reads memory that only these functions use, in bounds for every warp.
    unsafe {
        asm!("ld.shared.b32 {count}, [{counter}];", count = out(reg32) count,
            counter = in(reg32) counter_address(warp), options(preserves_flags, nostack));
    }
    count
}

/// The generic address of an array in shared memory; what this is inlined into is [never inlined](crate::tuned) itself.
#[inline(always)]
pub(crate) fn shared_array<T, const LENGTH: usize, const LINE: u32, const COLUMN: u32>() -> *mut T {
    let start: *mut T;
    // SAFETY: takes an address and touches no memory. The braces keep the name to themselves; its place keeps
    // this text from being taken for another array's.
    unsafe {
        asm!(
            "{{",
            ".shared .align {align} .b8 shared_array_{line}_{column}[{bytes}];",
            "mov.b64 {start}, shared_array_{line}_{column};",
            "cvta.shared.u64 {start}, {start};",
            "}}",
            align = const align_of::<T>(),
            bytes = const size_of::<[T; LENGTH]>(),
            line = const LINE,
            column = const COLUMN,
            start = out(reg64) start,
            options(nomem, preserves_flags, nostack),
        );
    }
    start
}
