//! The messages of [`Inbound`] in the suite's module.

use warpbell::kernel;

use super::arguments::Kernel;
use crate::inbound::Inbound;

impl Kernel for Inbound<'_> {
    #[cfg(not(target_arch = "nvptx64"))]
    const ENTRY: warpbell::Entry<fn(Self)> = suite_inbound::ENTRY;

    fn run(&self) {
        Inbound::run(self);
    }
}

/// Runs [`Inbound`].
#[kernel]
pub fn suite_inbound(kernel: Inbound<'_>) {
    kernel.run();
}
