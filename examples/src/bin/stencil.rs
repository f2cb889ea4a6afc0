//! GASPI from kernels: a stencil over several ranks, and what a notification costs.

use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;
use warpbell_examples::Error;
use warpbell_examples::gaspi::{OneWay, RoundTrips, StencilCase, StencilResult};
use warpbell_examples::interrupt;
use warpbell_examples::screen::{Screen, exit};
use warpbell_examples::setting::Setting;
use warpbell_examples::world::Machine;

/// Computes a stencil over several ranks, whose blocks exchange their edges with write_notify, and compares how long a
/// notification takes with a bare write of the same size.
///
/// The ranks are kernels that run at the same time, each with queues and a segment of its own. The HCAs are software,
/// and no network card takes part.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 98)]
struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Ranks
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    ranks: u32,
    /// Blocks of each rank
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=128))]
    blocks: u32,
    /// Threads of each block
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=512))]
    threads: u32,
    /// Cells of each block
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    cells: u32,
    /// Steps of the stencil
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,
    /// Round trips that are measured
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// Round trips before them that are not
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    warm_up: u32,
    /// Depth of each queue in blocks of 64 bytes, a power of two
    #[arg(long, default_value_t = 64)]
    depth: u32,
    /// Seed of the cells
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    #[serde(flatten)]
    setting: &'d Setting,
    stencil: StencilResult,
    /// Half a round trip.
    notification: OneWay,
    /// The same with a bare write and a word that is polled.
    bare_write: OneWay,
    /// The medians, one over the other.
    ratio: f64,
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let setting = Setting::open(&arguments.machine)?;
    let world = &setting.world;
    let devices = world.devices()?;
    let screen = Screen::new(arguments.json, 3);
    screen.line(format_args!(
        "The kernels of {} ranks run on {}; no network card takes part.",
        arguments.ranks,
        world.words()
    ));
    screen.step("stencil");
    let case = StencilCase {
        ranks: arguments.ranks,
        blocks: arguments.blocks,
        threads: arguments.threads,
        cells: arguments.cells,
        steps: arguments.steps,
        depth: arguments.depth,
        seed: arguments.seed,
    };
    let stencil = case.compute(world, &devices)?;
    screen.line(format_args!(
        "{} steps over {} blocks of {} cells: {:.3} s, {}",
        case.steps,
        case.ranks * case.blocks,
        case.cells,
        stencil.seconds,
        screen.mark(stencil.verified)
    ));
    let trips = RoundTrips {
        rounds: arguments.rounds,
        warm_up: arguments.warm_up,
        depth: arguments.depth,
    };
    screen.step("bare writes");
    let bare_write = trips.writes(world, &devices)?;
    screen.step("notifications");
    let notification = trips.notifications(world, &devices)?;
    let ratio = notification.median_ns as f64 / bare_write.median_ns as f64;
    let us = |ns: u64| ns as f64 / 1e3;
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
    screen.finish();
    screen.document(&Document {
        setting: &setting,
        stencil,
        notification,
        bare_write,
        ratio,
    })?;
    Error::if_wrong(usize::from(!stencil.verified), 1)?;
    interrupt::check()
}

fn main() -> ExitCode {
    exit(run(&Arguments::parse()))
}
