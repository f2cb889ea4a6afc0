//! Blocks and segments of a queue's rings.

use core::arch::asm;

use mlx5_wqe::{Octoword, WqeBlock};

use super::meeting::shuffle_bfly;
use super::{is_known, lane_id};

/// A basic block of a send ring, 64 bytes.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct RingBlock(WqeBlock);

/// Stores a block in four 16-byte stores that are ordered only by the fence that follows.
///
/// # Safety
/// `slot` must be valid for writes, and on a GPU in global memory (or host memory mapped there). Nobody may read or
/// write the block until a later release makes this store visible to them.
#[inline(always)]
pub unsafe fn store_block(slot: *mut RingBlock, block: WqeBlock) {
    // SAFETY: the caller's promise; `RingBlock` is aligned to 64 bytes, so vector stores are allowed.
    unsafe {
        asm!(
            "st.global.v2.b64 [{slot}], {{{a}, {b}}};",
            "st.global.v2.b64 [{slot}+16], {{{c}, {d}}};",
            "st.global.v2.b64 [{slot}+32], {{{e}, {f}}};",
            "st.global.v2.b64 [{slot}+48], {{{g}, {h}}};",
            slot = in(reg64) slot,
            a = in(reg64) block[0].0[0],
            b = in(reg64) block[0].0[1],
            c = in(reg64) block[1].0[0],
            d = in(reg64) block[1].0[1],
            e = in(reg64) block[2].0[0],
            f = in(reg64) block[2].0[1],
            g = in(reg64) block[3].0[0],
            h = in(reg64) block[3].0[1],
            options(preserves_flags, nostack),
        );
    }
}

/// What two lanes side by side store in two pieces of 16 bytes each: of the even lane's block, and of the odd one's. Where
/// `low` is a lane's first piece and `high` its second one, the even lane gets both first pieces, and the odd one both
/// second ones.
///
/// # Safety
/// All 32 lanes of the warp call this together, each with its own number.
#[inline(always)]
unsafe fn exchange(odd: bool, low: Octoword, high: Octoword) -> (Octoword, Octoword) {
    let half = |low: u32, high: u32| {
        // Zeros in all lanes, because the compiler asks no lane: nothing to exchange.
        if is_known(low == 0) && low == 0 && is_known(high == 0) && high == 0 {
            return (0, 0);
        }
        let sent = if odd { low } else { high };
        // SAFETY: the caller's promise.
        let got = unsafe { shuffle_bfly(u32::MAX, sent as i32, 1, 31) } as u32;
        match odd {
            true => (got, high),
            false => (low, got),
        }
    };
    let word = |low: u64, high: u64| {
        let (even0, odd0) = half(low as u32, high as u32);
        let (even1, odd1) = half((low >> 32) as u32, (high >> 32) as u32);
        let join = |low, high| u64::from(high) << 32 | u64::from(low);
        (join(even0, even1), join(odd0, odd1))
    };
    let (even0, odd0) = word(low.0[0], high.0[0]);
    let (even1, odd1) = word(low.0[1], high.0[1]);
    (Octoword([even0, even1]), Octoword([odd0, odd1]))
}

/// Stores a block of each lane of a whole warp; `slot` says where that of a lane goes.
///
/// Two lanes exchange 16-byte parts first, so that each of the four stores covers 16 pieces of 32 bytes, a sector of the
/// memory each, and not 32 halves of such, which keeps the SM's path to memory busy for twice as long.
///
/// # Safety
/// As for [`store_block`], for all slots; all 32 lanes of the warp call this together, with the same `slot`.
#[inline(always)]
pub unsafe fn store_blocks(slot: impl Fn(u32) -> *mut RingBlock, block: WqeBlock) {
    let lane = lane_id();
    let odd = lane & 1 != 0;
    let [a, b, c, d] = block;
    // SAFETY: the caller's promise: a whole warp.
    let (even0, odd0) = unsafe { exchange(odd, a, b) };
    let part = 16 * u64::from(odd);
    let empty = d.0[0] | d.0[1] == 0;
    let (even1, odd1, last) = if is_known(empty) && empty {
        // Zeros in all lanes, because the compiler asks no lane: each lane can store its neighbour's.
        match odd {
            true => (d, c, 0),
            false => (c, d, 16),
        }
    } else {
        // SAFETY: as above.
        let (even, odd) = unsafe { exchange(odd, c, d) };
        (even, odd, part)
    };
    // SAFETY: the caller's promise; a quarter of a `RingBlock` is aligned to 16 bytes, so vector stores are allowed.
    unsafe {
        asm!(
            "st.global.v2.b64 [{even}], {{{a}, {b}}};",
            "st.global.v2.b64 [{even}+32], {{{c}, {d}}};",
            "st.global.v2.b64 [{odd}], {{{e}, {f}}};",
            "st.global.v2.b64 [{last}+32], {{{g}, {h}}};",
            even = in(reg64) slot(lane & !1) as u64 + part,
            odd = in(reg64) slot(lane | 1) as u64 + part,
            last = in(reg64) slot(lane | 1) as u64 + last,
            a = in(reg64) even0.0[0],
            b = in(reg64) even0.0[1],
            c = in(reg64) even1.0[0],
            d = in(reg64) even1.0[1],
            e = in(reg64) odd0.0[0],
            f = in(reg64) odd0.0[1],
            g = in(reg64) odd1.0[0],
            h = in(reg64) odd1.0[1],
            options(preserves_flags, nostack),
        );
    }
}

/// 16 bytes of a receive ring.
#[repr(C, align(16))]
#[derive(Debug)]
pub struct RingSegment(Octoword);

/// Stores a segment in one 16-byte store that is ordered only by the fence that follows.
///
/// # Safety
/// As for [`store_block`].
#[inline(always)]
pub unsafe fn store_segment(slot: *mut RingSegment, segment: Octoword) {
    // SAFETY: the caller's promise; `RingSegment` is aligned to 16 bytes, so a vector store is allowed.
    unsafe {
        asm!(
            "st.global.v2.b64 [{slot}], {{{a}, {b}}};",
            slot = in(reg64) slot,
            a = in(reg64) segment.0[0],
            b = in(reg64) segment.0[1],
            options(preserves_flags, nostack),
        );
    }
}
