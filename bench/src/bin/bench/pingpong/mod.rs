//! Latency of a write, between two kernels of one process or of two; or of a send, between a kernel and a program of
//! somebody else's.

mod peer;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use warpbell::SendDoorbell;
use warpbell_bench::Error;
use warpbell_bench::bare::{self, RoundTrip};
use warpbell_bench::origin::Origin;
use warpbell_bench::parse::parse_message;
use warpbell_bench::plot::Output;
use warpbell_bench::run::interrupt::{self, ended_early};
use warpbell_bench::run::latency::{Case, HEADER, Latency, measure, measured, player};
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::place::Ran;
use warpbell_bench::run::screen::Screen;
use warpbell_bench::run::setup::{End, Ends, config};
use warpbell_bench::run::{launch, place, screen};
use warpbell_bench::strangers::Other;
use warpbell_host_init::{Node, Peer, QueuePairConfig, RemoteMemory};

use crate::draw;

/// Measures how long a write takes until another kernel sees it: half a round trip.
///
/// Each message is written to the other end's memory. Behind it, under the same doorbell, goes an 8-byte signal,
/// for which the other kernel waits before it answers. A message of 8 bytes is the signal alone. While a kernel
/// waits, it prepares its answer, and then only publishes it. The HCAs are software, and no network card takes
/// part. Kernels and HCAs are threads that spin and then yield. In one process a single thread drives both HCAs, so
/// two cores are enough, but other load on them affects the figures.
///
/// With --peer the other end is an unmodified third-party program, on a device that warpbell-preload shows it. HOST
/// is where that program listens; without HOST the program connects to this one.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// The program at the other end
    #[arg(long, value_enum, conflicts_with_all = ["sizes", "warm_up", "listen", "join", "svg"])]
    peer: Option<Program>,
    #[command(flatten)]
    other: Other,
    /// Message sizes
    #[arg(long, value_delimiter = ',', value_name = "BYTES", value_parser = parse_message::<{ 1 << 30 }>,
        default_value = "8,64,512,4K,32K,256K")]
    sizes: Vec<u64>,
    /// Round trips that are measured for each size; by default 2000, with --peer what the other program has by
    /// default
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    rounds: Option<u64>,
    /// Warm-up round trips, which do not count
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(..=10_000_000))]
    warm_up: u64,
    /// Depth of the queues in blocks of 64 bytes, a power of two
    #[arg(long, default_value_t = 128)]
    depth: u32,
    /// Post without a doorbell record, which spares a fence; software NICs and cards since ConnectX-8 can
    #[arg(long, conflicts_with = "peer")]
    without_record: bool,
    /// Answer another process that joins at this path and chooses what is measured
    #[arg(long, value_name = "PATH", conflicts_with_all = ["join", "sizes", "rounds", "warm_up"])]
    listen: Option<PathBuf>,
    /// Measure with another process that listens at this path
    #[arg(long, value_name = "PATH")]
    join: Option<PathBuf>,
    /// Seconds to wait for the other process
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    #[command(flatten)]
    output: Output,
}

/// A program of somebody else's that plays ping-pong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
enum Program {
    /// Of rdma-core's examples; it wants its GID's index (-g 0)
    #[value(name = "ibv_rc_pingpong")]
    #[serde(rename = "ibv_rc_pingpong")]
    RcPingpong,
}

/// Round trips where none are named.
const ROUNDS: u64 = 2000;

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    origin: &'d Origin,
    nic: String,
    kernels: Ran,
    processes: u32,
    /// A word to a CPU thread and one back, without a NIC.
    bare_round_trip: Option<RoundTrip>,
    /// Whether posts write doorbell records.
    doorbell_records: bool,
    /// Ctrl-C ended it early.
    interrupted: bool,
    results: &'d [Measured],
}

/// A result, beside what no NIC on a CPU thread can do without.
#[derive(Serialize)]
struct Measured {
    #[serde(flatten)]
    latency: Latency,
    /// The median, in bare round trips of the same run.
    bare_round_trips: Option<f64>,
}

impl Arguments {
    fn rounds(&self) -> u64 {
        self.rounds.unwrap_or(ROUNDS)
    }

    fn queues(&self) -> QueuePairConfig {
        QueuePairConfig {
            send_doorbell: match self.without_record {
                true => SendDoorbell::WithoutRecord,
                false => SendDoorbell::WithRecord,
            },
            ..config(self.depth)
        }
    }

    fn cases(&self) -> Vec<Case> {
        let case = |&bytes: &u64| Case {
            bytes,
            rounds: self.rounds(),
            warm_up: self.warm_up,
        };
        self.sizes.iter().map(case).collect()
    }
}

/// Shows results as they come, and all of them at the end.
struct Report {
    origin: Origin,
    screen: Screen,
    output: Output,
    node: Node,
    processes: u32,
    bare: Option<RoundTrip>,
    doorbell_records: bool,
    results: Vec<Measured>,
}

impl Report {
    fn new(arguments: &Arguments, node: &Node, processes: u32, steps: usize) -> Self {
        Self {
            origin: Origin::here(),
            screen: Screen::new(arguments.output.json, steps as u64),
            output: arguments.output.clone(),
            node: node.clone(),
            processes,
            bare: None,
            doorbell_records: true,
            results: Vec::new(),
        }
    }

