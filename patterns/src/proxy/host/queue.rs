//! A queue pair in a proxy's hands.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::proxy::Turn;
use warpbell::{QueueError, SendQueueHandle};

use super::ProxyError;
use super::front::Front;
use super::lines::ProducerLines;
use super::pulse::{Progress, Pulse, Wait};
use crate::Error;
use warpbell_host_init::state::NicError;
use warpbell_host_init::{MemoryRegion, Placement, QueuePair};

/// What a proxy's thread and the queue's owner share. The memory of both queues lives as long as either has it.
pub(super) struct Served {
    pub pair: QueuePair,
    pub front: Front,
    /// The owner wants the queue pair back.
    released: AtomicBool,
    /// The thread that has the queue.
    thread: Mutex<Arc<Pulse>>,
    posts: AtomicU64,
    turns: AtomicU64,
    completions: AtomicU64,
}

impl Served {
    /// `kernels` is where a ring of the kernels' own lies; without one they write to the NIC's. Their own words are in
    /// `lines`, if there are such.
    pub fn new(
        pair: QueuePair,
        kernels: Option<Placement>,
        lines: Option<&ProducerLines>,
    ) -> Result<Self, Error> {
        pair.require_in_host_memory("a queue pair that a proxy serves")?;
        if pair.send_progress().published != 0 {
            return Err(ProxyError::Used { qpn: pair.qpn() }.into());
        }
        let placement = kernels.unwrap_or(pair.placement());
        let front = Front::new(&pair, placement, kernels.is_some(), lines)?;
        Ok(Self {
            pair,
            front,
            released: AtomicBool::new(false),
            thread: Mutex::default(),
            posts: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            completions: AtomicU64::new(0),
        })
    }

    /// Whether the owner wants it back.
    pub fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    /// Takes note that this thread has the queue now.
    pub fn hand_to(&self, thread: &Arc<Pulse>) {
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(thread);
    }

    /// How far the thread has come that has the queue.
    fn progress(&self) -> Progress {
        let thread = Arc::clone(&self.thread.lock().unwrap_or_else(PoisonError::into_inner));
        Progress {
            questions: thread.questions(),
            thread,
        }
    }

    /// Takes note of a turn; the job of whoever has the seat.
    pub fn count(&self, turn: Turn) {
        // Stores, because one thread at a time counts; relaxed, because nothing hangs on the numbers.
        let add = |counter: &AtomicU64, more: u64| {
            counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        };
        add(&self.posts, turn.posts.into());
        add(&self.turns, u64::from(turn.posts > 0));
        add(&self.completions, turn.completions.into());
    }
}

/// What a proxy has done for a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proxied {
    /// WQEs posted to the NIC.
    pub posts: u64,
    /// Doorbells rung for them.
    pub doorbells: u64,
    /// Completions handed back.
    pub completions: u64,
}

/// A queue pair that a proxy serves. Its own send queue is the proxy's now; kernels get another handle, and use it
/// in the same way.
///
/// Dropping it gives up the queue pair, as [`release`](Self::release) does.
pub struct ProxiedQueue {
    /// Some until it is released.
    served: Option<Arc<Served>>,
}

impl ProxiedQueue {
    pub(super) fn new(served: Arc<Served>) -> Self {
        let served = Some(served);
        Self { served }
    }

    fn served(&self) -> &Served {
        self.served.as_ref().expect("taken by `release` alone")
    }

    /// The send queue, for a kernel. It borrows the queue, which therefore outlives it.
    pub fn send_queue(&self) -> SendQueueHandle<'_> {
        let served = self.served();
        // SAFETY: the memory lives as long as `self`, which the handle borrows.
        unsafe { served.front.handle(&served.pair) }
    }

    /// Number of the queue pair.
    pub fn qpn(&self) -> u32 {
        self.served().pair.qpn()
    }

    /// As [`QueuePair::check`].
    ///
    /// # Errors
    /// As there.
    pub fn check(&self, region: &MemoryRegion) -> Result<(), Error> {
        Ok(self.served().pair.check(region)?)
    }

    /// The first error that a kernel saw; [`Fault::of`](crate::proxy::Fault::of) tells whether it is the proxy's.
    pub fn first_error(&self) -> Option<QueueError> {
        self.served().front.state().first_error()
    }

    /// As [`QueuePair::nic_error`].
    ///
    /// # Errors
    /// As there.
    pub fn nic_error(&self) -> Result<Option<NicError>, Error> {
        Ok(self.served().pair.nic_error()?)
    }

    /// What the proxy has done so far.
    pub fn proxied(&self) -> Proxied {
        let served = self.served();
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Proxied {
            posts: load(&served.posts),
            doorbells: load(&served.turns),
            completions: load(&served.completions),
        }
    }

    /// Ends the service, and gives the queue pair back: to reset it, to connect it again, and to have it served
    /// anew, or to give its own send queue to kernels. What kernels have posted is carried out before, as far as it
    /// was handed to the NIC within a second.
    ///
    /// That takes as long as the owners of the thread's queues, whichever they are, take to answer before the thread
    /// comes to this one: it waits as long as they are asked and answer, or their queues get another thread.
    ///
    /// # Errors
    /// [`ProxyError::Stuck`] after four seconds without any of that, or after two minutes in all. The thread keeps the
    /// queue pair then.
    pub fn release(mut self) -> Result<QueuePair, Error> {
        let qpn = self.qpn();
        let served = self.let_go().and_then(Arc::into_inner);
        match served {
            Some(served) => Ok(served.pair),
            None => Err(ProxyError::Stuck { qpn }.into()),
        }
    }

    /// Waits until the serving thread has let go; none if it does not.
    fn let_go(&mut self) -> Option<Arc<Served>> {
        let served = self.served.take()?;
        // What kernels have posted until now before the flag, because a thread that sees it takes no more than that.
        served.released.store(true, Ordering::Release);
        let mut wait = Wait::begin(served.progress(), Instant::now());
        while Arc::strong_count(&served) > 1 {
            if wait.is_over(served.progress(), Instant::now()) {
                tracing::error!(qpn = served.pair.qpn(), "a proxy keeps a queue pair");
                return None;
            }
            std::thread::yield_now();
        }
        Some(served)
    }
}

impl Drop for ProxiedQueue {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl fmt::Debug for ProxiedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxiedQueue")
            .field("qpn", &self.qpn())
            .field("proxied", &self.proxied())
            .finish_non_exhaustive()
    }
}
