//! Values that host and kernels share.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::{Buffer, Error, Placement};

/// A value, or a slice of them, in memory that kernels reach: where one leaves its results, or is told to
/// stop.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use warpbell_host_init::{Placement, Shared};
///
/// let sums = Shared::slice(Placement::Host, 3, |_| AtomicU64::new(0))?;
/// sums[1].fetch_add(7, Ordering::Relaxed);
/// assert_eq!(sums[1].load(Ordering::Relaxed), 7);
/// # Ok::<(), warpbell_host_init::Error>(())
/// ```
pub struct Shared<T: ?Sized> {
    value: NonNull<T>,
    /// Freed after the value is dropped.
    _buffer: Buffer,
}

// SAFETY: it owns its value, and hands it out as a box would.
unsafe impl<T: ?Sized + Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Puts a value there.
    ///
    /// # Errors
    /// [`Error::OutOfReach`] for the GPU's memory, which the host does not read directly; those of
    /// [`Buffer::placed`].
    pub fn new(placement: Placement, value: T) -> Result<Self, Error> {
        let buffer = room::<T>(placement, 1)?;
        let place = NonNull::new(buffer.as_ptr().cast::<T>()).expect("a buffer is never null");
        // SAFETY: the buffer has room for one value, and its alignment is enough.
        unsafe { place.write(value) };
        Ok(Self {
            value: place,
            _buffer: buffer,
        })
    }
}

impl<T> Shared<[T]> {
    /// Puts `len` values there, each made from its index.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::BadSize`] for none.
    pub fn slice(
        placement: Placement,
        len: usize,
        mut value: impl FnMut(usize) -> T,
    ) -> Result<Self, Error> {
        let buffer = room::<T>(placement, len)?;
        let start = NonNull::new(buffer.as_ptr().cast::<T>()).expect("a buffer is never null");
        for index in 0..len {
            // SAFETY: the buffer has room for `len` values, and its alignment is enough.
            unsafe { start.add(index).write(value(index)) };
        }
        Ok(Self {
            value: NonNull::slice_from_raw_parts(start, len),
            _buffer: buffer,
        })
    }
}

fn room<T>(placement: Placement, len: usize) -> Result<Buffer, Error> {
    const { assert!(align_of::<T>() <= Buffer::ALIGNMENT) };
    if !placement.is_host() {
        return Err(Error::OutOfReach {
            what: "a value that the host reads",
            placement,
        });
    }
    Buffer::placed(placement, len.saturating_mul(size_of::<T>()))
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: written when it was made, and dropped with `self` only.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; a kernel that uses the value borrows `self`.
        unsafe { self.value.as_mut() }
    }
}

impl<T: ?Sized> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: written when it was made, and dropped once.
        unsafe { self.value.drop_in_place() };
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn values_are_kept_and_dropped_once() {
        let counted = Rc::new(());
        let one = Shared::new(Placement::Host, Some(counted.clone())).unwrap();
        let mut many = Shared::slice(Placement::Host, 5, |index| (index, counted.clone())).unwrap();
        many[3].0 = 77;
        assert_eq!(many.iter().map(|(index, _)| *index).sum::<usize>(), 7 + 77);
        assert_eq!(Rc::strong_count(&counted), 7);
        drop((one, many));
        assert_eq!(Rc::strong_count(&counted), 1);
    }

    #[test]
    fn nothing_has_no_place() {
        let none = Shared::slice(Placement::Host, 0, |_| 0u64);
        assert_matches!(none => Err(Error::BadSize { bytes: 0, .. }));
        let too_many = Shared::slice(Placement::Host, usize::MAX, |_| 0u64);
        assert_matches!(too_many => Err(Error::BadSize { .. }));
    }
}
