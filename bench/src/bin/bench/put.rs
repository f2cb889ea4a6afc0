//! A put behind an empty kernel, in four ways, on one time line.

use clap::Args;
use serde::Serialize;
use warpbell_bench::Error;
use warpbell_bench::put::{PutCase, Puts, Way};
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::screen::Screen;
use warpbell_bench::run::{interrupt, place};
use warpbell_bench::setting::Setting;

/// Measures when a put behind an empty kernel is visible at the other end.
///
/// The host launches a kernel of one thread and waits for its end. The put is sent by the host afterwards, by the
/// kernel's stream (GPUDirect Async), by a trigger in the kernel (GPU-TN), or by a post in the kernel. All times count
/// from the call that launches the kernel. A thread of the host watches the kernel's marks and the other end's memory:
/// it needs a core of its own, or sees them late.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Puts of each way that are measured
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// Warm-up puts, which do not count
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(..=100_000))]
    warm_up: u32,
    /// Words of 8 bytes of each put
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=8192))]
    words: u32,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    #[serde(flatten)]
    setting: &'d Setting,
    /// Bytes of each put.
    bytes: u32,
    /// The ways that this machine has.
    puts: Vec<Puts>,
}

/// Measures.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let setting = Setting::open(&arguments.machine)?;
    let node = &setting.node;
    let screen = Screen::new(arguments.json, Way::ALL.len() as u64);
    screen.line(format_args!(
        "The kernels run on {}; the NIC is {}. Medians in µs since the launch call.",
        place::words(node),
        node.nic_name()
    ));
    screen.heading("way             begun    ended  returned     sent  visible");
    let case = PutCase {
        rounds: arguments.rounds,
        warm_up: arguments.warm_up,
        bytes: 8 * arguments.words,
    };
    let mut puts = Vec::new();
    for way in Way::ALL {
        screen.step(way.name());
        let Some(put) = case.measure(node, way)? else {
            screen.line(format_args!("{:<14}  no streams on a CPU", way.name()));
            continue;
        };
        let us = |ns: u64| format!("{:.2}", ns as f64 / 1e3);
        let line = put.median;
        screen.row(
            format!(
                "{:<14} {:>6} {:>8} {:>9} {:>8} {:>8}",
                way.name(),
                us(line.begun_ns),
                us(line.ended_ns),
                us(line.returned_ns),
                line.sent_ns.map_or("-".into(), us),
                us(line.visible_ns)
            ),
            put.verified,
        );
        puts.push(put);
    }
    screen.finish();
    let (wrong, all) = (puts.iter().filter(|put| !put.verified).count(), puts.len());
    screen.document(&Document {
        setting: &setting,
        bytes: case.bytes,
        puts,
    })?;
    warpbell_bench::run::Error::if_wrong(wrong, all)?;
    Ok(interrupt::check()?)
}
