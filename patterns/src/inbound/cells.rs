//! Messages whose every piece says for itself that it is there.

use core::fmt;
use core::marker::PhantomData;

use warpbell_gpu::arch::{Reach, Word64, fence_acquire};

use super::seal::Seal;
use crate::words::{load_relaxed64, store_relaxed64};
use warpbell::WaitError;
use warpbell::{Deadline, FenceReach, Scope};

/// A message as cells of `WORDS` words of 8 bytes each, in registered memory: the writer's own, from which it is
/// written, or the reader's, to which it comes.
///
/// The last word of a cell is its [`Seal`]. The writer fills its cells and writes them to the reader's, of the same
/// shape, with one or more WRITEs; the reader waits until each cell tells that it is there. Nothing is asked of the
/// order in which cells come, and no completion or flag is needed.
///
/// A message has a sequence number that the reader expects. It differs from that of whatever the reader's memory held
/// before; so a writer counts. Before it writes the next message, it must know that the reader has read this one.
///
/// `repr(C)`, 16 bytes: the host hands it to the kernel.
#[repr(C)]
pub struct Cells<'a, S: Seal, const WORDS: usize> {
    first: *const Word64,
    count: u32,
    reach: FenceReach,
    _words: PhantomData<(&'a Word64, S)>,
}

impl<S: Seal, const WORDS: usize> Clone for Cells<'_, S, WORDS> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Seal, const WORDS: usize> Copy for Cells<'_, S, WORDS> {}

// SAFETY: the words may be used by every thread of a grid (the promise of `new`), and are used as atomics.
unsafe impl<S: Seal, const WORDS: usize> Send for Cells<'_, S, WORDS> {}
// SAFETY: as for `Send`.
unsafe impl<S: Seal, const WORDS: usize> Sync for Cells<'_, S, WORDS> {}

impl<'a, S: Seal, const WORDS: usize> Cells<'a, S, WORDS> {
    /// Values of 32 bits in a cell.
    pub const VALUES: u32 = {
        let values = 2 * (WORDS as u32 - 1) + S::SPARE;
        assert!(values > 0, "a cell has room for a value");
        values
    };

    /// Bytes of a cell.
    pub const BYTES: u32 = 8 * WORDS as u32;

    /// How many cells a message of so many values of 32 bits takes.
    pub const fn needed(values: u32) -> u32 {
        values.div_ceil(Self::VALUES)
    }

    /// `count` cells from `first` on, beside a NIC of that reach.
    ///
    /// # Safety
    /// For the lifetime `'a`, the words of all cells are valid for reads and writes, for every thread that gets the
    /// cells; meanwhile they are written by NICs and through atomics only.
    pub const unsafe fn new(first: *const Word64, count: u32, reach: FenceReach) -> Self {
        Self {
            first,
            count,
            reach,
            _words: PhantomData,
        }
    }

    /// Number of cells.
    pub const fn count(self) -> u32 {
        self.count
    }

    /// Fills the cells with a message: value number `n` is `value(n)`. The threads of a scope do it together, a cell
    /// each at a time; what they post next may send it.
    #[inline(always)]
    pub fn fill<C: Scope>(self, sequence: u32, value: impl Fn(u32) -> u32) {
        let mut cell = C::rank();
        while cell < self.count {
            let first = cell * Self::VALUES;
            let mut sum = S::begin(sequence);
            let mut word = 0;
            while word + 1 < WORDS {
                let low = value(first + 2 * word as u32);
                let high = value(first + 2 * word as u32 + 1);
                let data = u64::from(high) << 32 | u64::from(low);
                sum = S::add(sum, data);
                store_relaxed64(self.word(cell, word), data, Reach::System);
                word += 1;
            }
            let low = match S::SPARE {
                0 => sum,
                _ => value(first + Self::VALUES - 1),
            };
            let seal = u64::from(sequence) << 32 | u64::from(low);
            store_relaxed64(self.word(cell, WORDS - 1), seal, Reach::System);
            cell += C::size();
        }
    }

    /// Waits until all cells are those of this message. The threads of a scope look together, each at cells of its own;
    /// afterwards all of them may read all cells.
    ///
    /// # Errors
    /// `Deadline`.
    #[inline(always)]
    pub fn wait<C: Scope>(
        self,
        sequence: u32,
        deadline: Deadline,
    ) -> Result<Arrived<'a, S, WORDS>, WaitError> {
        let mut cell = self.skip::<C>(C::rank(), sequence);
        if cell < self.count {
            let mut wait = deadline.wait();
            loop {
                let late = wait.expired();
                cell = self.skip::<C>(cell, sequence);
                if late | (cell >= self.count) {
                    break;
                }
            }
        }
        // What showed that the cells are there, before all reading of them: each thread's own looks by its fence, the
        // others' by the barrier behind it.
        fence_acquire(self.reach.reach());
        let missing = C::any(cell < self.count);
        C::sync();
        match missing {
            false => Ok(Arrived { cells: self }),
            true => Err(WaitError::Deadline),
        }
    }

    /// The first cell of this thread's, from `cell` on, that is not there.
    #[inline(always)]
    fn skip<C: Scope>(self, mut cell: u32, sequence: u32) -> u32 {
        while (cell < self.count) && self.holds(cell, sequence) {
            cell += C::size();
        }
        cell
    }

    /// Whether a cell is that of this message.
    #[inline(always)]
    fn holds(self, cell: u32, sequence: u32) -> bool {
        let seal = load_relaxed64(self.word(cell, WORDS - 1), Reach::System);
        if (seal >> 32) as u32 != sequence {
            return false;
        }
        if S::SPARE != 0 {
            return true;
        }
        let mut sum = S::begin(sequence);
        let mut word = 0;
        while word + 1 < WORDS {
            sum = S::add(sum, load_relaxed64(self.word(cell, word), Reach::System));
            word += 1;
        }
        sum == seal as u32
    }

    /// A word of a cell that there is.
    #[inline(always)]
    fn word(&self, cell: u32, word: usize) -> &'a Word64 {
        // SAFETY: the promise of `new`; the cell is one of `count`, the word one of `WORDS`.
        unsafe { &*self.first.add(cell as usize * WORDS + word) }
    }
}

impl<S: Seal, const WORDS: usize> fmt::Debug for Cells<'_, S, WORDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cells")
            .field("first", &self.first)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// A message that is there, until its sender may write the next one.
#[derive(Debug)]
pub struct Arrived<'a, S: Seal, const WORDS: usize> {
    cells: Cells<'a, S, WORDS>,
}

impl<S: Seal, const WORDS: usize> Arrived<'_, S, WORDS> {
    /// Value number `index`; none behind the last cell.
    #[inline(always)]
    pub fn get(&self, index: u32) -> Option<u32> {
        let values = Cells::<'_, S, WORDS>::VALUES;
        let (cell, place) = (index / values, index % values);
        (cell < self.cells.count).then(|| {
            let word = self.cells.word(cell, place as usize / 2);
            // Not older than what `wait` has found there: it is the same word.
            (load_relaxed64(word, Reach::System) >> (32 * (place % 2))) as u32
        })
    }
}
