//! Measures the software HCA's engine on one core, what posting costs on a CPU, and what a proxy's thread takes: `bench one-core`.
//!
//! Everything that is compared is measured in the same run, in turns, so that a busy machine spoils both.

mod engine;
mod posting;
mod proxy;

use clap::Args;
use warpbell_bench::Error;
use warpbell_bench::samples::{Row, SampleArguments};

/// Measures the engine of the software HCA, the cost of a post on a CPU, and what a proxy's thread takes.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    samples: SampleArguments,
}

/// Measures.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let samples = &arguments.samples;
    let (repetitions, filter) = (samples.repetitions, &samples.filter);
    let mut rows: Vec<Row> = posting::measure(repetitions, filter);
    rows.extend(proxy::measure(repetitions, filter));
    rows.extend(engine::measure(repetitions, filter));
    samples.print(rows, "one core is used")
}
