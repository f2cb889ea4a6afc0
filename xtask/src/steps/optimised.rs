//! The steps that run optimised programs: the suite, the demo, unmodified programs on the preloaded device, and tests
//! that take long.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use super::{
    BUILD_DEADLINE, DEMO, DEMO_PACKAGE, HW_TESTS, PATTERNS, PRELOAD, PROGRAMS, PROOFS, ROUNDS,
    Report, RunError, SOFT_HCA, StepError, Steps, TESTS, minutes,
};
use crate::built::{executable, without_json};
use crate::count;
use crate::say::say;
use crate::tools;
use crate::workspace::clean_command;

/// The binary of hw-tests, whose tests are its subcommands.
const SUITE: &str = "suite";
/// What the hardware tests run on; the last one only with the full extent.
const WORLDS: [&[&str]; 4] = [
    &[],
    &["--on", "gpu", "--nic", "soft-host"],
    &["--on", "gpu", "--nic", "soft-gpu"],
    &["--nic", "soft-gpu"],
];
/// What a step needs optimised.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// The suite and the demo.
    Suite,
    /// The library to preload as well.
    Preload,
    /// And what runs unmodified programs with it.
    Programs,
}
/// The Cargo profile of what is optimised: it takes a third less work than `release`.
pub(super) const PROFILE: &str = "demo";
/// The packages with the suite and the demo, as arguments of Cargo.
const DAILY: [&str; 4] = ["-p", HW_TESTS, "-p", DEMO_PACKAGE];
/// The packages that the full extent adds, with a feature of theirs. Every call has all of them, so that Cargo finds the same
/// features each time and builds nothing again. The software HCA is named for its default features, which the proofs use.
const ALL: [&str; 8] = [
    "-p",
    PRELOAD,
    "-p",
    SOFT_HCA,
    "-p",
    PATTERNS,
    "--features",
    "warpbell-patterns/ranks",
];
/// How long one hardware test may take.
const HW_TEST_DEADLINE: Duration = minutes(12);
/// How long all unmodified programs together may take.
const PROGRAMS_DEADLINE: Duration = minutes(60);
/// How long the demo may take.
const DEMO_DEADLINE: Duration = minutes(12);

