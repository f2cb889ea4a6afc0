//! What a host lends a kernel in its parameters, besides queues: values to read, and words of registered memory.
//!
//! Both are `repr(C)`, so that a kernel's structure of parameters may have them as fields, and both are checked: a
//! kernel that asks for what is not there gets `None`.

use core::fmt;
use core::marker::PhantomData;

use mlx5_wqe::{Local, LocalKey};
use warpbell_gpu::WordExt;
use warpbell_gpu::arch::{Reach, Word64};

use crate::words::{fetch_add_relaxed64, load_relaxed64, store_relaxed64};
use crate::{Processor, Signal};

/// Values that all threads of a grid may read: inputs, handles of queues, or atomic words for results.
///
/// It is a shared slice with a layout that host and GPU agree on. For kernels on a GPU the values are in memory that the
/// GPU reaches, as those of `host-init`'s `Shared` are.
///
/// ```
/// use core::sync::atomic::Ordering;
/// use warpbell::{Slice, Word64, kernel, thread};
///
/// #[repr(C)]
/// #[derive(Clone, Copy)]
/// struct Squares<'a> {
///     inputs: Slice<'a, u32>,
///     outputs: Slice<'a, Word64>,
/// }
///
/// #[kernel]
/// fn squares(p: Squares<'_>) {
///     let own = u64::from(thread::index());
///     if let Some(input) = p.inputs.get(own) {
///         p.outputs.store(own, u64::from(*input).pow(2));
///     }
/// }
///
/// // Outside of a grid a thread is a grid of one.
/// let outputs = [Word64::new(0)];
/// squares(Squares { inputs: Slice::new(&[7]), outputs: Slice::new(&outputs) });
/// assert_eq!(outputs[0].load(Ordering::Relaxed), 49);
/// ```
#[repr(C)]
pub struct Slice<'a, T> {
    start: *const T,
    len: u64,
    _values: PhantomData<&'a [T]>,
}

impl<T> Clone for Slice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

// A shared slice is copied whatever its values are.
impl<T> Copy for Slice<'_, T> {}

// SAFETY: it only lends what a shared slice lends.
unsafe impl<T: Sync> Send for Slice<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Slice<'_, T> {}

impl<'a, T> Slice<'a, T> {
    /// These values.
    pub const fn new(values: &'a [T]) -> Self {
        Self {
            start: values.as_ptr(),
            len: values.len() as u64,
            _values: PhantomData,
        }
    }

    /// How many there are.
    #[inline(always)]
    pub const fn len(self) -> u64 {
        self.len
    }

    /// Whether there is none.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Value number `index`, if there is one.
    #[inline(always)]
    pub fn get(self, index: u64) -> Option<&'a T> {
        if index < self.len {
            // SAFETY: `new` took the address and the count from a slice that lives for 'a.
            Some(unsafe { &*self.start.add(index as usize) })
        } else {
            None
        }
    }

    /// All of them.
    #[inline(always)]
    pub const fn as_slice(self) -> &'a [T] {
        // SAFETY: as above.
        unsafe { core::slice::from_raw_parts(self.start, self.len as usize) }
    }
}

impl Slice<'_, Word64> {
    /// Stores a result in word `index`, if it is there, which the answer says.
    #[inline(always)]
    pub fn store(self, index: u64, value: u64) -> bool {
        let word = self.get(index);
        if let Some(word) = word {
            word.store_relaxed(value);
        }
        word.is_some()
    }
}

impl<'a, T> From<&'a [T]> for Slice<'a, T> {
    fn from(values: &'a [T]) -> Self {
        Self::new(values)
    }
}

impl<T: fmt::Debug> fmt::Debug for Slice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

/// Words of 8 bytes of registered memory, which kernels, NICs and the host share.
///
/// Loads and stores are single and whole, and order nothing: a thread learns that words have come from a completion or a
/// [`signal`](Self::signal), and may read them then. [`local`](Self::local) names words in a work request. Safe code cannot
/// make one out of an address:
///
/// ```compile_fail,E0133
/// use warpbell::{Words, wqe::LocalKey};
/// let anywhere = Words::new(core::ptr::without_provenance(8), 1, LocalKey(1));
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    first: *const Word64,
    len: u64,
    key: LocalKey,
    /// Whose they are alone: of a GPU's memory; unknown where everybody reaches them.
    processor: Processor,
    _words: PhantomData<&'a [Word64]>,
}

