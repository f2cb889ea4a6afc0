//! Triggered operations from kernels: the three levels of GPU-TN's listing, what a trigger costs, and a chain of writes
//! that the NIC starts itself.

use clap::Args;
use serde::Serialize;
use warpbell::SendDoorbell;
use warpbell_bench::Error;
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::screen::Screen;
use warpbell_bench::run::{interrupt, place};
use warpbell_bench::setting::Setting;
use warpbell_bench::trigger::{CostCase, Costs, HopCase, Hops, JointCosts, Level, Sent, send};
use warpbell_host_init::Grid;

/// Measures triggered operations.
///
/// The host prepares writes, which kernels trigger by their tags: each thread its own, each block its own, and all
/// blocks the same. Compares the cost of a trigger with building and posting the same write. Compares a chain of
/// writes that the NIC starts with a thread that posts each write once the one before is done.
///
/// The HCAs are software, and no network card takes part.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Blocks of each kernel
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    blocks: u32,
    /// Threads of each block; on the work-item level each has a queue pair, of which a NIC among the kernels has room for
    /// 32, both ends counted
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=512))]
    threads: u32,
    /// Times that each cost is measured
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=500_000))]
    rounds: u32,
    /// Warm-up times, which do not count
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(..=500_000))]
    warm_up: u32,
    /// Bytes of the write whose cost is measured
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(8..=65_536))]
    bytes: u32,
    /// Writes of a chain, each in a queue pair of its own
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    hops: u32,
    /// Times that a chain is measured
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    chains: u32,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    #[serde(flatten)]
    setting: &'d Setting,
    sent: Vec<Sent>,
    /// "ns" or "cycles".
    unit: &'static str,
    /// Of queues with a doorbell record.
    costs: Option<Costs>,
    /// Of queues without a doorbell record; none if the NIC has none.
    costs_without_record: Option<Costs>,
    /// Where the host registers while the kernel runs, of queues with a doorbell record.
    costs_joint: Option<JointCosts>,
    /// None if the NIC lets no queue start another.
    hops: Option<Hops>,
}

/// Shows what triggers cost beside posts.
fn print(screen: &Screen, which: &str, costs: &Costs, unit: &str) {
    screen.line(format_args!("{which}:"));
    for (what, cost) in [
        ("post, queue of the thread's own", costs.post_exclusive),
        ("the same, from a ring filled once", costs.post_ready),
        ("post, queue shared by the GPU", costs.post_shared),
        ("trigger that sends the write", costs.trigger_sending),
        ("the same, looked at before", costs.trigger_sending_looked),
        (
            "the same, tag of the thread's own",
            costs.trigger_sending_own,
        ),
        ("trigger that counts", costs.trigger_counting),
    ] {
        screen.line(format_args!("{what}: median {cost} {unit}"));
    }
    screen.line(format_args!(
        "over a post to the shared queue: {:.2} where it sends, {:.2} looked at before, {:.2} where it counts; own tag over own queue: {:.2}",
        costs.sending_ratio,
        costs.sending_looked_ratio,
        costs.counting_ratio,
        costs.sending_own_ratio
    ));
}

/// Shows what triggers cost where the host registers meanwhile.
fn print_joint(screen: &Screen, costs: &JointCosts, unit: &str) {
    screen.line(format_args!("the host registers while the kernel runs:"));
    for (what, cost) in [
        ("trigger that sends the write", costs.sending),
        ("trigger that counts", costs.counting),
        ("trigger before its operation", costs.early),
    ] {
        screen.line(format_args!("{what}: median {cost} {unit}"));
    }
}

/// Measures.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let setting = Setting::open(&arguments.machine)?;
    let node = &setting.node;
    let screen = Screen::new(arguments.json, 5);
    screen.line(format_args!(
        "The kernels run on {}; no network card takes part.",
        place::words(node)
    ));
    let grid = Grid::new(arguments.blocks, arguments.threads);
    let mut sent = Vec::new();
    for level in Level::ALL {
        screen.step(level.name());
        let result = send(node, level, grid)?;
        screen.line(format_args!(
            "{}: {} operations of {} bytes, threshold {}, {}",
            level.name(),
            result.operations,
            result.bytes,
            result.threshold,
            screen.mark(result.verified)
        ));
        sent.push(result);
    }
    screen.step("costs");
    let unit = match node.gpu() {
        None => "ns",
        Some(_) => "cycles",
    };
    let case = |send_doorbell| CostCase {
        rounds: arguments.rounds,
        warm_up: arguments.warm_up,
        bytes: arguments.bytes,
        send_doorbell,
    };
    let costs = case(SendDoorbell::WithRecord).measure(node)?;
    let costs_without_record = case(SendDoorbell::WithoutRecord).measure(node)?;
    let costs_joint = case(SendDoorbell::WithRecord).measure_joint(node)?;
    for (which, costs) in [
        ("with a doorbell record", costs),
        ("without one", costs_without_record),
    ] {
        match costs {
            None => screen.line(format_args!("{which}: this NIC has no such queues")),
            Some(costs) => print(&screen, which, &costs, unit),
        }
    }
    match costs_joint {
        None => screen.line(format_args!(
            "the host cannot register while the kernel runs: the card's doorbell is the kernels'"
        )),
        Some(costs) => print_joint(&screen, &costs, unit),
    }
    screen.step("chain");
    let case = HopCase {
        hops: arguments.hops,
        rounds: arguments.chains,
        bytes: arguments.bytes,
    };
    let hops = case.measure(node)?;
    match &hops {
        None => screen.line(format_args!("no chain: this NIC lets no queue start another")),
        Some(hops) => screen.line(format_args!(
            "chain of {} writes, {}: median {} {unit} for each where the NIC starts it, {} where a thread does ({:.2})",
            hops.hops,
            screen.mark(hops.verified),
            hops.by_nic,
            hops.by_kernel,
            hops.ratio
        )),
    }
    screen.finish();
    let verified = sent.iter().map(|sent| sent.verified);
    let verified: Vec<bool> = verified.chain(hops.map(|hops| hops.verified)).collect();
    let wrong = verified.iter().filter(|verified| !**verified).count();
    let all = verified.len();
    screen.document(&Document {
        setting: &setting,
        sent,
        unit,
        costs,
        costs_without_record,
        costs_joint,
        hops,
    })?;
    warpbell_bench::run::Error::if_wrong(wrong, all)?;
    Ok(interrupt::check()?)
}
