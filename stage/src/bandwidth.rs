//! Streams of messages: how many bytes and how many messages a second.

use std::sync::atomic::Ordering;

use clap::ValueEnum;
use serde::Serialize;
use warpbell::wqe::Remote;
use warpbell::{Slice, Word64};
use warpbell_host_init::{Entry, RemoteMemory, Shared, entry};
use warpbell_kernels::bandwidth::{self as kernels, Sink, Stream};
use warpbell_kernels::outcome::Outcome;

use crate::launch::{self, Job, LIMIT_US, run_together};
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

impl Case {
    /// In words.
    pub fn words(&self) -> String {
        format!("{} of {}", self.verb.name(), screen::bytes(self.bytes))
    }
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
    /// Of the rates of all repetitions, one at least, in 10⁹ bytes a second.
    pub fn of(case: Case, mut rates: Vec<f64>, verified: bool) -> Self {
        rates.sort_unstable_by(f64::total_cmp);
        let (min, median) = (rates[0], percentile(&rates, 50));
        let million = |rate: f64| rate * 1e3 / case.bytes as f64;
        Self {
            verb: case.verb,
            bytes: case.bytes,
            messages: case.messages,
            min_gb_per_s: min,
            median_gb_per_s: median,
            min_million_per_s: million(min),
            median_million_per_s: million(median),
            verified,
        }
    }

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

/// Messages that lie beside each other.
fn slots(case: Case) -> u64 {
    (WINDOW / case.bytes).clamp(1, 64).min(case.messages)
}

/// Bytes of each end's memory.
fn window(case: Case) -> usize {
    (slots(case) * case.bytes) as usize
}

/// Random bytes for the messages of a stream.
pub fn data(case: Case, random: &mut Random) -> Vec<u8> {
    random.bytes(window(case))
}

/// The end of a stream that requests.
pub struct Requester<'e> {
    case: Case,
    end: &'e End,
    memory: Memory,
    data: &'e [u8],
    times: Shared<[Word64]>,
    outcome: Shared<Outcome>,
}

impl<'e> Requester<'e> {
    /// For messages with this data.
    ///
    /// # Errors
    /// No memory.
    pub fn new(case: Case, end: &'e End, data: &'e [u8]) -> Result<Self, Error> {
        Ok(Self {
            case,
            end,
            memory: end.memory(data.len())?,
            data,
            times: end.node.words(2)?,
            outcome: end.outcome()?,
        })
    }

    /// Fills its memory with what it sends, or empties it for what it asks for.
    pub fn fill(&self) {
        match self.case.verb {
            Verb::Read | Verb::FetchAdd => self.memory.write(0, &vec![0; self.data.len()]),
            Verb::Write | Verb::WriteImm | Verb::Send => self.memory.write(0, self.data),
        }
    }

    /// Its kernel, where the memory of the other end begins there.
    fn stream(&self, there: Remote) -> Result<Job<'_>, Error> {
        let case = self.case;
        let stream = Stream {
            queue: self.end.pair.send_queue()?,
            local: self.memory.local(0, case.bytes as usize),
            remote: match case.verb {
                Verb::Send => Remote::default(),
                _ => there,
            },
            slots: slots(case),
            messages: case.messages,
            batch: case.batch,
            signal_every: case.signal_every,
            limit_us: LIMIT_US,
            times: Slice::new(&self.times),
            outcome: &self.outcome,
        };
        Ok(Job::new(case.verb.kernel(), stream, &self.outcome))
    }

    /// Bytes in each nanosecond, which is 10⁹ bytes a second.
    pub fn rate(&self) -> f64 {
        let [begin, end] = [0, 1].map(|which: usize| self.times[which].load(Ordering::Relaxed));
        let nanoseconds = (end - begin).max(1);
        (self.case.bytes * self.case.messages) as f64 / nanoseconds as f64
    }

    /// Whether every byte here is what it should be now.
    pub fn verified(&self) -> bool {
        match self.case.verb {
            // The last addition to a word brings back the sum but one.
            Verb::FetchAdd => self.memory.holds(&sums(self.case, self.data, 1)),
            _ => self.memory.holds(self.data),
        }
    }
}

/// The end of a stream that answers.
pub struct Responder<'e> {
    case: Case,
    end: &'e End,
    memory: Memory,
    data: &'e [u8],
    outcome: Shared<Outcome>,
}

