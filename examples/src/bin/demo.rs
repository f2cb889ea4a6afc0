//! The main example: see `warpbell_examples::demo`.

use std::process::ExitCode;

use clap::Parser;
use warpbell_examples::demo::{Options, run};
use warpbell_examples::machine::Machine;
use warpbell_examples::screen::start;

/// Shows what Warpbell does, without any network card.
///
/// Kernels on CPU threads or on a GPU drive mlx5 queues of two software HCAs in this process: every verb in both
/// directions with every byte checked, latency, bandwidth, and what a user meets when things go wrong.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 98)]
struct Arguments {
    #[command(flatten)]
    machine: Machine,
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

fn main() -> ExitCode {
    start(|arguments: Arguments| {
        let options = Options {
            seed: arguments
                .seed
                .unwrap_or_else(|| u64::from(rand::random::<u32>())),
            depth: arguments.depth,
            size: arguments.size,
            quick: arguments.quick,
        };
        run(&arguments.machine, options, arguments.json)
    })
}
