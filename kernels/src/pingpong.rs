//! Two kernels answer each other's writes; the time from one to the next is the round trip.

use core::sync::atomic::Ordering;

use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{
    Deadline, EarlyAndAfter, Exclusive, SendQueue, SendQueueHandle, Signal, Thread, WaitError,
    Word64, kernel, thread,
};

use crate::outcome::{Failure, Numbers, Outcome};

/// One side of the game.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PingPong<'a> {
    /// Where to post.
    pub queue: SendQueueHandle<'a>,
    /// What this side sends before its signal; nothing if its length is 0.
    pub payload: Local,
    /// Where that goes.
    pub target: Remote,
    /// The word that the other side writes to us.
    pub signal: Signal<'a>,
    /// The word of the other side that we write.
    pub answer: Remote,
    /// The signal's value in the first round; it grows by one each round.
    pub first: u64,
    /// How many rounds.
    pub rounds: u64,
    /// 1 for the side that writes first, 0 for the other one.
    pub starts: u32,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// Takes the nanoseconds of each round.
    pub samples: Numbers<'a>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Plays one side, with one thread. It rings early and after, which spares the NIC's first look a fence.
#[kernel]
pub fn pingpong(p: PingPong<'_>) {
    p.outcome.record(|| {
        let limit = Deadline::after_us(p.limit_us);
        let mut queue = p.queue.open_with::<Exclusive, Thread, EarlyAndAfter>()?;
        for round in 0..p.rounds {
            let value = p.first + round;
            let begin = thread::clock_ns();
            if p.starts == 1 {
                write(&mut queue, &p, value)?;
            }
            p.signal.wait(value, limit)?;
            if p.starts == 0 {
                write(&mut queue, &p, value)?;
            }
            p.samples.store(round, thread::clock_ns() - begin);
        }
        queue.drain(limit)?;
        Ok(())
    });
}

/// Writes the payload and behind it the signal, under one doorbell.
fn write(
    queue: &mut SendQueue<'_, Exclusive, Thread, EarlyAndAfter>,
    p: &PingPong<'_>,
    value: u64,
) -> Result<(), Failure> {
    let limit = Deadline::after_us(p.limit_us);
    let signal = Wqe::write_value(value, p.answer);
    if p.payload.length == 0 {
        let _ = queue.post(signal, limit)?;
        return Ok(());
    }
    let mut batch = queue.batch(2, limit)?;
    let _ = batch.post(Wqe::write(p.payload, p.target))?;
    let _ = batch.post(signal)?;
    Ok(())
}

/// A word to a CPU thread and one back, without any queue: what no NIC made of software can do without.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bare<'a> {
    /// The word that the kernel writes.
    pub question: &'a Word64,
    /// The word that the CPU thread writes the same to.
    pub answer: &'a Word64,
    /// How many rounds; the words take their numbers, from 1 on.
    pub rounds: u64,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// Takes the nanoseconds of each round.
    pub samples: Numbers<'a>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Store, wait for the CPU thread's store, with one thread.
#[kernel]
pub fn bare_round_trip(p: Bare<'_>) {
    p.outcome.record(|| {
        for round in 0..p.rounds {
            let begin = thread::clock_ns();
            p.question.store(round + 1, Ordering::Relaxed);
            let mut wait = Deadline::after_us(p.limit_us).wait();
            while p.answer.load(Ordering::Relaxed) != round + 1 {
                if wait.expired() {
                    return Err(WaitError::Deadline.into());
                }
            }
            p.samples.store(round, thread::clock_ns() - begin);
        }
        Ok(())
    });
}
