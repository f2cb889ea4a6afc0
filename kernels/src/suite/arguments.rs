//! What a kernel receives: plain data that the host fills in.

use core::marker::PhantomData;

/// A kernel, as its arguments. They are `repr(C)` and lie in memory that both host and kernel reach.
pub trait Kernel: Copy + Sync {
    /// The kernel that takes them.
    #[cfg(not(target_arch = "nvptx64"))]
    const ENTRY: warpbell::Entry<fn(Self)>;

    /// What each thread of the grid runs.
    fn run(&self);
}

/// Entries of which each is written by one thread; the host reads them after the launch. Copies write to the
/// same entries.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Output<'a, T> {
    start: *mut T,
    len: u64,
    _entries: PhantomData<(&'a (), *mut T)>,
}

// SAFETY: it holds a slice that nobody else uses, and only moves values of a `Send` type into it.
unsafe impl<T: Send> Send for Output<'_, T> {}
// SAFETY: as above; `write` is unsafe because two threads could write to one entry.
unsafe impl<T: Send> Sync for Output<'_, T> {}

impl<'a, T: Copy> Output<'a, T> {
    /// The entries of a slice.
    pub const fn new(entries: &'a mut [T]) -> Self {
        Self {
            start: entries.as_mut_ptr(),
            len: entries.len() as u64,
            _entries: PhantomData,
        }
    }

    /// How many there are.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Writes entry number `index`; an index past the end is ignored.
    ///
    /// # Safety
    /// No other thread writes this entry during the launch.
    #[inline]
    pub unsafe fn write(&self, index: u64, value: T) {
        if index < self.len {
            // SAFETY: made from a slice that lives for 'a, the index is inside, and the caller promises to
            // be the only one.
            unsafe { self.start.add(index as usize).write(value) };
        }
    }
}
