//! All-reduce: ring, recursive doubling and tree.
//!
//! Everything is cut into pieces of at most a chunk. A piece goes on as soon as it has come and been summed, whatever
//! the others do.

use super::{Algorithm, Error, MOST_PIECES, Reduction, calc, receive, send, share};
use crate::goal::Schedule;

/// Adds a reduction behind operations of each rank, and gives the last operations of each rank.
pub(super) fn add(
    schedule: &mut Schedule,
    reduction: &Reduction,
    stream: u32,
    before: &[Vec<u32>],
) -> Result<Vec<Vec<u32>>, Error> {
    if reduction.chunk == 0 {
        return Err(Error::EmptyChunk);
    }
    if reduction.chunk.min(reduction.bytes) > crate::goal::LONGEST_MESSAGE {
        return Err(Error::MessageLength(reduction.chunk));
    }
    let pieces = reduction.bytes.div_ceil(reduction.chunk);
    if pieces > MOST_PIECES {
        return Err(Error::Pieces(pieces));
    }
    let ranks = schedule.ranks().len() as u32;
    if reduction.algorithm == Algorithm::Doubling && !ranks.is_power_of_two() {
        return Err(Error::PowerOfTwo(ranks));
    }
    let last = (0..ranks).map(|rank| {
        let mut walk = Walk {
            reduction,
            stream,
            rank,
            ranks,
            schedule,
        };
        let before = &before[rank as usize];
        match reduction.algorithm {
            Algorithm::Ring => walk.ring(before),
            Algorithm::Doubling => walk.doubling(before),
            Algorithm::Tree => walk.tree(before),
        }
    });
    Ok(last.collect())
}

/// One rank's operations.
struct Walk<'s> {
    reduction: &'s Reduction,
    stream: u32,
    rank: u32,
    ranks: u32,
    schedule: &'s mut Schedule,
}

impl Walk<'_> {
    fn ring(&mut self, before: &[u32]) -> Vec<u32> {
        let ranks = self.ranks;
        let steps = 2 * (ranks - 1);
        let to = (self.rank + 1) % ranks;
        let from = (self.rank + ranks - 1) % ranks;
        let mut last = Vec::new();
        // What has to end before each piece of the next step goes.
        let mut ready: Vec<Vec<u32>> = Vec::new();
        for step in 0..steps {
            // The part that a rank sends in a step is the one that came in the step before.
            let part = |back: u32| (self.rank + 2 * ranks - step % ranks - back) % ranks;
            let out = self.pieces(share(self.reduction.bytes, part(0), ranks));
            for (piece, bytes) in out.into_iter().enumerate() {
                let requires = ready.get(piece).map_or(before, Vec::as_slice);
                send(self.schedule.rank(self.rank as usize), bytes, to, requires);
            }
            let sums = step < ranks - 1;
            let into = self.pieces(share(self.reduction.bytes, part(1), ranks));
            let came = into.into_iter().map(|bytes| {
                let came = self.receive(bytes, from, before);
                match sums {
                    true => self.sum(bytes, came),
                    false => came,
                }
            });
            ready = came.map(|operation| vec![operation]).collect();
            if step >= ranks - 2 {
                last.extend(ready.iter().flatten());
            }
        }
        last
    }

    fn doubling(&mut self, before: &[u32]) -> Vec<u32> {
        let pieces = self.pieces(self.reduction.bytes);
        let mut ready = vec![before.to_vec(); pieces.len()];
        for step in 0..self.ranks.ilog2() {
            let other = self.rank ^ 1 << step;
            for (bytes, ready) in pieces.iter().zip(&mut ready) {
                send(self.schedule.rank(self.rank as usize), *bytes, other, ready);
                let came = self.receive(*bytes, other, before);
                // Its own sum of the step before is one of the terms.
                let mut requires = vec![came];
                requires.append(ready);
                *ready = vec![self.sum_of(*bytes, &requires)];
            }
        }
        ready.into_iter().flatten().collect()
    }

    fn tree(&mut self, before: &[u32]) -> Vec<u32> {
        let pieces = self.pieces(self.reduction.bytes);
        // A rank's parent is the rank without its lowest bit; its children have one more below that.
        let lowest = match self.rank {
            0 => self.ranks.next_power_of_two(),
            rank => 1 << rank.trailing_zeros(),
        };
        let bits = (0..lowest.ilog2()).map(|bit| self.rank | 1 << bit);
        let children: Vec<u32> = bits.filter(|child| *child < self.ranks).collect();
        let mut last = Vec::new();
        for bytes in pieces {
            let mut ready = before.to_vec();
            for child in &children {
                let came = self.receive(bytes, *child, before);
                ready.push(came);
                ready = vec![self.sum_of(bytes, &ready)];
            }
            if self.rank != 0 {
                let parent = self.rank & (self.rank - 1);
                let steps = self.schedule.rank(self.rank as usize);
                let up = send(steps, bytes, parent, &ready);
                ready = vec![self.receive(bytes, parent, &[up])];
            }
            // Those with most below them first.
            for child in children.iter().rev() {
                send(
                    self.schedule.rank(self.rank as usize),
                    bytes,
                    *child,
                    &ready,
                );
            }
            last.extend(ready);
        }
        last
    }

    fn receive(&mut self, bytes: u64, from: u32, before: &[u32]) -> u32 {
        receive(self.schedule.rank(self.rank as usize), bytes, from, before)
    }

    fn sum(&mut self, bytes: u64, came: u32) -> u32 {
        self.sum_of(bytes, &[came])
    }

    fn sum_of(&mut self, bytes: u64, requires: &[u32]) -> u32 {
        let nanoseconds = 3.0 * bytes as f64 / self.reduction.memory;
        let steps = self.schedule.rank(self.rank as usize);
        calc(steps, nanoseconds, self.stream, requires)
    }

    /// The sizes of pieces: full ones and a rest; nothing is one piece of 0 bytes.
    fn pieces(&self, bytes: u64) -> Vec<u64> {
        let chunk = self.reduction.chunk;
        let full = vec![chunk; (bytes / chunk) as usize];
        let rest = bytes % chunk;
        let rest = (rest > 0 || full.is_empty()).then_some(rest);
        full.into_iter().chain(rest).collect()
    }
}
