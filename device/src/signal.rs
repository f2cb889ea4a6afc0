//! Words that the other side writes to say that its data has come.

use core::fmt;
use core::marker::PhantomData;

use warpbell_gpu::arch::{Reach, Word64};

use crate::error::WaitError;
use crate::words::load_acquire64;
use crate::{Deadline, Scope};

/// A word of registered memory that the other side writes behind its data.
///
/// The other side posts its data and then a write of 8 bytes to this word
/// ([`Wqe::write_value`](mlx5_wqe::Wqe::write_value)) on the same queue. The NIC
/// brings them in that order, so whoever has read the new value here may read
/// the data: no receive, no completion at this side. Several writers may add 1 each
/// ([`Wqe::fetch_add`](mlx5_wqe::Wqe::fetch_add)) instead; at their number the data of
/// all of them is there.
///
/// That the memory shows data and word in the NIC's order is not a matter of course in
/// a GPU's memory: `docs/inbound.md`, and `Flush` of `warpbell-patterns`.
///
/// `repr(C)`, 8 bytes: the host hands it to the kernel.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Signal<'a> {
    word: *const Word64,
    _lifetime: PhantomData<&'a Word64>,
}

// SAFETY: the word may be used by every thread of a grid (the promise of
// `new`), and is only read here, as an atomic.
unsafe impl Send for Signal<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for Signal<'_> {}

impl<'a> Signal<'a> {
    /// The signal at an address of this side's memory.
    ///
    /// # Safety
    /// For the lifetime `'a`, `word` is valid for reads of 8 bytes and aligned to
    /// them, for every thread that gets the signal; meanwhile it is written by
    /// NICs and through atomics only.
    pub const unsafe fn new(word: *const Word64) -> Self {
        Self {
            word,
            _lifetime: PhantomData,
        }
    }

    /// The word's value. What the other side wrote before it may be read then.
    #[inline(always)]
    pub fn read(self) -> u64 {
        // SAFETY: the promise of `new`.
        let word = unsafe { &*self.word };
        // The signal before the data, because the NIC writes the data first.
        load_acquire64(word, Reach::System)
    }

    /// Waits until the value is at least `least`, and gives it.
    ///
    /// # Errors
    /// `Deadline`.
    #[inline]
    pub fn wait(self, least: u64, deadline: Deadline) -> Result<u64, WaitError> {
        let value = self.read();
        if value >= least {
            return Ok(value);
        }
        let mut wait = deadline.wait();
        loop {
            let late = wait.expired();
            let value = self.read();
            if value >= least {
                return Ok(value);
            }
            if late {
                return Err(WaitError::Deadline);
            }
        }
    }

    /// The same for all threads of a scope together: the leader looks, all get the
    /// value, and all may read what came before it.
    ///
    /// # Errors
    /// `Deadline`.
    #[inline(always)]
    pub fn wait_together<C: Scope>(self, least: u64, deadline: Deadline) -> Result<u64, WaitError> {
        let mut found = 0;
        if C::leads() {
            // Nobody waits in vain for 0: so 0 says that it is late.
            found = self.wait(least, deadline).unwrap_or(0);
        }
        let value = C::broadcast(found);
        // The leader's load before the others' reading; a warp's shuffle orders no memory.
        C::sync();
        match value >= least {
            true => Ok(value),
            false => Err(WaitError::Deadline),
        }
    }
}

impl fmt::Debug for Signal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signal").field(&self.word).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn waits_for_at_least_its_value() {
        let word = Word64::new(4);
        // SAFETY: the word outlives the signal.
        let signal = unsafe { Signal::new(&word) };
        assert_eq!(signal.wait(4, Deadline::PASSED), Ok(4));
        assert_eq!(signal.wait(3, Deadline::PASSED), Ok(4));
        assert_eq!(
            signal.wait(5, Deadline::after_us(1)),
            Err(WaitError::Deadline)
        );
        assert_eq!(signal.read(), 4);
    }
}
