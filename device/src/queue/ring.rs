//! Index arithmetic of a ring. No memory, no hardware.

use mlx5_wqe::WqeIndex;

/// A ring's size, and what follows from it.
///
/// Blocks (64 bytes of a send ring, one WQE of a receive ring) are counted in
/// u64s that never wrap. The NIC sees their low 16 bits, the ring their low
/// `log2` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    mask: u32,
}

impl Ring {
    /// A ring of `1 << log2` blocks; `log2` is at most 15.
    #[inline(always)]
    pub const fn new(log2: u8) -> Self {
        Self {
            mask: (1 << (log2 & 15)) - 1,
        }
    }

    /// Number of blocks.
    #[inline(always)]
    pub const fn depth(self) -> u32 {
        self.mask + 1
    }

    /// Slot of a block: its number modulo the depth.
    #[inline(always)]
    pub const fn slot(self, block: u64) -> usize {
        (block as u32 & self.mask) as usize
    }

    /// The index of a block as the NIC sees it.
    #[inline(always)]
    pub const fn index(self, block: u64) -> WqeIndex {
        WqeIndex(block as u16)
    }

    /// How many blocks fit behind `reserved` while all below `consumed` are free.
    #[inline(always)]
    pub const fn room(self, reserved: u64, consumed: u64) -> u32 {
        let used = reserved - consumed;
        if used < self.depth() as u64 {
            self.depth() - used as u32
        } else {
            0
        }
    }

    /// Whether `blocks` more fit behind `reserved` while all below `consumed` are free.
    #[inline(always)]
    pub const fn has_room(self, reserved: u64, consumed: u64, blocks: u32) -> bool {
        reserved + blocks as u64 <= consumed + self.depth() as u64
    }

    /// Most blocks of one WQE: a quarter of the ring, at least one.
    ///
    /// A CQE names a WQE's first block, so the rest of the newest completed WQE
    /// counts as busy; this limit keeps that rest small.
    #[inline(always)]
    pub const fn wqe_limit(self) -> u32 {
        at_least_one(self.depth() / 4)
    }

    /// Most blocks under one doorbell: half of the ring, at least one.
    #[inline(always)]
    pub const fn group_limit(self) -> u32 {
        at_least_one(self.depth() / 2)
    }

    /// Whether a WQE of `blocks` blocks at `start` is signalled in any case,
    /// because it covers a multiple of a quarter of the ring.
    ///
    /// With the two limits above, a full ring then always has a signalled WQE
    /// under way (`docs/design.md` has the argument, a property test the proof).
    #[inline(always)]
    pub const fn must_signal(self, start: u64, blocks: u32) -> bool {
        // A quarter less one; nothing of a ring of less than four blocks.
        let last = self.mask >> 2;
        let into = start as u32 & last;
        (into == 0) | (into + (blocks - 1) > last)
    }

    /// The first block from `start` on that makes a WQE on it be signalled in any case.
    #[inline(always)]
    pub const fn next_signal(self, start: u64) -> u64 {
        let last = (self.mask >> 2) as u64;
        (start + last) & !last
    }

    /// Where the queue stands once the NIC has completed the WQE at `newest`,
    /// if all below `consumed` was known complete before.
    ///
    /// Never more than the truth: a CQE read after `consumed` was cannot be
    /// older than it, and a newer one than 2^16 blocks counts modulo 2^16.
    #[inline(always)]
    pub const fn completed(self, consumed: u64, newest: WqeIndex) -> u64 {
        consumed + self.shown(consumed, newest) as u64
    }

    /// How many blocks behind `consumed` the completion of the WQE at `newest` shows to be complete.
    #[inline(always)]
    pub const fn shown(self, consumed: u64, newest: WqeIndex) -> u16 {
        let last = (consumed as u16).wrapping_sub(1);
        newest.0.wrapping_sub(last)
    }
}

#[inline(always)]
const fn at_least_one(n: u32) -> u32 {
    if n == 0 { 1 } else { n }
}
