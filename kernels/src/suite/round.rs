//! A kernel of a graph that launches itself.

use warpbell::{Stop, Word64, WordExt, kernel, thread};

use super::arguments::Kernel;

/// One thread stores one more than it finds, and asks the graph to end once that is enough.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// What it finds.
    pub from: &'a Word64,
    /// Where one more goes.
    pub to: &'a Word64,
    /// What is enough.
    pub enough: u64,
    /// The graph's end.
    pub stop: Stop<'a>,
}

impl Kernel for Round<'_> {
    #[cfg(not(target_arch = "nvptx64"))]
    const ENTRY: warpbell::Entry<fn(Self)> = suite_round::ENTRY;

    fn run(&self) {
        if thread::index() != 0 {
            return;
        }
        // Relaxed: the end of the kernel before it comes before this one.
        let more = self.from.load_relaxed() + 1;
        self.to.store_relaxed(more);
        if more >= self.enough {
            self.stop.request();
        }
    }
}

/// Runs [`Round`].
#[kernel]
pub fn suite_round(kernel: Round<'_>) {
    kernel.run();
}
