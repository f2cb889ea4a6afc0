//! Ping-pong: how long a write takes until the other kernel sees it.

use std::sync::atomic::Ordering;

use serde::Serialize;
use warpbell::{Signal, Slice, Stop, Word64};
use warpbell_host_init::{RemoteMemory, Shared, entry};
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::pingpong::{NO_MORE, PingPong, pingpong};

use crate::launch::{Job, LIMIT_US, run_together};
use crate::memory::Memory;
use crate::random::Random;
use crate::setup::{End, Ends};
use crate::statistics::percentile;
use crate::{Error, screen};

/// What is measured.
#[derive(Clone, Copy, Debug, Serialize, serde::Deserialize)]
pub struct Case {
    /// Bytes of a message: 8 are the signal alone, more are sent before it.
    pub bytes: u64,
    /// Rounds that count.
    pub rounds: u64,
    /// Rounds before them that do not.
    pub warm_up: u64,
}

/// Half a round trip, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Bytes of a message.
    pub bytes: u64,
    /// Rounds measured.
    pub rounds: u64,
    /// The fastest.
    pub min_ns: u64,
    /// The average.
    pub average_ns: u64,
    /// Half of them took at most this.
    pub median_ns: u64,
    /// 99 of 100 took at most this.
    pub p99_ns: u64,
    /// The payload arrived as it was sent, at each side that this process has.
    pub verified: bool,
}

/// The columns of [`Latency::row`].
pub const HEADER: &str = "     bytes        min     median        p99    average   rounds";

impl Latency {
    /// From the rounds that were played; none if none of them counts.
    pub fn new(case: Case, rounds: &[Word64], verified: bool) -> Option<Self> {
        let measured = rounds.iter().skip(case.warm_up as usize);
        let mut sorted: Vec<u64> = measured
            .map(|round| round.load(Ordering::Relaxed) / 2)
            .collect();
        if sorted.is_empty() {
            return None;
        }
        sorted.sort_unstable();
        Some(Self {
            bytes: case.bytes,
            rounds: sorted.len() as u64,
            min_ns: sorted[0],
            average_ns: sorted.iter().sum::<u64>() / sorted.len() as u64,
            median_ns: percentile(&sorted, 50),
            p99_ns: percentile(&sorted, 99),
            verified,
        })
    }

    /// A row of a table, for a human.
    pub fn row(&self) -> String {
        let us = |ns: u64| format!("{:.2} µs", ns as f64 / 1e3);
        format!(
            "{:>10} {:>10} {:>10} {:>10} {:>10} {:>8}",
            screen::bytes(self.bytes),
            us(self.min_ns),
            us(self.median_ns),
            us(self.p99_ns),
            us(self.average_ns),
            self.rounds,
        )
    }
}

/// One side: a payload to send, room for the other one's, and the signal.
#[derive(Debug)]
pub struct Player<'e> {
    end: &'e End,
    memory: Memory,
    case: Case,
    starts: bool,
    samples: Shared<[Word64]>,
    played: Shared<[Word64]>,
    outcome: Shared<Outcome>,
    /// Asks the kernels to end early.
    stop: Stop<'e>,
}

impl<'e> Player<'e> {
    /// Allocates and fills a side's memory.
    ///
    /// # Errors
    /// Those of the memory.
    pub fn new(end: &'e End, case: Case, starts: bool, stop: Stop<'e>) -> Result<Self, Error> {
        let player = Self {
            end,
            memory: end.memory(2 * Self::room(case) + 8)?,
            case,
            starts,
            samples: end.node.words((case.warm_up + case.rounds) as usize)?,
            played: end.node.words(1)?,
            outcome: end.outcome()?,
            stop,
        };
        player.memory.write(0, &Self::payload(case, starts));
        Ok(player)
    }

    /// Bytes before the signal.
    fn payload_bytes(case: Case) -> usize {
        match case.bytes {
            ..=8 => 0,
            bytes => bytes as usize,
        }
    }

    /// Room for them, so that the signal is aligned.
    fn room(case: Case) -> usize {
        Self::payload_bytes(case).next_multiple_of(8)
    }

    /// What a side sends.
    fn payload(case: Case, starts: bool) -> Vec<u8> {
        let seed = case.bytes << 1 | u64::from(starts);
        Random::new(seed).bytes(Self::payload_bytes(case))
    }

    /// What the other side needs to know.
    pub fn shared(&self) -> RemoteMemory {
        self.memory.shared()
    }

