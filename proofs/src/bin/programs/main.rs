//! Unmodified programs on the device that `warpbell-preload` shows: a row of a table for each run.
//!
//! Each runs as a server and a client, two processes with the library under them, each with an HCA of its own; Debian's
//! tests of python3-pyverbs run in one. Rows between network namespaces run over RoCE v2, and so do those with `--rxe`, whose
//! other end is Linux's own soft-RoCE in a virtual machine. Ends with the line of Rust's test harness, which `cargo xtask test` counts.

mod asking;
mod captured;
mod cases;
mod figure;
mod folder;
mod machines;
mod pyverbs;
mod rxe;
mod ucx;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use warpbell_proofs::pair::{self, End};

use cases::{CASES, Case, KILLS, Kill};

/// Runs of each row with `--long`.
const LONG_RUNS: u32 = 20;
/// Where Debian has the programs.
const FOLDERS: [&str; 2] = ["/usr/bin", "/usr/sbin"];

/// Runs unmodified programs on the software HCA, and prints a table.
#[derive(Parser)]
struct Arguments {
    /// Run each row 20 times
    #[arg(long)]
    long: bool,
    /// Run the rows alone in which these words are found
    #[arg(long, value_name = "WORDS")]
    only: Option<String>,
    /// Run the rows of one wire alone
    #[arg(long)]
    wire: Option<Wire>,
    /// Run the rows against Linux's soft-RoCE alone; DIR has an unpacked package linux-image
    #[arg(long, value_name = "DIR")]
    rxe: Option<PathBuf>,
}

/// What is between the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Wire {
    /// Shared memory.
    Shm,
    /// RoCE v2.
    Roce,
}

/// What became of a row.
enum Outcome {
    /// It went well, with this figure.
    Well(String),
    /// It did not; what was said.
    Badly(String),
    /// It could not run, because of this.
    Skipped(String),
}

