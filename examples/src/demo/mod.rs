//! The demo: every verb with every byte checked, sharing and scopes, latency, bandwidth, and what a user
//! meets when things go wrong.

mod sharing;
mod trouble;
mod verbs;

use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::Serialize;
use warpbell_host_init::{Nic, Node};

use crate::bandwidth::{self, Bandwidth, Verb};
use crate::interrupt::{self, ended_early};
use crate::latency::{self, Latency};
use crate::machine::Machine;
use crate::place::Ran;
use crate::screen::Screen;
use crate::setup::{Ends, config};
use crate::{Error, place, screen};

pub use sharing::Shared;
pub use trouble::Trouble;
pub use verbs::Check;

/// What the user chose.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Options {
    /// Seed of all random data and offsets.
    pub seed: u64,
    /// Depth of the queues in blocks of 64 bytes.
    pub depth: u32,
    /// Bytes that a verb moves.
    pub size: u32,
    /// Fewer repetitions in the tables.
    pub quick: bool,
}

/// All that the demo found.
#[derive(Debug, Serialize)]
pub struct Document {
    nic: String,
    kernels: Ran,
    options: Options,
    verbs: Vec<Check>,
    sharing: Vec<Shared>,
    latency: Vec<Latency>,
    bandwidth: Vec<Bandwidth>,
    trouble: Vec<Trouble>,
    checks: usize,
    wrong: usize,
    /// Ctrl-C ended it early.
    interrupted: bool,
    seconds: f64,
    verified: bool,
}

impl Document {
    fn new(node: &Node, options: Options) -> Self {
        Self {
            nic: node.nic_name(),
            kernels: Ran::on(node),
            options,
            verbs: Vec::new(),
            sharing: Vec::new(),
            latency: Vec::new(),
            bandwidth: Vec::new(),
            trouble: Vec::new(),
            checks: 0,
            wrong: 0,
            interrupted: false,
            seconds: 0.0,
            verified: false,
        }
    }

    /// Counts the checks and the wrong ones among them.
    fn count(&mut self) {
        let verified: Vec<bool> = std::iter::empty()
            .chain(self.verbs.iter().map(|check| check.verified))
            .chain(self.sharing.iter().map(|check| check.verified))
            .chain(self.latency.iter().map(|check| check.verified))
            .chain(self.bandwidth.iter().map(|check| check.verified))
            .chain(self.trouble.iter().map(|check| check.verified))
            .collect();
        self.checks = verified.len();
        self.wrong = verified.iter().filter(|&&verified| !verified).count();
        self.verified = self.wrong == 0;
    }
}

/// What the tables are measured with.
struct Tables {
    latency: &'static [u64],
    rounds: u64,
    bandwidth: &'static [u64],
    repetitions: u32,
}

impl Options {
    fn tables(&self) -> Tables {
        match self.quick {
            true => Tables {
                latency: &[8, 4096],
                rounds: 200,
                bandwidth: &[8, 4096, 65_536],
                repetitions: 3,
            },
            false => Tables {
                latency: &[8, 64, 1024, 16 << 10, 256 << 10],
                rounds: 2000,
                bandwidth: &[8, 64, 512, 4096, 32 << 10, 256 << 10, 1 << 20],
                repetitions: 7,
            },
        }
    }
}

/// The verbs of the bandwidth table.
const STREAMS: [Verb; 3] = [Verb::Write, Verb::Read, Verb::Send];

/// What the demo is, for a human.
fn introduction(node: &Node) -> String {
    let numbers = match node.nic() {
        Nic::Mlx5(_) => "",
        _ => {
            " No network card takes part, so every number here is one of software on this machine."
        }
    };
    format!(
        "Warpbell: kernels on {} write work requests into mlx5 queues, ring the doorbells and read the \
         completions. Two ends, A and B, are connected: {} move the bytes.{numbers}",
        place::words(node),
        place::nic_words(node)
    )
}

