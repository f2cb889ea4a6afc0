//! `cargo xtask mutants`: changes the sources a little at a time, and counts the changes that no test sees.
//!
//! cargo-mutants makes the changes and runs the tests. A change is *caught* when a test fails or hangs, *missed* when
//! all tests pass, *unviable* when it does not compile; unviable ones do not count. Changes that alter nothing that a
//! caller can see are listed with their reason in `equivalent.txt`, and do not count either.

mod equivalent;
mod outcome;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use indicatif::ProgressBar;
use thiserror::Error;

use crate::run::{self, Ending, RunError};
use crate::say::say;
use crate::tools;
use crate::workspace::{Workspace, clean_command};
use equivalent::Equivalents;
use outcome::{Mutant, Tested, Verdict};

/// How long one group may take: some thousand builds.
const DEADLINE: Duration = Duration::from_secs(12 * 60 * 60);
/// How long listing a group's mutants may take.
const LIST_DEADLINE: Duration = Duration::from_secs(60);
/// How long one build after the first, and one run of the tests, may take. A change that makes a loop endless is caught
/// by the second, and is none that compiles by the first, where the compiler runs the loop.
const BUILD_SECONDS: &str = "180";
const TEST_SECONDS: &str = "60";
/// Exit statuses of cargo-mutants that are results: all caught, some missed, some timed out.
const RESULTS: [i32; 3] = [0, 2, 3];

/// Sources that are changed together, with one goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// The layouts of mlx5 queues, by the crate's own tests and by the proofs
    Mlx5Wqe,
    /// What is read from sockets and from the wire
    Parsers,
    /// The queues of the device library
    Queue,
    /// Requester, responder, protection and PSN code of the software HCA's engine
    Engine,
}

/// What cargo-mutants is told of a group.
struct Plan {
    /// Globs of the files that are changed.
    files: &'static [&'static str],
    /// Regular expressions of which one matches each mutant's name; none for all mutants of the files.
    names: &'static [&'static str],
    /// Features of the packages.
    features: &'static [&'static str],
    /// Which tests of the changed package run: arguments of `cargo test`.
    tests: &'static [&'static str],
    /// Packages and their tests that get what the ones before missed: those that take long, or catch little.
    then: &'static [(&'static str, &'static [&'static str])],
    /// The share that is to be caught, in percent.
    goal: u32,
}

impl Group {
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().into())
    }

    fn plan(self) -> Plan {
        let plan = Plan {
            files: &[],
            names: &[],
            features: &[],
            tests: &["--tests"],
            then: &[],
            goal: 98,
        };
        match self {
            Self::Mlx5Wqe => Plan {
                files: &["mlx5-wqe/src/**/*.rs"],
                features: &["mlx5-wqe/prm"],
                then: &[("warpbell-proofs", &["--tests"])],
                ..plan
            },
            Self::Parsers => Plan {
                files: &[
                    "strangers/src/field.rs",
                    "strangers/src/perftest.rs",
                    "strangers/src/pingpong.rs",
                    "soft-hca/src/engine/packet.rs",
                    "soft-hca/src/shell/peers.rs",
                    "soft-hca/src/shell/shared_link.rs",
                ],
                // Of the last two files only what reads a hello and a packet.
                names: &[
                    "^strangers/",
                    "/packet.rs:",
                    r"\bunderstand\b",
                    r"SharedLink::receive\b",
                ],
                ..plan
            },
            Self::Queue => Plan {
                files: &["device/src/queue/*.rs"],
                // Without the tests that take long, and without those that must not compile.
                tests: &[
                    "--lib",
                    "--test=all",
                    "--",
                    "--skip=completions::",
                    "--skip=indices::",
                    "--skip=refused::",
                ],
                then: &[
                    ("warpbell-patterns", &["--tests"]),
                    (
                        "warpbell",
                        &["--lib", "--test=all", "--", "completions::", "indices::"],
                    ),
                ],
                goal: 95,
                ..plan
            },
            Self::Engine => Plan {
                files: &[
                    "soft-hca/src/engine/requester.rs",
                    "soft-hca/src/engine/requester/*.rs",
                    "soft-hca/src/engine/responder.rs",
                    "soft-hca/src/engine/responder/*.rs",
                    "soft-hca/src/engine/receiving.rs",
                    "soft-hca/src/engine/sending.rs",
                    "soft-hca/src/engine/protection.rs",
                    "soft-hca/src/engine/psn.rs",
                ],
                tests: &["--test=all", "engine::"],
                then: &[
                    ("warpbell-soft-hca", &["--lib"]),
                    ("warpbell-soft-hca", &["--test=all", "differential::"]),
                    ("warpbell-soft-hca-gpu", &["--tests"]),
                ],
                goal: 90,
                ..plan
            },
        }
    }
}

