//! Debian's tests of python3-pyverbs.

use std::io;
use std::path::Path;
use std::process::Command;

use warpbell_proofs::preloaded;

use crate::Outcome;
use crate::folder::Folder;

/// Where the package has them, some of the files compressed.
const TESTS: &str = "/usr/share/doc/rdma-core/tests";
/// Debian's own interpreter, whose module it is.
const PYTHON: &str = "/usr/bin/python3";
/// How many have to pass.
const WANTED: u32 = 100;
/// The tests that may fail, for the reasons in docs/conformance.md.
const KNOWN: [&str; 1] = ["test_timestamp_free_running_rc_traffic"];

/// Runs them all: enough pass, and only known ones do not.
pub fn run() -> Outcome {
    if !Path::new(TESTS).is_dir() {
        return Outcome::Skipped(
            "python3-pyverbs is not installed, or without its documents".into(),
        );
    }
    match ran() {
        Err(error) => Outcome::Badly(error.to_string()),
        Ok(said) => judge(&said),
    }
}

/// What the tests say.
fn ran() -> io::Result<String> {
    let folder = Folder::new("pyverbs")?;
    let copied = Command::new("cp")
        .arg("-r")
        .arg(TESTS)
        .arg(&folder.0)
        .status()?;
    let unpacked = Command::new("gunzip")
        .arg("-rf")
        .arg(folder.0.join("tests"))
        .status()?;
    if !copied.success() || !unpacked.success() {
        return Err(io::Error::other("the tests cannot be unpacked"));
    }
    let mut tests = preloaded::under("timeout")?;
    // One that hangs ends them all.
    tests
        .args(["--signal=KILL", "120", PYTHON, "tests/run_tests.py", "-v"])
        .current_dir(&folder.0);
    let output = tests.output()?;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

fn judge(said: &str) -> Outcome {
    let number = |before: &str| -> u32 {
        let rest = said.rsplit_once(before).map_or("", |(_, rest)| rest);
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    };
    let unknown: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("ERROR: ") || line.starts_with("FAIL: "))
        .filter(|line| !KNOWN.iter().any(|known| line.contains(known)))
        .collect();
    let failed = number("failures=") + number("errors=");
    let skipped = number("skipped=");
    let passed = number("Ran ").saturating_sub(failed + skipped);
    let figure = format!("{passed} pass, {skipped} skip, {failed} fail for a known reason");
    if unknown.is_empty() && passed >= WANTED {
        return Outcome::Well(figure);
    }
    let last: Vec<&str> = said.lines().rev().take(5).collect();
    let last: Vec<&str> = last.into_iter().rev().collect();
    Outcome::Badly(format!(
        "{figure}\n{}\n{}",
        unknown.join("\n"),
        last.join("\n")
    ))
}