    /// The kernel that plays this side.
    ///
    /// # Errors
    /// A description of the other side that is too small.
    pub fn side(&self, theirs: &RemoteMemory) -> Result<Job<'_>, Error> {
        let room = Self::room(self.case);
        // SAFETY: the memory lives as long as the kernel's parameters, and only the NIC writes the word.
        let signal = unsafe { Signal::new(self.memory.word(2 * room)) };
        let parameters = PingPong {
            queue: self.end.pair.send_queue()?,
            payload: self.memory.local(0, Self::payload_bytes(self.case)),
            target: theirs.at(room, room as u32)?,
            signal,
            answer: theirs.at(2 * room, 8)?,
            first: 1,
            rounds: self.rounds(),
            starts: self.starts.into(),
            stop: self.stop,
            limit_us: LIMIT_US,
            samples: Slice::new(&self.samples),
            played: Slice::new(&self.played),
            outcome: &self.outcome,
        };
        Ok(Job::new(entry!(pingpong), parameters, &self.outcome))
    }

    /// All rounds, warm-up included.
    fn rounds(&self) -> u64 {
        self.case.warm_up + self.case.rounds
    }

    /// Rounds that were played: all of them, unless they were asked to end before the last.
    fn played(&self) -> u64 {
        self.played[0].load(Ordering::Relaxed)
    }

    /// Whether every byte of this side is what it should be now.
    pub fn verified(&self) -> bool {
        let room = Self::room(self.case);
        let mut expected = Self::payload(self.case, self.starts);
        expected.resize(room, 0);
        let told_to_end = !self.starts && self.played() < self.rounds();
        if self.played() > 0 || told_to_end {
            expected.extend(Self::payload(self.case, !self.starts));
        }
        expected.resize(2 * room, 0);
        let signal = if told_to_end { NO_MORE } else { self.played() };
        expected.extend(signal.to_ne_bytes());
        self.memory.check(&expected).is_ok()
    }

    /// What this side has measured; nothing if it was asked to end before a round that counts.
    pub fn latency(&self, verified: bool) -> Option<Latency> {
        let samples = &self.samples[..self.played() as usize];
        Latency::new(self.case, samples, verified)
    }
}

/// Measures between two kernels of this process; nothing if they were asked to end before a round that counts.
///
/// # Errors
/// A kernel failed.
pub fn measure(ends: &Ends, case: Case, stop: Stop<'_>) -> Result<Option<Latency>, Error> {
    let first = Player::new(&ends.one, case, true, stop)?;
    let second = Player::new(&ends.other, case, false, stop)?;
    let sides = vec![first.side(&second.shared())?, second.side(&first.shared())?];
    run_together("ping-pong", sides, &[&ends.one, &ends.other])?;
    Ok(first.latency(first.verified() && second.verified()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::config;
    use warpbell_host_init::Node;
    use warpbell_host_init::{Placement, StopWord};

    const CASE: Case = Case {
        bytes: 64,
        rounds: 1 << 20,
        warm_up: 100,
    };

    /// Plays on CPU threads until the rounds that `until` has seen are enough, then asks the kernels to stop.
    fn stopped(until: impl Fn(&Player<'_>) -> bool + Sync) -> Result<Option<Latency>, Error> {
        let word = StopWord::new(Placement::Host)?;
        let node = Node::cpu();
        let ends = Ends::new(&node, &config(16))?;
        let first = Player::new(&ends.one, CASE, true, word.stop())?;
        let second = Player::new(&ends.other, CASE, false, word.stop())?;
        let sides = vec![first.side(&second.shared())?, second.side(&first.shared())?];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !until(&first) {
                    std::thread::yield_now();
                }
                word.request();
            });
            run_together("ping-pong", sides, &[&ends.one, &ends.other])
        })?;
        Ok(first.latency(first.verified() && second.verified()))
    }

    #[test]
    fn a_game_that_is_stopped_tells_what_was_played() {
        let played = |player: &Player<'_>, round: u64| {
            player.samples[round as usize].load(Ordering::Relaxed) != 0
        };
        let latency = stopped(|player| played(player, CASE.warm_up + 50))
            .unwrap()
            .unwrap();
        assert!(latency.verified);
        assert!((50..CASE.rounds).contains(&latency.rounds), "{latency:?}");
    }

    #[test]
    fn a_game_that_never_began_has_nothing_to_tell() {
        assert!(stopped(|_| true).unwrap().is_none());
    }
}
