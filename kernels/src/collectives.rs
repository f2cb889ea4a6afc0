//! An all-reduce by a ring: a team's call, and the same writes posted by hand.

use warpbell::wqe::{Remote, Wqe};
use warpbell::{
    Block, Deadline, Exclusive, SendQueue, SendQueueHandle, Slice, Word64, Words, block, kernel,
    thread,
};
use warpbell_patterns::number::Number;
use warpbell_patterns::team::{Algorithm, TeamHandle};

use crate::outcome::{Failure, Outcome};

/// Members that all add up their vectors of `f32` again and again, each of them a block. A window has the vector, and then
/// room for the sum.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RingByTeam<'a> {
    /// The members.
    pub members: Slice<'a, TeamHandle<'a>>,
    /// Words of the vector.
    pub words: u32,
    /// How often it is summed.
    pub rounds: u32,
    /// Takes the nanoseconds of each round at member 0.
    pub samples: Slice<'a, Word64>,
    /// Microseconds that each round may take.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Sums by the team's calls.
#[kernel]
pub fn collective_ring(p: RingByTeam<'_>) {
    p.outcome.record(|| p.run());
}

impl RingByTeam<'_> {
    #[inline(always)]
    fn run(&self) -> Result<(), Failure> {
        let Some(&member) = self.members.get(block::index().into()) else {
            return Ok(());
        };
        let mut team = member.open::<Block>(0)?;
        let mut round = 0;
        while round < self.rounds {
            let (begin, bytes) = (thread::clock_ns(), 8 * u64::from(self.words));
            let limit = Deadline::after_us(self.limit_us);
            team.all_reduce::<f32>(Algorithm::Ring, 0, bytes, bytes / 4, limit)?;
            keep(self.samples, round, begin);
            round += 1;
        }
        Ok(())
    }
}

/// What the first thread of rank 0 measured.
#[inline(always)]
fn keep(samples: Slice<'_, Word64>, round: u32, begin: u64) {
    if thread::index() == 0 {
        samples.store(round.into(), thread::clock_ns() - begin);
    }
}

/// A rank, with memory for the vector, the sum, a slot of a chunk for each other rank, and a signal.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RingRank<'a> {
    /// To the next rank.
    pub queue: SendQueueHandle<'a>,
    /// Its memory.
    pub memory: Words<'a>,
    /// The next rank's memory.
    pub next: Remote,
}

/// The same without a team: what [`Algorithm::Ring`] writes, with the signals behind it, and nothing that says who is there.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RingByHand<'a> {
    /// The ranks, at least 2, each of them a block of at least 2 threads.
    pub ranks: Slice<'a, RingRank<'a>>,
    /// Words of the vector: as many for each chunk.
    pub words: u32,
    /// How often it is summed.
    pub rounds: u32,
    /// Takes the nanoseconds of each round at rank 0.
    pub samples: Slice<'a, Word64>,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Sums by posts.
#[kernel]
pub fn collective_ring_by_hand(p: RingByHand<'_>) {
    p.outcome.record(|| p.run());
}

impl RingByHand<'_> {
    /// Words of a slice at most, as the team has them.
    const SLICE: u32 = 1 << 11;

    /// Words of each rank's memory.
    pub const fn memory(ranks: u32, words: u32) -> u64 {
        let (ranks, words) = (ranks as u64, words as u64);
        2 * words + (ranks - 1) * (words / ranks) + 1
    }

    #[inline(always)]
    fn run(&self) -> Result<(), Failure> {
        let own = block::index();
        let Some(&rank) = self.ranks.get(own.into()) else {
            return Ok(());
        };
        let limit = Deadline::after_us(self.limit_us);
        // SAFETY: all threads of the block run this with the same parameters, and make the queue's calls together.
        let mut queue: SendQueue<'_, Exclusive, Block> = unsafe { rank.queue.open_together() }?;
        let outside = Failure::Outside {
            wanted: u64::from(self.words),
            there: rank.memory.len(),
        };
        let ranks = (self.ranks.len() as u32).max(1);
        let chunk = self.words / ranks;
        let slices = chunk.div_ceil(Self::SLICE).max(1);
        let steps = 2 * (ranks - 1);
        let (sum, slots) = (self.words, 2 * self.words);
        let told = slots + (ranks - 1) * chunk;
        let signal = rank.memory.signal(told.into()).ok_or(outside)?;
        let mut number = 0;
        let mut round = 0;
        while round < self.rounds {
            let begin = thread::clock_ns();
            let (mut step, mut slice) = (0, 0);
            while step <= steps {
                let first = slice * Self::SLICE;
                let words = (chunk - first).min(Self::SLICE);
                let at = (own + 2 * ranks - step) % ranks * chunk + first;
                if step > 0 {
                    // What comes in a step is what goes in the next.
                    number += 1;
                    signal.wait_together::<Block>(number, limit)?;
                    if step < ranks {
                        let came = slots + (step - 1) * chunk + first;
                        add(rank.memory, (came, at, sum + at), words);
                    }
                }
                if step < steps {
                    let from = if step == 0 { at } else { sum + at };
                    let to = match step < ranks - 1 {
                        true => slots + step * chunk + first,
                        false => sum + at,
                    };
                    let local = rank.memory.local(from.into(), words).ok_or(outside)?;
                    let said = u64::from(round * steps + step) * u64::from(slices);
                    let write = Wqe::write(local, rank.next.at(8 * u64::from(to)));
                    let tell = Wqe::write_value(
                        said + u64::from(slice) + 1,
                        rank.next.at(8 * u64::from(told)),
                    );
                    // The first two threads have a request each, which go in their order under one doorbell.
                    let thread = block::thread_index();
                    let request = if thread == 0 { write } else { tell.signalled() };
                    let ticket = queue.post_if((thread < 2).then_some(request), limit)?;
                    if (step + 1 == steps) & (slice + 1 == slices) {
                        queue.wait_outbound(ticket, limit)?;
                    }
                }
                slice += 1;
                if slice == slices {
                    (step, slice) = (step + 1, 0);
                }
            }
            keep(self.samples, round, begin);
            round += 1;
        }
        Ok(())
    }
}

/// Adds words, with all threads of the block.
#[inline(always)]
fn add(memory: Words<'_>, (came, own, sum): (u32, u32, u32), words: u32) {
    let mut at = block::thread_index();
    while at < words {
        let load = |first: u32| memory.load((first + at).into()).unwrap_or(0);
        memory.store((sum + at).into(), f32::add_word(load(came), load(own)));
        at += block::size();
    }
}
