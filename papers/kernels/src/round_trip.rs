//! Two ends that write to each other in turn, to compare notifications with.

use warpbell::wqe::{Remote, Wqe};
use warpbell::{Deadline, Exclusive, SendQueueHandle, Signal, Slice, Word64, kernel, thread};
use warpbell_kernels::outcome::Outcome;

/// A write of 8 bytes, and a word that is polled.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WriteRoundTrip<'a> {
    /// Where to post.
    pub queue: SendQueueHandle<'a>,
    /// The word that the other side writes.
    pub signal: Signal<'a>,
    /// The word of the other side.
    pub answer: Remote,
    /// 1 for the side that begins, 0 for the other one.
    pub begins: u32,
    /// How many rounds.
    pub rounds: u32,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// Takes the nanoseconds of each round.
    pub samples: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Plays one side, with one thread.
#[kernel]
pub fn write_round_trip(p: WriteRoundTrip<'_>) {
    p.outcome.record(|| {
        let limit = Deadline::after_us(p.limit_us);
        let mut queue = p.queue.open::<Exclusive>()?;
        for round in 0..u64::from(p.rounds) {
            let begin = thread::clock_ns();
            let write = Wqe::write_value(round + 1, p.answer).signalled();
            if p.begins == 1 {
                let _ = queue.post(write, limit)?;
            }
            p.signal.wait(round + 1, limit)?;
            if p.begins == 0 {
                let _ = queue.post(write, limit)?;
            }
            p.samples.store(round, thread::clock_ns() - begin);
        }
        queue.drain(limit)?;
        Ok(())
    });
}
