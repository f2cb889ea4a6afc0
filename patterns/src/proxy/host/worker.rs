//! A thread of a proxy.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use warpbell_host_init::cores;

use super::ProxyError;
use super::crew::Crew;
use super::job::{Found, Job, Seat};
use super::pulse::Pulse;

/// Empty looks at all queues that a thread spins through.
const SPINS: u32 = 64;
/// Empty looks after which it no longer yields, but sleeps.
const YIELDS: u32 = 4096;
/// How long it sleeps between looks.
const NAP: Duration = Duration::from_micros(30);

/// The thread, as others see it.
pub(super) struct Worker {
    desk: Arc<Desk>,
    /// The core that it stays on, and that a thread in its place stays on.
    core: Option<usize>,
    /// Some until it is dropped, where there is one.
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
    pulse: Arc<Pulse>,
    ended: AtomicBool,
}

impl Desk {
    fn seats(&self) -> MutexGuard<'_, Vec<Arc<Seat>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    /// Starts the thread with these jobs, on this core alone if there is one. Without a thread they are over.
    pub fn start(
        crew: &Arc<Crew>,
        core: Option<usize>,
        jobs: Vec<Job>,
    ) -> Result<Self, ProxyError> {
        let pulse = Arc::default();
        let seats = jobs.into_iter().map(|job| Seat::new(job, &pulse)).collect();
        let desk = Arc::new(Desk {
            seats: Mutex::new(seats),
            news: AtomicBool::new(true),
            pulse,
            ended: AtomicBool::new(false),
        });
        let (tell, told) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("warpbell-proxy".into())
            .spawn({
                let (desk, crew) = (Arc::clone(&desk), Arc::clone(crew));
                move || {
                    let stays = core.map_or(Ok(()), cores::stay_on);
                    let goes_on = stays.is_ok();
                    // `start` waits for it.
                    let _ = tell.send(stays);
                    if !goes_on {
                        return;
                    }
                    let _ending = Ending {
                        desk: &desk,
                        crew: &crew,
                    };
                    serve(&desk, &crew);
                }
            })?;
        told.recv().expect("it tells before all else")?;
        Ok(Self {
            desk,
            core,
            thread: Some(thread),
            open: 0,
            looks: 0,
        })
    }

    /// The place of a thread that there is not: as one that has ended, so that queues that it is given get one.
    pub fn without_thread(core: Option<usize>) -> Self {
        Self {
            desk: Arc::new(Desk {
                ended: AtomicBool::new(true),
                ..Desk::default()
            }),
            core,
            thread: None,
            open: 0,
            looks: 0,
        }
    }

    /// The core that it stays on, if one was chosen.
    pub fn core(&self) -> Option<usize> {
        self.core
    }

    /// Gives the thread a queue to serve, or whichever thread replaces it.
    pub fn give(&self, job: Job) {
        let seat = Seat::new(job, &self.desk.pulse);
        self.desk.seats().push(seat);
        // The job before the news: the lock orders them for whoever goes by the news.
        self.desk.news.store(true, Ordering::Release);
    }

    /// Whether the thread serves no queue any more.
    pub fn has_ended(&self) -> bool {
        self.desk.ended.load(Ordering::Relaxed)
    }

    /// Whether the thread has waited for one and the same answer at each of so many looks, of which this is one.
    pub fn is_silent(&mut self, looks: u32) -> bool {
        let questions = self.desk.pulse.questions();
        let same = questions % 2 == 1 && questions == self.open;
        self.open = questions;
        self.looks = if same { self.looks + 1 } else { 0 };
        self.looks >= looks
    }

    /// Takes the jobs from a thread that has ended. Where it was at a question, that is the queue's
    /// [`Fault::Died`](crate::proxy::Fault::Died).
    pub fn take_jobs(&self) -> Vec<Job> {
        let seats = mem::take(&mut *self.desk.seats());
        seats.iter().filter_map(|seat| seat.take()).collect()
    }