    fn begin(&mut self, between: &str, end: &End) {
        self.doorbell_records = end.pair.send_parts().send_doorbell == SendDoorbell::WithRecord;
        self.screen.line(format_args!(
            "Half a round trip of a write between {between}; no network card takes part."
        ));
        let place = place::words(&self.node);
        let records = match self.doorbell_records {
            true => "",
            false => ", and post without doorbell records",
        };
        self.screen
            .line(format_args!("The kernels run on {place}{records}."));
        if let Some(bare) = self.bare {
            let us = |ns: u64| format!("{:.2} µs", ns as f64 / 1e3);
            self.screen.line(format_args!(
                "A word to a CPU thread and one back, without a NIC: median {}, fastest {}.",
                us(bare.median_ns),
                us(bare.min_ns)
            ));
        }
        let beside = self.bare.map_or("", |_| "   bare round trips");
        self.screen.heading(&format!("{HEADER}{beside}"));
    }

    fn step(&self, case: Case) {
        self.screen.step(screen::bytes(case.bytes));
    }

    fn add(&mut self, latency: Latency) {
        let bare = self.bare.filter(|bare| bare.median_ns > 0);
        let bare_round_trips = bare.map(|bare| latency.median_ns as f64 / bare.median_ns as f64);
        let mut row = latency.row();
        if let Some(times) = bare_round_trips {
            row += &format!("{times:>19.2}");
        }
        self.screen.row(row, latency.verified);
        self.results.push(Measured {
            latency,
            bare_round_trips,
        });
    }

    /// Shows all that was measured; `result` says why there is no more.
    fn end(self, result: Result<(), Error>) -> Result<(), Error> {
        let interrupted = ended_early(result)?;
        self.screen.finish();
        let document = Document {
            origin: &self.origin,
            nic: self.node.nic_name(),
            kernels: Ran::on(&self.node),
            processes: self.processes,
            bare_round_trip: self.bare,
            doorbell_records: self.doorbell_records,
            interrupted,
            results: &self.results,
        };
        self.screen.document(&document)?;
        let wrong = self.results.iter();
        let wrong = wrong.filter(|result| !result.latency.verified).count();
        draw::end(&self.output, &document, (wrong, self.results.len()))
    }
}

/// Both kernels in this process.
fn alone(arguments: &Arguments) -> Result<(), Error> {
    let node = arguments.machine.open()?;
    let ends = Ends::new(&node, &arguments.queues())?;
    let cases = arguments.cases();
    let mut report = Report::new(arguments, &node, 1, cases.len());
    report.bare = Some(bare::measure(
        &ends.one,
        arguments.warm_up,
        arguments.rounds(),
    )?);
    // Its last comma leads on, and here the words end.
    let nic = place::nic_words(&node);
    let nic = nic.trim_end_matches(',');
    report.begin(&format!("two kernels, moved by {nic}"), &ends.one);
    let result = cases.into_iter().try_for_each(|case| {
        report.step(case);
        report.add(measure(&ends, case)?);
        Ok(())
    });
    report.end(result)
}

/// What the joining process tells the other one before each size.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum Order {
    /// The listener has no orders to give.
    Listening,
    /// Play this.
    Play(Case),
    /// That was all.
    Stop,
}

/// One size, this process's side of it. The samples, and whether both sides got every byte.
fn play(end: &End, peer: &mut Peer, case: Case, starts: bool) -> Result<Latency, Error> {
    let player = player(end, case, starts)?;
    let theirs: RemoteMemory = peer.exchange(&player.shared())?;
    launch::run("ping-pong", player.side(&theirs)?, end)?;
    // Neither frees its memory before the other one has written its last.
    let verified = player.verified();
    let theirs_verified: bool = peer.exchange(&verified)?;
    Ok(measured(player.latency(verified && theirs_verified))?)
}

/// This process joins, gives the orders and measures.
fn join(arguments: &Arguments, path: &Path) -> Result<(), Error> {
    let node = arguments.machine.open()?;
    let (end, mut peer) = meet(arguments, &node, |device, timeout| {
        Peer::join(device, path, timeout)
    })?;
    let cases = arguments.cases();
    let mut report = Report::new(arguments, &node, 2, cases.len());
    report.begin("two processes, each with a kernel and a software HCA", &end);
    let result = cases.into_iter().try_for_each(|case| {
        interrupt::check()?;
        report.step(case);
        let _: Order = peer.exchange(&Order::Play(case))?;
        report.add(play(&end, &mut peer, case, true)?);
        Ok(())
    });
    let _: Order = peer.exchange(&Order::Stop)?;
    report.end(result)
}

/// This process listens and answers; what it reports are the times of its own rounds.
fn listen(arguments: &Arguments, path: &Path) -> Result<(), Error> {
    let node = arguments.machine.open()?;
    let mut report = Report::new(arguments, &node, 2, 0);
    report.screen.line(format_args!(
        "Waiting for another process: bench pingpong --join {}",
        path.display()
    ));
    let (end, mut peer) = meet(arguments, &node, |device, timeout| {
        Peer::listen(device, path, timeout)
    })?;
    report.begin("two processes, seen from the one that answers", &end);
    while let Order::Play(case) = peer.exchange(&Order::Listening)? {
        report.add(play(&end, &mut peer, case, false)?);
    }
    report.end(Ok(()))
}

fn meet(
    arguments: &Arguments,
    node: &Node,
    peer: impl FnOnce(&warpbell_host_init::Device, Duration) -> Result<Peer, warpbell_host_init::Error>,
) -> Result<(End, Peer), Error> {
    let mut end = End::new(node, node.domain()?, &arguments.queues())?;
    let mut peer = peer(end.domain.device(), Duration::from_secs(arguments.timeout))?;
    peer.connect(&mut end.pair)?;
    Ok((end, peer))
}

/// Plays with whoever the command line names.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    interrupt::listen();
    match (arguments.peer, &arguments.listen, &arguments.join) {
        (Some(program), _, _) => peer::play(arguments, program),
        (None, Some(path), _) => listen(arguments, path),
        (None, None, Some(path)) => join(arguments, path),
        (None, None, None) => alone(arguments),
    }
}
