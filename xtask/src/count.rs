//! Reads what the tools print: how many tests passed, failed or were skipped.

use std::fmt;
use std::ops::AddAssign;

use serde_json::Value;

/// How many tests and checks ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
}

impl Counts {
    /// The counts of one check that passed or failed.
    pub fn one(passed: bool) -> Self {
        Self {
            passed: passed.into(),
            failed: (!passed).into(),
            skipped: 0,
        }
    }

    /// Whether nothing at all was counted.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

/// Adds up the `test result:` lines of `cargo test`; an ignored test counts as skipped.
///
/// A test binary that dies prints `running N tests` and no result: it counts as one failure.
pub fn libtest(output: &str) -> Counts {
    let mut counts = Counts::default();
    let mut unfinished = 0;
    for line in output.lines() {
        if is_libtest_start(line) {
            unfinished += 1;
        } else if let Some(result) = libtest_result(line) {
            counts += result;
            unfinished -= 1;
        }
    }
    counts.failed += u64::try_from(unfinished).unwrap_or(0);
    counts
}

/// Whether a line is `running 3 tests`.
fn is_libtest_start(line: &str) -> bool {
    let count = line.strip_prefix("running ").and_then(|rest| {
        rest.strip_suffix(" tests")
            .or_else(|| rest.strip_suffix(" test"))
    });
    count.is_some_and(|count| count.parse::<u64>().is_ok())
}

/// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; …`.
fn libtest_result(line: &str) -> Option<Counts> {
    let (_, fields) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let mut counts = Counts::default();
    for field in fields.split("; ") {
        let Some((number, name)) = field.split_once(' ') else {
            continue;
        };
        let slot = match name {
            "passed" => &mut counts.passed,
            "failed" => &mut counts.failed,
            "ignored" => &mut counts.skipped,
            _ => continue,
        };
        *slot = number.parse().ok()?;
    }
    Some(counts)
}

/// The ignored tests of `cargo test`, each with its reason where it gives one.
pub fn ignored_tests(output: &str) -> Vec<String> {
    let ignored = |line: &str| {
        let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
        let reason = outcome.strip_prefix(", ").unwrap_or("ignored");
        Some(format!("{name}: {reason}"))
    };
    output.lines().filter_map(ignored).collect()
}

/// How one hardware test ended.
#[derive(Debug, PartialEq, Eq)]
pub enum HardwareTest {
    Passed,
    Failed,
    /// The test says why it could not run.
    Skipped(String),
}

/// Judges a test of hw-tests: it exits with 0 and ends with `Test OK`, or says `Skipped: why`.
pub fn hardware_test(exited_with_0: bool, output: &str) -> HardwareTest {
    let last_line = output.lines().map(str::trim).rfind(|line| !line.is_empty());
    if !exited_with_0 {
        return HardwareTest::Failed;
    }
    if last_line == Some("Test OK") {
        return HardwareTest::Passed;
    }
    let skip = |line: &str| line.strip_prefix("Skipped:").map(|why| why.trim().into());
    output
        .lines()
        .find_map(skip)
        .map_or(HardwareTest::Failed, HardwareTest::Skipped)
}

/// How many inputs libFuzzer says it ran: `Done 500000 runs in 12 second(s)`.
pub fn fuzz_runs(output: &str) -> Option<u64> {
    let runs = |line: &str| {
        let (runs, _) = line.strip_prefix("Done ")?.split_once(" runs in ")?;
        runs.parse().ok()
    };
    output.lines().find_map(runs)
}

/// Checks what `demo --json` printed: one JSON value or one a line, in which at least one field is
/// called `verified` and every one of them is true.
pub fn demo_verified(stdout: &str) -> Result<(), String> {
    let mut verified = Vec::new();
    for value in serde_json::Deserializer::from_str(stdout).into_iter::<Value>() {
        let value = value.map_err(|error| format!("the demo's output is no JSON: {error}"))?;
        collect_verified(&value, &mut verified);
    }
    if verified.is_empty() {
        return Err("the demo's output has no field `verified`".into());
    }
    match verified.iter().find(|value| **value != Value::Bool(true)) {
        Some(value) => Err(format!("the demo says `verified`: {value}")),
        None => Ok(()),
    }
}

/// Gathers the fields called `verified`, at any depth.
fn collect_verified(value: &Value, found: &mut Vec<Value>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if name == "verified" {
                    found.push(field.clone());
                } else {
                    collect_verified(field, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_verified(item, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(passed: u64, failed: u64, skipped: u64) -> Counts {
        Counts {
            passed,
            failed,
            skipped,
        }
    }

    #[test]
    fn counts_are_printed_with_skips_only_if_there_are_any() {
        assert_eq!(counts(3, 0, 0).to_string(), "3 passed, 0 failed");
        assert_eq!(counts(3, 1, 2).to_string(), "3 passed, 1 failed, 2 skipped");
    }

    #[test]
    fn libtest_adds_up_all_binaries() {
        let output = "\
     Running unittests src/lib.rs (target/debug/deps/a-1)

running 3 tests
test a ... ok
test b ... FAILED
test c ... ignored

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.10s

   Doc-tests a

running 1 test
test src/lib.rs - a (line 3) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";
        assert_eq!(libtest(output), counts(2, 1, 1));
    }

    #[test]
    fn libtest_counts_a_binary_that_died_as_a_failure() {
        let output = "\
running 2 tests
test a ... ok
error: test failed, to rerun pass `-p a --lib`
  process didn't exit successfully: `a` (signal: 11, SIGSEGV: invalid memory reference)

running 1 test
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
";
        assert_eq!(libtest(output), counts(1, 1, 0));
    }

    #[test]
    fn libtest_ignores_other_text() {
        let output = "running out of room\ntest result: unknown\nrunning no tests\n";
        assert!(libtest(output).is_empty());
    }

    #[test]
    fn ignored_tests_come_with_their_reason() {
        let output = "test a::b ... ok\ntest a::c ... ignored\ntest d ... ignored, needs a NIC\n";
        assert_eq!(
            ignored_tests(output),
            ["a::c: ignored", "d: needs a NIC"].map(String::from)
        );
    }

    #[test]
    fn a_hardware_test_passes_only_with_its_last_line() {
        assert_eq!(
            hardware_test(true, "a line\nTest OK\n\n"),
            HardwareTest::Passed
        );
        assert_eq!(
            hardware_test(false, "a line\nTest OK\n"),
            HardwareTest::Failed
        );
        assert_eq!(hardware_test(true, "Test OK\nmore\n"), HardwareTest::Failed);
        assert_eq!(hardware_test(true, ""), HardwareTest::Failed);
    }

    #[test]
    fn a_hardware_test_is_skipped_with_a_reason() {
        assert_eq!(
            hardware_test(true, "looking\nSkipped: no GPU here\n"),
            HardwareTest::Skipped("no GPU here".into())
        );
        assert_eq!(
            hardware_test(false, "Skipped: no GPU here\n"),
            HardwareTest::Failed
        );
    }

    #[test]
    fn fuzz_runs_are_read_from_the_last_line_of_libfuzzer() {
        let output = "#500000\tDONE   cov: 6 ft: 6\nDone 500000 runs in 1 second(s)\n";
        assert_eq!(fuzz_runs(output), Some(500_000));
        assert_eq!(
            fuzz_runs("Done with it\nSUMMARY: libFuzzer: deadly signal\n"),
            None
        );
    }

    #[test]
    fn the_demo_must_say_verified_everywhere() {
        assert_eq!(demo_verified(r#"{"verified": true}"#), Ok(()));
        assert_eq!(
            demo_verified("{\"verbs\": [{\"verified\": true}]}\n{\"verified\": true}\n"),
            Ok(())
        );
        for wrong in [
            "",
            "{}",
            "verified",
            r#"{"verified": "true"}"#,
            r#"{"verified": true, "verbs": [{"verified": false}]}"#,
        ] {
            assert!(demo_verified(wrong).is_err(), "accepted: {wrong}");
        }
    }
}
