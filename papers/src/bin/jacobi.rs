//! Jacobi's relaxation over two ranks, their edges exchanged between kernels and within.

use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;
use warpbell_bench::party::Party;
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::place;
use warpbell_bench::run::screen::start;
use warpbell_bench::setting::Setting;
use warpbell_papers::Error;
use warpbell_papers::halo::{Arguments, Results, Series};
use warpbell_papers::jacobi::{self, PLOT, Relaxation};

/// Relaxes the cells of two ranks, which exchange their edge rows in every step, as in the evaluation of ComP-Net
/// and GPU-TN (LeBeane).
///
/// Four ways: the host exchanges the rows between two kernels; blocks of a kernel that stays post their rows with
/// a notification behind each; blocks trigger operations that they registered before; and blocks post to a proxy, a
/// thread of the host, as in ComP-Net. Every cell is compared with a loop on the host. If a launcher has started two
/// processes, each is a rank. Ctrl-C ends the run after the current repetition, or within that loop; a second one
/// ends it at once. The HCAs are software, and no network card takes part.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 98)]
struct Jacobi {
    #[command(flatten)]
    machine: Machine,
    /// Rows of a rank, and cells of a row: multiples of the blocks; by default 64 to 1,024 on a GPU, to 256 on a CPU
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    sides: Vec<u32>,
    /// Blocks of each rank; by default 16 on a GPU, 2 on a CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=32))]
    blocks: Option<u32>,
    #[command(flatten)]
    rest: Arguments,
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

fn run(arguments: &Jacobi) -> Result<(), Error> {
    let setting = warpbell_papers::open(&arguments.machine)?;
    let party = Party::from_env(&setting.node)?;
    let result = measure(arguments, &setting, &party);
    party.end(result)
}

fn measure(arguments: &Jacobi, setting: &Setting, party: &Party) -> Result<(), Error> {
    let node = &setting.node;
    let usual = jacobi::series(node);
    let usual = Series {
        blocks: arguments.blocks.unwrap_or(usual.blocks),
        ..usual
    };
    let series = arguments.rest.series(usual, &arguments.sides);
    let screen = party.screen(arguments.rest.output.json, series.measurements());
    screen.line(format_args!(
        "Two ranks of {} blocks run on {}; no network card takes part.",
        series.blocks,
        place::words(node)
    ));
    let results = series.run::<Relaxation>(party, &screen)?;
    screen.finish();
    if party.rank() > 0 {
        return Ok(());
    }
    screen.document(&Document {
        setting,
        series: &series,
        results: &results,
    })?;
    let panel = results.panel::<Relaxation>();
    let output = &arguments.rest.output;
    output.end(PLOT, setting, &[panel], results.wrong())
}

fn main() -> ExitCode {
    start(|arguments: Jacobi| run(&arguments))
}
