//! What a step found: its counts, what it skipped and why, and the output of what failed.

use crate::count::{self, Counts, HardwareTest};
use crate::installs::Missing;
use crate::run::Finished;

/// The outcome of one step.
#[derive(Debug, Default)]
pub struct Report {
    pub counts: Counts,
    /// One line each.
    pub skips: Vec<String>,
    pub failures: Vec<Failure>,
}

/// A check or a run of tests that failed.
#[derive(Debug)]
pub struct Failure {
    pub title: String,
    pub output: String,
}

impl Failure {
    /// Lines that an account in short has.
    const IN_SHORT: usize = 5;

    /// What failed, in a line or a few: the tests, or else the end of the output.
    pub fn in_short(&self) -> Vec<String> {
        let lines = || self.output.lines().filter(|line| !line.trim().is_empty());
        let mut short: Vec<_> = lines()
            .filter(|line| line.starts_with("test ") && line.ends_with(" FAILED"))
            .take(Self::IN_SHORT)
            .collect();
        if short.is_empty() {
            short = lines().collect();
            short.drain(..short.len().saturating_sub(Self::IN_SHORT));
        }
        let with_title = |line| format!("{}: {line}", self.title);
        short.into_iter().map(with_title).collect()
    }
}

impl Report {
    /// The report of a step whose tools are not there: it failed if nobody wanted them installed.
    pub fn without(step: &str, missing: &Missing) -> Self {
        let mut report = Self::default();
        match missing {
            Missing::Unwanted(_) => report.fail(step, missing.to_string()),
            Missing::Uninstallable(why) => report.skip(why),
        }
        report
    }

    /// Counts something that could not run, and keeps the reason.
    pub fn skip(&mut self, why: impl Into<String>) {
        self.counts.skipped += 1;
        self.skips.push(why.into());
    }

    /// Counts several that could not run for the same reason, which is told once.
    pub fn skip_all(&mut self, titles: &[String], why: &str) {
        self.counts.skipped += titles.len() as u64;
        self.skips.push(format!("{}: {why}", titles.join(", ")));
    }

    /// Counts one failed check.
    pub fn fail(&mut self, title: &str, output: impl Into<String>) {
        self.counts += Counts::one(false);
        self.failures.push(Failure {
            title: title.into(),
            output: output.into(),
        });
    }

    /// Counts a command that is one check, and says whether it passed.
    pub fn check(&mut self, title: &str, finished: &Finished) -> bool {
        if finished.success() {
            self.counts += Counts::one(true);
        } else {
            self.fail(title, finished.account());
        }
        finished.success()
    }

    /// Counts a check that found these problems, a line each.
    pub fn list(&mut self, title: &str, problems: &[String]) {
        if problems.is_empty() {
            self.counts += Counts::one(true);
        } else {
            self.fail(title, problems.join("\n"));
        }
    }

    /// Counts a command that ran tests with Rust's test harness.
    pub fn tests(&mut self, title: &str, finished: &Finished) {
        let counts = count::libtest(&finished.output);
        self.counts += counts;
        self.skips.extend(count::ignored_tests(&finished.output));
        if counts.failed > 0 {
            self.failures.push(Failure {
                title: title.into(),
                output: finished.account(),
            });
        } else if !finished.success() {
            self.fail(title, finished.account());
        } else if counts.is_empty() {
            self.skip(format!("{title}: there are no tests"));
        }
    }

