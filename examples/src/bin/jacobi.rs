//! Jacobi's relaxation over two ranks, their edges exchanged between kernels and within.

use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;
use warpbell_examples::Error;
use warpbell_examples::jacobi::{PLOT, Results, Series};
use warpbell_examples::plot::Output;
use warpbell_examples::screen::{Screen, exit, parse_seconds};
use warpbell_examples::setting::Setting;
use warpbell_examples::world::Machine;

/// Relaxes the cells of two ranks, one under the other and round again, which exchange the rows at their edges in every
/// step, as in the evaluation of ComP-Net and GPU-TN (LeBeane).
///
/// First between two kernels by a thread of the host for each rank; then within kernels that stay, whose blocks at the edges
/// post their rows; then by operations that these register ahead of a step and trigger behind it. Every cell is compared
/// with a loop on the host. Ctrl-C ends the run behind the repetition that is under way, or within that loop; a second one at
/// once. The HCAs are software, and no network card takes part.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 98)]
struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Rows of a rank, and cells of a row: multiples of the blocks; by default 64 to 1,024 on a GPU, to 256 on a CPU
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    sides: Vec<u32>,
    /// Blocks of each rank; by default 16 on a GPU, 2 on a CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=32))]
    blocks: Option<u32>,
    /// Threads of each block; by default 256 on a GPU, 32 on a CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=512))]
    threads: Option<u32>,
    /// Steps of a repetition, behind which all cells are compared; by default 1,000 on a GPU, 100 on a CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: Option<u32>,
    /// Seconds for each side and way, comparisons and all
    #[arg(long, default_value = "1", value_parser = parse_seconds)]
    seconds: f64,
    /// The most repetitions for each side and way
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    repetitions: Option<u64>,
    /// Depth of each queue in blocks of 64 bytes, a power of two
    #[arg(long, default_value_t = 64)]
    depth: u32,
    /// Seed of the cells
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    #[serde(flatten)]
    setting: &'d Setting,
    series: &'d Series,
    #[serde(flatten)]
    results: &'d Results,
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let setting = Setting::open(&arguments.machine)?;
    let world = &setting.world;
    let usual = Series::new(world);
    let series = Series {
        sides: match arguments.sides.is_empty() {
            true => usual.sides,
            false => arguments.sides.clone(),
        },
        blocks: arguments.blocks.unwrap_or(usual.blocks),
        threads: arguments.threads.unwrap_or(usual.threads),
        steps: arguments.steps.unwrap_or(usual.steps),
        repetitions: arguments.repetitions.unwrap_or(usual.repetitions),
        seconds: arguments.seconds,
        depth: arguments.depth,
        seed: arguments.seed,
    };
    let screen = Screen::new(arguments.output.json, series.measurements());
    screen.line(format_args!(
        "Two ranks of {} blocks run on {}; no network card takes part.",
        series.blocks,
        world.words()
    ));
    let results = series.run(world, &screen)?;
    screen.finish();
    screen.document(&Document {
        setting: &setting,
        series: &series,
        results: &results,
    })?;
    arguments
        .output
        .end(PLOT, &setting, &[results.panel()], results.wrong())
}

fn main() -> ExitCode {
    exit(run(&Arguments::parse()))
}
