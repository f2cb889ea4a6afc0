//! The host's side of a stop.

use std::sync::atomic::Ordering;

use warpbell::{Stop, Word64};

use crate::{Error, Placement, Shared};

/// A word by which kernels are asked to end: they get [`stop`](Self::stop) and look at it.
///
/// ```
/// use warpbell_host_init::{Placement, StopWord};
///
/// let word = StopWord::new(Placement::Host)?;
/// let stop = word.stop(); // goes into the kernel's parameters
/// assert!(!stop.requested());
/// word.request();
/// assert!(stop.requested());
/// # Ok::<(), warpbell_host_init::Error>(())
/// ```
#[derive(Debug)]
pub struct StopWord(Shared<Word64>);

impl StopWord {
    /// A word that asks for nothing yet, where the kernels reach it.
    ///
    /// # Errors
    /// As [`Shared::new`].
    pub fn new(placement: Placement) -> Result<Self, Error> {
        Shared::new(placement, Word64::new(0)).map(Self)
    }

    /// Asks the kernels that have it to end.
    pub fn request(&self) {
        self.0.store(1, Ordering::Relaxed);
    }

    /// What the kernels look at.
    pub fn stop(&self) -> Stop<'_> {
        // SAFETY: `new` has put the word where the kernels reach it, or was refused.
        unsafe { Stop::new(&self.0) }
    }
}