// SAFETY: it only names words, for which `new` was given a promise.
unsafe impl Send for Words<'_> {}
// SAFETY: as above.
unsafe impl Sync for Words<'_> {}

impl<'a> Words<'a> {
    /// So many words from there on, registered under that key.
    ///
    /// # Safety
    /// For the lifetime `'a`, the words are there for every thread that gets them, unless
    /// [`only_on`](Self::only_on) says where, aligned to 8 bytes, and NICs and
    /// atomics alone touch them. On a GPU they are in global memory.
    pub const unsafe fn new(first: *const Word64, len: u64, key: LocalKey) -> Self {
        Self {
            first,
            len,
            key,
            processor: Processor::UNKNOWN,
            _words: PhantomData,
        }
    }

    /// The same words for one processor alone: those in a GPU's memory, which the CPU does not reach. There, to
    /// everybody else, no word is there.
    pub const fn only_on(self, processor: Processor) -> Self {
        Self { processor, ..self }
    }

    /// How many there are.
    #[inline(always)]
    pub const fn len(self) -> u64 {
        self.len
    }

    /// Whether there is none.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// So many of the words, from word `first` on, if they are there.
    #[inline(always)]
    pub const fn part(self, first: u64, len: u64) -> Option<Self> {
        // No sum, which could wrap.
        if len > self.len || first > self.len - len {
            return None;
        }
        Some(Self {
            // SAFETY: inside the words that `new` was promised, or at their end.
            first: unsafe { self.first.add(first as usize) },
            len,
            ..self
        })
    }

    /// So many of the words, from word `first` on, for a work request, if they are there; up to 2^28 - 1.
    #[inline(always)]
    pub fn local(self, first: u64, len: u32) -> Option<Local> {
        if len > Local::MAX_LENGTH / 8 {
            return None;
        }
        let part = self.part(first, len.into())?;
        Some(Local {
            address: part.first.addr() as u64,
            length: 8 * len,
            key: self.key,
        })
    }

