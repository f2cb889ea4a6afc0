//! Two kernels answer each other's writes; the time from one to the next is the round trip.

use core::mem;
use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{
    Deadline, Exclusive, SendQueueHandle, Signal, Slice, Stop, WaitError, Word64, WordExt, kernel,
    thread,
};

use crate::outcome::Outcome;

/// Rounds between two looks at a stop, which would add its microsecond to the round.
const LOOK_EVERY: u64 = 64;

/// What the side that starts signals instead of a round: there are no more.
pub const NO_MORE: u64 = u64::MAX;

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
    /// Ends the game early; the side that starts looks at it, and tells the other one with [`NO_MORE`].
    pub stop: Stop<'a>,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// Takes the nanoseconds of each round, from one signal to the next.
    pub samples: Slice<'a, Word64>,
    /// Takes the number of rounds that were played.
    pub played: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Plays one side, with one thread. While it waits it prepares what it writes next, so that only publishing is
/// left to do when the signal comes, and no store is under way for which the first fence would wait.
#[kernel]
pub fn pingpong(p: PingPong<'_>) {
    p.outcome.record(|| {
        let limit = Deadline::after_us(p.limit_us);
        let mut queue = p.queue.open::<Exclusive>()?;
        let mut begin = thread::clock_ns();
        let (mut turn, mut played, mut ends) = (0, 0, false);
        // The side that starts waits for nothing in its first turn, and writes nothing in its last.
        while played < p.rounds && !ends {
            let stops = p.starts == 1 && turn % LOOK_EVERY == 0 && p.stop.requested();
            let mut prepared = queue.batch(MOST_BLOCKS, limit)?;
            if turn < p.rounds {
                if p.payload.length != 0 {
                    let _ = prepared.post(Wqe::write(p.payload, p.target))?;
                }
                let value = if stops { NO_MORE } else { p.first + turn };
                let _ = prepared.post(Wqe::write_value(value, p.answer))?;
            }
            if p.starts == 0 || turn > 0 {
                let seen = p.signal.wait(p.first + played, limit);
                let now = thread::clock_ns();
                if seen.is_err() || seen == Ok(NO_MORE) {
                    // What is prepared is not to be posted.
                    mem::forget(prepared);
                    seen?;
                    break;
                }
                drop(prepared);
                p.samples.store(played, now - begin);
                begin = now;
                played += 1;
            }
            ends = stops;
            turn += 1;
        }
        p.played.store(0, played);
        queue.drain(limit)?;
        Ok(())
    });
}

/// Blocks of a payload's write and of the signal's.
const MOST_BLOCKS: u32 = 2;

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
    /// Ends it early.
    pub stop: Stop<'a>,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// Takes the nanoseconds of each round.
    pub samples: Slice<'a, Word64>,
    /// Takes the number of rounds.
    pub played: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Store, wait for the CPU thread's store, with one thread.
#[kernel]
pub fn bare_round_trip(p: Bare<'_>) {
    p.outcome.record(|| {
        let mut played = 0;
        while played < p.rounds && !(played % LOOK_EVERY == 0 && p.stop.requested()) {
            let begin = thread::clock_ns();
            p.question.store_relaxed(played + 1);
            let mut wait = Deadline::after_us(p.limit_us).wait();
            while p.answer.load_relaxed() != played + 1 {
                if wait.expired() {
                    return Err(WaitError::Deadline.into());
                }
            }
            p.samples.store(played, thread::clock_ns() - begin);
            played += 1;
        }
        p.played.store(0, played);
        Ok(())
    });
}
