//! A thread of a proxy.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use warpbell::proxy::Fault;

use super::ProxyError;
use super::crew::Crew;
use super::job::{Found, Job, Seat};

/// Empty looks at all queues that a thread spins through.
const SPINS: u32 = 64;
/// Empty looks after which it no longer yields, but sleeps.
const YIELDS: u32 = 4096;
/// How long it sleeps between looks.
const NAP: Duration = Duration::from_micros(30);

/// The thread, as others see it.
pub(super) struct Worker {
    desk: Arc<Desk>,
    /// Some until it is dropped.
    thread: Option<JoinHandle<()>>,
    /// The question that was open when [`is_silent`](Self::is_silent) looked last, and how often it was the same.
    open: u64,
    looks: u32,
}

/// What the thread and others share.
#[derive(Default)]
struct Desk {
    seats: Mutex<Vec<Arc<Seat>>>,
    /// Whether some are new, so that the thread need not lock them each round.
    news: AtomicBool,
    /// Questions and answers of owners, so odd while one is asked: the thread's heartbeat, where it may stop.
    questions: AtomicU64,
    /// Another thread has its queues.
    is_replaced: AtomicBool,
    ended: AtomicBool,
}

impl Desk {
    fn seats(&self) -> MutexGuard<'_, Vec<Arc<Seat>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    /// Starts the thread with these jobs. Without a thread they are over.
    pub fn start(crew: &Arc<Crew>, jobs: Vec<Job>) -> Result<Self, ProxyError> {
        let desk = Arc::new(Desk {
            seats: Mutex::new(jobs.into_iter().map(Seat::new).collect()),
            news: AtomicBool::new(true),
            ..Desk::default()
        });
        let thread = thread::Builder::new()
            .name("warpbell-proxy".into())
            .spawn({
                let (desk, crew) = (Arc::clone(&desk), Arc::clone(crew));
                move || {
                    let _ending = Ending {
                        desk: &desk,
                        crew: &crew,
                    };
                    serve(&desk, &crew);
                }
            })?;
        Ok(Self {
            desk,
            thread: Some(thread),
            open: 0,
            looks: 0,
        })
    }

    /// Gives the thread a queue to serve, or whichever thread replaces it.
    pub fn give(&self, job: Job) {
        self.desk.seats().push(Seat::new(job));
        // The job before the news: the lock orders them for whoever goes by the news.
        self.desk.news.store(true, Ordering::Release);
    }

    /// Whether the thread serves no queue any more.
    pub fn has_ended(&self) -> bool {
        self.desk.ended.load(Ordering::Relaxed)
    }

    /// Whether the thread has waited for one and the same answer at each of so many looks, of which this is one.
    pub fn is_silent(&mut self, looks: u32) -> bool {
        let questions = self.desk.questions.load(Ordering::Relaxed);
        let same = questions % 2 == 1 && questions == self.open;
        self.open = questions;
        self.looks = if same { self.looks + 1 } else { 0 };
        self.looks >= looks
    }

    /// Takes the jobs from a thread that has gone, or does not come back from a question: then that is the queue's
    /// `fault`.
    pub fn take_jobs(&self, fault: Fault) -> Vec<Job> {
        self.desk.is_replaced.store(true, Ordering::Relaxed);
        let seats = mem::take(&mut *self.desk.seats());
        seats.iter().filter_map(|seat| seat.take(fault)).collect()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let thread = self.thread.take().filter(|_| self.has_ended());
        // What it said when it died went to standard error. One that does not come back from a question is left alone.
        let _ = thread.map(JoinHandle::join);
    }
}

/// Tells that the thread has ended, however it does.
struct Ending<'w> {
    desk: &'w Desk,
    crew: &'w Crew,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.crew
            .tell(|| self.desk.ended.store(true, Ordering::Relaxed));
    }
}

/// Serves queues until the thread is replaced, or is to stop and all of them have ended.
fn serve(desk: &Desk, crew: &Crew) {
    let mut seats = Vec::new();
    let mut idle = 0;
    loop {
        let stop = crew.stops();
        if desk.news.swap(false, Ordering::Acquire) {
            seats.clone_from(&desk.seats());
        }
        let (mut busy, mut vacant) = (false, false);
        for seat in &seats {
            match seat.turn(stop, &desk.questions) {
                Found::Nothing => {}
                Found::Work => busy = true,
                Found::Vacancy => vacant = true,
            }
        }
        if vacant {
            let mut all = desk.seats();
            all.retain(|seat| !seat.is_vacant());
            seats.clone_from(&all);
        }
        if desk.is_replaced.load(Ordering::Relaxed) || stop && seats.is_empty() {
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