    #[inline(always)]
    fn word(self, index: u64) -> Option<&'a Word64> {
        // A GPU itself ends a kernel that goes where it does not reach, so that a CPU alone has to ask.
        #[cfg(not(target_arch = "nvptx64"))]
        if !self.processor.admits(Processor::CPU) {
            return None;
        }
        if index < self.len {
            // SAFETY: inside the words that `new` was promised, in memory that this processor reaches.
            Some(unsafe { &*self.first.add(index as usize) })
        } else {
            None
        }
    }

    /// The value of word `index`, if it is there.
    #[inline(always)]
    pub fn load(self, index: u64) -> Option<u64> {
        Some(load_relaxed64(self.word(index)?, Reach::System))
    }

    /// Stores word `index`, if it is there, which the answer says.
    #[inline(always)]
    pub fn store(self, index: u64, value: u64) -> bool {
        match self.word(index) {
            Some(word) => {
                store_relaxed64(word, value, Reach::System);
                true
            }
            None => false,
        }
    }

    /// Adds to word `index`, if it is there, and gives the value from before.
    ///
    /// It is one step for the threads of one GPU, or for those of the CPU. What a NIC, or another processor, writes to the
    /// word at the same time may be lost: a GPU behind PCIe has no atomics on host memory that others respect.
    #[inline(always)]
    pub fn fetch_add(self, index: u64, value: u64) -> Option<u64> {
        let word = self.word(index)?;
        Some(fetch_add_relaxed64(word, value, Reach::Gpu))
    }

    /// Word `index` as one to wait for, if it is there.
    #[inline(always)]
    pub fn signal(self, index: u64) -> Option<Signal<'a>> {
        let word = self.word(index)?;
        // SAFETY: `new` was promised the word, and that NICs and atomics alone touch it.
        Some(unsafe { Signal::new(word) })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;

    use std::format;

    use super::*;
    use crate::Deadline;

    #[test]
    fn a_slice_is_what_it_was_made_of() {
        let values = [3u8, 4, 5];
        let slice = Slice::from(&values[..]);
        assert_eq!((slice.len(), slice.is_empty()), (3, false));
        assert_eq!(slice.as_slice(), values);
        assert_eq!([0, 2].map(|index| slice.get(index)), [Some(&3), Some(&5)]);
        assert!(slice.get(3).is_none() && slice.get(u64::MAX).is_none());
        assert_eq!(format!("{slice:?}"), "[3, 4, 5]");
        assert!(Slice::<u64>::new(&[]).is_empty());
        assert_eq!(size_of::<Slice<'_, u8>>(), 16);
    }

    #[test]
    fn results_stay_inside_their_words() {
        let words = [const { Word64::new(7) }; 3];
        let results = Slice::new(&words[..2]);
        assert!(results.store(1, 42));
        assert!(!results.store(2, 43) && !results.store(u64::MAX, 44));
        let found = words.each_ref().map(|word| word.load_relaxed());
        assert_eq!(found, [7, 42, 7]);
    }

    #[test]
    fn nothing_outside_of_words_is_touched() {
        let words = [const { Word64::new(7) }; 4];
        // SAFETY: the array's words in the middle, touched as atomics.
        let middle = unsafe { Words::new(words[1..].as_ptr(), 2, LocalKey(5)) };
        for index in [2, 3, u64::MAX] {
            assert!(!middle.store(index, 9) && middle.load(index).is_none());
            assert!(middle.fetch_add(index, 9).is_none() && middle.signal(index).is_none());
        }
        assert!(middle.store(1, 8));
        assert_eq!(middle.fetch_add(1, 2), Some(8));
        assert_eq!(middle.load(1), Some(10));
        let signal = middle.signal(1).unwrap();
        assert_eq!(signal.wait(10, Deadline::PASSED), Ok(10));
        let found = words.each_ref().map(|word| word.load_relaxed());
        assert_eq!(found, [7, 7, 10, 7]);
    }

    #[test]
    fn a_cpu_touches_no_word_of_a_gpu() {
        let words = [const { Word64::new(7) }; 2];
        // SAFETY: the array's words, touched as atomics.
        let all = unsafe { Words::new(words.as_ptr(), 2, LocalKey(5)) };
        let there = all.only_on(Processor::gpu(0));
        assert!(there.load(0).is_none() && !there.store(0, 8) && there.signal(0).is_none());
        assert_eq!((there.len(), there.local(0, 2)), (2, all.local(0, 2)));
        assert_eq!(all.only_on(Processor::CPU).load(0), Some(7));
        assert_eq!(size_of::<Words<'_>>(), 24);
    }

    #[test]
    fn a_part_is_inside_or_none() {
        let words = [const { Word64::new(7) }; 4];
        // SAFETY: the array's words, touched as atomics.
        let all = unsafe { Words::new(words.as_ptr(), 4, LocalKey(5)) };
        for (first, len) in [(0, 4), (4, 0), (1, 2)] {
            let part = all.part(first, len).unwrap();
            assert_eq!(part.first, words.as_ptr().wrapping_add(first as usize));
            assert_eq!((part.len(), part.is_empty()), (len, len == 0));
        }
        for (first, len) in [(0, 5), (4, 1), (5, 0), (u64::MAX, 2)] {
            assert!(all.part(first, len).is_none());
            assert!(all.local(first, len as u32).is_none());
        }
        let wanted = Local {
            address: words.as_ptr().addr() as u64 + 8,
            length: 24,
            key: LocalKey(5),
        };
        assert_eq!(all.local(1, 3), Some(wanted));
        // SAFETY: nobody touches them.
        let many = unsafe { Words::new(words.as_ptr(), u64::MAX, LocalKey(5)) };
        assert!(many.local(0, 1 << 28).is_none() && many.local(0, (1 << 28) - 1).is_some());
    }
}