impl Steps<'_> {
    pub(super) fn programs(&self, report: &mut Report) -> Result<(), StepError> {
        self.rows(report, "programs", |_| {})
    }

    /// The same programs, with Linux's soft-RoCE at the other end.
    pub(super) fn rxe(&self, report: &mut Report) -> Result<(), StepError> {
        self.rows(report, "rxe", |command| {
            let kernel = tools::linux::folder(self.workspace);
            command.arg("--rxe").arg(kernel);
        })
    }

    /// Runs unmodified programs; `prepare` says which.
    fn rows(
        &self,
        report: &mut Report,
        title: &str,
        prepare: impl FnOnce(&mut Command),
    ) -> Result<(), StepError> {
        let Some(built) = self.optimised(report, Need::Programs)? else {
            return Ok(());
        };
        let path = executable(&built, PROGRAMS).ok_or(StepError::Unbuilt(PROGRAMS))?;
        let mut command = clean_command(path, &self.workspace.root);
        prepare(&mut command);
        let finished = self.capture(command, PROGRAMS_DEADLINE)?;
        self.spinner
            .suspend(|| say!("{}", finished.stdout.trim_end()));
        report.tests(title, &finished);
        Ok(())
    }

    pub(super) fn hw_tests(&self, report: &mut Report) -> Result<(), StepError> {
        let Some(built) = self.optimised(report, Need::Suite)? else {
            return Ok(());
        };
        let count = WORLDS.len() - usize::from(!self.extent.full);
        self.hardware_tests(report, &built, &WORLDS[..count], |_| {})
    }

    /// Runs the suite that was built in each of these worlds; `prepare` changes each call.
    fn hardware_tests(
        &self,
        report: &mut Report,
        built: &str,
        worlds: &[&[&str]],
        prepare: impl Fn(&mut Command),
    ) -> Result<(), StepError> {
        let suite = executable(built, SUITE).ok_or(StepError::Unbuilt(SUITE))?;
        let mut list = clean_command(&suite, &self.workspace.root);
        list.arg("--list");
        let listed = self.capture(list, HW_TEST_DEADLINE)?;
        if !listed.success() {
            report.fail("the suite's list of tests", listed.account());
            return Ok(());
        }
        let mut skipped = BTreeMap::<String, Vec<String>>::new();
        for &world in worlds {
            for name in listed.stdout.lines() {
                let mut command = clean_command(&suite, &self.workspace.root);
                command.arg(name).args(world);
                prepare(&mut command);
                let title = [&[name], world].concat().join(" ");
                let finished = self.capture(command, HW_TEST_DEADLINE)?;
                if let Some(why) = report.hardware_test(&title, &finished) {
                    skipped.entry(why).or_default().push(title);
                }
            }
        }
        for (why, titles) in &skipped {
            report.skip_all(titles, why);
        }
        Ok(())
    }

    /// Builds what the steps run optimised, and gives what Cargo printed; nothing where it does not build.
    ///
    /// One call for all of it: Cargo unites the features of the packages that it is given, and builds everything anew
    /// where other packages have other features in common. So the full extent builds for all its steps at once.
    fn optimised(&self, report: &mut Report, need: Need) -> Result<Option<String>, RunError> {
        let mut build = self.workspace.cargo();
        build.args(["build", "--profile", PROFILE]);
        build.args(["--lib", "--bin", DEMO, "--bin", SUITE]);
        build.args(DAILY);
        if self.extent.full || need != Need::Suite {
            build.args(ALL);
        }
        if need == Need::Programs {
            build.args(["-p", PROOFS, "--bin", PROGRAMS]);
        }
        build.arg("--message-format=json-render-diagnostics");
        let built = self.capture(build, BUILD_DEADLINE)?;
        if !built.success() {
            report.fail("the optimised build", without_json(&built.account()));
            return Ok(None);
        }
        Ok(Some(built.stdout))
    }

    pub(super) fn demo(&self, report: &mut Report) -> Result<(), StepError> {
        let Some(built) = self.optimised(report, Need::Suite)? else {
            return Ok(());
        };
        self.verified(report, "demo", self.demo_command(&built)?)
    }

    pub(super) fn card(&self, report: &mut Report) -> Result<(), StepError> {
        let Some(built) = self.optimised(report, Need::Preload)? else {
            return Ok(());
        };
        let mut demo = self.demo_command(&built)?;
        let target = self.workspace.target.join(PROFILE);
        let library = target.join("libwarpbell_preload.so");
        demo.args(["--nic", "mlx5_0"]).env("LD_PRELOAD", &library);
        self.verified(report, "demo --nic mlx5_0", demo)?;
        self.hardware_tests(report, &built, &[&["--nic", "mlx5_0"]], |command| {
            command.env("LD_PRELOAD", &library);
        })
    }

    pub(super) fn differential(&self, report: &mut Report) -> Result<(), StepError> {
        self.optimised_tests(report, "differential", "differential::")
    }

    pub(super) fn rounds(&self, report: &mut Report) -> Result<(), StepError> {
        self.optimised_tests(report, "rounds", ROUNDS)
    }

    /// The integration tests with these words in their names, optimised, with what the programs are built of.
    fn optimised_tests(
        &self,
        report: &mut Report,
        title: &str,
        which: &str,
    ) -> Result<(), StepError> {
        let mut command = self.workspace.cargo();
        command
            .args(["test", "--profile", PROFILE, "--test", TESTS])
            .args(DAILY)
            .args(ALL)
            .arg(which);
        report.tests(title, &self.capture(command, BUILD_DEADLINE)?);
        Ok(())
    }

    /// A call of the demo.
    fn demo_command(&self, built: &str) -> Result<Command, StepError> {
        let demo = executable(built, DEMO).ok_or(StepError::Unbuilt(DEMO))?;
        let mut command = clean_command(demo, &self.workspace.root);
        command.arg("--json");
        Ok(command)
    }

    /// Runs a demo, which has to say that it verified everything.
    fn verified(
        &self,
        report: &mut Report,
        title: &str,
        command: Command,
    ) -> Result<(), StepError> {
        let finished = self.capture(command, DEMO_DEADLINE)?;
        match count::demo_verified(&finished.stdout) {
            Err(why) if finished.success() => {
                report.fail(title, format!("{}{why}\n", finished.account()));
            }
            _ => {
                report.check(title, &finished);
            }
        }
        Ok(())
    }
}
