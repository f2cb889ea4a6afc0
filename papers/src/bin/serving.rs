//! Inference serving without the CPU: pictures that a network of layers answers, driven by the host and by kernels.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use serde::Serialize;
use serde_json::json;
use warpbell_bench::parse::parse_bytes;
use warpbell_bench::party::Party;
use warpbell_bench::plot::{self, Output};
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::screen::{Screen, start};
use warpbell_bench::run::{interrupt, place};
use warpbell_bench::setting::Setting;
use warpbell_papers::Error;
use warpbell_papers::application::Findings;
use warpbell_papers::parse::parse_seconds;
use warpbell_papers::serving::{
    Answered, Architecture, CLIENT_HEADER, Client, Series, Way, files, serve,
};

/// Sends pictures to a server that makes them three times as wide and as high with a convolutional network, or scores
/// their classes, and sends the answers back, as in the evaluation of GPU-driven RDMA for inference serving.
///
/// Four ways to drive the server's network: the host, which copies each picture to the GPU and launches the network; a
/// kernel that stays while its host sleeps; the same while its host spins; and, on a GPU, a graph of four kernels
/// (wait, process, send, launch again) for each picture. The client is a kernel, the same for all. Every value of every
/// answer is compared with a loop on the host. If a launcher has started two processes, the first one has the client
/// and the second one the server. The HCAs are software, and no network card takes part.
///
/// --listen runs the server alone, as a kernel that stays. --connect runs a client in its own process, driven by
/// its host.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 98)]
struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// The networks that answer, one after the other; of --listen the first one
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "superresolution"
    )]
    network: Vec<Architecture>,
    /// Rows of a picture, and pixels of a row; by default 56, 112 and 224 on a GPU, 16 to 64 on a CPU
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(8..=1024))]
    sides: Vec<u32>,
    /// Who drives the server's network, one after the other; by default all, but the graph on a GPU alone, and only
    /// where CUDA's device runtime (libcudadevrt.a) is found and can be linked
    #[arg(long, value_enum, value_delimiter = ',')]
    ways: Vec<Way>,
    /// A PNG file with the picture to serve, in turn with one from the seed; colours become grey
    #[arg(long, value_name = "PATH", conflicts_with = "sides")]
    picture: Option<PathBuf>,
    /// Where to write its last answer, as a PNG file
    #[arg(long, value_name = "PATH", requires = "picture")]
    larger: Option<PathBuf>,
    /// Blocks of the server, all of which run at once; by default 98 on a GPU, 2 on a CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    blocks: Option<u32>,
    /// Threads of each, a multiple of 16; by default 256 on a GPU, 32 on a CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(16..=256))]
    threads: Option<u32>,
    /// Queues that a message goes through, a part each; by default 8 on a GPU, 2 on a CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=32))]
    parts: Option<u32>,
    /// Maximum bytes of a work request, a multiple of 8
    #[arg(long, default_value = "16K", value_parser = parse_piece)]
    piece: u32,
    /// Requests a second; by default the next goes as soon as the last is answered. One that is still waiting when the
    /// next is due is dropped and counted
    #[arg(long, value_parser = parse_rate)]
    rate: Option<f64>,
    /// Seconds for each side and way
    #[arg(long, default_value = "1", value_parser = parse_seconds)]
    seconds: f64,
    /// Also show each network's latency and the server's share of a core over time, in spans of so many seconds
    #[arg(long, value_parser = parse_seconds, value_name = "SECONDS")]
    every: Option<f64>,
    /// Where to write these spans, as a CSV file
    #[arg(long, value_name = "PATH", requires = "every")]
    csv: Option<PathBuf>,
    /// Maximum number of requests for each side and way
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    rounds: Option<u32>,
    /// Warm-up requests, which do not count
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    warm_up: u32,
    /// Depth of each queue in blocks of 64 bytes, a power of two
    #[arg(long, default_value_t = 256)]
    depth: u32,
    /// Seed of weights and pictures
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Also measure each driver alone, without a NIC's part: the server's pictures are there, and a thread
    /// completes at once what it posts, which nobody carries out. Takes twice as long
    #[arg(long)]
    driver_alone: bool,
    /// Serve the clients that connect at this path, one after the other, until Ctrl-C
    #[arg(long, value_name = "PATH", conflicts_with_all = ["connect", "ways", "sides", "picture", "rate", "seconds", "rounds",
        "warm_up", "every", "driver_alone", "json", "svg"])]
    listen: Option<PathBuf>,
    /// Run only a client of the server at this path, with --picture or the first of --sides
    #[arg(long, value_name = "PATH", conflicts_with_all = ["network", "every", "ways", "blocks", "threads", "parts", "piece", "depth", "seed", "driver_alone",
        "svg"])]
    connect: Option<PathBuf>,
    /// Seconds that a client waits for its server
    #[arg(long, default_value_t = 30, requires = "connect", value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    #[command(flatten)]
    output: Output,
}

