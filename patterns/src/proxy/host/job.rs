//! A queue as the thread has it that serves it, and the seat from which another thread may take it.

use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::proxy::{Drain, Entry, Fault, Turn};
use warpbell::SendQueueHandle;
use warpbell::wqe::{MAX_WQE_BLOCKS, Octoword, WqeBlock};

use super::pulse::Pulse;
use super::queue::Served;
use super::{Allow, ProxyError};
use crate::Error;

/// How long a service that ends waits for the NIC to complete what it was given.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(1);

/// A queue, and how far its service has come.
pub(super) struct Job {
    drain: Drain<'static>,
    /// None where all is allowed; while it is asked; and once nobody waits for its answer, when nothing is taken any
    /// more.
    allow: Option<Allow>,
    /// The number of the question at which it is asked, by a thread that has left the seat for that.
    asked: Option<u64>,
    /// What the turn under way has done.
    turn: Turn,
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
        // SAFETY: the front is fresh, and the queue pair as far as kernels tell. Nobody else has the front's other
        // side, nor the NIC's queue, whose owner has given it away. All of it is host memory, as `Served::new` has
        // checked.
        let drain = unsafe { Drain::new(front, nic) };
        let qpn = served.pair.qpn();
        Ok(Self {
            drain: drain.map_err(|why| ProxyError::Unfit { qpn, why })?,
            allow,
            asked: None,
            turn: Turn::default(),
            closed: None,
            served: Arc::clone(served),
        })
    }

    /// The next WQE that the owner has to allow, and whom to ask.
    fn question<'c>(
        &mut self,
        copy: &'c mut [WqeBlock; MAX_WQE_BLOCKS],
        thread: &Pulse,
    ) -> Option<(Entry<'c>, Allow)> {
        let entry = self.drain.next()?.copied(copy);
        let allow = self.allow.take()?;
        self.asked = Some(thread.ask());
        Some((entry, allow))
    }

    /// What the owner says to that.
    fn answer(&mut self, allowed: bool, allow: Allow) {
        self.drain.decide(allowed);
        self.turn.posts += u32::from(allowed);
        self.allow = Some(allow);
        self.asked = None;
    }

    /// Gives the NIC what was taken, and counts it. Says whether the turn has done anything.
    fn end_turn(&mut self) -> bool {
        self.drain.pass_on();
        let turn = mem::take(&mut self.turn);
        if turn.was_busy() {
            self.served.count(turn);
        }
        turn.was_busy()
    }

    /// Begins to end the service, unless that is under way.
    fn close(&mut self) {
        if self.closed.is_none() {
            self.closed = Some(Instant::now());
            self.drain.close(Fault::Stopped);
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
        // One that nobody has closed has lost its thread, and there is no other one.
        self.drain.end(match self.closed {
            Some(_) => Fault::Stopped,
            None => Fault::Died,
        });
    }
}

/// What a thread has found in a seat.
pub(super) enum Found {
    Nothing,
    Work,
    /// No job, any more.
    Vacancy,
}

/// Where a thread has a job. Whoever has the lock has the queue: what one thread has taken and posted comes before what
/// another one does, because of it. Owners are asked without it, so that the job may be taken away from a thread that
/// gets no answer.
pub(super) struct Seat(Mutex<Option<Job>>);

