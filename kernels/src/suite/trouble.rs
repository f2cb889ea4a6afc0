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
    /// Writes where there is no memory.
    Stray,
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
        let ending = match self.kind {
            TroubleKind::Stay => self.stay().into(),
            TroubleKind::Panic => panic!("on purpose"),
            TroubleKind::Stray => {
                // SAFETY: none; that it is no memory is what the test is about.
                unsafe { core::ptr::without_provenance_mut::<u64>(8).write_volatile(1) };
                Ending::Done
            }
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
