//! Bandwidth and message rate of each verb, or of each way to post, between two ends in one process; or of
//! writes into the memory of a program of somebody else's.

mod ladder;
mod peer;
mod ranks;

use clap::{Args, ValueEnum};
use serde::Serialize;
use warpbell_bench::Error;
use warpbell_bench::filter::Filter;
use warpbell_bench::parse::parse_message;
use warpbell_bench::party::Party;
use warpbell_bench::plot::Output;
use warpbell_bench::run::bandwidth::{Bandwidth, Case, HEADER, Verb, measure};
use warpbell_bench::run::interrupt::{self, ended_early};
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::setup::{End, Ends, config};
use warpbell_bench::run::{place, screen};
use warpbell_bench::setting::Setting;
use warpbell_bench::strangers::Other;
use warpbell_stage::random::Random;

use crate::draw;

/// Measures how many bytes and messages a second a kernel moves.
///
/// One thread of a grid posts; two software HCAs in this process, both driven by one CPU thread,
/// move the bytes; every byte is checked. No network card takes part: these are numbers of software.
///
/// If a launcher has started two processes, the ends are these, and the first one requests.
///
/// With --peer the kernel writes into the memory of an unmodified ib_write_bw that listens at HOST, over a
/// device that warpbell-preload shows it.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// The program at the other end
    #[arg(long, value_enum, requires = "host", conflicts_with_all = ["verbs", "from", "to", "ladder", "both_ways",
        "repetitions", "texts", "svg"])]
    peer: Option<Program>,
    #[command(flatten)]
    other: Other,
    /// Seconds to wait for each word of the other program
    #[arg(long, default_value_t = 30, requires = "peer", value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// Verbs to measure
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "write,write-imm,read,send,fetch-add"
    )]
    verbs: Vec<Verb>,
    /// Smallest message
    #[arg(long, value_name = "BYTES", value_parser = parse_message::<{ 1 << 30 }>, default_value = "8")]
    from: u64,
    /// Largest message; sizes double from one to the next (fetch-add has 8 bytes only); by default 4M, of
    /// the ladder 64K
    #[arg(long, value_name = "BYTES", value_parser = parse_message::<{ 1 << 30 }>)]
    to: Option<u64>,
    /// Measure several ways to write in turn: one by one; with the WQE built once; pipelined; with fewer
    /// doorbells; with a queue for each warp, and for each block
    #[arg(long, conflicts_with_all = ["verbs", "both_ways", "batch", "signal_every"])]
    ladder: bool,
    /// Queues of the ladder's last two rungs
    #[arg(long, default_value_t = 8, requires = "ladder", value_parser = clap::value_parser!(u8).range(1..=16))]
    queues: u8,
    #[command(flatten)]
    filter: Filter,
    /// Both ends send at the same time; the table shows their sum
    #[arg(long)]
    both_ways: bool,
    /// Depth of the queues in blocks of 64 bytes, a power of two
    #[arg(long, default_value_t = 256)]
    depth: u32,
    /// Messages under one doorbell, at most half the depth; by default what is advised where ring and NIC lie,
    /// with --peer 16
    #[arg(long, value_name = "MESSAGES", value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,
    /// One message in this many asks for a completion
    #[arg(long, value_name = "MESSAGES", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..))]
    signal_every: u64,
    /// Messages of a repetition; by default 64 MiB, but at least 16 and at most 20,000 messages; with --peer what
    /// the other program has by default
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<u64>,
    /// Repetitions of each size
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Seed of the random data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

/// A program of somebody else's that is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Program {
    /// Its ib_write_bw, as a server
    Perftest,
}

/// Largest message where none is named.
const TO: u64 = 4 << 20;

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    #[serde(flatten)]
    setting: &'d Setting,
    depth: u32,
    batch: u32,
    signal_every: u64,
    both_ways: bool,
    repetitions: u32,
    /// Ctrl-C ended it early.
    interrupted: bool,
    results: &'d [Bandwidth],
}

