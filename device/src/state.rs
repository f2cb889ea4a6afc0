//! The words that a queue's threads share, and that the host may read.

use warpbell_gpu::arch::{Reach, Word64};

use crate::error::QueueError;
use crate::words::{load_acquire64, store_relaxed64};

/// A queue's device-side state: 256 bytes beside its rings.
///
/// Two halves of 128 bytes: what every post touches, and what polling touches.
/// The host allocates it zeroed, may read [`first_error`](Self::first_error) at
/// any time, and calls [`clear`](Self::clear) when it resets the queue.
#[repr(C, align(128))]
pub struct QueueState {
    /// Blocks handed out, counted without wrap.
    pub(crate) reserved: Word64,
    /// Blocks published to the NIC; doubles as the lock of the publisher.
    pub(crate) ready: Word64,
    /// Who has the queue open: see `queue/openings.rs`.
    pub(crate) openings: Word64,
    /// The grid whose block has it open, if one has.
    pub(crate) grid: Word64,
    _post: [Word64; 12],
    /// Blocks known complete.
    pub(crate) consumed: Word64,
    /// The first error as [`QueueError::to_bits`] gives it; 0 while there is none.
    pub(crate) error: Word64,
    /// 1 while a thread of a shared queue reads CQEs.
    pub(crate) polling: Word64,
    /// CQEs taken from an ordinary completion ring, counted without wrap.
    pub(crate) taken: Word64,
    _poll: [Word64; 12],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<QueueState>() == 256);
    assert!(core::mem::offset_of!(QueueState, reserved) == 0);
    assert!(core::mem::offset_of!(QueueState, ready) == 8);
    assert!(core::mem::offset_of!(QueueState, openings) == 16);
    assert!(core::mem::offset_of!(QueueState, grid) == 24);
    assert!(core::mem::offset_of!(QueueState, consumed) == 128);
    assert!(core::mem::offset_of!(QueueState, error) == 136);
    assert!(core::mem::offset_of!(QueueState, polling) == 144);
    assert!(core::mem::offset_of!(QueueState, taken) == 152);
};

impl QueueState {
    /// The state of a queue that nobody has used yet. The host makes it: a state on a GPU thread's stack would have no
    /// global address.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn new() -> Self {
        Self::from_words([0; Self::WORDS])
    }

    /// Its words.
    #[cfg(not(target_arch = "nvptx64"))]
    pub const WORDS: usize = 32;

    /// The state that these words are: a copy of one elsewhere, in a GPU's memory or another process.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn from_words(words: [u64; Self::WORDS]) -> Self {
        let word = |at: usize| Word64::new(words[at]);
        Self {
            reserved: word(0),
            ready: word(1),
            openings: word(2),
            grid: word(3),
            _post: core::array::from_fn(|at| word(4 + at)),
            consumed: word(16),
            error: word(17),
            polling: word(18),
            taken: word(19),
            _poll: core::array::from_fn(|at| word(20 + at)),
        }
    }

    /// The first error of the queue, if it has failed.
    pub fn first_error(&self) -> Option<QueueError> {
        QueueError::from_bits(load_acquire64(&self.error, Reach::System))
    }

    /// Blocks (or receive WQEs) published to the NIC, and blocks known complete.
    ///
    /// For the host's watchdog: loads one by one, not one snapshot. An exclusive view
    /// keeps them in registers, and tells them when it is dropped.
    pub fn progress(&self) -> Progress {
        Progress {
            reserved: load_acquire64(&self.reserved, Reach::System),
            published: load_acquire64(&self.ready, Reach::System),
            completed: load_acquire64(&self.consumed, Reach::System),
        }
    }

    /// Makes the state new again. Nobody may have the queue open: a view that
    /// outlived this would post to slots that are no longer its own.
    pub fn clear(&mut self) {
        for word in [
            &self.reserved,
            &self.ready,
            &self.openings,
            &self.grid,
            &self.consumed,
            &self.error,
            &self.polling,
            &self.taken,
        ] {
            store_relaxed64(word, 0, Reach::System);
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
impl Default for QueueState {
    fn default() -> Self {
        Self::new()
    }
}

/// What the readers of a [`CompletionQueue`](crate::CompletionQueue) share: 128 bytes, which the host allocates zeroed.
#[repr(C, align(128))]
pub struct CompletionQueueState {
    /// CQEs taken, counted without wrap; beside it [`READING`](Self::READING).
    pub(crate) taken: Word64,
    /// CQEs that named no queue of the completion queue.
    pub(crate) strays: Word64,
    /// The QPN of the newest of these.
    pub(crate) stray_qpn: Word64,
    _rest: [Word64; 13],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<CompletionQueueState>() == 128);
    assert!(core::mem::offset_of!(CompletionQueueState, taken) == 0);
    assert!(core::mem::offset_of!(CompletionQueueState, strays) == 8);
    assert!(core::mem::offset_of!(CompletionQueueState, stray_qpn) == 16);
};

impl CompletionQueueState {
    /// Beside the count of CQEs taken while somebody reads.
    pub(crate) const READING: u64 = 1 << 63;

    /// The state of a completion queue that nobody has used yet; as for [`QueueState::new`], the host makes it.
    #[cfg(not(target_arch = "nvptx64"))]
    #[expect(clippy::new_without_default, reason = "only hosts make one")]
    pub fn new() -> Self {
        let zero = || Word64::new(0);
        Self {
            taken: zero(),
            strays: zero(),
            stray_qpn: zero(),
            _rest: core::array::from_fn(|_| zero()),
        }
    }

    /// CQEs taken so far, for the host.
    pub fn taken(&self) -> u64 {
        load_acquire64(&self.taken, Reach::System) & !Self::READING
    }

    /// CQEs that named no queue of the completion queue.
    pub fn strays(&self) -> Strays {
        Strays {
            count: load_acquire64(&self.strays, Reach::System),
            newest: load_acquire64(&self.stray_qpn, Reach::System) as u32,
        }
    }
}

/// CQEs of a completion queue that named no queue of it: the NIC wrote what it should not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strays {
    /// How many.
    pub count: u64,
    /// The QPN of the newest one; 0 if there is none.
    pub newest: u32,
}

/// How far a queue has come, as its host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Blocks handed out since the queue was made or reset. More than are published while a thread stores its WQE, or
    /// waits for its turn to publish.
    pub reserved: u64,
    /// Blocks published to the NIC since the queue was made or reset.
    pub published: u64,
    /// Blocks known complete since then.
    pub completed: u64,
}
