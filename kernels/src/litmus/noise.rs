//! Stores all over a stretch of memory, which keep its caches and the ways there busy.

use warpbell::thread;

/// Words that nobody reads; none for silence.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    /// The first, valid for as long as the kernel runs.
    pub start: *mut u64,
    /// How many there are: a power of two, or 0.
    pub count: u64,
}

// SAFETY: whatever is stored there means nothing to anybody.
unsafe impl Send for Noise {}
// SAFETY: as above.
unsafe impl Sync for Noise {}

impl Noise {
    /// None.
    pub const SILENCE: Self = Self {
        start: core::ptr::null_mut(),
        count: 0,
    };

    /// Stores here and there for so long.
    #[inline(always)]
    pub(super) fn make(&self, nanoseconds: u64) {
        if self.count == 0 {
            return;
        }
        let until = thread::clock_ns() + nanoseconds;
        let mut place = u64::from(thread::index());
        while thread::clock_ns() < until {
            for _ in 0..32 {
                // Knuth's generator for 64 bits; its high bits are the good ones.
                place = place
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let word = (place >> 24) & (self.count - 1);
                // SAFETY: the word is inside, by the promise of the fields; volatile, so that it is stored.
                unsafe { self.start.add(word as usize).write_volatile(place) };
            }
        }
    }
}
