//! A stream of a detector's events, in each of which rings are sought: NaNet's application, its network driven by the host
//! and by the kernel.

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use serde_json::json;
use warpbell_bench::party::Party;
use warpbell_bench::plot::Output;
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::place;
use warpbell_bench::run::screen::start;
use warpbell_bench::setting::Setting;
use warpbell_papers::Error;
use warpbell_papers::application::Findings;
use warpbell_papers::daq::Series;
use warpbell_papers::parse::parse_seconds;
use warpbell_papers::rig::Driver;

/// Sends a detector's events to a receiver, which seeks rings in each and sends them to the trigger, as NaNet does
/// for NA62 (Ammendola and others 2017). Prints the latencies, and how many of the rings are found.
///
/// Two receivers: the host, which launches a kernel for the events that are there (classic), and a kernel that
/// stays (persistent). Detector and trigger are a kernel, the same for both. Each result is compared with what the
/// same search found ahead. If a launcher has started two processes, the first one has detector and trigger, and the
/// second one the receiver. The HCAs are software, and no network card takes part.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 98)]
struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Events a second; by default 1000, 10000 and 100000 on a GPU, 500 and 2000 on a CPU
    #[arg(long, value_delimiter = ',', value_name = "RATE",
        value_parser = clap::value_parser!(u64).range(100..=100_000_000))]
    rates: Option<Vec<u64>>,
    /// Which receiver; by default both
    #[arg(long, value_enum)]
    receiver: Option<Receiver>,
    /// Ways from the detector to the receiver, each with a queue and a warp; by default 16 on a GPU, 2 on a CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=32))]
    ways: Option<u32>,
    /// Slots of a way's receive ring, a power of two
    #[arg(long, value_parser = parse_slots, default_value = "64")]
    slots: u32,
    /// What becomes of an event that finds no slot
    #[arg(long, value_enum, default_value = "hold")]
    overload: Overload,
    /// Microseconds that the host waits for more events before it launches a kernel
    #[arg(long, value_name = "US", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    gather_us: u64,
    /// Microseconds that each event takes at least; NaNet's figure has a kernel that only waits for 200
    #[arg(long, value_name = "US", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    stand_in_us: u64,
    /// Seconds for each rate and receiver
    #[arg(long, default_value = "1", value_parser = parse_seconds)]
    seconds: f64,
    /// Maximum number of events for each rate and receiver
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    events: Option<u64>,
    /// Warm-up events, which do not count; at most a tenth of all
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    warm_up: u64,
    /// Seed of the events
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

/// A receiver.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Receiver {
    /// Its host drives the network, and launches a kernel for each batch
    Classic,
    /// A kernel that stays drives it
    Persistent,
}

impl Receiver {
    /// Who drives its network.
    fn driver(self) -> Driver {
        match self {
            Self::Classic => Driver::Host,
            Self::Persistent => Driver::Kernel,
        }
    }
}

/// What becomes of an event that finds no slot.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Overload {
    /// The detector holds it, and all behind it, until there is one
    Hold,
    /// It is dropped and counted
    Drop,
}

/// A power of two.
fn parse_slots(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(slots) if slots.is_power_of_two() && slots <= 1024 => Ok(slots),
        _ => Err("choose a power of two up to 1024".into()),
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let setting = warpbell_papers::open(&arguments.machine)?;
    let party = Party::from_env(&setting.node)?;
    let result = measure(arguments, &setting, &party);
    party.end(result)
}

fn measure(arguments: &Arguments, setting: &Setting, party: &Party) -> Result<(), Error> {
    let node = &setting.node;
    let usual = Series::new(node);
    let series = Series {
        ways: arguments.ways.unwrap_or(usual.ways),
        slots: arguments.slots,
        drivers: match arguments.receiver {
            Some(receiver) => vec![receiver.driver()],
            None => usual.drivers,
        },
        rates: arguments.rates.clone().unwrap_or(usual.rates),
        events: arguments.events.unwrap_or(usual.events),
        warm_up: arguments.warm_up,
        seconds: arguments.seconds,
        drops: matches!(arguments.overload, Overload::Drop),
        gather_us: arguments.gather_us,
        stand_in_us: arguments.stand_in_us,
        seed: arguments.seed,
    };
    let screen = party.screen(arguments.output.json, series.steps());
    screen.line(format_args!(
        "A detector, and a receiver of {} ways, run on {}; no network card takes part.",
        series.ways,
        place::words(node)
    ));
    let results = series.run(party, &screen)?;
    if party.rank() > 0 {
        return Ok(());
    }
    let more = json!({ "verdicts": results.verdicts() });
    results.end(setting, &series, more, &screen, &arguments.output)
}

fn main() -> ExitCode {
    start(|arguments: Arguments| run(&arguments))
}