    /// Takes the jobs from a thread that is still at the question of the last look. None if it has its answer by now,
    /// and goes on; then the thread keeps all of them.
    pub fn take_silent_jobs(&self) -> Option<Vec<Job>> {
        let seats = self.desk.seats().clone();
        let pulse = &self.desk.pulse;
        let hung = seats
            .iter()
            .find_map(|seat| seat.take_asked(self.open, pulse))?;
        // A thread is at one question at a time, and asks no more: the others are between two turns.
        let mut jobs = self.take_jobs();
        jobs.push(hung);
        Some(jobs)
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
            match seat.turn(stop, &desk.pulse) {
                Found::Nothing => {}
                Found::Work => busy = true,
                Found::Vacancy => vacant = true,
            }
            // Before another owner is asked. It was given up within the turn, if ever.
            if desk.pulse.is_replaced() {
                return;
            }
        }
        if vacant {
            let mut all = desk.seats();
            all.retain(|seat| !seat.is_vacant());
            seats.clone_from(&all);
        }
        if stop && seats.is_empty() {
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::time::Instant;

    use crate::proxy::Fault;
    use warpbell::Deadline;
    use warpbell::wqe::Wqe;

    use super::*;
    use crate::proxy::host::job::tests::{Ends, fault};

    const LIMIT: Deadline = Deadline::after_ms(300_000);

    /// A queue's owner, which tells that it is asked, and answers when it is told to.
    struct Owner {
        asked: Receiver<()>,
        allow: Sender<()>,
    }

    impl Owner {
        fn of(ends: &Ends) -> (Self, Job) {
            let (tell, asked) = mpsc::channel();
            let (allow, answer) = mpsc::channel();
            let ask = move |_: crate::proxy::Entry<'_>| {
                tell.send(()).unwrap();
                answer.recv().is_ok()
            };
            let job = Job::new(&ends.served, Some(Box::new(ask))).unwrap();
            (Self { asked, allow }, job)
        }
    }

    fn await_end(worker: &Worker) {
        let began = Instant::now();
        while !worker.has_ended() {
            assert!(began.elapsed() < Duration::from_secs(300), "it goes on");
            thread::yield_now();
        }
    }

    #[test]
    fn an_answer_in_time_is_no_fault_of_the_owner_that_is_asked_next() {
        let ends = [Ends::new(), Ends::new()];
        let [mut first, mut second] = [0, 1].map(|queue: usize| ends[queue].open());
        let tickets =
            [&mut first, &mut second].map(|queue| queue.try_post(Wqe::nop().signalled()).unwrap());
        let [(one, job), (other, other_job)] = [0, 1].map(|queue: usize| Owner::of(&ends[queue]));
        let crew = Arc::new(Crew::default());
        let mut worker = Worker::start(&crew, None, vec![job, other_job]).unwrap();
        one.asked.recv().unwrap();
        assert!(!worker.is_silent(1));
        assert!(worker.is_silent(1));
        one.allow.send(()).unwrap();
        other.asked.recv().unwrap();
        assert!(worker.take_silent_jobs().is_none(), "it has gone on");
        other.allow.send(()).unwrap();
        assert_eq!(first.wait(tickets[0], LIMIT), Ok(()));
        assert_eq!(second.wait(tickets[1], LIMIT), Ok(()));
        crew.stop();
        await_end(&worker);
    }

    #[test]
    fn a_thread_that_was_given_up_asks_nobody_when_it_comes_back() {
        let ends = [Ends::new(), Ends::new()];
        let [mut first, mut second] = [0, 1].map(|queue: usize| ends[queue].open());
        let tickets =
            [&mut first, &mut second].map(|queue| queue.try_post(Wqe::nop().signalled()).unwrap());
        let [(one, job), (other, other_job)] = [0, 1].map(|queue: usize| Owner::of(&ends[queue]));
        let crew = Arc::new(Crew::default());
        let mut worker = Worker::start(&crew, None, vec![job, other_job]).unwrap();
        one.asked.recv().unwrap();
        assert!(!worker.is_silent(1));
        // As `take_silent_jobs` does; and the answer comes before it has the other job.
        let seat = Arc::clone(&worker.desk.seats()[0]);
        let hung = seat.take_asked(worker.open, &worker.desk.pulse).unwrap();
        one.allow.send(()).unwrap();
        await_end(&worker);
        assert!(other.asked.try_recv().is_err());
        let mut jobs = worker.take_jobs();
        assert_eq!(jobs.len(), 1);
        jobs.push(hung);
        let next = Worker::start(&crew, None, jobs).unwrap();
        other.asked.recv().unwrap();
        other.allow.send(()).unwrap();
        assert_eq!(second.wait(tickets[1], LIMIT), Ok(()));
        assert_eq!(fault(first.wait(tickets[0], LIMIT)), Fault::Hung);
        crew.stop();
        await_end(&next);
    }
}