fn parse_piece(text: &str) -> Result<u32, String> {
    match parse_bytes(text)? {
        bytes @ 8..=0x100_0000 if bytes % 8 == 0 => Ok(bytes as u32),
        _ => Err("choose a multiple of 8 bytes, up to 16 MiB".into()),
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        // The host, too, waits no longer than some seconds for the next one.
        Ok(rate) if (1.0..=1e6).contains(&rate) => Ok(rate),
        _ => Err("choose between 1 and 1000000 a second".into()),
    }
}

/// What a client's `--json` prints.
#[derive(Serialize)]
struct Asked<'a> {
    #[serde(flatten)]
    setting: &'a Setting,
    #[serde(flatten)]
    answered: &'a Answered,
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let setting = warpbell_papers::open(&arguments.machine)?;
    let node = &setting.node;
    let usual = Series::new(node);
    let series = Series {
        architectures: arguments.network.clone(),
        sides: match arguments.sides.is_empty() {
            true => usual.sides,
            false => arguments.sides.clone(),
        },
        picture: match &arguments.picture {
            None => None,
            Some(path) => Some(files::read(path)?),
        },
        ways: match arguments.ways.is_empty() {
            true => usual.ways,
            false => Some(arguments.ways.clone()),
        },
        blocks: arguments.blocks.unwrap_or(usual.blocks),
        threads: arguments.threads.unwrap_or(usual.threads),
        parts: arguments.parts.unwrap_or(usual.parts),
        piece: arguments.piece,
        warm_up: arguments.warm_up,
        rounds: arguments.rounds.unwrap_or(usual.rounds),
        seconds: arguments.seconds,
        rate: arguments.rate,
        every: arguments.every,
        depth: arguments.depth,
        seed: arguments.seed,
        driver_alone: arguments.driver_alone,
    };
    match (&arguments.listen, &arguments.connect) {
        (Some(path), _) => listen(&setting, &series, path),
        (None, Some(path)) => connect(arguments, &setting, &series, path),
        (None, None) => {
            let party = Party::from_env(node)?;
            let result = measure(arguments, &setting, &party, series);
            party.end(result)
        }
    }
}

/// A server for other processes.
fn listen(setting: &Setting, series: &Series, path: &Path) -> Result<(), Error> {
    let screen = Screen::new(false, 0);
    screen.line(format_args!(
        "A server of {} blocks runs on {}; no network card takes part.",
        series.blocks,
        place::words(&setting.node)
    ));
    // The least; a client says how large its pictures are.
    let case = series.case(series.architectures[0], (files::FEWEST, files::FEWEST));
    serve(&setting.node, &case, path, &screen)
}

/// A client of such a server.
fn connect(
    arguments: &Arguments,
    setting: &Setting,
    series: &Series,
    path: &Path,
) -> Result<(), Error> {
    let screen = Screen::new(arguments.output.json, 0);
    let size = series.sizes()[0];
    let client = Client {
        timeout: Duration::from_secs(arguments.timeout),
        picture: series.picture.clone(),
        // The server says which network it is.
        case: series.case(Architecture::Superresolution, size),
    };
    let (answered, larger) = client.run(&setting.node, path)?;
    screen.heading(CLIENT_HEADER);
    screen.row(answered.row(), answered.verified);
    if let Some(path) = &arguments.larger {
        files::write_larger(path, answered.architecture, &larger)?;
    }
    screen.document(&Asked {
        setting,
        answered: &answered,
    })?;
    warpbell_bench::run::Error::if_wrong(usize::from(!answered.verified), 1)?;
    Ok(interrupt::check()?)
}

/// Client and servers in this process, or each at a rank, in all ways.
fn measure(
    arguments: &Arguments,
    setting: &Setting,
    party: &Party,
    series: Series,
) -> Result<(), Error> {
    let (node, blocks) = (&setting.node, series.blocks);
    let series = series.possible(node)?;
    let screen = party.screen(arguments.output.json, series.measurements());
    screen.line(format_args!(
        "A client and a server of {blocks} blocks run on {}; no network card takes part.",
        place::words(node)
    ));
    let results = series.run(party, &screen)?;
    if party.rank() > 0 {
        return Ok(());
    }
    if let (Some(path), Some(answer), Some(last)) =
        (&arguments.larger, &results.answer, arguments.network.last())
    {
        files::write_larger(path, *last, answer)?;
    }
    if let Some(path) = &arguments.csv {
        plot::write(path, &results.csv())?;
    }
    let verdicts = json!({ "verdicts": results.verdicts() });
    results.end(setting, &series, verdicts, &screen, &arguments.output)
}

fn main() -> ExitCode {
    start(|arguments: Arguments| run(&arguments))
}