    /// Counts a test of hw-tests, or says why it has skipped itself.
    pub fn hardware_test(&mut self, name: &str, finished: &Finished) -> Option<String> {
        match count::hardware_test(finished.success(), &finished.output) {
            HardwareTest::Passed => self.counts += Counts::one(true),
            HardwareTest::Failed => self.fail(name, finished.account()),
            HardwareTest::Skipped(why) => return Some(why),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;
    use crate::run::Ending;

    fn exited(code: i32, output: &str) -> Finished {
        Finished {
            ending: Ending::Exited(ExitStatus::from_raw(code << 8)),
            stdout: output.into(),
            output: output.into(),
        }
    }

    fn result_line(passed: u64, failed: u64, ignored: u64) -> String {
        format!("test result: x. {passed} passed; {failed} failed; {ignored} ignored; 0 measured")
    }

    fn report_of_tests(code: i32, output: &str) -> Report {
        let mut report = Report::default();
        report.tests(
            "tests",
            &exited(code, &format!("running 4 tests\n{output}\n")),
        );
        report
    }

    #[test]
    fn tests_that_pass_leave_only_counts() {
        let report = report_of_tests(0, &result_line(4, 0, 0));
        assert_eq!(report.counts.to_string(), "4 passed, 0 failed");
        assert!(report.failures.is_empty() && report.skips.is_empty());
    }

    #[test]
    fn a_failed_test_is_counted_once_and_shown() {
        let report = report_of_tests(101, &result_line(3, 1, 0));
        assert_eq!(report.counts.to_string(), "3 passed, 1 failed");
        assert_eq!(report.failures.len(), 1);
    }

    #[test]
    fn a_failure_in_short_names_the_tests_or_has_the_end_of_the_output() {
        let short = |output: &str| {
            let failure = Failure {
                title: "a".into(),
                output: output.into(),
            };
            failure.in_short()
        };
        let tests =
            "test x ... ok\ntest y ... FAILED\n\nthread 'y' panicked\ntest z ... FAILED\nerror\n";
        assert_eq!(
            short(tests),
            ["a: test y ... FAILED", "a: test z ... FAILED"]
        );
        let lines = "1\n2\n3\n\n4\n5\n6\n(exit status: 1)\n";
        let last = ["a: 3", "a: 4", "a: 5", "a: 6", "a: (exit status: 1)"];
        assert_eq!(short(lines), last);
        assert_eq!(short("alone"), ["a: alone"]);
    }

    #[test]
    fn a_run_that_fails_though_no_test_did_is_a_failure() {
        let report = report_of_tests(101, &result_line(4, 0, 0));
        assert_eq!(report.counts.to_string(), "4 passed, 1 failed");
        assert_eq!(report.failures.len(), 1);
    }

    #[test]
    fn a_step_without_its_tools_is_skipped_or_has_failed() {
        let unwanted = Missing::Unwanted(vec!["perftest".into(), "ptxas".into()]);
        let report = Report::without("programs", &unwanted);
        assert_eq!(report.counts.to_string(), "0 passed, 1 failed");
        assert_eq!(report.failures[0].title, "programs");
        assert_eq!(
            report.failures[0].output,
            "missing, and not to be installed: perftest, ptxas"
        );
        let offline = Missing::Uninstallable("perftest is missing: no network".into());
        let report = Report::without("programs", &offline);
        assert_eq!(report.counts.to_string(), "0 passed, 0 failed, 1 skipped");
        assert_eq!(report.skips, ["perftest is missing: no network"]);
    }

    #[test]
    fn a_run_without_tests_is_skipped() {
        let report = report_of_tests(0, &result_line(0, 0, 0));
        assert_eq!(report.counts.to_string(), "0 passed, 0 failed, 1 skipped");
        assert_eq!(report.skips, ["tests: there are no tests"]);
    }

    #[test]
    fn an_ignored_test_is_a_skip_with_its_reason() {
        let output = format!("test a ... ignored, no NIC\n{}", result_line(3, 0, 1));
        let report = report_of_tests(0, &output);
        assert_eq!(report.counts.to_string(), "3 passed, 0 failed, 1 skipped");
        assert_eq!(report.skips, ["a: no NIC"]);
    }

    #[test]
    fn hardware_tests_that_skip_are_counted_and_told_once() {
        let mut report = Report::default();
        let why = report.hardware_test("a", &exited(0, "Skipped: no GPU\n"));
        assert_eq!(why.as_deref(), Some("no GPU"));
        assert_eq!(report.hardware_test("b", &exited(0, "Test OK\n")), None);
        assert_eq!(report.hardware_test("c", &exited(1, "Test OK\n")), None);
        report.skip_all(&["a".into(), "d".into()], "no GPU");
        assert_eq!(report.counts.to_string(), "1 passed, 1 failed, 2 skipped");
        assert_eq!(report.skips, ["a, d: no GPU"]);
    }

    #[test]
    fn a_list_of_problems_fails_as_one() {
        let mut report = Report::default();
        report.list("first", &[]);
        report.list("second", &["a".into(), "b".into()]);
        assert_eq!(report.counts.to_string(), "1 passed, 1 failed");
        assert_eq!(report.failures[0].output, "a\nb");
    }

    #[test]
    fn a_check_passes_or_fails_as_one() {
        let mut report = Report::default();
        assert!(report.check("first", &exited(0, "fine")));
        assert!(!report.check("second", &exited(1, "wrong")));
        assert_eq!(report.counts.to_string(), "1 passed, 1 failed");
        assert_eq!(report.failures[0].title, "second");
        assert!(report.failures[0].output.starts_with("wrong"));
    }
}
