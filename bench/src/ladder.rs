//! The ladder: the same stream of writes, posted in different ways, from the naive one to many queues.

use std::sync::atomic::Ordering;

use crate::run::launch::{Job, LIMIT_US, run_together};
use crate::run::memory::Memory;
use crate::run::screen;
use crate::run::setup::Ends;
use crate::run::statistics::percentile;
use rand::Rng;
use serde::{Deserialize, Serialize};
use warpbell::{Slice, Word64};
use warpbell_host_init::{Grid, Shared, entry};
use warpbell_kernels::bandwidth::Stream;
use warpbell_kernels::ladder::{
    ladder_blocks, ladder_naive, ladder_pipelined, ladder_reuse, ladder_warps,
};
use warpbell_kernels::outcome::Outcome;

use crate::Error;

/// A way to post; each spares what the one before it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// One thread builds a WQE, rings, and waits for the completion, message by message.
    Naive,
    /// It builds the WQE once.
    Reuse,
    /// It waits only where the queue is full.
    Pipelined,
    /// It rings once for half a queue of messages.
    FewerDoorbells,
    /// Each warp of a block has a queue; its threads post together, with one doorbell.
    QueuePerWarp,
    /// Each block has a queue; its threads post together, with one doorbell.
    QueuePerBlock,
}

/// Threads of a warp.
const WARP: u32 = 32;
/// Threads of a block: two warps, so that more than one shares a doorbell.
const BLOCK: u32 = 2 * WARP;

impl Rung {
    /// From the lowest to the highest.
    pub const ALL: [Self; 6] = [
        Self::Naive,
        Self::Reuse,
        Self::Pipelined,
        Self::FewerDoorbells,
        Self::QueuePerWarp,
        Self::QueuePerBlock,
    ];

    /// In a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Reuse => "WQE reuse",
            Self::Pipelined => "pipelined",
            Self::FewerDoorbells => "fewer doorbells",
            Self::QueuePerWarp => "a queue per warp",
            Self::QueuePerBlock => "a queue per block",
        }
    }

    /// Threads that post together.
    fn threads(self) -> u32 {
        match self {
            Self::QueuePerWarp => WARP,
            Self::QueuePerBlock => BLOCK,
            _ => 1,
        }
    }

    /// How many of so many queues it uses.
    fn queues(self, all: usize) -> usize {
        match self {
            Self::QueuePerWarp | Self::QueuePerBlock => all,
            _ => 1,
        }
    }

    /// Pieces of memory at each end of a queue: a power of two for the naive one, one for each thread otherwise.
    fn slots(self) -> u64 {
        match self {
            Self::Naive => 16,
            _ => self.threads().into(),
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// How the messages are posted.
    pub rung: Rung,
    /// Bytes of a message.
    pub bytes: u64,
    /// Messages of a queue in a repetition; rounded up where many threads post together.
    pub messages: u64,
    /// Repetitions, at least 1.
    pub repetitions: u32,
    /// Depth of each queue.
    pub depth: u32,
}

/// What was measured, over all repetitions and the sum of all queues.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Step {
    /// How the messages were posted.
    pub rung: Rung,
    /// Bytes of a message.
    pub bytes: u64,
    /// Queues.
    pub queues: usize,
    /// Messages of a repetition.
    pub messages: u64,
    /// The slowest repetition, in 10⁶ messages a second.
    pub min_million_per_s: f64,
    /// The median of the repetitions, in 10⁶ messages a second.
    pub median_million_per_s: f64,
    /// The same in 10⁹ bytes a second.
    pub median_gb_per_s: f64,
    /// Every byte arrived, in every repetition.
    pub verified: bool,
}

/// The columns of [`Step::row`].
pub const HEADER: &str =
    "rung                   bytes   queues   min Mmsg/s   median Mmsg/s   median GB/s   messages";

impl Step {
    /// A row of a table, for a human.
    pub fn row(&self) -> String {
        format!(
            "{:<17} {:>10} {:>8} {:>12.3} {:>15.3} {:>13.3} {:>10}",
            self.rung.name(),
            screen::bytes(self.bytes),
            self.queues,
            self.min_million_per_s,
            self.median_million_per_s,
            self.median_gb_per_s,
            self.messages,
        )
    }

    /// Microseconds from one message to the next.
    pub fn us_per_message(&self) -> f64 {
        1.0 / self.median_million_per_s
    }
}

/// One queue's part.
struct Lane<'e> {
    ends: &'e Ends,
    local: Memory,
    remote: Memory,
    data: Vec<u8>,
    times: Shared<[Word64]>,
}