/// Rows by their outcome.
#[derive(Default)]
struct Total {
    well: u32,
    skipped: u32,
    /// Those that went badly, with what was said.
    bad: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runs = if arguments.long { LONG_RUNS } else { 1 };
    let started = Instant::now();
    let mut total = Total::default();
    println!(
        "{:<16} {:<5} {:<34} {:<9} figure",
        "program", "over", "options", "result"
    );
    let wanted = |row: &[&str]| {
        let row = row.join(" ");
        let words = arguments.only.as_deref();
        words.is_none_or(|words| row.contains(words))
    };
    if let Some(kernel) = &arguments.rxe {
        rxe::rows(kernel, runs, &wanted, &mut total);
    } else {
        if arguments.wire != Some(Wire::Roce) {
            shared_memory(runs, &wanted, &mut total);
        }
        if arguments.wire != Some(Wire::Shm) {
            machines::rows(runs, &wanted, &mut total);
        }
    }
    println!("took {:.0} s", started.elapsed().as_secs_f64());
    // Again, at the end: the table is long.
    for bad in &total.bad {
        println!("{bad}");
    }
    let result = if total.bad.is_empty() { "ok" } else { "FAILED" };
    println!(
        "test result: {result}. {} passed; {} failed; {} ignored; 0 measured",
        total.well,
        total.bad.len(),
        total.skipped
    );
    match total.bad.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Rows between processes of this machine.
fn shared_memory(runs: u32, wanted: &dyn Fn(&[&str]) -> bool, total: &mut Total) {
    for case in CASES {
        if wanted(&[case.program, case.transport, case.options]) {
            let row = [case.program, case.transport, case.options];
            total.row(row, runs, || run(case));
        }
    }
    for kill in KILLS {
        let options = format!("{}, {}", kill.options, kill.what);
        if wanted(&[kill.program, "RC", &options]) {
            total.row([kill.program, "RC", &options], runs, || run_kill(kill));
        }
    }
    for question in asking::QUESTIONS {
        if wanted(&[question.program, question.options]) {
            let row = [question.program, "", question.options];
            total.row(row, runs, || asking::ask(question));
        }
    }
    if wanted(&["ucx_info"]) {
        total.row(["ucx_info", "", "-d"], runs, ucx::device);
    }
    for transport in ucx::TRANSPORTS {
        for test in ucx::TESTS {
            if wanted(&["ucx_perftest", transport, test]) {
                let row = ["ucx_perftest", transport, test];
                total.row(row, runs, || ucx::perftest(transport, test));
            }
        }
        if wanted(&["ucp", transport]) {
            let row = ["ucp", transport, "am, tag, put, get, fadd, cswap"];
            total.row(row, runs, || ucx::ucp(transport));
        }
        if wanted(&["mpirun", transport]) {
            let row = ["mpirun", transport, "sums, messages, one-sided"];
            total.row(row, runs, || ucx::mpi(transport));
        }
    }
    if wanted(&["pyverbs"]) {
        let row = ["pyverbs", "all", "Debian's tests of python3-pyverbs"];
        total.row(row, runs, pyverbs::run);
    }
}

impl Total {
    /// Runs a row so many times, or until it goes badly, and prints it with its best figure.
    fn row(
        &mut self,
        [program, transport, options]: [&str; 3],
        runs: u32,
        mut run: impl FnMut() -> Outcome,
    ) {
        let mut figures = Vec::new();
        let mut bad = None;
        for count in 1..=runs {
            match run() {
                Outcome::Well(figure) => figures.push(figure),
                Outcome::Badly(said) => {
                    bad = Some((count, said));
                    break;
                }
                Outcome::Skipped(why) => {
                    self.skipped += 1;
                    println!("test {program} {options} ... ignored, {why}");
                    return;
                }
            }
        }
        let result = match (&bad, runs) {
            (None, 1) => "well".to_owned(),
            (None, runs) => format!("{runs} well"),
            (Some((count, _)), _) => format!("BAD at {count}"),
        };
        let row = format!("{program:<16} {transport:<5} {options:<34} {result:<9}");
        println!("{row} {}", figure::of_all(&figures));
        match bad {
            None => self.well += 1,
            Some((_, said)) => self.bad.push(format!("---- {row}\n{}", said.trim_end())),
        }
    }
}

/// Why a program cannot run, if it cannot.
fn missing(program: &str) -> Option<Outcome> {
    let there = |folder| Path::new(folder).join(program).is_file();
    (!FOLDERS.into_iter().any(there))
        .then(|| Outcome::Skipped(format!("{program} is not installed")))
}

fn run(case: &Case) -> Outcome {
    if let Some(missing) = missing(case.program) {
        return missing;
    }
    let arguments: Vec<_> = case.options.split_whitespace().collect();
    outcome(case.program, pair::run(case.program, &arguments))
}

/// What became of a row whose client said this, or which went badly.
fn outcome(program: &str, said: Result<String, String>) -> Outcome {
    match said {
        Ok(said) => match figure::of(program, &said) {
            Some(figure) => Outcome::Well(figure),
            None => Outcome::Badly(format!("no figure in what it said:\n{}", pair::last(&said))),
        },
        Err(said) => Outcome::Badly(said),
    }
}

/// Kills one end, at several moments: the other ends by itself, in error, and the next two find a device that works.
fn run_kill(kill: &Kill) -> Outcome {
    if let Some(missing) = missing(kill.program) {
        return missing;
    }
    let arguments: Vec<_> = kill.options.split_whitespace().collect();
    for milliseconds in kill.moments {
        let moment = Duration::from_millis(*milliseconds);
        let after = pair::run_and_kill(kill.program, &arguments, kill.killed, moment)
            .and_then(|()| pair::run("ib_write_bw", &["-x", "0", "-F", "-n", "50"]));
        if let Err(said) = after {
            return Outcome::Badly(said);
        }
    }
    let other = match kill.killed {
        End::Client => "server",
        End::Server => "client",
    };
    Outcome::Well(format!("the {other} ends in error, the next two run"))
}
