//! A kernel that does what no kernel should, for tests of what its host says then.

use warpbell::{Deadline, Stop, WaitError, kernel, thread};

use super::arguments::{Kernel, Output};
use super::ending::{Ending, EndingWords};

/// What a [`Trouble`] does.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// Stays until it is asked to stop.
    Stay,
    /// Panics.
    Panic,
}

/// One thread of the grid does something, the others return.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Trouble<'a> {
    /// What.
    pub kind: TroubleKind,
    /// Index of the thread in the grid.
    pub thread: u32,
    /// Ends a stay.
    pub stop: Stop<'a>,
    /// How long a stay may take, in nanoseconds.
    pub patience_ns: u64,
    /// One entry: how the thread fared.
    pub ending: Output<'a, EndingWords>,
}

impl Kernel for Trouble<'_> {
    #[cfg(not(target_arch = "nvptx64"))]
    const ENTRY: warpbell::Entry<fn(Self)> = suite_trouble::ENTRY;

    fn run(&self) {
        if thread::index() != self.thread {
            return;
        }
        let ending: Ending = match self.kind {
            TroubleKind::Stay => self.stay().into(),
            TroubleKind::Panic => panic!("on purpose"),
        };
        // SAFETY: only this thread writes.
        unsafe { self.ending.write(0, ending.into()) };
    }
}

/// Runs [`Trouble`].
#[kernel]
pub fn suite_trouble(kernel: Trouble<'_>) {
    kernel.run();
}

/// A word by its address.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Stray {
    /// The address.
    pub address: u64,
}

/// Writes a word.
///
/// # Safety
/// The address is valid for a write of 8 bytes and aligned to them, and nobody else touches them meanwhile.
///
/// ```compile_fail,E0308
/// use warpbell_kernels::suite::{Stray, suite_stray};
/// let known: warpbell::Entry<fn(Stray)> = suite_stray::ENTRY;
/// ```
#[kernel]
pub unsafe fn suite_stray(p: Stray) {
    let word = core::ptr::with_exposed_provenance_mut::<u64>(p.address as usize);
    // SAFETY: the caller's promise.
    unsafe { word.write_volatile(1) };
}

impl Trouble<'_> {
    fn stay(&self) -> Result<(), WaitError> {
        let mut wait = Deadline::after_ns(self.patience_ns).wait();
        while !self.stop.requested() {
            if wait.expired() {
                return Err(WaitError::Deadline);
            }
        }
        Ok(())
    }
}
