//! Random data and offsets, the same for the same seed.

use std::hash::{BuildHasher, Hasher, RandomState};

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// All that follows depends on this seed alone.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number from 0 to `limit` - 1.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.number() % limit as u64) as usize
    }

    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.number().to_ne_bytes());
        words.flatten().take(count).collect()
    }
}

/// Another seed each time, short enough to be typed.
pub fn fresh_seed() -> u64 {
    RandomState::new().build_hasher().finish() >> 32
}
