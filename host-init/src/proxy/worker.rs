//! A thread of a proxy.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use warpbell::SendQueueHandle;
use warpbell::proxy::{Drain, Fault};

use super::queue::Served;
use super::{Allow, ProxyError};
use crate::Error;

/// How long a service that ends waits for the NIC to complete what it was given.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(1);

/// Empty looks at all queues that a thread spins through.
const SPINS: u32 = 64;
/// Empty looks after which it no longer yields, but sleeps.
const YIELDS: u32 = 4096;
/// How long it sleeps between looks.
const NAP: Duration = Duration::from_micros(30);

/// A queue, as the thread has it that serves it.
pub(super) struct Job {
    drain: Drain<'static>,
    allow: Option<Allow>,
    /// When the service was told to end.
    closed: Option<Instant>,
    /// Keeps the memory of both queues. Dropped last.
    served: Arc<Served>,
}

impl Job {
    pub fn new(served: &Arc<Served>, allow: Option<Allow>) -> Result<Self, Error> {
        let nic = served.pair.send_queue()?;
        // SAFETY: the handle is used as long as the job lives, which keeps the queue pair, and which alone posts to it.
        let nic = unsafe { mem::transmute::<SendQueueHandle<'_>, SendQueueHandle<'static>>(nic) };
        // SAFETY: as above, for the other queue's memory.
        let front = unsafe { served.front.handle(&served.pair) };
        // SAFETY: the front is fresh, and the queue pair as far as kernels tell. Nobody else has the front's other side,
        // nor the NIC's queue, whose owner has given it away. All of it is host memory, as `Served::new` has checked.
        let drain = unsafe { Drain::new(front, nic) };
        let qpn = served.pair.qpn();
        Ok(Self {
            drain: drain.map_err(|why| ProxyError::Unfit { qpn, why })?,
            allow,
            closed: None,
            served: Arc::clone(served),
        })
    }

    /// Does what there is to do; says whether there was anything.
    fn turn(&mut self) -> bool {
        let turn = match &mut self.allow {
            Some(allow) => self.drain.turn(allow),
            None => self.drain.turn(|_| true),
        };
        if turn.was_busy() {
            self.served.count(turn);
        }
        turn.was_busy()
    }

    /// Begins to end the service, unless that is under way.
    fn close(&mut self) {
        if self.closed.is_none() {
            self.closed = Some(Instant::now());
            match &mut self.allow {
                Some(allow) => self.drain.close(allow),
                None => self.drain.close(|_| true),
            }
        }
    }

    /// Whether the service has ended, or has had its time for that.
    fn is_done(&self) -> bool {
        let ends = |closed: Instant| self.drain.is_over() || closed.elapsed() > LAST_WORDS;
        self.closed.is_some_and(ends)
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let died = thread::panicking();
        self.drain
            .end(if died { Fault::Died } else { Fault::Stopped });
    }
}

/// The thread, as the proxy sees it.
pub(super) struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Queues that the thread has not seen yet; none once it has ended.
    inbox: Mutex<Inbox>,
    /// Whether there are any, so that the thread need not lock the inbox each round.
    news: AtomicBool,
    stop: AtomicBool,
}

/// Jobs, until it is closed.
struct Inbox(Option<Vec<Job>>);

impl Default for Inbox {
    fn default() -> Self {
        Self(Some(Vec::new()))
    }
}

impl Shared {
    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    /// Starts the thread.
    pub fn start() -> Result<Self, ProxyError> {
        let shared = Arc::new(Shared::default());
        let thread = thread::Builder::new()
            .name("warpbell-proxy".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || serve(&shared)
            })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Gives the thread a queue to serve, unless the thread has died. Says whether it did.
    pub fn give(&self, job: &mut Option<Job>) -> bool {
        match &mut self.shared.inbox().0 {
            Some(jobs) => jobs.extend(job.take()),
            None => return false,
        }
        // The job before the news: the lock orders them for whoever goes by the news.
        self.shared.news.store(true, Ordering::Release);
        true
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let joined = self.thread.take().map(JoinHandle::join);
        if let Some(Err(_)) = joined {
            // What it said went to standard error; its queues know.
            tracing::error!("a thread of a proxy has died");
        }
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

/// Closes the inbox when the thread ends, however it does: what is in it is told so.
struct Closing<'s>(&'s Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        // Dropped without the lock: a queue pair's end takes a while.
        let left = self.0.inbox().0.take();
        drop(left);
    }
}

/// Serves queues until the thread is to stop and all of them have ended.
fn serve(shared: &Shared) {
    // Before the jobs, and so dropped after them.
    let _closing = Closing(shared);
    let mut jobs: Vec<Job> = Vec::new();
    let mut idle = 0;
    loop {
        let stop = shared.stop.load(Ordering::Relaxed);
        if shared.news.swap(false, Ordering::Acquire)
            && let Some(new) = &mut shared.inbox().0
        {
            jobs.append(new);
        }
        let mut busy = false;
        let mut done = false;
        for job in &mut jobs {
            busy |= job.turn();
            if stop || job.served.is_released() {
                job.close();
                done |= job.is_done();
            }
        }
        if done {
            jobs.retain(|job| !job.is_done());
        }
        if stop && jobs.is_empty() {
            return;
        }
        idle = if busy { 0 } else { idle + 1 };
        rest(&mut idle);
    }
}

/// Waits a little after so many empty looks.
fn rest(idle: &mut u32) {
    match *idle {
        0 => {}
        1..SPINS => std::hint::spin_loop(),
        SPINS..YIELDS => thread::yield_now(),
        _ => {
            *idle = YIELDS;
            thread::sleep(NAP);
        }
    }
}
