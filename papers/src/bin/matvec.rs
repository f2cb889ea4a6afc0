//! The product of a matrix with each of a stream of vectors: GPUrdma's application, its network driven by the host and by
//! the kernel.

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
use warpbell_papers::matvec::{PAPER, Series};
use warpbell_papers::parse::parse_seconds;

/// Sends batches of vectors of 32 floats to a server that multiplies each by one matrix and sends the products
/// back, as in table 3 of GPUrdma (Daoud, Watad and Silberstein 2016).
///
/// The server's network is driven by its host, which launches a kernel for each batch, and then by the blocks of
/// one kernel that stays. The client is a kernel, the same for both. Each product is compared with a loop on the
/// host. The HCAs are software, and no network card takes part.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 98)]
struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Bytes of a batch: multiples of 128 for each block
    #[arg(long, value_delimiter = ',', value_name = "BYTES", value_parser = parse_batch,
        default_value = "60K,120K,240K,480K,960K,1920K")]
    sizes: Vec<u64>,
    /// Blocks of the server, each of which takes a part of a batch; by default 8, and more where a
    /// part would have more than 480 vectors, up to 30 on a GPU; 4 on a CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=32))]
    blocks: Option<u32>,
    /// Threads of each block, and of the client; by default 256 on a GPU, 32 on a CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=512))]
    threads: Option<u32>,
    /// Seconds for each size and driver
    #[arg(long, default_value = "1", value_parser = parse_seconds)]
    seconds: f64,
    /// Maximum number of batches for each size and driver
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    rounds: Option<u32>,
    /// Warm-up batches, which do not count
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    warm_up: u32,
    /// Depth of each queue in blocks of 64 bytes, a power of two
    #[arg(long, default_value_t = 64)]
    depth: u32,
    /// Seed of matrix and vectors
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also measure each driver alone, without a NIC's part: all data is there, and a thread completes at
    /// once what is posted, which nobody carries out. Takes three times as long
    #[arg(long)]
    driver_alone: bool,
    #[command(flatten)]
    output: Output,
}

/// A batch of any bytes but none, for which the parts are counted later.
fn parse_batch(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes @ 1..=0x1000_0000 => Ok(bytes),
        _ => Err("choose between 1 byte and 256 MiB".into()),
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let setting = warpbell_papers::open(&arguments.machine)?;
    let node = &setting.node;
    let usual = Series::new(node);
    let series = Series {
        blocks: arguments.blocks,
        threads: arguments.threads.unwrap_or(usual.threads),
        sizes: arguments.sizes.clone(),
        warm_up: arguments.warm_up,
        rounds: arguments.rounds.unwrap_or(usual.rounds),
        seconds: arguments.seconds,
        depth: arguments.depth,
        seed: arguments.seed,
        driver_alone: arguments.driver_alone,
    };
    let screen = Screen::new(arguments.output.json, series.steps());
    screen.line(format_args!(
        "A client and a server run on {}; no network card takes part.",
        place::words(node)
    ));
    let results = series.run(node, &screen)?;
    let verdicts = results.verdicts();
    let [verdict, alone] = [0, 1].map(|index| verdicts.get(index));
    let more = json!({ "verdict": verdict, "verdict_driver_alone": alone, "paper": PAPER });
    results.end(&setting, &series, more, &screen, &arguments.output)
}

fn main() -> ExitCode {
    start(|arguments: Arguments| run(&arguments))
}
