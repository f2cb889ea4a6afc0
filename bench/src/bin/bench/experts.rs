//! Dispatch and combine of a mixture of experts, in the kernel against from the host.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use warpbell_bench::Error;
use warpbell_bench::experts::{Case, Measured, Model, Values, Way};
use warpbell_bench::plot;
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::screen::Screen;
use warpbell_bench::run::{Error as RunError, interrupt, place};
use warpbell_bench::setting::Setting;

/// Compares an exchange with experts in the kernel with one that the host drives.
///
/// All ranks are in this process. In the kernel, one kernel of each rank makes all rounds. From the host, a thread of each
/// rank launches kernels that route, copy and sum up, and posts the same requests in between. Both write the same bytes to
/// the same places. The results of a last round, in which the experts work, are compared with those of a loop.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Ranks
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..=64))]
    ranks: u32,
    /// Experts of all ranks, a multiple of the ranks
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    experts: u32,
    /// Tokens of each rank
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=4096))]
    tokens: u32,
    /// Experts of each token
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=32))]
    top_k: u32,
    /// Values of a token, a multiple of 256
    #[arg(long, default_value_t = 7168, value_parser = clap::value_parser!(u32).range(1..=8192))]
    hidden: u32,
    /// How tokens travel to the experts; both unless said otherwise
    #[arg(long, value_name = "FORMATS", value_enum, value_delimiter = ',')]
    formats: Vec<Values>,
    /// Blocks of each rank's kernels
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    blocks: u32,
    /// Threads of each block, a multiple of 32
    #[arg(long, default_value_t = 64, value_parser = parse_threads)]
    threads: u32,
    /// Depth of each queue in blocks of 64 bytes, a power of two
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(64..=32_768))]
    depth: u32,
    /// Rounds that are measured
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// Warm-up rounds, which do not count
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(..=100_000))]
    warm_up: u32,
    /// A smoke test: few small tokens, and few rounds, whatever else is said of them
    #[arg(long)]
    quick: bool,
    /// Write a CSV file, a row for each format and way
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn parse_threads(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(threads @ 32..=1024) if threads % 32 == 0 => Ok(threads),
        _ => Err("choose a multiple of 32, up to 1024".into()),
    }
}

impl Arguments {
    fn case(&self) -> Case {
        let case = Case {
            ranks: self.ranks,
            experts: self.experts,
            tokens: self.tokens,
            top_k: self.top_k,
            hidden: self.hidden,
            blocks: self.blocks,
            threads: self.threads,
            depth: self.depth,
            rounds: self.rounds,
            warm_up: self.warm_up,
        };
        match self.quick {
            false => case,
            true => Case {
                tokens: 8,
                hidden: 256,
                rounds: 3,
                warm_up: 1,
                ..case
            },
        }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    #[serde(flatten)]
    setting: &'d Setting,
    #[serde(flatten)]
    case: Case,
    measured: &'d [Measured],
    /// The host's medians over those of the kernel, for each format.
    ratios: Vec<Ratios>,
}

#[derive(Clone, Copy, Serialize)]
struct Ratios {
    values: Values,
    dispatch: f64,
    combine: f64,
    round: f64,
}

impl Ratios {
    fn of(kernel: &Measured, host: &Measured) -> Self {
        let over = |of: fn(&Measured) -> f64| of(host) / of(kernel).max(1e-3);
        Self {
            values: kernel.values,
            dispatch: over(|measured| measured.dispatch_us),
            combine: over(|measured| measured.combine_us),
            round: over(|measured| measured.round_us),
        }
    }
}

/// A row for each format and way, with a head.
fn csv(case: &Case, measured: &[Measured]) -> String {
    let mut text = String::from(
        "format,way,ranks,experts,tokens,top_k,hidden,blocks,threads,dispatch_us,combine_us,round_us,verified\n",
    );
    for row in measured {
        // A string takes all that is written.
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{},{},{:.3},{:.3},{:.3},{}",
            row.values.name(),
            match row.way {
                Way::Kernel => "kernel",
                Way::Host => "host",
            },
            case.ranks,
            case.experts,
            case.tokens,
            case.top_k,
            case.hidden,
            case.blocks,
            case.threads,
            row.dispatch_us,
            row.combine_us,
            row.round_us,
            row.verified
        );
    }
    text
}

/// Measures.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let setting = Setting::open(&arguments.machine)?;
    let node = &setting.node;
    let case = arguments.case();
    let formats = match &arguments.formats[..] {
        [] => &Values::ALL[..],
        named => named,
    };
    let screen = Screen::new(arguments.json, (formats.len() * Way::ALL.len()) as u64);
    screen.line(format_args!(
        "The kernels run on {}; the NIC is {}. {} ranks, {} tokens of {} values for {} of {} experts each.",
        place::words(node),
        node.nic_name(),
        case.ranks,
        case.tokens,
        case.hidden,
        case.top_k,
        case.experts
    ));
    screen.heading("format  network          dispatch (µs)  combine (µs)    both (µs)");
    let model = Model::new(&case)?;
    let (mut measured, mut ratios) = (Vec::new(), Vec::new());
    for &values in formats {
        for way in Way::ALL {
            screen.step(format!("{}, {}", values.name(), way.name()));
            let row = case.measure(node, way, values, &model)?;
            let line = format!(
                "{:<7} {:<15} {:>14.1} {:>13.1} {:>12.1}",
                values.name(),
                way.name(),
                row.dispatch_us,
                row.combine_us,
                row.round_us
            );
            screen.row(line, row.verified);
            let phases = row.phases.iter().map(|phase| {
                let (name, percent) = (phase.name, 100.0 * phase.share);
                format!("{name} {:.1} µs ({percent:.0} %)", phase.median_us)
            });
            let phases: Vec<_> = phases.collect();
            screen.wrapped("        ", &phases.join(", "));
            measured.push(row);
        }
        let [kernel, host] = &measured[measured.len() - 2..] else {
            continue;
        };
        let ratio = Ratios::of(kernel, host);
        screen.line(format_args!(
            "{:<7} {:<15} {:>14.2} {:>13.2} {:>12.2}",
            values.name(),
            "host / kernel",
            ratio.dispatch,
            ratio.combine,
            ratio.round
        ));
        ratios.push(ratio);
    }
    screen.finish();
    if let Some(path) = &arguments.csv {
        plot::write(path, &csv(&case, &measured))?;
    }
    screen.document(&Document {
        setting: &setting,
        case,
        measured: &measured,
        ratios,
    })?;
    let wrong = measured.iter().filter(|row| !row.verified).count();
    RunError::if_wrong(wrong, measured.len())?;
    Ok(interrupt::check()?)
}
