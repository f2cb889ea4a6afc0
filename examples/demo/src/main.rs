//! The demo: every verb with every byte checked, sharing and scopes, latency, bandwidth, and what a user meets when
//! things go wrong.

mod parties;
mod passage;
mod sharing;
mod speed;
mod trouble;
mod verbs;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use serde_json::{Value, json};
use warpbell_host_init::{Nic, Node, NodeArgs};
use warpbell_ptx::KERNELS;
use warpbell_stage::ptx::OwnPtx;
use warpbell_stage::random::{Random, fresh_seed};
use warpbell_stage::screen::{Screen, start};
use warpbell_stage::setup::{Ends, config};
use warpbell_stage::{Error, place};

use parties::Parties;

/// Shows what Warpbell does, without any network card.
///
/// Kernels on CPU threads or on a GPU drive mlx5 queues of two software HCAs in this process: every verb in both
/// directions with every byte checked, latency, bandwidth, and what a user meets when things go wrong. If a launcher
/// has started two processes, each is an end, and only the verbs run.
#[derive(Parser)]
#[command(version, max_term_width = 98)]
struct Arguments {
    #[command(flatten)]
    node: NodeArgs,
    /// PTX in place of what is built in: the kernels, the NIC's engine, or both; may be given twice
    #[arg(long, value_name = "PATH")]
    ptx: Vec<PathBuf>,
    /// Seed of all random data; a new one each time if left out
    #[arg(long)]
    seed: Option<u64>,
    /// Depth of the queues in blocks of 64 bytes, a power of two
    #[arg(long, default_value_t = 128)]
    depth: u32,
    /// Bytes that each verb moves, 64 to 1048576
    #[arg(long, value_name = "BYTES", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    size: u32,
    /// Smaller tables
    #[arg(long)]
    quick: bool,
    /// One JSON document instead of lines
    #[arg(long)]
    json: bool,
}

/// What all sections work with.
struct Demo {
    arguments: Arguments,
    screen: Screen,
    random: Random,
    /// All that was found, section by section.
    document: Value,
    checks: usize,
    wrong: usize,
}

impl Demo {
    /// Counts a check, and keeps what is to be said of it.
    fn record(&mut self, section: &'static str, verified: bool, mut check: Value) {
        self.checks += 1;
        self.wrong += usize::from(!verified);
        check["verified"] = verified.into();
        match self.document[section].as_array_mut() {
            Some(checks) => checks.push(check),
            None => self.document[section] = json!([check]),
        }
    }
}

const FIRST_LINE: &str = "This demo shows every verb with every byte checked, who may share a queue, latency, bandwidth, and what happens when things go wrong.";

const FIRST_LINE_OF_RANKS: &str = "This demo shows every verb between two ranks, with every byte checked. Shared queues, latency, bandwidth and errors are left out: one process shows them. So are masked atomics over RoCE v2, which has no packets for them.";

/// Who takes part, in words.
fn introduction(node: &Node, nic: &str) -> String {
    let kernels = place::words(node);
    let numbers = match node.nic() {
        Nic::Mlx5(_) => "",
        _ => " No network card takes part: all times are those of software.",
    };
    format!(
        "Kernels on {kernels} write work requests into mlx5 queues, ring the doorbells and read the completions. Two ends, A and B, are connected: {nic} move the bytes.{numbers}"
    )
}

fn run(arguments: Arguments) -> Result<(), Error> {
    let begin = Instant::now();
    let seed = arguments.seed.unwrap_or_else(fresh_seed);
    let (depth, size, quick) = (arguments.depth, arguments.size, arguments.quick);
    let node = arguments
        .node
        .open(&OwnPtx::read(&KERNELS, &arguments.ptx)?)?;
    let mut rank = parties::rank(&node, depth)?;
    let seed = match &mut rank {
        Some((_, world)) => world.exchange(&seed)?[0],
        None => seed,
    };
    let kernels = match node.gpu() {
        None => json!({ "on": "cpu" }),
        Some(gpu) => json!({
            "on": "gpu", "name": gpu.name(), "cuda": gpu.driver(),
            "compute_capability": gpu.compute_capability().to_string(),
        }),
    };
    let options = json!({ "seed": seed, "depth": depth, "size": size, "quick": quick });
    let mut demo = Demo {
        screen: match &rank {
            Some((_, world)) if world.rank() > 0 => Screen::silent(),
            _ => Screen::new(arguments.json),
        },
        arguments,
        random: Random::new(seed),
        document: json!({ "nic": node.nic_name(), "kernels": kernels, "options": options }),
        checks: 0,
        wrong: 0,
    };
    let (first, nic) = match &rank {
        Some(_) => (FIRST_LINE_OF_RANKS, "the NICs of both ranks".into()),
        None => (FIRST_LINE, place::nic_words(&node)),
    };
    demo.screen.wrapped("", first);
    demo.screen.line("");
    if let Some((_, world)) = &rank {
        demo.screen.line(world);
    }
    demo.screen.wrapped("", &introduction(&node, &nic));
    let queues = format!("Queues of {depth} blocks, random data from --seed {seed}.");
    demo.screen.line(queues);
    match &mut rank {
        Some((end, world)) => {
            let ran = verbs::all(&mut demo, &mut Parties::Ranks(end, world));
            ran.inspect_err(|error| world.abort(&error.to_string()))?;
        }
        None => {
            let mut ends = Ends::new(&node, &config(depth))?;
            verbs::all(&mut demo, &mut Parties::Here(&ends))?;
            sharing::all(&mut demo, &ends)?;
            speed::latencies(&mut demo, &ends)?;
            speed::bandwidths(&mut demo, &ends)?;
            trouble::all(&mut demo, &mut ends)?;
        }
    }

    let (checks, wrong, seconds) = (demo.checks, demo.wrong, begin.elapsed().as_secs_f64());
    demo.document["checks"] = checks.into();
    demo.document["wrong"] = wrong.into();
    demo.document["seconds"] = seconds.into();
    demo.document["verified"] = (wrong == 0).into();
    if wrong == 0 {
        let verdict = format!("\n{checks} checks, every byte verified, in {seconds:.1} s.");
        demo.screen.line(verdict);
    }
    demo.screen.document(&demo.document);
    Error::if_wrong(wrong, checks)
}

fn main() -> ExitCode {
    start(run, |_| 1)
}
