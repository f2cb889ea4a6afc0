//! Active messages from kernels: a reduction by tasks at the target in three ways, and how long it takes until a task
//! starts.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use warpbell_bench::Error;
use warpbell_bench::active::{
    REDUCES, ReduceCase, ReduceResult, RoundTrip, Starts, TaskStarts, Way,
};
use warpbell_bench::gaspi::{OneWay, RoundTrips};
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::screen::Screen;
use warpbell_bench::run::{Error as RunError, interrupt, place};

use warpbell_bench::plot;
use warpbell_bench::setting::Setting;
use warpbell_host_init::Node;

/// Measures active messages.
///
/// Sends vectors, each with a task that adds it up at the target, as XTQ's puts do. The task launches a kernel, by a
/// thread of the host or by a graph of the GPU, or runs in a kernel that runs all the time. Then compares the time until
/// a task of that kernel starts with that of a notification.
///
/// The initiator's kernel names functions and buffers by numbers, not by addresses of the target. The HCAs are
/// software, and no network card takes part.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// What a task does at the target; all ways unless said otherwise
    #[arg(long, value_name = "WAYS", value_enum, value_delimiter = ',')]
    ways: Vec<Way>,
    /// Blocks of the initiator's kernel; each has a lane, which takes two queue pairs
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=128))]
    blocks: u32,
    /// Threads of each block; a multiprocessor has registers for 448 of those that run tasks
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=448))]
    threads: u32,
    /// Words of a vector
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=4096))]
    words: u32,
    /// Vectors that each block sends
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    messages: u32,
    /// Slots of each lane, a power of two
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    slots: u32,
    /// Round trips that are measured
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// Warm-up round trips, which do not count
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    warm_up: u32,
    /// Bytes of the payload of a round trip that has one
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    bytes: u32,
    /// Write a CSV file, a row for each way
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Bytes of two arguments.
const ARGUMENTS: u32 = 16;

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    #[serde(flatten)]
    setting: &'d Setting,
    ways: Vec<WayResult>,
    /// Half a round trip.
    notification: OneWay,
    /// The same behind as many bytes as two arguments have.
    notification_behind_arguments: OneWay,
    /// The same behind as many bytes as the payload has.
    notification_behind_payload: OneWay,
    /// The same until a task starts.
    starts: Starts,
    /// The medians over that of a notification: with a value, with arguments, behind a payload.
    ratios: [f64; 3],
    /// The medians over that of a notification that carries as much: with a value, with arguments, behind a payload.
    ratios_of_as_much: [f64; 3],
}

/// What came of a way.
#[derive(Serialize)]
struct WayResult {
    way: Way,
    /// A task that does nothing, from its message's call to its answer.
    task: RoundTrip,
    reduction: ReduceResult,
    us_per_vector: f64,
}

