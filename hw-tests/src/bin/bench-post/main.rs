//! Measures what posting and polling cost by themselves, on queues made by hand whose completions are written ahead:
//! `cargo xtask bench post`.
//!
//! No NIC takes part. A figure is the time from the first thread's start to the last thread's end, over the WQEs of
//! all: in cycles of the SM (clock64) where all threads are in one block, and else in nanoseconds of the GPU's clock
//! (globaltimer), converted by the rate of the SM's clock that is measured at the beginning. The floor is the same
//! stores and fences by hand, in the same run, alternating with what is compared.
//!
//! The steady lap begins with a full ring of which everything is complete: the first post finds no room, looks at the
//! CQE, and has room for the rest. No kernel posts more than a ring holds, so that with many threads on a queue each
//! posts less often than asked for.

mod cases;
mod measure;
mod plot;
mod polling;
mod rig;
mod table;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use warpbell_hw_tests::world::{Machine, Unable, World};

use measure::Effort;

/// Measures posting and polling without a NIC.
#[derive(Parser)]
#[command(max_term_width = 98)]
struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Posts of each thread, as far as the ring holds them
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    posts: u32,
    /// How often everything is measured; the medians count
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Multiprocessors of the GPU, each of which gets a block in the widest cases; 2 on a CPU
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    multiprocessors: Option<u32>,
    /// Write a CSV file, a row for each case
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw the steady lap
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// An H200's.
const MULTIPROCESSORS: u32 = 132;

fn run(arguments: &Arguments) -> Result<(), String> {
    let multiprocessors = arguments.multiprocessors.unwrap_or(match World::here() {
        World::Cpu(_) => 2,
        World::Gpu(_) => MULTIPROCESSORS,
    });
    let effort = Effort {
        posts: arguments.posts,
        repetitions: arguments.repetitions,
        cycles_per_ns: measure::clock_rate()?,
    };
    let mut rows = Vec::new();
    for case in cases::all(multiprocessors) {
        rows.extend(effort.post(&case)?);
    }
    rows.extend(polling::measure(&effort)?);
    if let Some(path) = &arguments.csv {
        fs::write(path, table::csv(&rows))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if let Some(path) = &arguments.svg {
        let title = format!("Posting and polling without a NIC: {:?}", World::here());
        plot::draw(path, &title, &rows).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    if arguments.json {
        let document = serde_json::json!({ "cycles_per_ns": effort.cycles_per_ns, "rows": rows });
        println!("{document}");
    } else {
        println!(
            "{:?}, {:.3} cycles a nanosecond, up to {} posts a thread, {} repetitions",
            World::here(),
            effort.cycles_per_ns,
            effort.posts,
            effort.repetitions
        );
        table::print(&rows);
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let kernels = &warpbell_ptx::KERNELS;
    let done = match arguments
        .machine
        .open_with(kernels, "posting_exclusive_thread")
    {
        Ok(()) => run(&arguments),
        Err(Unable::Missing(why)) => {
            println!("Skipped: {why}");
            return ExitCode::SUCCESS;
        }
        Err(Unable::Wrong(why)) => Err(why),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
