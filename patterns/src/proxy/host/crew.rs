//! The threads of a proxy, and the one that looks after them: it sleeps, and replaces those that have gone.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::proxy::Fault;

use super::ProxyError;
use super::job::Job;
use super::worker::Worker;

/// Time between two looks at the threads.
const LOOK: Duration = Duration::from_millis(100);
/// Looks at which a thread waits for the same answer, before it is replaced. Looks and not time alone, because a
/// process that was stopped, or got no core, had no time to answer either.
const LOOKS: u32 = 20;
/// How long an owner may take to say whether it allows a request.
pub(super) const PATIENCE: Duration = LOOK.saturating_mul(LOOKS);

#[derive(Default)]
pub(super) struct Crew {
    workers: Mutex<Vec<Worker>>,
    /// Told when a thread ends, and when all are to.
    changed: Condvar,
    /// Which thread gets the next queue.
    next: AtomicUsize,
    stop: AtomicBool,
}

impl Crew {
    /// Starts a thread for each of these, which stays on that core if there is one.
    pub fn start(cores: &[Option<usize>]) -> Result<Arc<Self>, ProxyError> {
        let crew = Arc::new(Self::default());
        let start = || {
            cores
                .iter()
                .map(|&core| Worker::start(&crew, core, Vec::new()))
                .collect()
        };
        match start() {
            Ok(workers) => *crew.workers() = workers,
            Err(error) => {
                crew.stop();
                return Err(error);
            }
        }
        Ok(crew)
    }

    fn workers(&self) -> MutexGuard<'_, Vec<Worker>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something that changes what [`look_after`](Self::look_after) sees.
    pub fn tell(&self, change: impl FnOnce()) {
        // The lock, so that it does not fall between a look and the sleep behind it.
        let workers = self.workers();
        change();
        drop(workers);
        self.changed.notify_all();
    }

    /// Gives one of the threads a queue to serve: each in its turn.
    pub fn give(&self, job: Job) {
        // Relaxed: it spreads queues over threads, nothing else hangs on it.
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let workers = self.workers();
        workers[next % workers.len()].give(job);
    }

    /// Asks all threads to end their services, and then themselves.
    pub fn stop(&self) {
        // What kernels have posted until now before the flag, because threads that see it take no more than that.
        self.tell(|| self.stop.store(true, Ordering::Release));
    }

    /// Whether they are asked to.
    pub fn stops(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Replaces threads that have gone, until all have ended that were asked to.
    pub fn look_after(self: &Arc<Self>) {
        let mut workers = self.workers();
        // Being woken is no time for an answer.
        let mut slept = false;
        loop {
            workers.retain_mut(|worker| self.keep(worker, slept));
            if self.stops() && workers.is_empty() {
                return;
            }
            let woken = self.changed.wait_timeout(workers, LOOK);
            let (locked, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
            (workers, slept) = (locked, timeout.timed_out());
        }
    }

    /// Replaces a thread if it has gone. Says whether there still is one, or should be.
    fn keep(self: &Arc<Self>, worker: &mut Worker, slept: bool) -> bool {
        let (fault, jobs) = if worker.has_ended() {
            (Fault::Died, worker.take_jobs())
        } else if slept
            && worker.is_silent(LOOKS)
            && let Some(jobs) = worker.take_silent_jobs()
        {
            (Fault::Hung, jobs)
        } else {
            return true;
        };
        if jobs.is_empty() {
            return !self.stops();
        }
        tracing::error!(
            ?fault,
            "a thread of a proxy has gone, another one takes its queues"
        );
        let core = worker.core();
        *worker = Worker::start(self, core, jobs).unwrap_or_else(|error| {
            tracing::error!(%error, "the queues of a proxy's thread have ended");
            // A later look tries again, if queues have come meanwhile.
            Worker::without_thread(core)
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use warpbell::Deadline;
    use warpbell::wqe::Wqe;

    use super::*;
    use crate::proxy::host::job::tests::Ends;

    #[test]
    fn where_there_is_no_thread_one_is_started_for_a_queue_alone() {
        let crew = Arc::new(Crew::default());
        let mut worker = Worker::without_thread(None);
        assert!(crew.keep(&mut worker, true), "its place stays");
        assert!(worker.has_ended(), "nothing to do, and no thread");
        let ends = Ends::new();
        worker.give(Job::new(&ends.served, None).unwrap());
        assert!(crew.keep(&mut worker, false));
        let mut queue = ends.open();
        let ticket = queue.try_post(Wqe::nop().signalled()).unwrap();
        assert_eq!(queue.wait(ticket, Deadline::after_ms(300_000)), Ok(()));
        crew.stop();
        // Until the thread has ended.
        while crew.keep(&mut worker, false) {
            std::thread::yield_now();
        }
        assert!(!crew.keep(&mut Worker::without_thread(None), false));
    }
}