/// A row for each way, with a head.
fn csv(ways: &[WayResult]) -> String {
    let mut text = String::from(
        "way,task_median_us,task_min_us,blocks,threads,bytes,vectors,us_per_vector,verified\n",
    );
    for result in ways {
        let (task, reduction) = (result.task, result.reduction);
        let case = reduction.case;
        // A string takes all that is written.
        let _ = writeln!(
            text,
            "{},{:.3},{:.3},{},{},{},{},{:.3},{}",
            result.way.name(),
            us(task.median_ns),
            us(task.min_ns),
            case.blocks,
            case.threads,
            8 * case.words,
            reduction.tasks,
            result.us_per_vector,
            reduction.verified
        );
    }
    text
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// The ways that were asked for, or all that there are here: what is missing for one is said in a line.
fn ways(arguments: &Arguments, node: &Node, screen: &Screen) -> Result<Vec<(Way, Node)>, Error> {
    let named = !arguments.ways.is_empty();
    let ways = match named {
        true => &arguments.ways[..],
        false => &Way::ALL,
    };
    let mut able = Vec::new();
    for &way in ways {
        match way.on(node) {
            Ok(node) => able.push((way, node)),
            Err(error) if named => return Err(error),
            Err(error) => screen.line(format_args!("{} is left out: {error}", way.name())),
        }
    }
    Ok(able)
}

/// Measures.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let setting = Setting::open(&arguments.machine)?;
    let node = &setting.node;
    let screen = Screen::new(arguments.json, 2 + Way::ALL.len() as u64);
    screen.line(format_args!(
        "The kernels run on {}; no network card takes part.",
        place::words(node)
    ));
    let starts = TaskStarts {
        rounds: arguments.rounds,
        warm_up: arguments.warm_up,
        bytes: arguments.bytes,
    };
    let case = ReduceCase {
        blocks: arguments.blocks,
        threads: arguments.threads,
        words: arguments.words,
        slots: arguments.slots,
        messages: arguments.messages,
    };
    let mut results = Vec::new();
    for (way, node) in ways(arguments, node, &screen)? {
        screen.step(way.name());
        let (task, reduction) = (starts.round_trip(&node, way)?, case.reduce(&node, way)?);
        results.push(WayResult {
            way,
            task,
            us_per_vector: reduction.us_per_vector(),
            reduction,
        });
    }
    screen.line(format_args!(
        "A task, from its message to its answer, and a reduction of {} vectors of {} bytes by tasks of function {REDUCES}:",
        case.blocks * case.messages,
        8 * case.words
    ));
    screen.line("task           median (µs)   fastest (µs)   reduction (µs per vector)");
    for result in &results {
        let row = format!(
            "{:<12}{:>14.2}{:>15.2}{:>28.2}",
            result.way.name(),
            us(result.task.median_ns),
            us(result.task.min_ns),
            result.us_per_vector
        );
        screen.row(row, result.reduction.verified);
    }
    if let Some(path) = &arguments.csv {
        plot::write(path, &csv(&results))?;
    }
    screen.step("notifications");
    let trips = RoundTrips {
        rounds: arguments.rounds,
        warm_up: arguments.warm_up,
        depth: 64,
    };
    let notification = trips.notifications(node)?;
    let behind = |bytes| trips.notifications_behind(node, bytes);
    let (behind_arguments, behind_payload) = (behind(ARGUMENTS)?, behind(arguments.bytes)?);
    screen.step("active messages");
    let starts = starts.measure(node)?;
    for (what, one_way) in [
        ("notify, notify_waitsome, notify_reset", notification),
        (
            &format!("the same behind {ARGUMENTS} bytes (write_notify)"),
            behind_arguments,
        ),
        (
            &format!("the same behind {} bytes", arguments.bytes),
            behind_payload,
        ),
    ] {
        screen.line(format_args!(
            "half a round trip of {what}: median {:.2} µs, fastest {:.2} µs",
            us(one_way.median_ns),
            us(one_way.min_ns)
        ));
    }
    let over =
        |one_way: OneWay, base: OneWay| one_way.median_ns as f64 / base.median_ns.max(1) as f64;
    let kinds = [starts.value, starts.arguments, starts.payload];
    let bases = [notification, behind_arguments, behind_payload];
    let ratios = kinds.map(|kind| over(kind, notification));
    let ratios_of_as_much = [0, 1, 2].map(|kind| over(kinds[kind], bases[kind]));
    let payload = format!("a task behind {} bytes", arguments.bytes);
    for (kind, what) in ["a task with a value", "a task with two arguments", &payload]
        .into_iter()
        .enumerate()
    {
        screen.line(format_args!(
            "half a round trip of {what}: median {:.2} µs, fastest {:.2} µs, {:.2} × the notification, {:.2} × that which carries as much",
            us(kinds[kind].median_ns),
            us(kinds[kind].min_ns),
            ratios[kind],
            ratios_of_as_much[kind]
        ));
    }
    screen.finish();
    let wrong = results.iter().filter(|result| !result.reduction.verified);
    let (wrong, all) = (wrong.count(), results.len());
    screen.document(&Document {
        setting: &setting,
        ways: results,
        notification,
        notification_behind_arguments: behind_arguments,
        notification_behind_payload: behind_payload,
        starts,
        ratios,
        ratios_of_as_much,
    })?;
    RunError::if_wrong(wrong, all)?;
    Ok(interrupt::check()?)
}
