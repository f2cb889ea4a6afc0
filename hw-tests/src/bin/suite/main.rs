//! The suite: runs one of its tests, or all of them as often as one likes, each in a process of its own. It is one file,
//! so that a machine without Cargo can run it, too.

mod arrival;
mod collectives;
mod common;
mod deadlines;
mod errors;
mod experts;
mod faults;
mod gaspi;
mod litmus;
mod proxied;
mod receive;
mod rounds;
mod shared;
mod state;
mod tasks;
mod triggers;
mod trouble;
mod verbs;

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
use clap::{Args, CommandFactory, FromArgMatches, Parser};
use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::say::{matches, say, say_part};

/// A test: its name, what it proves, and its function.
type Test = (&'static str, &'static str, fn(&Machine) -> ExitCode);

const TESTS: [Test; 18] = [
    (
        "arrival",
        "how a reader knows that data has arrived",
        arrival::test,
    ),
    (
        "collectives",
        "a team's calls leave what plain loops leave, bit by bit",
        collectives::test,
    ),
    (
        "common",
        "queues with one completion queue lose no completion",
        common::test,
    ),
    (
        "deadlines",
        "no call hangs, whatever has stopped",
        deadlines::test,
    ),
    (
        "errors",
        "each bad input ends in its own error, and the queue recovers",
        errors::test,
    ),
    (
        "experts",
        "every token reaches its experts, and every sum is exact",
        experts::test,
    ),
    (
        "faults",
        "lost, late and doubled packets cost nothing but time",
        faults::test,
    ),
    ("gaspi", "GASPI's calls keep its specification", gaspi::test),
    (
        "litmus",
        "no doorbell, record or CQE overtakes what it announces",
        litmus::test,
    ),
    (
        "proxied",
        "a proxy carries each request out once",
        proxied::test,
    ),
    (
        "receive",
        "receive queues deliver each message once, in order",
        receive::test,
    ),
    (
        "rounds",
        "a graph of kernels launches itself on a GPU",
        rounds::test,
    ),
    (
        "shared",
        "threads that share a queue lose no request",
        shared::test,
    ),
    ("state", "the device path allocates nothing", state::test),
    ("tasks", "active messages run once, in order", tasks::test),
    (
        "triggers",
        "triggered operations go once, with their last trigger",
        triggers::test,
    ),
    (
        "trouble",
        "what goes wrong around a GPU ends in one clear line",
        trouble::test,
    ),
    (
        "verbs",
        "every verb, byte for byte, in every mode",
        verbs::test,
    ),
];

fn names() -> [&'static str; TESTS.len()] {
    TESTS.map(|(name, ..)| name)
}

/// Runs one test of the suite, or all in a row; ends with `Test OK` if what ran has passed.
#[derive(Parser)]
#[command(
    name = "suite",
    max_term_width = 98,
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    /// How often
    #[arg(long, value_name = "TIMES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// Only these tests
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(names()),
        default_values = names(),
        hide_default_value = true
    )]
    tests: Vec<String>,
    /// A program to run each test under, with its arguments
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "",
        hide_default_value = true
    )]
    under: String,
    /// The most seconds for a test: one that has not ended by then has failed. Each test also has a deadline of its own,
    /// below half an hour
    #[arg(long, value_name = "SECONDS", default_value_t = 1800, value_parser = clap::value_parser!(u64).range(1..))]
    deadline: u64,
    /// Only print the tests' names, one a line
    #[arg(long)]
    list: bool,
    /// Arguments of each test, behind `--`: such as -- --on gpu --nic soft-host
    #[arg(last = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Between two looks at a test.
const NAP: Duration = Duration::from_millis(5);

/// How a test has ended.
enum Ended {
    Passed,
    Skipped(String),
    Failed,
}

/// The command line, with a subcommand for each test.
fn command() -> clap::Command {
    let tests = TESTS.map(|(name, about, _)| {
        let test = clap::Command::new(name).max_term_width(98);
        Machine::augment_args(test).about(about)
    });
    Arguments::command()
        .subcommands(tests)
        .disable_help_subcommand(true)
}

