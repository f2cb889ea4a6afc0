//! Memory that a kernel goes to by numbers, and how much of it there is.

use warpbell::{Signal, Word32, Word64, WordExt};

use crate::outcome::Failure;

/// Words that a kernel goes to, with their number. Nothing outside of them is touched, whatever number a kernel's
/// parameters make: a load there gives 0, and a store is lost. A kernel asks first whether all that it needs is there,
/// and refuses its parameters by [`Failure::Outside`].
///
/// Safe code cannot make one, so that a kernel may trust those in its parameters:
///
/// ```compile_fail,E0133
/// use warpbell_kernels::place::Place;
/// let anywhere = Place::new(std::ptr::without_provenance(8), 1);
/// ```
///
/// ```compile_fail,E0451
/// use warpbell_kernels::place::Place;
/// let anywhere = Place { first: std::ptr::without_provenance(8), count: 1 };
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Place {
    first: *const Word64,
    count: u32,
}

// SAFETY: it only names words, for which `new` was given a promise.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    /// So many words from there on, of which a kernel gets to 2^32 - 1.
    ///
    /// # Safety
    /// The words are there, aligned to 8 bytes, as long as a kernel runs that gets them. Meanwhile NICs and atomics
    /// alone touch them, except as a kernel's own safety section says.
    pub const unsafe fn new(first: *const Word64, count: u64) -> Self {
        let most = u32::MAX as u64;
        let count = if count < most { count } else { most };
        Self {
            first,
            count: count as u32,
        }
    }

    /// The whole words among so many bytes from there on; none if they are not aligned.
    ///
    /// # Safety
    /// As of [`new`](Self::new), but for the alignment.
    #[inline(always)]
    pub unsafe fn in_bytes(first: *const u8, bytes: u64) -> Self {
        let first = first.cast::<Word64>();
        // Not `is_aligned`, which counts the bits of a 64-bit number: Rust-CUDA compiles such a count wrongly.
        let words = match first.addr() % size_of::<Word64>() {
            0 => bytes / size_of::<Word64>() as u64,
            _ => 0,
        };
        // SAFETY: the caller's promise, and the alignment was looked at.
        unsafe { Self::new(first, words) }
    }

    /// So many of the words, from word `first` on.
    ///
    /// # Errors
    /// [`Failure::Outside`] if they are not all there.
    #[inline(always)]
    pub fn part(self, first: u64, count: u64) -> Result<Self, Failure> {
        // No sum, which could wrap.
        let there = u64::from(self.count);
        if count > there || first > there - count {
            return Err(Failure::Outside {
                wanted: first.saturating_add(count),
                there,
            });
        }
        Ok(Self {
            // SAFETY: inside the words that `new` was promised, or at their end.
            first: unsafe { self.first.add(first as usize) },
            // No more than there were.
            count: count as u32,
        })
    }

    /// Asks whether so many words are there.
    ///
    /// # Errors
    /// [`Failure::Outside`] if not.
    #[inline(always)]
    pub fn holds(self, words: u64) -> Result<(), Failure> {
        self.part(0, words).map(drop)
    }

    /// The first word, for who has asked how many there are.
    #[inline(always)]
    pub const fn first(self) -> *const Word64 {
        self.first
    }

    /// A word, if it is there.
    #[inline(always)]
    pub fn word<'a>(self, index: u32) -> Option<&'a Word64> {
        // SAFETY: inside the words that `new` was promised.
        (index < self.count).then(|| unsafe { &*self.first.add(index as usize) })
    }

    /// The value of 4 bytes behind so many others, if it is there.
    #[inline(always)]
    fn value<'a>(self, index: u32) -> Option<&'a Word32> {
        let there = index / 2 < self.count;
        // SAFETY: a half of a word that `new` was promised.
        there.then(|| unsafe { &*self.first.cast::<Word32>().add(index as usize) })
    }

    /// A word's value; 0 where there is none.
    #[inline(always)]
    pub fn load(self, index: u32) -> u64 {
        self.word(index).map_or(0, |word| word.load_relaxed())
    }

    /// Stores a word; one that there is no room for is lost.
    #[inline(always)]
    pub fn store(self, index: u32, value: u64) {
        if let Some(word) = self.word(index) {
            word.store_relaxed(value);
        }
    }

    /// A value of 4 bytes; 0 where there is none.
    #[inline(always)]
    pub fn load_value(self, index: u32) -> u32 {
        self.value(index).map_or(0, |value| value.load_relaxed())
    }

    /// Stores a value of 4 bytes; one that there is no room for is lost.
    #[inline(always)]
    pub fn store_value(self, index: u32, value: u32) {
        if let Some(word) = self.value(index) {
            word.store_relaxed(value);
        }
    }

    /// A word to wait for.
    ///
    /// # Errors
    /// [`Failure::Outside`] if it is not there.
    #[inline(always)]
    pub fn signal<'a>(self, index: u32) -> Result<Signal<'a>, Failure> {
        let word = self.part(index.into(), 1)?;
        // SAFETY: `new` was promised the word, and that NICs and atomics alone touch it.
        Ok(unsafe { Signal::new(word.first) })
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn whole_aligned_words_are_taken_of_bytes() {
        let words = [const { Word64::new(7) }; 4];
        let bytes: *const u8 = words.as_ptr().cast();
        // SAFETY: inside the array, whose words are touched as atomics.
        let places = unsafe {
            [
                Place::in_bytes(bytes, 31),
                Place::in_bytes(bytes.add(8), 24),
                Place::in_bytes(bytes.add(4), 28),
            ]
        };
        assert_eq!(places.map(|place| place.count), [3, 3, 0]);
        assert_eq!(places[1].first, &raw const words[1]);
    }

    #[test]
    fn nothing_outside_a_place_is_touched() {
        let words = [const { Word64::new(7) }; 4];
        // SAFETY: the array's words in the middle, touched as atomics.
        let place = unsafe { Place::new(&raw const words[1], 2) };
        for index in [2, 3, u32::MAX] {
            place.store(index, 9);
            assert_eq!(place.load(index), 0);
            assert!(place.word(index).is_none() && place.signal(index).is_err());
        }
        for index in [4, 5, u32::MAX] {
            place.store_value(index, 9);
            assert_eq!(place.load_value(index), 0);
        }
        place.store(1, 8);
        place.store_value(1, 1);
        assert_eq!(place.load_value(1), 1);
        let found = words.each_ref().map(|word| word.load(Ordering::Relaxed));
        assert_eq!(found, [7, 7 | 1 << 32, 8, 7]);
    }

    #[test]
    fn a_part_is_inside_or_refused() {
        let words = [const { Word64::new(7) }; 4];
        // SAFETY: the array's words, touched as atomics.
        let place = unsafe { Place::new(words.as_ptr(), 4) };
        for (first, count) in [(0, 4), (4, 0), (1, 2)] {
            let part = place.part(first, count).unwrap();
            assert_eq!(part.first, words.as_ptr().wrapping_add(first as usize));
            assert_eq!(u64::from(part.count), count);
        }
        for (first, count, wanted) in [(0, 5, 5), (4, 1, 5), (5, 0, 5), (u64::MAX, 2, u64::MAX)] {
            let there = 4;
            let refused = place.part(first, count).err();
            assert_eq!(refused, Some(Failure::Outside { wanted, there }));
        }
        assert_eq!(place.holds(4), Ok(()));
        assert!(place.holds(u64::MAX).is_err());
    }
}
