//! Streams of messages: how many bytes and how many messages a second.

use std::sync::atomic::Ordering;

use clap::ValueEnum;
use serde::Serialize;
use warpbell::wqe::Remote;
use warpbell::{Slice, Word64};
use warpbell_host_init::{Entry, Shared, entry};
use warpbell_kernels::bandwidth::{self as kernels, Sink, Stream};
use warpbell_kernels::outcome::Outcome;

use crate::launch::{Job, LIMIT_US, run_together};
use crate::memory::Memory;
use crate::random::Random;
use crate::setup::{End, Ends};
use crate::statistics::percentile;
use crate::{Error, screen};

/// What the messages of a stream are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// RDMA write
    Write,
    /// RDMA write with immediate
    WriteImm,
    /// RDMA read
    Read,
    /// Send and receive
    Send,
    /// Fetch-and-add of 8 bytes
    FetchAdd,
}

impl Verb {
    /// Its name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::WriteImm => "write-imm",
            Self::Read => "read",
            Self::Send => "send",
            Self::FetchAdd => "fetch-add",
        }
    }

    /// Whether each message takes a receive of the other end.
    fn takes_receives(self) -> bool {
        matches!(self, Self::WriteImm | Self::Send)
    }

    fn kernel(self) -> Entry<fn(Stream<'_>)> {
        match self {
            Self::Write => entry!(kernels::stream_write),
            Self::WriteImm => entry!(kernels::stream_write_immediate),
            Self::Read => entry!(kernels::stream_read),
            Self::Send => entry!(kernels::stream_send),
            Self::FetchAdd => entry!(kernels::stream_fetch_add),
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What the messages are.
    pub verb: Verb,
    /// Bytes of a message; 8 for atomics.
    pub bytes: u64,
    /// Messages of a repetition, in each direction.
    pub messages: u64,
    /// Repetitions, at least 1.
    pub repetitions: u32,
    /// Messages under one doorbell.
    pub batch: u32,
    /// One message in this many asks for a completion.
    pub signal_every: u64,
    /// Both ends send at the same time.
    pub both_ways: bool,
}

/// What was measured, over all repetitions. With both directions, their sum.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Bandwidth {
    /// What the messages are.
    pub verb: Verb,
    /// Bytes of a message.
    pub bytes: u64,
    /// Messages of a repetition, in each direction.
    pub messages: u64,
    /// The slowest repetition, in 10⁹ bytes a second.
    pub min_gb_per_s: f64,
    /// The median of the repetitions, in 10⁹ bytes a second.
    pub median_gb_per_s: f64,
    /// The same in 10⁶ messages a second.
    pub min_million_per_s: f64,
    /// The same in 10⁶ messages a second.
    pub median_million_per_s: f64,
    /// Every byte arrived, in every repetition.
    pub verified: bool,
}

/// The columns of [`Bandwidth::row`].
pub const HEADER: &str =
    "verb           bytes   min GB/s   median GB/s   min Mmsg/s   median Mmsg/s   messages";

impl Bandwidth {
    /// A row of a table, for a human.
    pub fn row(&self) -> String {
        format!(
            "{:<9} {:>10} {:>10.3} {:>13.3} {:>12.3} {:>15.3} {:>10}",
            self.verb.name(),
            screen::bytes(self.bytes),
            self.min_gb_per_s,
            self.median_gb_per_s,
            self.min_million_per_s,
            self.median_million_per_s,
            self.messages,
        )
    }
}

/// Most bytes that the messages of a stream lie in before they begin again.
const WINDOW: u64 = 1 << 20;

/// One direction: what one end sends, and where it goes.
struct Direction<'e> {
    case: Case,
    from: &'e End,
    to: &'e End,
    /// What the requester reads from, or writes back to.
    local: Memory,
    /// The same at the other end.
    remote: Memory,
    data: Vec<u8>,
    times: Shared<[Word64]>,
    sent: Shared<Outcome>,
    received: Shared<Outcome>,
}

impl<'e> Direction<'e> {
    fn new(case: Case, from: &'e End, to: &'e End, random: &mut Random) -> Result<Self, Error> {
        let bytes = (Self::slots(case) * case.bytes) as usize;
        let data = random.bytes(bytes);
        Ok(Self {
            case,
            from,
            to,
            local: from.memory(bytes)?,
            remote: to.memory(bytes)?,
            data,
            times: from.node.words(2)?,
            sent: from.outcome()?,
            received: to.outcome()?,
        })
    }

    /// Messages that lie beside each other.
    fn slots(case: Case) -> u64 {
        (WINDOW / case.bytes).clamp(1, 64).min(case.messages)
    }

    /// The memory that the data lie in, and the one that they go to.
    fn source_and_target(&self) -> (&Memory, &Memory) {
        match self.case.verb {
            Verb::Read | Verb::FetchAdd => (&self.remote, &self.local),
            Verb::Write | Verb::WriteImm | Verb::Send => (&self.local, &self.remote),
        }
    }

