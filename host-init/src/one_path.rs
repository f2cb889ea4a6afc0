//! What a card writes for a GPU takes one path, data and the completions that tell of them.
//!
//! Data in the GPU's memory go from the card to the GPU; a CQE in host memory goes to the host, and the GPU reads it
//! from there. Nothing orders one path behind the other, so a kernel could see the CQE of a READ, or of a receive,
//! before the data. A protection domain therefore has either of the two: its keys bind data and queues together.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Error;

/// How much of each a protection domain has.
#[derive(Debug, Default)]
pub(crate) struct Paths(Mutex<[usize; 2]>);

/// What a card writes, and a GPU's kernels look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Data in the GPU's memory.
    DataInGpu = 0,
    /// Completions in host memory.
    CompletionsInHost = 1,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    paths: Arc<Paths>,
    written: Written,
}

impl Paths {
    /// Notes one more.
    ///
    /// # Errors
    /// [`Error::TwoPaths`] while there is any of the other.
    pub fn take(self: &Arc<Self>, written: Written) -> Result<Taken, Error> {
        let mut counts = self.counts();
        if counts[1 - written as usize] > 0 {
            return Err(Error::TwoPaths);
        }
        counts[written as usize] += 1;
        drop(counts);
        Ok(Taken {
            paths: self.clone(),
            written,
        })
    }

    fn counts(&self) -> MutexGuard<'_, [usize; 2]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.paths.counts()[self.written as usize] -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_but_not_both() {
        let paths = Arc::new(Paths::default());
        for (first, second) in [
            (Written::DataInGpu, Written::CompletionsInHost),
            (Written::CompletionsInHost, Written::DataInGpu),
        ] {
            let (one, other) = (paths.take(first).unwrap(), paths.take(first).unwrap());
            assert_matches!(paths.take(second) => Err(Error::TwoPaths));
            drop(one);
            assert_matches!(paths.take(second) => Err(Error::TwoPaths));
            drop(other);
            drop(paths.take(second).unwrap());
        }
    }
}