/// Why a group's mutants were not counted.
#[derive(Debug, Error)]
pub enum MutantsError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Equivalent(#[from] equivalent::EquivalentError),
    #[error("cargo-mutants failed:\n{0}")]
    CargoMutants(String),
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("cargo-mutants wrote something unexpected: {0}")]
    Json(#[from] serde_json::Error),
}

/// What became of a group's mutants.
#[derive(Debug)]
pub struct Counted {
    group: Group,
    /// The part that ran, such as `1/8`.
    shard: Option<String>,
    caught: usize,
    missed: Vec<String>,
    equivalent: usize,
    unviable: usize,
    /// Mutants that are listed as equivalent, but a test sees them.
    seen: Vec<String>,
}

impl Counted {
    /// Whether enough is caught, and nothing is listed by mistake.
    pub fn is_enough(&self) -> bool {
        let (caught, goal) = (self.caught as u128, u128::from(self.group.plan().goal));
        let counted = caught + self.missed.len() as u128;
        self.seen.is_empty() && caught * 100 >= goal * counted
    }

    /// Prints what was missed, and the share that was caught.
    pub fn print(&self) {
        for name in &self.missed {
            say!("missed: {name}");
        }
        for name in &self.seen {
            say!("listed as equivalent, but a test sees it: {name}");
        }
        let part = match &self.shard {
            Some(shard) => format!(" (part {shard})"),
            None => String::new(),
        };
        say!("{}{part}: {}", self.group.name(), self.summary());
    }

    /// A line such as `98.4 % caught (goal 98 %): 480 caught, 8 missed, 22 equivalent, 50 do not compile`.
    fn summary(&self) -> String {
        let Self {
            caught,
            missed,
            equivalent,
            unviable,
            ..
        } = self;
        let (missed, goal) = (missed.len(), self.group.plan().goal);
        // Rounded down, so that no share looks better than it is.
        let share = match (caught * 1000).checked_div(caught + missed) {
            Some(thousandths) => format!("{}.{} %", thousandths / 10, thousandths % 10),
            None => "nothing to be".into(),
        };
        format!(
            "{share} caught (goal {goal} %): {caught} caught, {missed} missed, {equivalent} equivalent, \
             {unviable} do not compile"
        )
    }
}

/// Runs a group's mutants, all of them or one shard of them (`K/N`, from 0).
pub fn count(
    workspace: &Workspace,
    spinner: &ProgressBar,
    group: Group,
    shard: Option<&str>,
) -> Result<Counted, MutantsError> {
    let plan = group.plan();
    let call = Call {
        workspace,
        spinner,
        plan: &plan,
    };
    let listed = call.list()?;
    let equivalents = Equivalents::load(&listed, &plan)?;

    let mut first = call.command(plan.names);
    if let Some(shard) = shard {
        first.args(["--sharding", "round-robin", "--shard", shard]);
    }
    let mut tested = call.test(first, &group.name(), plan.tests)?;
    for (package, tests) in plan.then {
        let missed: Vec<_> = tested
            .iter()
            .filter(|tested| tested.verdict == Verdict::Missed)
            .filter(|tested| !equivalents.contains(&tested.mutant))
            .map(|tested| format!("^{}$", regex_syntax::escape(&tested.mutant.name)))
            .collect();
        if !missed.is_empty() {
            let mut second = call.command(&missed);
            second.args(["--test-package", package]);
            let name = format!("{}-{package}", group.name());
            for again in call.test(second, &name, tests)? {
                let before = tested.iter_mut().find(|one| one.mutant == again.mutant);
                if let Some(before) = before {
                    before.verdict = again.verdict;
                }
            }
        }
    }

    let mut counted = Counted {
        group,
        shard: shard.map(str::to_owned),
        caught: 0,
        missed: Vec::new(),
        equivalent: 0,
        unviable: 0,
        seen: Vec::new(),
    };
    for Tested { mutant, verdict } in tested {
        match (verdict, equivalents.contains(&mutant)) {
            (Verdict::Unviable, _) => counted.unviable += 1,
            (Verdict::Caught, false) => counted.caught += 1,
            (Verdict::Missed, false) => counted.missed.push(mutant.name),
            (Verdict::Missed, true) => counted.equivalent += 1,
            (Verdict::Caught, true) => counted.seen.push(mutant.name),
        }
    }
    Ok(counted)
}

/// Calls of cargo-mutants for one group.
struct Call<'a> {
    workspace: &'a Workspace,
    spinner: &'a ProgressBar,
    plan: &'a Plan,
}

