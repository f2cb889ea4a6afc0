//! A large message back and forth, whole and by block: GPUrdma's throughput ping-pong.

use std::process::ExitCode;

use clap::Parser;
use serde_json::json;
use warpbell_bench::parse::parse_bytes;
use warpbell_bench::plot::Output;
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::place;
use warpbell_bench::run::screen::{Screen, start};
use warpbell_papers::Error;
use warpbell_papers::application::Findings;
use warpbell_papers::overlap::{PAPER, Series};
use warpbell_papers::parse::parse_seconds;

/// Sends a large message back and forth between two ends, in as many parts as each has blocks, as in section 7 of
/// GPUrdma (Daoud, Watad and Silberstein 2016). Each end changes every word before it sends it on.
///
/// Three ways: whole, driven by the second end's host, which launches a kernel for each message; whole, by kernels
/// whose blocks wait for each other before they send; and by block, each part by itself. Every word is compared.
/// The HCAs are software, and no network card takes part.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 98)]
struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Bytes of a message: multiples of 8 for each block; by default from 1920K to 180M on a GPU, from 60K to 7680K on a CPU
    #[arg(long, value_delimiter = ',', value_name = "BYTES", value_parser = parse_whole)]
    sizes: Vec<u64>,
    /// Blocks of each end, each of which takes a part of the message; by default 30 on a GPU, 4 on a CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=32))]
    blocks: Option<u32>,
    /// Threads of each block; by default 256 on a GPU, 32 on a CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=512))]
    threads: Option<u32>,
    /// Maximum bytes of a work request, a multiple of 8
    #[arg(long, value_name = "BYTES", value_parser = parse_chunk, default_value = "64K")]
    chunk: u32,
    /// Seconds for each size and way
    #[arg(long, default_value = "1", value_parser = parse_seconds)]
    seconds: f64,
    /// Maximum number of rounds for each size and way
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Depth of each queue in blocks of 64 bytes, a power of two
    #[arg(long, default_value_t = 256)]
    depth: u32,
    /// Seed of the messages
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

/// A message of any bytes but none; whether it divides is seen later.
fn parse_whole(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes @ 1..=0x4000_0000 => Ok(bytes),
        _ => Err("choose between 1 byte and 1 GiB".into()),
    }
}

fn parse_chunk(text: &str) -> Result<u32, String> {
    match parse_bytes(text)? {
        bytes @ 8..=0x10_0000 if bytes.is_multiple_of(8) => Ok(bytes as u32),
        _ => Err("choose a multiple of 8 up to 1 MiB".into()),
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let setting = warpbell_papers::open(&arguments.machine)?;
    let node = &setting.node;
    let usual = Series::new(node);
    let series = Series {
        blocks: arguments.blocks.unwrap_or(usual.blocks),
        threads: arguments.threads.unwrap_or(usual.threads),
        sizes: match arguments.sizes.is_empty() {
            true => usual.sizes,
            false => arguments.sizes.clone(),
        },
        chunk: arguments.chunk,
        rounds: arguments.rounds.unwrap_or(usual.rounds),
        seconds: arguments.seconds,
        depth: arguments.depth,
        seed: arguments.seed,
    };
    let screen = Screen::new(arguments.output.json, series.steps());
    screen.line(format_args!(
        "Two ends of {} blocks run on {}; no network card takes part.",
        series.blocks,
        place::words(node)
    ));
    let results = series.run(node, &screen)?;
    let more = json!({ "verdict": results.verdicts().first(), "paper": PAPER });
    results.end(&setting, &series, more, &screen, &arguments.output)
}

fn main() -> ExitCode {
    start(|arguments: Arguments| run(&arguments))
}
