//! Measures the software HCA's engine on one core, what posting costs on a CPU, and what a proxy's thread takes: `cargo xtask bench cpu`.
//!
//! Everything that is compared is measured in the same run, in turns, so that a busy machine spoils both.

mod engine;
mod posting;
mod proxy;

use std::thread;

use clap::Parser;
use warpbell_hw_tests::bench::{Row, print_table};
use warpbell_hw_tests::say::{arguments, say};

/// Measures the engine of the software HCA, the cost of a post on a CPU, and what a proxy's thread takes.
#[derive(Parser)]
struct Arguments {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// How often everything is measured; the medians count
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
}

fn main() {
    let arguments = arguments::<Arguments>();
    let repetitions = arguments.repetitions;
    let mut rows: Vec<Row> = posting::measure(repetitions);
    rows.extend(proxy::measure(repetitions));
    rows.extend(engine::measure(repetitions));
    if arguments.json {
        say(format_args!(
            "{}",
            serde_json::json!({ "repetitions": repetitions, "rows": rows })
        ));
        return;
    }
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    say(format_args!(
        "{repetitions} repetitions on a machine of {cores} cores; one core is used"
    ));
    print_table(&rows);
}