impl Seat {
    /// A seat of this thread's.
    pub fn new(job: Job, thread: &Arc<Pulse>) -> Arc<Self> {
        job.served.hand_to(thread);
        Arc::new(Self(Mutex::new(Some(job))))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Job>> {
        // Where a thread has died in a step of the drain, `take` ends the service.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what there is to do; begins to end the service if it is to `stop`.
    pub fn turn(&self, stop: bool, thread: &Pulse) -> Found {
        self.try_turn(stop, thread).unwrap_or(Found::Vacancy)
    }

    fn try_turn(&self, stop: bool, thread: &Pulse) -> Option<Found> {
        let mut place = self.lock();
        let job = place.as_mut()?;
        // Before the turn, which takes what was posted before.
        let ends = stop || job.served.is_released();
        if job.allow.is_none() {
            job.turn = job.drain.turn(|_| true);
        } else {
            job.turn.completions = job.drain.look();
            drop(place);
            self.ask(thread)?;
            place = self.lock();
        }
        let job = place.as_mut()?;
        let was_busy = job.end_turn();
        if ends {
            job.close();
        }
        if job.is_done() {
            *place = None;
            return None;
        }
        Some(match was_busy {
            true => Found::Work,
            false => Found::Nothing,
        })
    }

    /// Asks the owner about each WQE, and takes those that are allowed. None if the job was taken away meanwhile.
    fn ask(&self, thread: &Pulse) -> Option<()> {
        let mut copy = [[Octoword::ZERO; 4]; MAX_WQE_BLOCKS];
        while let Some((entry, mut allow)) = self.with(|job| job.question(&mut copy, thread))? {
            let allowed = allow(entry);
            thread.answer();
            self.with(|job| job.answer(allowed, allow))?;
        }
        Some(())
    }

    /// Does something with the job, if there is one.
    fn with<R>(&self, step: impl FnOnce(&mut Job) -> R) -> Option<R> {
        self.lock().as_mut().map(step)
    }

    /// Takes the job if its owner is still being asked this question, which is the queue's [`Fault::Hung`] then, and
    /// gives the thread up. That finds the seat empty when it comes back from the question, and itself replaced, so
    /// that it asks no other owner: both before it has this lock again.
    pub fn take_asked(&self, question: u64, thread: &Pulse) -> Option<Job> {
        let mut place = self.lock();
        let mut job = place.take_if(|job| job.asked == Some(question))?;
        thread.replace();
        job.asked = None;
        job.drain.close(Fault::Hung);
        job.end_turn();
        Some(job)
    }

    /// Takes the job from a thread that has gone. Where that was at a question, it has died there.
    pub fn take(&self) -> Option<Job> {
        let died_within = self.0.is_poisoned();
        let mut job = self.lock().take()?;
        if died_within {
            job.drain.end(Fault::Died);
        }
        if job.asked.take().is_some() {
            job.drain.close(Fault::Died);
        }
        job.end_turn();
        Some(job)
    }

    /// Whether the job's service has ended, or it was taken away.
    pub fn is_vacant(&self) -> bool {
        self.lock().is_none()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    use warpbell::wqe::Wqe;
    use warpbell::{Deadline, Exclusive, SendQueue, Thread, WaitError};

    use super::*;
    use warpbell_host_init::soft::SoftOptions;
    use warpbell_host_init::{Device, Nic, Placement, QueuePair, QueuePairConfig};

    /// A queue that may be served, and its other end.
    pub(in crate::proxy::host) struct Ends {
        pub served: Arc<Served>,
        _far: QueuePair,
    }

    impl Ends {
        pub fn new() -> Self {
            let device = Device::open(Nic::Soft(SoftOptions::default())).unwrap();
            let domain = device.protection_domain().unwrap();
            let config = QueuePairConfig::granting(warpbell_host_init::Access::all());
            let (near, far) = domain.connected(&domain, &config).unwrap();
            Self {
                served: Arc::new(Served::new(near, Some(Placement::Host), None).unwrap()),
                _far: far,
            }
        }

        /// The kernels' queue. To be called once.
        pub fn open(&self) -> SendQueue<'_, Exclusive, Thread> {
            // SAFETY: the memory lives as long as `served`.
            let front = unsafe { self.served.front.handle(&self.served.pair) };
            front.open().unwrap()
        }
    }

    /// The proxy's fault that a wait tells of.
    #[track_caller]
    pub(in crate::proxy::host) fn fault(result: Result<(), WaitError>) -> Fault {
        match result {
            Err(WaitError::Failed(error)) => Fault::of(error).expect("the proxy's fault"),
            other => panic!("{other:?}"),
        }
    }

    /// The worst case, of which no way is known: so the thread that comes does not walk into the same again.
    #[test]
    fn a_thread_that_dies_in_a_step_ends_the_queue() {
        let ends = Ends::new();
        let thread = Arc::new(Pulse::default());
        let seat = Seat::new(Job::new(&ends.served, None).unwrap(), &thread);
        let mut queue = ends.open();
        let ticket = queue.try_post(Wqe::nop().signalled()).unwrap();
        let died = catch_unwind(AssertUnwindSafe(|| {
            seat.with(|_| resume_unwind(Box::new("on purpose")))
        }));
        assert!(died.is_err());
        let job = seat.take().unwrap();
        assert!(seat.is_vacant());
        // Another thread's seat.
        let turn = Seat::new(job, &thread).turn(false, &thread);
        assert!(matches!(turn, Found::Nothing));
        assert_eq!(fault(queue.wait(ticket, Deadline::PASSED)), Fault::Died);
    }
}
