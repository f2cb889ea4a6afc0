//! Measures what a kernel pays for communication: `bench posting`.
//!
//! | part | what |
//! |---|---|
//! | `posting` | posts alone, on queues made by hand whose completions are written ahead |
//! | `polling` | polls alone, of such queues |
//! | `executing` | post, executed by a NIC of software, completion seen |
//!
//! No NIC takes part in the first two. A figure is the time from the first thread's start to the last thread's end,
//! over the WQEs of all: in cycles of the SM (clock64) where all threads are in one block, and else in nanoseconds of
//! the GPU's clock (globaltimer), converted by the rate of the SM's clock that is measured at the beginning. The floor
//! is the same stores and fences by hand, in the same run, alternating with what is compared. That of a way with a trace is
//! the same way without one.
//!
//! The steady lap begins with a full ring. Where one thread or group has a queue, the CQE tells of room for the next 64
//! doorbells at a time, so that the credit check looks at it again and again; where many threads share one, all of the
//! ring is complete, which one look finds. It is, too, for posts that are unchecked, which look at no credit. No kernel
//! posts more than a ring holds, so that with many threads on a queue each posts less often than asked for.

mod cases;
pub mod csv;
mod executing;
mod measure;
pub mod plot;
mod polling;
mod rig;
mod table;

use std::fs;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use measure::Effort;
use warpbell_bench::Error;
use warpbell_bench::filter::Filter;
use warpbell_host_init::Kernels;
use warpbell_hw_tests::here;
use warpbell_hw_tests::machine::{Machine, Unable};
use warpbell_hw_tests::say::say;

use table::Line;

/// A part of what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Posts alone, without a NIC
    Posting,
    /// Polls alone, without a NIC
    Polling,
    /// Writes that a NIC of software executes
    Executing,
}

/// Measures posting, polling, and writes that a software NIC executes.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Only these parts
    #[arg(long, value_enum, value_name = "PARTS", value_delimiter = ',', default_values = ["posting", "polling", "executing"], hide_default_value = true)]
    only: Vec<Part>,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    executing: executing::Options,
    /// Posts of each thread, as far as the ring holds them
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..))]
    posts: u32,
    /// How often everything is measured; the medians are shown
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Multiprocessors of the GPU, each of which gets a block in the widest cases; 2 on a CPU
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    multiprocessors: Option<u32>,
    /// Write a CSV file, a row for each case
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Compare with a CSV file of another run: the column `against` shows this run's cycles over those of the same row
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Draw the steady lap, and what was executed
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn wants(&self, part: Part) -> bool {
        self.only.contains(&part)
    }

    fn rows(&self, effort: &Effort, multiprocessors: u32) -> Result<Vec<Line>, String> {
        let mut rows = Vec::new();
        if self.wants(Part::Posting) {
            for case in cases::all(multiprocessors) {
                if self.filter.wants(case.name) {
                    rows.extend(effort.post(&case)?);
                }
            }
        }
        if self.wants(Part::Polling) {
            rows.extend(polling::measure(effort, &self.filter)?);
        }
        if self.wants(Part::Executing) {
            rows.extend(executing::measure(effort, &self.executing, &self.filter)?);
        }
        Ok(rows)
    }

    /// Where it runs. A NIC that nobody named is a kernel beside the others, if one is wanted at all.
    fn machine(&self) -> Machine {
        let machine = self.machine.clone();
        match self.wants(Part::Executing) {
            true => machine.or_soft_gpu(),
            false => machine,
        }
    }
}

/// An H200's.
const MULTIPROCESSORS: u32 = 132;

fn measure(arguments: &Arguments, earlier: &[csv::Row]) -> Result<(), Error> {
    let multiprocessors = arguments.multiprocessors.unwrap_or(match here::kernels() {
        Kernels::Cpu(_) => 2,
        Kernels::Gpu(_) => MULTIPROCESSORS,
    });
    let effort = Effort {
        posts: arguments.posts,
        repetitions: arguments.repetitions,
        cycles_per_ns: measure::clock_rate().map_err(Error::Posting)?,
    };
    let rows = arguments.rows(&effort, multiprocessors);
    let rows = arguments.filter.some(rows.map_err(Error::Posting)?)?;
    let rows: Vec<_> = rows.into_iter().map(|row| row.against(earlier)).collect();
    if let Some(path) = &arguments.csv {
        fs::write(path, csv::text(&rows))
            .map_err(|error| Error::Posting(format!("{}: {error}", path.display())))?;
    }
    if let Some(path) = &arguments.svg {
        let kernels = here::kernels().to_string();
        if let Some(drawing) = plot::drawing(&kernels, rows.iter().map(csv::Row::from)) {
            warpbell_bench::plot::write(path, &drawing)?;
        }
    }
    if arguments.json {
        let document = serde_json::json!({ "cycles_per_ns": effort.cycles_per_ns, "rows": rows });
        say(format_args!("{document}"));
    } else {
        say(format_args!(
            "{}, {:.3} cycles a nanosecond, up to {} posts a thread, {} repetitions",
            here::kernels(),
            effort.cycles_per_ns,
            effort.posts,
            effort.repetitions
        ));
        table::print(&rows);
    }
    Ok(())
}

/// Measures, where there is what it takes.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let earlier = arguments.against.as_deref().map(csv::read).transpose();
    let earlier = earlier.map_err(|unread| Error::Posting(unread.to_string()))?;
    match arguments.machine().open_with(&warpbell_ptx::KERNELS) {
        Ok(()) => measure(arguments, &earlier.unwrap_or_default()),
        Err(Unable::Missing(why)) => {
            say(format_args!("Skipped: {why}"));
            Ok(())
        }
        Err(Unable::Wrong(why)) => Err(Error::Posting(why)),
    }
}
