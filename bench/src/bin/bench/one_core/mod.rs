//! Measures the software HCA's engine on one core, what posting costs on a CPU, and what a proxy's thread takes: `bench one-core`.
//!
//! Everything that is compared is measured in the same run, in turns, so that a busy machine spoils both.

mod engine;
mod posting;
mod proxy;

use std::thread;

use clap::Args;
use warpbell_bench::Error;
use warpbell_bench::filter::Filter;
use warpbell_bench::samples::{Row, print_table};
use warpbell_hw_tests::say::say;

/// Measures the engine of the software HCA, the cost of a post on a CPU, and what a proxy's thread takes.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// How often everything is measured; the medians are shown
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    #[command(flatten)]
    filter: Filter,
}

/// Measures.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let (repetitions, filter) = (arguments.repetitions, &arguments.filter);
    let mut rows: Vec<Row> = posting::measure(repetitions, filter);
    rows.extend(proxy::measure(repetitions, filter));
    rows.extend(engine::measure(repetitions, filter));
    let rows = filter.some(rows)?;
    if arguments.json {
        say(format_args!(
            "{}",
            serde_json::json!({ "repetitions": repetitions, "rows": rows })
        ));
        return Ok(());
    }
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    say(format_args!(
        "{repetitions} repetitions on a machine of {cores} cores; one core is used"
    ));
    print_table(&rows);
    Ok(())
}
