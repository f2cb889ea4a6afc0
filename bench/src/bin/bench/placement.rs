//! What it costs where queues lie: rings and completion queue, each in host or in GPU memory.

use std::fmt;

use clap::Args;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::Serialize;
use warpbell_bench::filter::Filter;
use warpbell_bench::ladder::{Case, Rung, measure};
use warpbell_bench::parse::parse_message;
use warpbell_bench::plot::Output;
use warpbell_bench::run::interrupt::ended_early;
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::screen::Screen;
use warpbell_bench::run::setup::{Ends, config};
use warpbell_bench::run::{StageError, place, screen};
use warpbell_bench::setting::Setting;
use warpbell_bench::{Error, nodes};
use warpbell_host_init::{Error as SetupError, Node, Placement, QueuePairConfig};
use warpbell_soft_hca_gpu::MemoryScope;

use crate::draw;

/// Measures latency and bandwidth of writes with the rings and the completion queue each in host or in GPU memory.
///
/// The latency is that of one write at a time, from the building of its WQE to its completion. The bandwidth is
/// that of a full queue, with a doorbell for half of it. The rings' record is in the same memory as the rings, and
/// so is their doorbell register unless --nic-gpu is given; the completion queue's record is with the queue. The
/// data is where the NIC has it by default. The HCAs are software, and no network card takes part. An engine on a
/// CPU reaches only host memory, and so only one of the four places; an engine on the GPU reaches all. Kernels on
/// the CPU have only host memory.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Message sizes
    #[arg(long, value_delimiter = ',', value_name = "BYTES", value_parser = parse_message::<{ 4 << 20 }>,
        default_value = "8,64,512,4K,32K")]
    sizes: Vec<u64>,
    /// Messages of a repetition; by default 16 MiB, but at least 64 and at most 4,096 messages
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    messages: Option<u64>,
    /// Repetitions of each size; the median is shown
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Depth of the send queue in blocks of 64 bytes, a power of two
    #[arg(long, default_value_t = 256)]
    depth: u32,
    /// Seed of the random data
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    output: Output,
}

/// What memory a queue lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Memory {
    Host,
    Gpu,
}

/// A place for a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Place {
    rings: Memory,
    completions: Memory,
}

impl Place {
    /// The columns of GPUrdma's table 2 (Daoud, Watad and Silberstein 2016), one after the other.
    const ALL: [Self; 4] = [
        Self::new(Memory::Host, Memory::Host),
        Self::new(Memory::Host, Memory::Gpu),
        Self::new(Memory::Gpu, Memory::Host),
        Self::new(Memory::Gpu, Memory::Gpu),
    ];

    const fn new(rings: Memory, completions: Memory) -> Self {
        Self { rings, completions }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Host => "host",
            Self::Gpu => "GPU",
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rings {}, CQ {}", self.rings, self.completions)
    }
}

/// What was measured at a place with messages of one size.
#[derive(Clone, Copy, Debug, Serialize)]
struct Measured {
    #[serde(flatten)]
    place: Place,
    bytes: u64,
    /// From a WQE's building to its completion, one at a time.
    latency_us: f64,
    /// With the queue kept full.
    million_per_s: f64,
    /// The same in 10⁹ bytes a second.
    gb_per_s: f64,
    /// Every byte arrived.
    verified: bool,
}

const HEADER: &str = "rings  completions      bytes   latency µs   Mmsg/s     GB/s";

impl Measured {
    fn row(&self) -> String {
        format!(
            "{:<6} {:<11} {:>10} {:>12.2} {:>8.3} {:>8.3}",
            self.place.rings,
            self.place.completions,
            screen::bytes(self.bytes),
            self.latency_us,
            self.million_per_s,
            self.gb_per_s,
        )
    }
}

/// A place that NIC or kernels do not reach.
#[derive(Debug, Serialize)]
struct Unreached {
    #[serde(flatten)]
    place: Place,
    why: String,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    #[serde(flatten)]
    setting: &'d Setting,
    depth: u32,
    repetitions: u32,
    /// Ctrl-C ended it early.
    interrupted: bool,
    unreached: &'d [Unreached],
    results: &'d [Measured],
}

/// Makes the queues of both ends at a place, or says why they cannot lie there.
fn ends(node: &Node, place: Place, depth: u32) -> Result<Result<Vec<Ends>, String>, Error> {
    let at = |memory| match memory {
        Memory::Host => Some(node.placement()),
        Memory::Gpu => node.gpu().map(Placement::Gpu),
    };
    let (Some(rings), Some(completions)) = (at(place.rings), at(place.completions)) else {
        return Ok(Err("kernels on the CPU know no GPU memory".into()));
    };
    let config = QueuePairConfig {
        placement: Some(rings),
        completion_placement: Some(completions),
        receive_depth: 0,
        ..config(depth)
    };
    match Ends::several(node, &config, 1) {
        Ok(ends) => Ok(Ok(ends)),
        Err(StageError::Setup(error @ SetupError::OutOfReach { .. })) => Ok(Err(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// Measures.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let setting = Setting::open(&arguments.machine)?;
    // A NIC on the GPU would otherwise not reach host memory.
    let node = &nodes::reaching(&setting.node, MemoryScope::System)?;
    let mut random = SmallRng::seed_from_u64(arguments.seed);
    let all = Place::ALL.into_iter();
    let wanted = all.filter(|place| arguments.filter.wants(&place.to_string()));
    let places = arguments.filter.some(wanted.collect())?;
    let steps = places.len() * arguments.sizes.len();
    let screen = Screen::new(arguments.output.json, steps as u64);
    screen.line(format_args!(
        "Writes from queues in host and GPU memory, moved by {} without any network card.",
        place::nic_words(node)
    ));
    screen.line(format_args!("The kernels run on {}.", place::words(node)));
    screen.heading(HEADER);
    let (mut unreached, mut results) = (Vec::new(), Vec::new());
    let mut step = |place: Place| {
        let ends = match ends(node, place, arguments.depth)? {
            Ok(ends) => ends,
            Err(why) => {
                screen.line(format_args!(
                    "{:<6} {:<11} {why}",
                    place.rings, place.completions
                ));
                unreached.push(Unreached { place, why });
                return Ok(());
            }
        };
        for &bytes in &arguments.sizes {
            screen.step(format!("{place}, {}", screen::bytes(bytes)));
            let case = |rung| Case {
                rung,
                bytes,
                messages: arguments
                    .messages
                    .unwrap_or_else(|| ((16 << 20) / bytes).clamp(64, 4096)),
                repetitions: arguments.repetitions,
                depth: arguments.depth,
            };
            let alone = measure(&ends, case(Rung::Naive), &mut random)?;
            let full = measure(&ends, case(Rung::FewerDoorbells), &mut random)?;
            let measured = Measured {
                place,
                bytes,
                latency_us: alone.us_per_message(),
                million_per_s: full.median_million_per_s,
                gb_per_s: full.median_gb_per_s,
                verified: alone.verified && full.verified,
            };
            screen.row(measured.row(), measured.verified);
            results.push(measured);
        }
        Ok(())
    };
    let interrupted = ended_early::<Error>(places.into_iter().try_for_each(&mut step))?;
    screen.finish();
    let document = Document {
        setting: &setting,
        depth: arguments.depth,
        repetitions: arguments.repetitions,
        interrupted,
        unreached: &unreached,
        results: &results,
    };
    screen.document(&document)?;
    let wrong = results.iter().filter(|result| !result.verified).count();
    draw::end(&arguments.output, &document, (wrong, results.len()))
}