impl Call<'_> {
    /// `cargo mutants` over the group's files and, if there are any, these names.
    fn command(&self, names: &[impl AsRef<str>]) -> Command {
        let mut command = clean_command(tools::cargo_mutants(self.workspace), &self.workspace.root);
        command.args(["mutants", "--workspace", "--colors", "never"]);
        for file in self.plan.files {
            command.args(["--file", file]);
        }
        for name in names {
            command.args(["--re", name.as_ref()]);
        }
        for feature in self.plan.features {
            command.args(["--features", feature]);
        }
        command
    }

    fn list(&self) -> Result<Vec<Mutant>, MutantsError> {
        let mut command = self.command(self.plan.names);
        command.args(["--list", "--json"]);
        let finished = run::capture(command, LIST_DEADLINE, |_| {})?;
        if !finished.success() {
            return Err(MutantsError::CargoMutants(finished.account()));
        }
        Ok(serde_json::from_str(&finished.stdout)?)
    }

    /// Runs mutants, one after the other, in a copy of the sources.
    fn test(
        &self,
        mut command: Command,
        name: &str,
        tests: &[&str],
    ) -> Result<Vec<Tested>, MutantsError> {
        let output = self.workspace.target.join("mutants").join(name);
        let file_error = |source| MutantsError::File {
            path: output.clone(),
            source,
        };
        fs::create_dir_all(&output).map_err(file_error)?;
        command
            .args(["--jobs", "1", "--build-timeout", BUILD_SECONDS])
            .args(["--timeout", TEST_SECONDS, "--output"])
            .arg(&output)
            .arg("--")
            .args(tests)
            // One folder for all copies, so that only what a change touches is built again. It allows one job only.
            .env(
                "CARGO_TARGET_DIR",
                self.workspace.target.join("mutants/build"),
            );
        let finished = run::capture(command, DEADLINE, |line| {
            self.spinner.set_message(line.to_owned());
        })?;
        match finished.ending {
            Ending::Exited(status) if status.code().is_some_and(|code| RESULTS.contains(&code)) => {
                let path = output.join("mutants.out/outcomes.json");
                outcome::read(&read(&path)?).map_err(MutantsError::from)
            }
            _ => Err(MutantsError::CargoMutants(finished.account())),
        }
    }
}

fn read(path: &Path) -> Result<String, MutantsError> {
    fs::read_to_string(path).map_err(|source| MutantsError::File {
        path: path.into(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(caught: usize, missed: usize) -> Counted {
        Counted {
            group: Group::Mlx5Wqe,
            shard: None,
            caught,
            missed: vec!["a.rs:1:1: replace + with -".into(); missed],
            equivalent: 3,
            unviable: 7,
            seen: Vec::new(),
        }
    }

    #[test]
    fn the_goal_is_a_share_of_what_is_caught_and_missed() {
        assert!(counted(98, 2).is_enough());
        assert!(!counted(97, 2).is_enough());
        assert!(counted(0, 0).is_enough());
        let mut one_too_many = counted(98, 0);
        one_too_many.seen.push("b.rs:1:1: replace * with /".into());
        assert!(!one_too_many.is_enough());
    }

    #[test]
    fn the_share_is_rounded_down() {
        assert_eq!(
            counted(1999, 1).summary(),
            "99.9 % caught (goal 98 %): 1999 caught, 1 missed, 3 equivalent, 7 do not compile"
        );
        assert!(counted(0, 0).summary().starts_with("nothing to be caught"));
    }

    /// Each pattern is to match a file, so that none is forgotten when a file is moved.
    #[test]
    fn the_files_of_each_group_are_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for group in Group::value_variants() {
            for pattern in group.plan().files {
                let folder = pattern.split('*').next().unwrap_or_default();
                assert!(root.join(folder).exists(), "{pattern}");
            }
        }
    }

    /// A module that is renamed would be tested twice, and a mistyped one never.
    #[test]
    fn the_modules_that_the_plans_name_are_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut count = 0;
        for (group, folder) in [(Group::Queue, "device"), (Group::Engine, "soft-hca")] {
            let tests = root.join(folder).join("tests/all");
            let plan = group.plan();
            let then = plan.then.iter().flat_map(|(_, tests)| *tests);
            for test in plan.tests.iter().chain(then) {
                let Some(module) = test.strip_suffix("::") else {
                    continue;
                };
                let module = module.strip_prefix("--skip=").unwrap_or(module);
                let is_there = |path: String| tests.join(path).is_file();
                assert!(
                    is_there(format!("{module}.rs")) || is_there(format!("{module}/mod.rs")),
                    "{folder}: {module}"
                );
                count += 1;
            }
        }
        assert_eq!(count, 7);
    }
}