    /// Fills the source, and empties the target.
    fn fill(&self) {
        let (source, target) = self.source_and_target();
        source.write(0, &self.data);
        target.write(0, &vec![0; self.data.len()]);
    }

    /// The stream's kernel, for the end that requests.
    fn stream(&self) -> Result<Job<'_>, Error> {
        let case = self.case;
        let stream = Stream {
            queue: self.from.pair.send_queue()?,
            local: self.local.local(0, case.bytes as usize),
            remote: match case.verb {
                Verb::Send => Remote::default(),
                _ => self.remote.remote(0),
            },
            slots: Self::slots(case),
            messages: case.messages,
            batch: case.batch,
            signal_every: case.signal_every,
            limit_us: LIMIT_US,
            times: Slice::new(&self.times),
            outcome: &self.sent,
        };
        Ok(Job::new(case.verb.kernel(), stream, &self.sent))
    }

    /// One of the kernels for the end that receives.
    fn sink(&self, kernel: Entry<fn(Sink<'_>)>) -> Result<Job<'_>, Error> {
        let sink = Sink {
            queue: self.to.pair.receive_queue()?,
            local: self.remote.local(0, self.case.bytes as usize),
            slots: Self::slots(self.case),
            messages: self.case.messages,
            prepared: self.case.messages.min(self.to.receive_depth()),
            limit_us: LIMIT_US,
            outcome: &self.received,
        };
        Ok(Job::new(kernel, sink, &self.received))
    }

    /// Bytes in each nanosecond, which is 10⁹ bytes a second.
    fn rate(&self) -> f64 {
        let [begin, end] = [0, 1].map(|which: usize| self.times[which].load(Ordering::Relaxed));
        let nanoseconds = (end - begin).max(1);
        (self.case.bytes * self.case.messages) as f64 / nanoseconds as f64
    }

    /// Whether every byte of both ends is what it should be now.
    fn verified(&self) -> bool {
        let (source, target) = self.source_and_target();
        if self.case.verb != Verb::FetchAdd {
            return source.check(&self.data).is_ok() && target.check(&self.data).is_ok();
        }
        // Message m adds 1 to slot m modulo the slots, and the last one there brings back the sum but one.
        let slots = Self::slots(self.case);
        let words = self.data.chunks_exact(8).zip(0..);
        let (mut sums, mut last) = (Vec::new(), Vec::new());
        for (word, slot) in words {
            let begin = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
            let times = (self.case.messages - slot).div_ceil(slots);
            sums.extend(begin.wrapping_add(times).to_ne_bytes());
            last.extend(begin.wrapping_add(times - 1).to_ne_bytes());
        }
        source.check(&sums).is_ok() && target.check(&last).is_ok()
    }
}

/// Measures, with random data. Before each repetition `may_go_on` can end it.
///
/// # Errors
/// A kernel failed; those of `may_go_on`.
pub fn measure<E: From<Error>>(
    ends: &Ends,
    case: Case,
    random: &mut Random,
    may_go_on: impl Fn() -> Result<(), E>,
) -> Result<Bandwidth, E> {
    let what = format!("{} of {}", case.verb.name(), screen::bytes(case.bytes));
    let mut directions = vec![Direction::new(case, &ends.one, &ends.other, random)?];
    if case.both_ways {
        directions.push(Direction::new(case, &ends.other, &ends.one, random)?);
    }
    let mut rates = Vec::new();
    let mut verified = true;
    for _ in 0..case.repetitions {
        may_go_on()?;
        for direction in &directions {
            direction.fill();
        }
        repeat(&what, case, &directions)?;
        rates.push(directions.iter().map(Direction::rate).sum::<f64>());
        verified &= directions.iter().all(Direction::verified);
    }
    rates.sort_unstable_by(f64::total_cmp);
    let (min, median) = (rates[0], percentile(&rates, 50));
    let million = |rate: f64| rate * 1e3 / case.bytes as f64;
    Ok(Bandwidth {
        verb: case.verb,
        bytes: case.bytes,
        messages: case.messages,
        min_gb_per_s: min,
        median_gb_per_s: median,
        min_million_per_s: million(min),
        median_million_per_s: million(median),
        verified,
    })
}

/// One repetition: all kernels, at the same time.
fn repeat(what: &str, case: Case, directions: &[Direction<'_>]) -> Result<(), Error> {
    let (mut streams, mut sinks, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for direction in directions {
        ends.push(direction.from);
        if case.verb.takes_receives() {
            let prepare = direction.sink(entry!(kernels::sink_prepare))?;
            run_together(what, vec![prepare], &[direction.to])?;
            sinks.push(direction.sink(entry!(kernels::sink))?);
        }
        streams.push(direction.stream()?);
    }
    streams.extend(sinks);
    run_together(what, streams, &ends)
}
