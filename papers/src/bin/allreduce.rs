//! All-reduce: the sum of several ranks' vectors at each of them, by a ring and by recursive doubling.

use std::process::ExitCode;

use clap::Parser;
use serde_json::json;
use warpbell_bench::parse::parse_bytes;
use warpbell_bench::party::Party;
use warpbell_bench::plot::Output;
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::place;
use warpbell_bench::run::screen::start;
use warpbell_bench::setting::Setting;
use warpbell_host_init::Node;
use warpbell_papers::Error;
use warpbell_papers::allreduce::{Algorithm, Element, Series, Straggler, Way};
use warpbell_papers::application::Findings;
use warpbell_papers::parse::parse_seconds;
use warpbell_ptx::PAPERS;

/// Sums vectors of several ranks, as in the evaluation of ComP-Net and GPU-TN (LeBeane).
///
/// Two algorithms: a ring, which adds and passes on a chunk for each rank, and recursive doubling, in which pairs
/// of ranks exchange their sums. Four ways to drive the network: threads of the host, which launch a kernel for
/// each addition; one kernel, whose blocks post; triggered operations; and a proxy, if a CPU reaches the queues.
/// Every value of each sum is compared at each rank. If a launcher has started several processes, each is a rank. The HCAs are software, and no network card takes part.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 98)]
struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Numbers of the GPUs that share the ranks, neighbours together, in place of --gpu; with soft-gpu the NIC's engine runs
    /// on the first, or on --nic-gpu
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NUMBERS",
        conflicts_with = "gpu"
    )]
    gpus: Vec<u32>,
    /// Numbers of ranks; by default as many as a launcher has started, or else 2, 4 and 8 on a GPU, 2 and 4 on a CPU
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=8))]
    ranks: Vec<u32>,
    /// Bytes of a vector: multiples of 8 for each block, in a ring of each rank; by default from 256K to 64M on a GPU, from
    /// 16K to 1M on a CPU
    #[arg(long, value_delimiter = ',', value_name = "BYTES", value_parser = parse_whole)]
    sizes: Vec<u64>,
    /// How sums come about; by default both
    #[arg(long, value_delimiter = ',', value_enum)]
    algorithms: Vec<Algorithm>,
    /// Who drives the network; by default all that work there: no proxy with soft-gpu on a GPU
    #[arg(long, value_delimiter = ',', value_enum)]
    ways: Vec<Way>,
    /// What vectors are made of
    #[arg(long, value_enum, default_value = "f32")]
    element: Element,
    /// Blocks of each rank, each of which sums a part of the vector; by default 8 on a GPU, 1 on a CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=32))]
    blocks: Option<u32>,
    /// Threads of each block; by default 256 on a GPU, 32 on a CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=512))]
    threads: Option<u32>,
    /// Maximum bytes of a message, a multiple of 8
    #[arg(long, value_name = "BYTES", value_parser = parse_slice, default_value = "64K")]
    slice: u32,
    /// Sums of a repetition, behind which all are compared; by default as many as take 64 MiB, 64 at most
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    rounds: Option<u32>,
    /// Seconds for each measurement, comparisons and all
    #[arg(long, default_value = "1", value_parser = parse_seconds)]
    seconds: f64,
    /// Maximum number of repetitions of each measurement
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    repetitions: Option<u64>,
    /// Depth of each queue in blocks of 64 bytes, a power of two
    #[arg(long, default_value_t = 128)]
    depth: u32,
    /// A rank that is slow to take what has come, counted from 0
    #[arg(long, value_name = "RANK", requires = "slow_us")]
    slow_rank: Option<u32>,
    /// For how long, in microseconds
    #[arg(long, value_name = "US", requires = "slow_rank", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    slow_us: Option<u64>,
    /// Measures the additions of so many ranks by themselves, without queues, for `cluster predict`
    #[arg(long, conflicts_with_all = ["sizes", "algorithms", "ways", "gpus", "rounds", "repetitions", "slow_rank"])]
    additions: bool,
    /// Seed of the vectors
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

/// A vector of any bytes but none; whether it divides is seen later.
fn parse_whole(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes @ 1..=0x4000_0000 => Ok(bytes),
        _ => Err("choose between 1 byte and 1 GiB".into()),
    }
}

fn parse_slice(text: &str) -> Result<u32, String> {
    match parse_bytes(text)? {
        bytes @ 8..=0x10_0000 if bytes.is_multiple_of(8) => Ok(bytes as u32),
        _ => Err("choose a multiple of 8 up to 1 MiB".into()),
    }
}

/// What was chosen, or what is usual.
fn or<T: Clone>(chosen: &[T], usual: Vec<T>) -> Vec<T> {
    match chosen.is_empty() {
        true => usual,
        false => chosen.to_vec(),
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let (setting, nodes) = Setting::open_with(&arguments.machine, &PAPERS, &arguments.gpus)?;
    let party = Party::from_env(&setting.node)?;
    let result = measure(arguments, &setting, &nodes, &party);
    party.end(result)
}

fn measure(
    arguments: &Arguments,
    setting: &Setting,
    nodes: &[Node],
    party: &Party,
) -> Result<(), Error> {
    let node = &setting.node;
    let usual = Series::new(node);
    let started = party.size().map(|size| vec![size]);
    let straggler = arguments.slow_rank.zip(arguments.slow_us);
    let series = Series {
        ranks: or(&arguments.ranks, started.unwrap_or(usual.ranks)),
        sizes: or(&arguments.sizes, usual.sizes),
        algorithms: or(&arguments.algorithms, usual.algorithms),
        ways: or(&arguments.ways, usual.ways),
        element: arguments.element,
        blocks: arguments.blocks.unwrap_or(usual.blocks),
        threads: arguments.threads.unwrap_or(usual.threads),
        slice: arguments.slice,
        rounds: arguments.rounds,
        repetitions: arguments.repetitions.unwrap_or(usual.repetitions),
        seconds: arguments.seconds,
        depth: arguments.depth,
        straggler: straggler.map(|(rank, delay_us)| Straggler { rank, delay_us }),
        seed: arguments.seed,
    };
    if arguments.additions {
        let screen = party.screen(arguments.output.json, 0);
        let results = series.additions(party, node, &screen)?;
        return results.end(setting, &series, json!({}), &screen, &arguments.output);
    }
    let screen = party.screen(arguments.output.json, series.measurements());
    let places: Vec<_> = nodes.iter().map(place::words).collect();
    screen.line(format_args!(
        "Ranks of {} blocks run on {}; no network card takes part.",
        series.blocks,
        places.join(" and on ")
    ));
    let results = series.run(party, nodes, &screen)?;
    if party.rank() > 0 {
        return Ok(());
    }
    let gpus = match &arguments.gpus[..] {
        [] => json!({}),
        gpus => json!({ "gpus": gpus }),
    };
    results.end(setting, &series, gpus, &screen, &arguments.output)
}

fn main() -> ExitCode {
    start(|arguments: Arguments| run(&arguments))
}
