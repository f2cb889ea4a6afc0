//! Active messages from kernels: a reduction by tasks at the target, and how long it takes until a task starts.

use clap::Args;
use serde::Serialize;
use warpbell_bench::Error;
use warpbell_bench::active::{REDUCES, ReduceCase, ReduceResult, Starts, TaskStarts};
use warpbell_bench::gaspi::{OneWay, RoundTrips};
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::screen::Screen;
use warpbell_bench::run::{interrupt, place};
use warpbell_bench::setting::Setting;

/// Measures active messages.
///
/// Sends vectors to a kernel that runs all the time, each with a task that adds it up there, as XTQ's puts do. Then
/// compares the time until a task starts with that of a notification.
///
/// The initiator's kernel names functions and buffers by numbers, not by addresses of the target. The HCAs are
/// software, and no network card takes part.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Blocks of either kernel; each has a lane, which takes two queue pairs
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
    reduction: ReduceResult,
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

/// Measures.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let setting = Setting::open(&arguments.machine)?;
    let node = &setting.node;
    let screen = Screen::new(arguments.json, 3);
    screen.line(format_args!(
        "The kernels run on {}; no network card takes part.",
        place::words(node)
    ));
    screen.step("reduction");
    let case = ReduceCase {
        blocks: arguments.blocks,
        threads: arguments.threads,
        words: arguments.words,
        slots: arguments.slots,
        messages: arguments.messages,
    };
    let reduction = case.reduce(node)?;
    screen.line(format_args!(
        "{} tasks of function {REDUCES}, each behind {} bytes: {:.3} s; {} messages refused, as they should be; {}",
        reduction.tasks,
        8 * case.words,
        reduction.seconds,
        reduction.refused,
        screen.mark(reduction.verified)
    ));
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
    let starts = TaskStarts {
        rounds: arguments.rounds,
        warm_up: arguments.warm_up,
        bytes: arguments.bytes,
    };
    let starts = starts.measure(node)?;
    let us = |ns: u64| ns as f64 / 1e3;
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
    screen.document(&Document {
        setting: &setting,
        reduction,
        notification,
        notification_behind_arguments: behind_arguments,
        notification_behind_payload: behind_payload,
        starts,
        ratios,
        ratios_of_as_much,
    })?;
    warpbell_bench::run::Error::if_wrong(usize::from(!reduction.verified), 1)?;
    Ok(interrupt::check()?)
}
