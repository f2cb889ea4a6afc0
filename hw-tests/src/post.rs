//! A list of requests through the kernel and back.

use std::time::Duration;

use warpbell::{SendQueueHandle, Slice};
use warpbell_cpu_grid::Grid;
use warpbell_host_init::{Kernels, Shared};
use warpbell_kernels::suite::{
    DoorbellKind, Ending, EndingWords, Mode, Output, Request, Requests, ScopeKind, SharingKind,
    Waiting,
};

use crate::here;

/// How long a step may take that is expected to succeed; nobody waits for it in a good run.
pub fn ample() -> Duration {
    here::patient(Duration::from_secs(120))
}

/// One thread has the queue to itself.
pub const ALONE: Mode = Mode {
    sharing: SharingKind::Exclusive,
    scope: ScopeKind::Thread,
};

/// How a list of requests is posted. Change what matters, take the rest from `default()`.
#[derive(Clone, Copy, Debug)]
pub struct Posting {
    /// Where the kernel runs.
    pub kernels: Kernels,
    /// Its grid.
    pub grid: Grid,
    /// How the queue is opened.
    pub mode: Mode,
    /// When the doorbell is rung.
    pub doorbell: DoorbellKind,
    /// When the kernel waits.
    pub waiting: Waiting,
    /// How long each post and each wait may take.
    pub patience: Duration,
}

impl Default for Posting {
    /// One thread alone on a CPU, which waits after each request.
    fn default() -> Self {
        Self {
            kernels: here::kernels(),
            grid: Grid::ONE_THREAD,
            mode: ALONE,
            doorbell: DoorbellKind::Now,
            waiting: Waiting::Each,
            patience: ample(),
        }
    }
}

impl Posting {
    /// One thread alone, with this policy and this limit for each wait.
    pub fn with(waiting: Waiting, patience: Duration) -> Self {
        Self {
            waiting,
            patience,
            ..Self::default()
        }
    }

    fn threads(&self) -> usize {
        (self.grid.blocks * self.grid.threads_per_block) as usize
    }

    /// The kernel, for a launch of one's own.
    pub fn kernel<'a>(
        &self,
        queue: SendQueueHandle<'a>,
        requests: Slice<'a, Request>,
        endings: Output<'a, EndingWords>,
    ) -> Requests<'a> {
        Requests {
            queue,
            mode: self.mode,
            doorbell: self.doorbell,
            waiting: self.waiting,
            rows: (requests.len() as usize / self.threads()) as u32,
            patience_ns: self.patience.as_nanos() as u64,
            requests,
            endings,
        }
    }

    /// Posts the same number of requests for each thread, one thread's after the other's, and says how each
    /// ended.
    pub fn post(&self, queue: SendQueueHandle<'_>, requests: &[Request]) -> Vec<Ending> {
        assert_eq!(requests.len() % self.threads(), 0, "as many for each");
        let mut words = here::outcomes(requests.len());
        let rows = requests_for(requests);
        let kernel = self.kernel(queue, Slice::new(&rows), Output::new(&mut words));
        here::launch(self.kernels, self.grid, &kernel);
        endings(&words)
    }
}

/// Requests where a kernel reaches them.
pub fn requests_for(requests: &[Request]) -> Shared<[Request]> {
    here::shared(requests.len(), |row| requests[row])
}

/// The endings that a kernel wrote.
pub fn endings(words: &[EndingWords]) -> Vec<Ending> {
    let ending = |words: &EndingWords| words.ending().expect("an ending");
    words.iter().map(ending).collect()
}

/// Fails the test unless every thread is done.
#[track_caller]
pub fn expect_done(endings: &[Ending], what: &str) {
    let mut entries = endings.iter().enumerate();
    if let Some((place, failed)) = entries.find(|(_, ending)| **ending != Ending::Done) {
        panic!("{what}: entry {place} of {}: {failed:?}", endings.len());
    }
}
