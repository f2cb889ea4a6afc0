//! Runs all tests of the suite, as often as one likes: the binaries that lie beside this one, so that a machine
//! without Cargo can run it too.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use warpbell_hw_tests::run::TESTS;
use warpbell_hw_tests::say::{arguments, say};

/// Runs all tests of the suite in a row, each a binary beside this one; ends with `Test OK` if all have passed.
#[derive(Parser)]
#[command(max_term_width = 98)]
struct Arguments {
    /// How often
    #[arg(long, value_name = "TIMES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// Only these tests
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_values = TESTS, hide_default_value = true)]
    tests: Vec<String>,
    /// A program to run each test under, with its arguments
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "",
        hide_default_value = true
    )]
    under: String,
    /// Arguments of each test, such as --on gpu --nic soft-host
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Far more than the deadline of any test, which ends it by itself.
const LIMIT: Duration = Duration::from_secs(30 * 60);
/// Between two looks at a test.
const NAP: Duration = Duration::from_millis(5);

/// How a test has ended.
enum Ended {
    Passed,
    Skipped(String),
    Failed,
}

fn main() -> ExitCode {
    match run(&arguments::<Arguments>()) {
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
    let folder = program.parent().unwrap_or(Path::new("."));
    let mut counts = Counts::default();
    for time in 1..=arguments.times {
        let began = Instant::now();
        let mut words = Vec::new();
        for name in &arguments.tests {
            let started = Instant::now();
            let (ended, output) = test(&folder.join(name), name, arguments)?;
            let took = started.elapsed().as_secs_f64();
            match ended {
                Ended::Passed => {
                    counts.passed += 1;
                    words.push(format!("{name} passed in {took:.1} s"));
                }
                Ended::Skipped(why) => words.push(format!("{name} skipped ({why})")),
                Ended::Failed => {
                    counts.failed += 1;
                    words.push(format!("{name} FAILED"));
                    say(format_args!("---- {name} ----\n{}", output.trim_end()));
                }
            }
        }
        let took = began.elapsed().as_secs_f64();
        say(format_args!(
            "{time} of {}: {}; {took:.1} s",
            arguments.times,
            words.join(", ")
        ));
    }
    Ok(counts)
}

/// Runs a test to its end, and gives what it said.
fn test(path: &Path, name: &str, arguments: &Arguments) -> io::Result<(Ended, String)> {
    let mut words = arguments.under.split_whitespace();
    let mut command = match words.next() {
        Some(program) => {
            let mut command = Command::new(program);
            command.args(words).arg(path);
            command
        }
        None => Command::new(path),
    };
    let missing = |error: io::Error| io::Error::other(format!("{name} does not start: {error}"));
    // A file, because a test that nobody listens to would stand still.
    let said = std::env::temp_dir().join(format!("warpbell-suite-{}", std::process::id()));
    let mut file = Scratch::create(said)?;
    let mut child = command
        .args(&arguments.arguments)
        .stdout(file.0.try_clone()?)
        .stderr(file.0.try_clone()?)
        .spawn()
        .map_err(missing)?;
    let began = Instant::now();
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if began.elapsed() > LIMIT => {
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