/// Runs the demo.
///
/// # Errors
/// A step that could not be carried out, or checks that failed.
pub fn run(machine: &Machine, options: Options, json: bool) -> Result<(), Error> {
    interrupt::listen();
    let begin = Instant::now();
    let node = machine.open()?;
    let mut ends = Ends::new(&node, &config(options.depth))?;
    let tables = options.tables();
    let steps = 2 * verbs::COUNT
        + sharing::COUNT
        + tables.latency.len()
        + tables.bandwidth.len() * STREAMS.len()
        + trouble::COUNT;
    let screen = Screen::new(json, steps as u64);
    let mut document = Document::new(&node, options);

    screen.wrapped("", &introduction(&node));
    screen.line(format_args!(
        "Queues of {} blocks, random data from --seed {}.",
        options.depth, options.seed
    ));

    let sections = document.sections(&mut ends, &tables, &screen);
    screen.finish();
    document.interrupted = ended_early(sections)?;
    document.count();
    document.seconds = begin.elapsed().as_secs_f64();
    screen.line("");
    if document.verified {
        screen.line(format_args!(
            "{} checks, every byte verified, in {:.1} s.",
            document.checks, document.seconds
        ));
    }
    screen.document(&document)?;
    Error::if_wrong(document.wrong, document.checks)?;
    interrupt::check()
}

impl Document {
    /// Runs all sections, and keeps what each finds as soon as it does.
    fn sections(&mut self, ends: &mut Ends, tables: &Tables, screen: &Screen) -> Result<(), Error> {
        let options = self.options;
        let mut random = SmallRng::seed_from_u64(options.seed);
        verbs::run_all(ends, &options, screen, &mut random, &mut self.verbs)?;
        sharing::run(ends, &options, screen, &mut random, &mut self.sharing)?;
        latencies(ends, tables, screen, &mut self.latency)?;
        bandwidths(
            ends,
            &options,
            tables,
            screen,
            &mut random,
            &mut self.bandwidth,
        )?;
        trouble::run(ends, &options, screen, &mut random, &mut self.trouble)
    }
}

fn latencies(
    ends: &Ends,
    tables: &Tables,
    screen: &Screen,
    results: &mut Vec<Latency>,
) -> Result<(), Error> {
    screen.heading("Latency: half a round trip of a write and its signal, between two kernels");
    screen.line(latency::HEADER);
    for &bytes in tables.latency {
        screen.step(format!("latency of {}", screen::bytes(bytes)));
        let case = latency::Case {
            bytes,
            rounds: tables.rounds,
            warm_up: tables.rounds / 10,
        };
        let result = latency::measure(ends, case)?;
        screen.line(format_args!(
            "{}  {}",
            result.row(),
            screen.mark(result.verified)
        ));
        results.push(result);
    }
    Ok(())
}

fn bandwidths(
    ends: &Ends,
    options: &Options,
    tables: &Tables,
    screen: &Screen,
    random: &mut SmallRng,
    results: &mut Vec<Bandwidth>,
) -> Result<(), Error> {
    screen.heading("Bandwidth, one way: median (and slowest) repetition");
    screen.line("     bytes        write GB/s         read GB/s         send GB/s    write Mmsg/s");
    for &bytes in tables.bandwidth {
        let mut columns = String::new();
        let mut verified = true;
        let mut write_rate = 0.0;
        for verb in STREAMS {
            screen.step(format!("{} of {}", verb.name(), screen::bytes(bytes)));
            let case = bandwidth::Case {
                verb,
                bytes,
                messages: ((16 << 20) / bytes).clamp(16, 10_000),
                repetitions: tables.repetitions,
                batch: (options.depth / 2).clamp(1, 16),
                signal_every: 16,
                both_ways: false,
            };
            let result = bandwidth::measure(ends, case, random)?;
            let (median, min) = (result.median_gb_per_s, result.min_gb_per_s);
            columns += &format!("   {median:>6.3} ({min:>6.3})");
            verified &= result.verified;
            if verb == Verb::Write {
                write_rate = result.median_million_per_s;
            }
            results.push(result);
        }
        let bytes = screen::bytes(bytes);
        let mark = screen.mark(verified);
        screen.line(format_args!(
            "{bytes:>10} {columns}   {write_rate:>13.3}  {mark}"
        ));
    }
    Ok(())
}
