//! GPUrdma's stencil over several ranks, its edges exchanged between kernels and within, and what a notification costs.

use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;
use warpbell_bench::gaspi::{OneWay, RoundTrips};
use warpbell_bench::party::Party;
use warpbell_bench::run::error::{Error as RunError, Nested};
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::screen::{Screen, start};
use warpbell_bench::run::{interrupt, place};
use warpbell_bench::setting::Setting;
use warpbell_host_init::Node;
use warpbell_papers::Error;
use warpbell_papers::halo::{Arguments, Results, Series, Way};
use warpbell_papers::round_trip;
use warpbell_papers::stencil::{self, PLOT, Ring};
use warpbell_ptx::KERNELS;

/// Computes a stencil over several ranks, whose blocks exchange their edge cells in every step, as figure 6 of
/// GPUrdma (Daoud, Watad and Silberstein 2016) sketches it.
///
/// Three ways: the host exchanges the edges between two kernels; blocks of a kernel that stays use GASPI's
/// write_notify, as in the figure; and blocks trigger operations that they registered before. Every cell is
/// compared with a loop on the host. If a launcher has started several processes, each is a rank. Then a notification is compared with a bare write of the same size. Ctrl-C
/// ends the run after the current repetition and prints what was measured so far; a second one ends it at once. The
/// HCAs are software, and no network card takes part.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 98)]
struct Stencil {
    #[command(flatten)]
    machine: Machine,
    /// Cells of each block; by default 64 to 1,024 on a GPU, to 256 on a CPU
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    cells: Vec<u32>,
    /// Ranks; with other than two, edges are notified within kernels; by default those that a launcher has started, or 2
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    ranks: Option<u32>,
    /// Blocks of each rank: at most 128 in all, and at most 16 a rank unless --ways is notified alone; by default 8 on a
    /// GPU, 2 on a CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=128))]
    blocks: Option<u32>,
    #[command(flatten)]
    rest: Arguments,
    /// Round trips of a notification that are measured
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// Warm-up round trips, which do not count
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    warm_up: u32,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    #[serde(flatten)]
    setting: &'d Setting,
    series: &'d Series,
    #[serde(flatten)]
    results: &'d Results,
    /// None where Ctrl-C came first, and where ranks are processes.
    #[serde(flatten)]
    notification: Option<Notification>,
}

/// What a notification costs.
#[derive(Serialize)]
struct Notification {
    /// Half a round trip.
    notification: OneWay,
    /// The same with a bare write and a word that is polled.
    bare_write: OneWay,
    /// The medians, one over the other.
    ratio: f64,
}

impl Notification {
    /// None where Ctrl-C came first.
    fn measured(arguments: &Stencil, node: &Node, screen: &Screen) -> Result<Option<Self>, Error> {
        match Self::measure(arguments, node, screen) {
            Ok(notification) => Ok(Some(notification)),
            Err(error) if matches!(error.own(), Some(RunError::Interrupted)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn measure(arguments: &Stencil, node: &Node, screen: &Screen) -> Result<Self, Error> {
        interrupt::check()?;
        let trips = RoundTrips {
            rounds: arguments.rounds,
            warm_up: arguments.warm_up,
            depth: arguments.rest.depth,
        };
        screen.step("bare writes");
        let bare_write = round_trip::writes(&trips, node)?;
        screen.step("notifications");
        // By the benchmarks' kernels.
        let node = arguments.machine.with_kernels(node, &KERNELS)?;
        let notification = trips.notifications(&node)?;
        let ratio = notification.median_ns as f64 / bare_write.median_ns as f64;
        let us = |ns: u64| ns as f64 / 1e3;
        screen.line("");
        for (what, one_way) in [
            ("a bare write of 8 bytes, polled", bare_write),
            ("notify, notify_waitsome, notify_reset", notification),
        ] {
            screen.line(format_args!(
                "half a round trip of {what}: median {:.2} µs, fastest {:.2} µs",
                us(one_way.median_ns),
                us(one_way.min_ns)
            ));
        }
        screen.line(format_args!("ratio of the medians: {ratio:.2}"));
        Ok(Self {
            notification,
            bare_write,
            ratio,
        })
    }
}

fn run(arguments: &Stencil) -> Result<(), Error> {
    let setting = warpbell_papers::open(&arguments.machine)?;
    let party = Party::from_env(&setting.node)?;
    let result = measure(arguments, &setting, &party);
    party.end(result)
}

fn measure(arguments: &Stencil, setting: &Setting, party: &Party) -> Result<(), Error> {
    let node = &setting.node;
    let usual = stencil::series(node);
    let ranks = arguments.ranks.or(party.size()).unwrap_or(2);
    let usual = Series {
        ranks,
        blocks: arguments.blocks.unwrap_or(usual.blocks),
        ways: match ranks {
            2 => usual.ways,
            _ => vec![Way::Notified],
        },
        ..usual
    };
    let series = arguments.rest.series(usual, &arguments.cells);
    let screen = party.screen(arguments.rest.output.json, series.measurements() + 2);
    screen.line(format_args!(
        "{} ranks of {} blocks run on {}; no network card takes part.",
        series.ranks,
        series.blocks,
        place::words(node)
    ));
    let results = series.run::<Ring>(party, &screen)?;
    // Between two ranks of one process.
    let notification = match party.size() {
        Some(_) => None,
        None => Notification::measured(arguments, node, &screen)?,
    };
    screen.finish();
    if party.rank() > 0 {
        return Ok(());
    }
    screen.document(&Document {
        setting,
        series: &series,
        results: &results,
        notification,
    })?;
    let panel = results.panel::<Ring>();
    let output = &arguments.rest.output;
    output.end(PLOT, setting, &[panel], results.wrong())
}

fn main() -> ExitCode {
    start(|arguments: Stencil| run(&arguments))
}