impl<'e> Lane<'e> {
    fn new(case: Case, ends: &'e Ends, random: &mut impl Rng) -> Result<Self, Error> {
        let bytes = (case.rung.slots() * case.bytes) as usize;
        let mut data = vec![0; bytes];
        random.fill(&mut data[..]);
        let lane = Self {
            ends,
            local: ends.one.memory(bytes)?,
            remote: ends.other.memory(bytes)?,
            data,
            times: ends.node().words(2)?,
        };
        lane.local.write(0, &lane.data);
        Ok(lane)
    }

    fn stream<'l>(&'l self, case: Case, outcome: &'l Outcome) -> Result<Stream<'l>, Error> {
        Ok(Stream {
            queue: self.ends.one.pair.send_queue()?,
            local: self.local.local(0, case.bytes as usize),
            remote: self.remote.remote(0),
            slots: case.rung.slots(),
            messages: case.messages(),
            batch: match case.rung {
                Rung::FewerDoorbells => (case.depth / 2).max(1),
                _ => 1,
            },
            // The queue asks where it must.
            signal_every: case.messages(),
            limit_us: LIMIT_US,
            times: Slice::new(&self.times),
            outcome,
        })
    }

    fn time(&self, which: usize) -> u64 {
        self.times[which].load(Ordering::Relaxed)
    }

    /// Whether every byte of both ends is what it should be now.
    fn verified(&self) -> bool {
        self.local.check(&self.data).is_ok() && self.remote.check(&self.data).is_ok()
    }
}

impl Case {
    /// Messages of a queue: as many of each thread.
    fn messages(self) -> u64 {
        self.messages
            .max(self.rung.slots())
            .next_multiple_of(self.rung.threads().into())
    }
}

/// Measures between ends that have the same node, with random data.
///
/// # Errors
/// A kernel failed.
///
/// # Panics
/// Without ends.
pub fn measure(ends: &[Ends], case: Case, random: &mut impl Rng) -> Result<Step, Error> {
    let ends = &ends[..case.rung.queues(ends.len())];
    let lanes = ends.iter().map(|ends| Lane::new(case, ends, random));
    let lanes = lanes.collect::<Result<Vec<_>, Error>>()?;
    let messages = case.messages() * lanes.len() as u64;
    let mut rates = Vec::new();
    let mut verified = true;
    for _ in 0..case.repetitions {
        for lane in &lanes {
            lane.remote.write(0, &vec![0; lane.data.len()]);
        }
        rates.push(messages as f64 * 1e3 / repeat(case, &lanes)? as f64);
        verified &= lanes.iter().all(Lane::verified);
    }
    rates.sort_unstable_by(f64::total_cmp);
    let median = percentile(&rates, 50);
    Ok(Step {
        rung: case.rung,
        bytes: case.bytes,
        queues: lanes.len(),
        messages,
        min_million_per_s: rates[0],
        median_million_per_s: median,
        median_gb_per_s: median * case.bytes as f64 / 1e3,
        verified,
    })
}

/// One repetition; gives its nanoseconds, from the first queue's beginning to the last one's end.
fn repeat(case: Case, lanes: &[Lane<'_>]) -> Result<u64, Error> {
    let node = lanes[0].ends.node();
    let outcome = node.shared(Outcome::new())?;
    let streams = lanes.iter().map(|lane| lane.stream(case, &outcome));
    let streams = streams.collect::<Result<Vec<_>, Error>>()?;
    let first = streams[0];
    let shared = Shared::slice(node.placement(), streams.len(), |index| streams[index])?;
    let all = Slice::new(&shared);
    let queues = lanes.len() as u32;
    let job = match case.rung {
        Rung::Naive => Job::new(entry!(ladder_naive), first, &outcome),
        Rung::Reuse => Job::new(entry!(ladder_reuse), first, &outcome),
        Rung::Pipelined | Rung::FewerDoorbells => {
            Job::new(entry!(ladder_pipelined), first, &outcome)
        }
        Rung::QueuePerWarp => Job::on_grid(
            entry!(ladder_warps),
            Grid::new(1, queues * WARP),
            all,
            &outcome,
        ),
        Rung::QueuePerBlock => Job::on_grid(
            entry!(ladder_blocks),
            Grid::new(queues, BLOCK),
            all,
            &outcome,
        ),
    };
    let ends: Vec<_> = lanes.iter().map(|lane| &lane.ends.one).collect();
    let what = format!("{} of {}", case.rung.name(), screen::bytes(case.bytes));
    run_together(&what, vec![job], &ends)?;
    let begin = lanes.iter().map(|lane| lane.time(0)).min().unwrap_or(0);
    let end = lanes.iter().map(|lane| lane.time(1)).max().unwrap_or(0);
    Ok((end - begin).max(1))
}
