//! A set of file descriptors.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

/// The words of a set.
const WORDS: usize = 1024;

/// A bit for each file descriptor below 64 × 1,024.
pub struct Descriptors([AtomicU64; WORDS]);

impl Descriptors {
    /// None.
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }

    fn bit(&self, file: c_int) -> Option<(&AtomicU64, u64)> {
        let file = usize::try_from(file).ok()?;
        Some((self.0.get(file / 64)?, 1 << (file % 64)))
    }

    /// Adds one; false if it is too high.
    pub fn add(&self, file: c_int) -> bool {
        let Some((word, mask)) = self.bit(file) else {
            return false;
        };
        // Relaxed: who uses the descriptor got it from the thread that opened it, in an order of its own.
        word.fetch_or(mask, Ordering::Relaxed);
        true
    }

    /// Takes one out, if it is in.
    pub fn remove(&self, file: c_int) {
        if let Some((word, mask)) = self.bit(file) {
            word.fetch_and(!mask, Ordering::Relaxed);
        }
    }

    /// Whether one is in.
    pub fn has(&self, file: c_int) -> bool {
        let bit = self.bit(file);
        bit.is_some_and(|(word, mask)| word.load(Ordering::Relaxed) & mask != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_only_what_was_added() {
        static SET: Descriptors = Descriptors::new();
        assert!(!SET.has(70));
        assert!(SET.add(70));
        assert!(SET.has(70) && !SET.has(71) && !SET.has(6));
        SET.remove(70);
        assert!(!SET.has(70));
        for none in [-1, c_int::MAX, 65_536] {
            assert!(!SET.add(none));
            SET.remove(none);
            assert!(!SET.has(none));
        }
    }
}
