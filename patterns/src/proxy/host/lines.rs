//! Where kernels have their own words of the queues that a proxy serves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use warpbell::QueueState;
use warpbell_host_init::{Buffer, PersistingWindow, Placement};

use super::ProxyError;
use crate::Error;

/// Bytes of a queue's words.
const LINE: usize = size_of::<QueueState>();

/// Memory for the words that kernels read and write for each post to a shared queue: its producer's lines. Those of
/// many queues lie side by side, so that a launch can keep all of them in a GPU's L2 cache.
///
/// An exclusive queue has these words in registers while it is open.
#[derive(Debug)]
pub struct ProducerLines {
    memory: Arc<Buffer>,
    /// Queues that have some.
    taken: AtomicUsize,
}

/// One queue's part of them.
#[derive(Debug)]
pub(super) struct Line {
    memory: Arc<Buffer>,
    offset: usize,
}

impl ProducerLines {
    /// Lines for so many queues. `kernels` is where a proxy [serves](super::Proxy::serve) them: lines for kernels on a
    /// GPU are in its memory.
    ///
    /// # Errors
    /// As [`Buffer::placed`].
    pub fn new(kernels: Placement, queues: usize) -> Result<Self, Error> {
        let bytes = queues.saturating_mul(LINE);
        Ok(Self {
            memory: Arc::new(Buffer::placed(kernels.of_states(), bytes)?),
            taken: AtomicUsize::new(0),
        })
    }

    /// All of them, for [`Launch::persisting`](warpbell_host_init::Launch::persisting).
    ///
    /// # Errors
    /// As [`Buffer::persisting`]: lines for kernels on a CPU, a GPU that keeps none in its cache.
    pub fn window(&self) -> Result<PersistingWindow, Error> {
        Ok(self.memory.persisting()?)
    }

    /// The next queue's, for kernels there.
    pub(super) fn take(&self, kernels: Placement) -> Result<Line, Error> {
        let (wanted, placement) = (kernels.of_states(), self.memory.placement());
        if placement != wanted {
            return Err(ProxyError::LinesElsewhere { placement, wanted }.into());
        }
        let queues = self.memory.len() / LINE;
        // Relaxed, because it orders no other memory.
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        if taken >= queues {
            return Err(ProxyError::NoLine { queues }.into());
        }
        Ok(Line {
            memory: Arc::clone(&self.memory),
            offset: taken * LINE,
        })
    }
}

impl Line {
    /// Where it lies.
    pub fn placement(&self) -> Placement {
        self.memory.placement()
    }

    /// The words, for a queue's handle.
    pub fn words(&self) -> *const QueueState {
        // SAFETY: `take` gave an offset inside.
        unsafe { self.memory.as_ptr().add(self.offset) }.cast()
    }

    /// The words as they are now; as new on a GPU that is lost.
    pub fn state(&self) -> QueueState {
        self.memory.queue_state(self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_has_a_line_of_its_own() {
        let lines = ProducerLines::new(Placement::Host, 2).unwrap();
        let taken = [0, 1].map(|_| lines.take(Placement::Host).unwrap().words().addr());
        assert_eq!(taken[0] % 128, 0);
        assert_eq!(taken[1] - taken[0], 256);
        assert_matches!(
            lines.take(Placement::Host) => Err(Error::Proxy(ProxyError::NoLine { queues: 2 }))
        );
    }

    #[test]
    fn a_cpu_keeps_no_lines_in_a_gpus_cache() {
        let lines = ProducerLines::new(Placement::Host, 1).unwrap();
        assert_matches!(
            lines.window() => Err(Error::Start(warpbell_host_init::Error::OutOfReach { .. }))
        );
    }
}
