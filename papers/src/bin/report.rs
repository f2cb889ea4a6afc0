//! Runs the papers' applications and gathers what came of them in one HTML page.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;
use warpbell_bench::origin::Origin;
use warpbell_bench::run::interrupt::{self, ended_early};
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::place;
use warpbell_bench::run::screen::{Screen, start};
use warpbell_papers::Error;
use warpbell_papers::application::{ALL, Extent};
use warpbell_papers::parse::parse_seconds;
use warpbell_papers::report::{Run, RunDocument, page};
use warpbell_ptx::PAPERS;

/// Runs the papers' applications one after the other, each with its binary's usual sizes, and writes one HTML page:
/// tables and plots, the papers' figures beside ours, and the differences.
///
/// Uses each software NIC that works with the kernels, unless --nic names one. No network card and no wire take
/// part then. If an application fails, the report ends, and the page has the measurements before it.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 98)]
struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Applications, named like their binaries, and generator; by default all
    #[arg(long, value_delimiter = ',', value_name = "NAME", value_parser = names())]
    only: Vec<String>,
    /// Seconds for each measurement of an application
    #[arg(long, default_value = "1", value_parser = parse_seconds)]
    seconds: f64,
    /// Only the smallest size of each application
    #[arg(long)]
    quick: bool,
    /// Where the page goes
    #[arg(long, value_name = "PATH", default_value = "report.html")]
    out: PathBuf,
    /// Print all results as one JSON document
    #[arg(long)]
    json: bool,
}

fn names() -> Vec<&'static str> {
    ALL.iter().map(|application| application.name).collect()
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    origin: &'d Origin,
    runs: Vec<RunDocument<'d>>,
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    interrupt::listen();
    let unwritten = |source| Error::Page {
        path: arguments.out.clone(),
        source,
    };
    // Before minutes are spent on what has nowhere to go; an older page stays until the new one is there.
    let is_new = !arguments.out.exists();
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(false);
    open.open(&arguments.out).map_err(unwritten)?;
    let origin = Origin::here();
    let chosen =
        |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|of| of == name);
    let applications = || ALL.iter().filter(|application| chosen(application.name));
    let screen = Screen::new(arguments.json, 0);
    let extent = Extent {
        seconds: arguments.seconds,
        quick: arguments.quick,
    };
    let mut runs = Vec::new();
    let mut on = String::new();
    let mut all = || {
        for machine in arguments.machine.with_each_nic() {
            let node = machine.open_with(&PAPERS, &[])?.remove(0);
            on = place::words(&node);
            for application in applications() {
                let place = format!("{}, NIC {}", place::words(&node), node.nic_name());
                screen.heading(&format!("{} on {place}", application.title));
                let section = (application.run)(&node, extent, &origin, &screen)?;
                let name = application.name;
                runs.push(Run {
                    place,
                    name,
                    section,
                });
                interrupt::check()?;
            }
        }
        Ok(())
    };
    let ended = ended_early::<Error>(all());
    screen.finish();
    if runs.is_empty() {
        if is_new {
            fs::remove_file(&arguments.out).map_err(unwritten)?;
        }
        ended?;
        return Ok(());
    }
    let html = page(&ALL, &runs, &origin.line(&on), origin.command());
    fs::write(&arguments.out, html).map_err(unwritten)?;
    screen.line("");
    screen.line(format_args!("written: {}", arguments.out.display()));
    screen.document(&Document {
        origin: &origin,
        runs: runs.iter().map(Run::document).collect(),
    })?;
    ended?;
    let wrong = runs.iter().map(|run| run.section.wrong);
    let (wrong, checks) = wrong.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
    warpbell_bench::run::Error::if_wrong(wrong, checks)?;
    Ok(interrupt::check()?)
}

fn main() -> ExitCode {
    start(|arguments: Arguments| run(&arguments))
}