impl Arguments {
    /// From the smallest to the largest.
    fn sizes(&self, to: u64) -> impl Iterator<Item = u64> + Clone + use<> {
        std::iter::successors(Some(self.from), |bytes| bytes.checked_mul(2))
            .take_while(move |&bytes| bytes <= to)
    }

    fn cases(&self, batch: u32) -> Vec<Case> {
        let sizes = || self.sizes(self.to.unwrap_or(TO));
        let case = |verb, bytes: u64| Case {
            verb,
            bytes,
            messages: self
                .messages
                .unwrap_or_else(|| ((64 << 20) / bytes).clamp(16, 20_000)),
            repetitions: self.repetitions,
            batch,
            signal_every: self.signal_every,
            both_ways: self.both_ways,
        };
        let of_verb = |verb: &Verb| match verb {
            Verb::FetchAdd => vec![case(*verb, 8)],
            _ => sizes().map(|bytes| case(*verb, bytes)).collect(),
        };
        let all = self.verbs.iter().flat_map(of_verb);
        all.filter(|case| self.filter.wants(&name(case))).collect()
    }
}

/// Measures the verbs.
fn verbs(arguments: &Arguments) -> Result<(), Error> {
    let setting = Setting::open(&arguments.machine)?;
    let party = Party::from_env(&setting.node)?;
    let result = verbs_of(arguments, &setting, &party);
    party.end(result)
}

/// The ends, here or at two ranks.
enum Between {
    Here(Box<Ends>),
    Ranks(Box<End>),
}

fn verbs_of(arguments: &Arguments, setting: &Setting, party: &Party) -> Result<(), Error> {
    let node = &setting.node;
    let between = match ranks::end(party, arguments.depth)? {
        Some(end) => Between::Ranks(end.into()),
        None => Between::Here(Ends::new(node, &config(arguments.depth))?.into()),
    };
    let mut random = Random::new(arguments.seed);
    let end = match &between {
        Between::Here(ends) => &ends.one,
        Between::Ranks(end) => end,
    };
    let advised = end.pair.advised_batch();
    let batch = arguments.batch.unwrap_or(advised.requests);
    let cases = arguments.filter.some(arguments.cases(batch))?;
    let screen = party.screen(arguments.output.json, cases.len() as u64);
    let ways = if arguments.both_ways {
        "both ways"
    } else {
        "one way"
    };
    screen.line(format_args!(
        "Bandwidth {ways}, moved by {} without any network card.",
        place::nic_words(node)
    ));
    screen.line(format_args!("The kernels run on {}.", place::words(node)));
    screen.line(format_args!(
        "{} messages under a doorbell, one in {} signalled, {} repetitions.",
        batch, arguments.signal_every, arguments.repetitions
    ));
    screen.line(format_args!("Advised are {advised}."));
    screen.heading(HEADER);
    let mut results = Vec::new();
    let mut step = |case: Case| {
        screen.step(name(&case));
        let result = match &between {
            Between::Here(ends) => measure(ends, case, &mut random, interrupt::check)?,
            Between::Ranks(end) => ranks::measure(party, end, case, &mut random)?,
        };
        screen.row(result.row(), result.verified);
        results.push(result);
        Ok(())
    };
    let interrupted = ended_early::<Error>(cases.into_iter().try_for_each(&mut step))?;
    screen.finish();
    if party.rank() > 0 {
        return Ok(());
    }
    let document = Document {
        setting,
        depth: arguments.depth,
        batch,
        signal_every: arguments.signal_every,
        both_ways: arguments.both_ways,
        repetitions: arguments.repetitions,
        interrupted,
        results: &results,
    };
    screen.document(&document)?;
    let wrong = results.iter().filter(|result| !result.verified).count();
    draw::end(&arguments.output, &document, (wrong, results.len()))
}

/// A case, in words.
fn name(case: &Case) -> String {
    format!("{} {}", case.verb.name(), screen::bytes(case.bytes))
}

/// Measures what the command line names.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    interrupt::listen();
    match (&arguments.other.host, arguments.ladder) {
        (Some(host), _) => peer::run(arguments, host),
        (None, true) => ladder::run(arguments),
        (None, false) => verbs(arguments),
    }
}