impl<'e> Responder<'e> {
    /// For messages with this data.
    ///
    /// # Errors
    /// No memory.
    pub fn new(case: Case, end: &'e End, data: &'e [u8]) -> Result<Self, Error> {
        Ok(Self {
            case,
            end,
            memory: end.memory(data.len())?,
            data,
            outcome: end.outcome()?,
        })
    }

    /// What an end in another process needs to know of its memory.
    pub fn shared(&self) -> RemoteMemory {
        self.memory.shared()
    }

    /// Fills its memory with what it is asked for, or empties it for what it receives, and posts the first receives.
    ///
    /// # Errors
    /// A kernel failed, which `what` introduces.
    pub fn prepare(&self, what: &str) -> Result<(), Error> {
        match self.case.verb {
            Verb::Read | Verb::FetchAdd => self.memory.write(0, self.data),
            Verb::Write | Verb::WriteImm | Verb::Send => {
                self.memory.write(0, &vec![0; self.data.len()]);
            }
        }
        match self.case.verb.takes_receives() {
            true => launch::run(what, self.sink(entry!(kernels::sink_prepare))?, self.end),
            false => Ok(()),
        }
    }

    /// One of the kernels that receive.
    fn sink(&self, kernel: Entry<fn(Sink<'_>)>) -> Result<Job<'_>, Error> {
        let sink = Sink {
            queue: self.end.pair.receive_queue()?,
            local: self.memory.local(0, self.case.bytes as usize),
            slots: slots(self.case),
            messages: self.case.messages,
            prepared: self.case.messages.min(self.end.receive_depth()),
            limit_us: LIMIT_US,
            outcome: &self.outcome,
        };
        Ok(Job::new(kernel, sink, &self.outcome))
    }

    /// Whether every byte here is what it should be now.
    pub fn verified(&self) -> bool {
        match self.case.verb {
            Verb::FetchAdd => self.memory.holds(&sums(self.case, self.data, 0)),
            _ => self.memory.holds(self.data),
        }
    }
}

/// The words of the data after all additions but so many of each: message m adds 1 to slot m modulo the slots.
fn sums(case: Case, data: &[u8], but: u64) -> Vec<u8> {
    let words = data.chunks_exact(8).zip(0..);
    let sums = words.flat_map(|(word, slot)| {
        let begin = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
        let times = (case.messages - slot).div_ceil(slots(case));
        begin.wrapping_add(times - but).to_ne_bytes()
    });
    sums.collect()
}

/// Runs the kernels of a repetition that run here, at the same time: of those who request, each with where the memory at its
/// other end begins, and of those who receive.
///
/// # Errors
/// A kernel failed, which `what` introduces.
pub fn run(
    what: &str,
    requesters: &[(&Requester<'_>, Remote)],
    responders: &[&Responder<'_>],
) -> Result<(), Error> {
    let (mut jobs, mut ends) = (Vec::new(), Vec::new());
    for (requester, there) in requesters {
        jobs.push(requester.stream(*there)?);
        ends.push(requester.end);
    }
    for responder in responders {
        if responder.case.verb.takes_receives() {
            jobs.push(responder.sink(entry!(kernels::sink))?);
            ends.push(responder.end);
        }
    }
    run_together(what, jobs, &ends)
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
    let what = case.words();
    let mut both_ways = ends.both_ways().to_vec();
    both_ways.truncate(if case.both_ways { 2 } else { 1 });
    let data: Vec<_> = both_ways.iter().map(|_| data(case, random)).collect();
    let mut directions = Vec::new();
    for ((from, to), data) in both_ways.into_iter().zip(&data) {
        let requester = Requester::new(case, from, data)?;
        directions.push((requester, Responder::new(case, to, data)?));
    }
    let mut rates = Vec::new();
    let mut verified = true;
    for _ in 0..case.repetitions {
        may_go_on()?;
        let (mut requesters, mut responders) = (Vec::new(), Vec::new());
        for (requester, responder) in &directions {
            requester.fill();
            responder.prepare(&what)?;
            requesters.push((requester, responder.memory.remote(0)));
            responders.push(responder);
        }
        run(&what, &requesters, &responders)?;
        let rate = |(requester, _): &(Requester<'_>, _)| requester.rate();
        rates.push(directions.iter().map(rate).sum::<f64>());
        let mut all = directions.iter();
        verified &= all.all(|(one, other)| one.verified() && other.verified());
    }
    Ok(Bandwidth::of(case, rates, verified))
}