fn main() -> ExitCode {
    let matches = matches(command());
    if let Some((name, options)) = matches.subcommand() {
        let machine = Machine::from_arg_matches(options).unwrap_or_else(|wrong| wrong.exit());
        let (.., test) = TESTS
            .iter()
            .find(|(test, ..)| *test == name)
            .expect("clap knows no others");
        return test(&machine);
    }
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|wrong| wrong.exit());
    if arguments.list {
        names().into_iter().for_each(say);
        return ExitCode::SUCCESS;
    }
    match run(&arguments) {
        Ok(Counts { failed: 0, passed }) => {
            match passed {
                0 => say("Skipped: every test was skipped"),
                _ => say("Test OK"),
            }
            ExitCode::SUCCESS
        }
        Ok(Counts { failed, .. }) => {
            eprintln!("error: {failed} tests failed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How many tests ended in which way.
#[derive(Default)]
struct Counts {
    passed: u32,
    failed: u32,
}

/// Runs everything.
fn run(arguments: &Arguments) -> io::Result<Counts> {
    let program = std::env::current_exe()?;
    let mut counts = Counts::default();
    for time in 1..=arguments.times {
        let began = Instant::now();
        let mut failed = Vec::new();
        say_part(format_args!("{time} of {}", arguments.times));
        for (number, name) in arguments.tests.iter().enumerate() {
            // The name before the test, so that a reader knows which one runs.
            let separator = if number == 0 { ":" } else { "," };
            say_part(format_args!("{separator} {name}"));
            let started = Instant::now();
            let (ended, output) = test(&program, name, arguments).inspect_err(|_| say(""))?;
            let took = started.elapsed().as_secs_f64();
            match ended {
                Ended::Passed => {
                    counts.passed += 1;
                    say_part(format_args!(" passed in {took:.1} s"));
                }
                Ended::Skipped(why) => say_part(format_args!(" skipped ({why})")),
                Ended::Failed => {
                    counts.failed += 1;
                    say_part(format_args!(" FAILED in {took:.1} s"));
                    failed.push((name, output));
                }
            }
        }
        say(format_args!("; {:.1} s", began.elapsed().as_secs_f64()));
        for (name, output) in failed {
            say(format_args!("---- {name} ----\n{}", output.trim_end()));
        }
    }
    Ok(counts)
}

/// Runs a test to its end in a process of its own, and gives what it said.
fn test(program: &Path, name: &str, arguments: &Arguments) -> io::Result<(Ended, String)> {
    let mut words = arguments.under.split_whitespace();
    let mut command = match words.next() {
        Some(under) => {
            let mut command = Command::new(under);
            command.args(words).arg(program);
            command
        }
        None => Command::new(program),
    };
    let missing = |error: io::Error| io::Error::other(format!("{name} does not start: {error}"));
    // A file, because a test that nobody listens to would stand still.
    let said = std::env::temp_dir().join(format!("warpbell-suite-{}", std::process::id()));
    let mut file = Scratch::create(said)?;
    let mut child = command
        .arg(name)
        .args(&arguments.arguments)
        .stdout(file.0.try_clone()?)
        .stderr(file.0.try_clone()?)
        .spawn()
        .map_err(missing)?;
    let (began, deadline) = (Instant::now(), Duration::from_secs(arguments.deadline));
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if began.elapsed() > deadline => {
                child.kill()?;
                child.wait()?;
                break None;
            }
            None => thread::sleep(NAP),
        }
    };
    let output = file.read()?;
    Ok((judge(status, &output), output))
}

/// A test that passed has `Test OK` among its last lines: a sanitizer may say something behind it.
fn judge(status: Option<ExitStatus>, output: &str) -> Ended {
    let skipped = output
        .lines()
        .find_map(|line| line.strip_prefix("Skipped: "));
    match (status.is_some_and(|status| status.success()), skipped) {
        (true, Some(why)) => Ended::Skipped(why.into()),
        (true, None) if output.lines().any(|line| line == "Test OK") => Ended::Passed,
        _ => Ended::Failed,
    }
}

/// A file that nobody else sees.
struct Scratch(File);

impl Scratch {
    fn create(path: PathBuf) -> io::Result<Self> {
        let options = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        std::fs::remove_file(path)?;
        Ok(Self(options))
    }

    fn read(&mut self) -> io::Result<String> {
        let mut bytes = Vec::new();
        self.0.rewind()?;
        self.0.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
