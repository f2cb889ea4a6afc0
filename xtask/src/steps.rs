//! The steps of `cargo xtask test`, in the order in which they run.

mod book;
mod dist;
mod faults;
mod flash;
mod gallery;
mod net;
mod optimised;
mod packages;
mod ranks;
mod rust_cuda;
mod step;
mod template;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use indicatif::ProgressBar;
use thiserror::Error;

use crate::built::{executable, without_json};
use crate::count;
use crate::dist::DistError;
use crate::launch::RANKS;
use crate::ptx::{self, PtxError};
use crate::report::Report;
use crate::run::{self, Finished, RunError};
use crate::tools::{self, unpacked};
use crate::workspace::{Workspace, WorkspaceError, clean_command};

pub use step::Step;

/// The gallery.
pub const EXAMPLES: &str = "warpbell-examples";
const HOST_INIT: &str = "warpbell-host-init";
const HW_TESTS: &str = "warpbell-hw-tests";
const SOFT_HCA: &str = "warpbell-soft-hca";
const SOFT_HCA_GPU: &str = "warpbell-soft-hca-gpu";
const PATTERNS: &str = "warpbell-patterns";
pub const PROOFS: &str = "warpbell-proofs";
/// Its binary that runs unmodified programs.
pub const PROGRAMS: &str = "programs";
/// The test of `roce` that needs scapy.
const SCAPY_TEST: &str = "scapy::fresh_packets_agree";
/// That of [`PAPERS`] that compares with SimGrid.
const SIMGRID_TEST: &str = "judge::simgrid_agrees";
/// That of the command `warpbell` that needs promtool.
const PROMTOOL_TEST: &str = "metrics::promtool_agrees";
/// That of [`HOST_INIT`] that has Perfetto read a trace.
const PERFETTO_TEST: &str = "trace::perfetto_agrees";
/// What [`Step::Proofs`] runs, which installs the tools.
const JUDGED: [&str; 4] = [SCAPY_TEST, SIMGRID_TEST, PROMTOOL_TEST, PERFETTO_TEST];
/// Tests that take most of a minute: of programs that must not compile, for which all dependencies are checked in a folder of
/// their own, and of ranks on other hosts, which wait for silence.
const LONG: [&str; 2] = ["refused::", "other_hosts::"];
/// Tests of many rounds over wires that lose packets, which [`Step::Rounds`] runs: they take three times as long if they
/// are not optimised.
const ROUNDS: &str = "thousand_rounds::";
/// The papers' applications, their kernels, and simulated clusters.
const PAPERS: [&str; 3] = [
    "warpbell-papers",
    "warpbell-paper-kernels",
    "warpbell-cluster",
];
/// The command with all benchmarks but those of [`PROOFS`].
pub const BENCH: &str = "warpbell-bench";
/// The library to preload under rdma-core.
const PRELOAD: &str = "warpbell-preload";
const DEMO: &str = "demo";
/// The features with which the workspace's tests are built, once for all of them.
const TEST_FEATURES: &str = "mlx5-wqe/prm,warpbell-host-init/ranks,warpbell-host-init/perfetto,warpbell-patterns/host,warpbell-ranks/launch";
/// What each package but [`PROOFS`] calls the binary of its integration tests.
const TESTS: &str = "all";
const DEMO_PACKAGE: &str = "warpbell-demo";

/// What runs under ThreadSanitizer and AddressSanitizer: a package's library, and the names of its tests. All of a device
/// that touches memory on behalf of others, and all that is dropped beside it.
const SANITIZED: [(&str, &[&str]); 3] = [
    (SOFT_HCA, &["shell::"]),
    (
        HOST_INIT,
        &["peer::", "tests::two_processes", "tests::drops"],
    ),
    (PRELOAD, &[]),
];
const SANITIZERS: [&str; 2] = ["thread", "address"];
/// How many objects are dropped under traffic there, unless the environment says otherwise.
const SANITIZED_DROPS: &str = "5000";
/// And how many in the tests of the full extent.
const MANY_DROPS: &str = "50000";
const DROPS: &str = "WARPBELL_DROPS";
/// How many tests run at the same time.
const TEST_THREADS: &str = "4";

/// What miri interprets: a package, the arguments that choose its tests, miri's flags, and how many cases each property test
/// tries, since miri is some hundred times slower.
const MIRI: [(&str, &[&str], &str, &str); 5] = [
    // It has no unsafe code itself: only what its layouts ask of other crates is interpreted, which depends on their types
    // and hardly on values.
    (
        "mlx5-wqe",
        &["--features", "prm", "--test", TESTS],
        STRICT,
        "2",
    ),
    ("warpbell-gpu", &["--lib"], STRICT, "8"),
    ("warpbell", &["--lib", "--tests"], STRICT, "8"),
    (PATTERNS, &["--lib", "--tests"], STRICT, "8"),
    // Its addresses are numbers, as a NIC's are.
    (
        SOFT_HCA,
        &["--lib", "engine::memory"],
        "-Zmiri-permissive-provenance",
        "8",
    ),
];
const STRICT: &str = "-Zmiri-strict-provenance";

/// A GPU whose only fence is the one that both releases and acquires.
const OLDER_GPU_RUSTFLAGS: &str = "-Ctarget-cpu=sm_80 -Ctarget-feature=+ptx82";

/// The packages that have models for loom: under `--cfg loom` their test binary has no other tests.
const LOOM: [&str; 2] = ["warpbell", PATTERNS];

/// How many times loom lets one thread interrupt another; more finds hardly more and takes hours.
const LOOM_MAX_PREEMPTIONS: &str = "3";

// Deadlines end what hangs, and nothing else: no busy machine comes near them.

/// How long a build, or a build with its tests, may take.
const BUILD_DEADLINE: Duration = minutes(60);
/// How long a fuzz target may take besides its inputs.
const FUZZ_START: Duration = minutes(20);
/// A fuzz target that is slower than this for each input is stuck.
const FUZZ_PER_INPUT: Duration = Duration::from_millis(1);

const fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// Why a step broke off.
#[derive(Debug, Error)]
pub enum StepError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error(transparent)]
    Ptx(#[from] PtxError),
    #[error(transparent)]
    Dist(#[from] DistError),
    #[error("Cargo did not say where it built {0}")]
    Unbuilt(&'static str),
}

/// How much of the steps runs.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// `bench`, `papers` and `proofs`, too, clippy with each set of features, more drops, and the suite on CPUs with a NIC
    /// among the kernels.
    pub full: bool,
    /// How many inputs each fuzz target gets.
    pub fuzz_runs: u64,
}

/// What every step works with.
pub struct Steps<'a> {
    pub workspace: &'a Workspace,
    pub spinner: &'a ProgressBar,
    pub extent: Extent,
}

impl Steps<'_> {
    /// Runs one step, whose tools must be there.
    pub fn run(&self, step: Step) -> Report {
        let mut report = Report::default();
        let result = match step {
            Step::Fmt => self.fmt(&mut report),
            Step::Clippy => self.clippy(&mut report),
            Step::Test => self.test(&mut report),
            Step::Proofs => self.proofs(&mut report),
            Step::Programs => self.programs(&mut report),
            Step::Rxe => self.rxe(&mut report),
            Step::HwTests => self.hw_tests(&mut report),
            Step::Loom => self.loom(&mut report),
            Step::Miri => self.miri(&mut report),
            Step::PtxSources => self.ptx_sources(&mut report),
            Step::Ptx => self.ptx(&mut report),
            Step::Sanitizers => self.sanitizers(&mut report),
            Step::Differential => self.differential(&mut report),
            Step::Rounds => self.rounds(&mut report),
            Step::OlderGpu => self.older_gpu(&mut report),
            Step::RustCuda => self.rust_cuda(&mut report),
            Step::Cust => self.cust(&mut report),
            Step::Fuzz => self.fuzz(&mut report),
            Step::Doc => self.doc(&mut report),
            Step::Book => self.book(&mut report),
            Step::Demo => self.demo(&mut report),
            Step::Gallery => self.gallery(&mut report),
            Step::Ranks => self.ranks(&mut report),
            Step::Faults => self.faults(&mut report),
            Step::Flash => self.flash(&mut report),
            Step::Template => self.template(&mut report),
            Step::Packages => self.packages(&mut report),
            Step::Dist => self.dist(&mut report),
            Step::DistBuild => self.dist_build(&mut report),
            Step::Card => self.card(&mut report),
        };
        if let Err(error) = result {
            report.fail(&step.name(), error.to_string());
        }
        report
    }

    fn fmt(&self, report: &mut Report) -> Result<(), StepError> {
        let mut command = self.workspace.cargo();
        command.args(["fmt", "--all", "--check", "--", "--color=never"]);
        report.check("cargo fmt", &self.capture(command, BUILD_DEADLINE)?);
        let others = [
            self.fuzz_folder(),
            Some(rust_cuda::cuda_std(&self.workspace.root)),
        ];
        for folder in others.into_iter().flatten() {
            let mut command = self.workspace.cargo();
            command
                .args(["fmt", "--check", "--", "--color=never"])
                .current_dir(&folder);
            let title = format!("cargo fmt in {}", folder.display());
            report.check(&title, &self.capture(command, BUILD_DEADLINE)?);
        }
        Ok(())
    }

    /// The features of the first call are all that there are. The others show that none of them needs another one; they
    /// compile much again, and run with the full extent. Without it the default members of the workspace are enough.
    fn clippy(&self, report: &mut Report) -> Result<(), StepError> {
        let cust = format!("{HOST_INIT}/cust,{RANKS}/launch");
        let mlx5 = format!("{HOST_INIT}/mlx5");
        let calls: [(&str, &[&str]); 5] = [
            ("cargo clippy", &["--all-targets", "--features", &cust]),
            (
                "cargo clippy without std, hosts and NICs of software",
                &[
                    "-p",
                    SOFT_HCA,
                    "-p",
                    SOFT_HCA_GPU,
                    "-p",
                    PATTERNS,
                    "-p",
                    HOST_INIT,
                    "--features",
                    &mlx5,
                ],
            ),
            (
                "cargo clippy with NICs of software alone",
                &["-p", HOST_INIT, "--features", "soft"],
            ),
            (
                "cargo clippy with cards and GPUs",
                &["-p", HOST_INIT, "--features", "cuda,mlx5,ranks"],
            ),
            // As a user builds it; the step that runs it builds others beside it, whose features it would get.
            ("cargo clippy of the demo alone", &["-p", DEMO_PACKAGE]),
        ];
        let Some(driver) = self.fake_driver(report)? else {
            return Ok(());
        };
        let count = if self.extent.full { calls.len() } else { 1 };
        for (number, (title, args)) in calls.into_iter().take(count).enumerate() {
            let mut command = self.workspace.cargo();
            command.arg("clippy").args(args);
            command.args(match number {
                0 => self.extent.full.then_some("--workspace"),
                _ => Some("--no-default-features"),
            });
            command.args(["--", "-D", "warnings"]);
            command.env("CUDA_LIBRARY_PATH", &driver);
            report.check(title, &self.capture(command, BUILD_DEADLINE)?);
        }
        Ok(())
    }

    fn test(&self, report: &mut Report) -> Result<(), StepError> {
        let mut command = self.workspace_cargo("test");
        command.arg("--no-fail-fast");
        if self.extent.full && std::env::var_os(DROPS).is_none() {
            command.env(DROPS, MANY_DROPS);
        }
        if !self.extent.full {
            // Some wait for a deadline, and leave their core to others. Those of the papers spin on all cores.
            command.env("RUST_TEST_THREADS", TEST_THREADS);
        }
        command.arg("--");
        if rustix::process::geteuid().is_root() {
            // Elsewhere tests that need another user are ignored: only root can become one.
            command.arg("--include-ignored");
        }
        let long = LONG.into_iter().filter(|_| !self.extent.full);
        let left_out = JUDGED.into_iter().chain([ROUNDS]).chain(long);
        command.args(left_out.flat_map(|test| ["--skip", test]));
        report.tests("cargo test", &self.capture(command, BUILD_DEADLINE)?);
        Ok(())
    }

    /// A call of Cargo for the packages of [`Step::Test`] with its features, so that all calls share what is built.
    fn workspace_cargo(&self, subcommand: &str) -> Command {
        let mut command = self.workspace.cargo();
        command
            .args([subcommand, "--workspace", "--features", TEST_FEATURES])
            // The proofs have a step of their own.
            .args(["--exclude", PROOFS]);
        if !self.extent.full {
            command.args(
                PAPERS
                    .iter()
                    .chain([&BENCH])
                    .flat_map(|package| ["--exclude", package]),
            );
        }
        command
    }

    fn proofs(&self, report: &mut Report) -> Result<(), StepError> {
        let mut command = self.workspace.cargo();
        command
            .args(["test", "--workspace", "--features", TEST_FEATURES])
            .args(["--no-fail-fast", "--test", "proofs"]);
        report.tests("the proofs", &self.capture(command, BUILD_DEADLINE)?);
        let mut command = self.workspace.cargo();
        command
            .args(["test", "--workspace", "--features", TEST_FEATURES])
            .args(["--test", TESTS, "--", "--ignored"])
            .args(JUDGED)
            .env("WARPBELL_SCAPY", tools::scapy_python(self.workspace))
            .env("WARPBELL_PERFETTO", tools::perfetto_python(self.workspace))
            .env("WARPBELL_PROMTOOL", unpacked::promtool(self.workspace));
        report.tests(
            "scapy, SimGrid, promtool and Perfetto",
            &self.capture(command, BUILD_DEADLINE)?,
        );
        Ok(())
    }

    fn loom(&self, report: &mut Report) -> Result<(), StepError> {
        let mut command = self.workspace.cargo();
        command
            .args(["test", "--profile", optimised::PROFILE])
            .args(["--no-fail-fast", "--test", TESTS])
            .env("RUSTFLAGS", "--cfg loom")
            .env("LOOM_MAX_PREEMPTIONS", LOOM_MAX_PREEMPTIONS)
            .env("CARGO_TARGET_DIR", self.workspace.target.join("loom"));
        for package in LOOM {
            command.args(["-p", package]);
        }
        report.tests("loom", &self.capture(command, BUILD_DEADLINE)?);
        Ok(())
    }

    fn miri(&self, report: &mut Report) -> Result<(), StepError> {
        // Once for all calls, which would each build it.
        let mut setup = tools::nightly_cargo(self.workspace);
        setup.args(["miri", "setup"]);
        if !report.check(
            "miri's standard library",
            &self.capture(setup, BUILD_DEADLINE)?,
        ) {
            return Ok(());
        }
        let interpret = |(package, args, provenance, cases): (&str, &[&str], &str, &str)| {
            // Property tests read the environment and their files, which isolation forbids.
            let mut command = tools::nightly_cargo(self.workspace);
            command
                .args(["miri", "test", "--no-fail-fast", "-p", package])
                .args(args)
                .env(
                    "MIRIFLAGS",
                    format!("{provenance} -Zmiri-disable-isolation"),
                )
                .env("PROPTEST_CASES", cases);
            self.capture(command, BUILD_DEADLINE)
        };
        let finished = run::beside_each_other(&MIRI, |call| interpret(*call))?;
        for ((package, ..), finished) in MIRI.iter().zip(&finished) {
            report.tests(&format!("miri {package}"), finished);
        }
        Ok(())
    }

    /// Builds the standard library with each sanitizer, too: otherwise it sees neither what std synchronises nor what
    /// std touches.
    fn sanitizers(&self, report: &mut Report) -> Result<(), StepError> {
        let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        for sanitizer in SANITIZERS {
            let mut build = tools::nightly_cargo(self.workspace);
            build
                .args(["test", "--no-run", "-Zbuild-std", "--lib", "--target"])
                .args([&target, "--message-format=json-render-diagnostics"])
                .env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"))
                .env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only")
                .env("CARGO_TARGET_DIR", self.workspace.target.join(sanitizer));
            for (package, _) in SANITIZED {
                build.args(["-p", package]);
            }
            let built = self.capture(build, BUILD_DEADLINE)?;
            if !built.success() {
                let title = format!("the build with {sanitizer} sanitizer");
                report.fail(&title, without_json(&built.account()));
                continue;
            }
            for (package, tests) in SANITIZED {
                let title = format!("{package} with {sanitizer} sanitizer");
                let name = package.replace('-', "_");
                let Some(path) = executable(&built.stdout, &name) else {
                    report.fail(&title, "Cargo did not say where it built this test");
                    continue;
                };
                let mut command = clean_command(path, &self.workspace.root);
                command.args(tests);
                if std::env::var_os(DROPS).is_none() {
                    command.env(DROPS, SANITIZED_DROPS);
                }
                report.tests(&title, &self.capture(command, BUILD_DEADLINE)?);
            }
        }
        Ok(())
    }

    /// Sources, toolchain and flags decide what the PTX is: where their hash is the committed one, so is the PTX, unless
    /// somebody has changed a file by hand. `Ptx` sees that.
    fn ptx_sources(&self, report: &mut Report) -> Result<(), StepError> {
        let changed = ptx::sources_changed(self.workspace)?;
        let problem = "they have changed since the PTX was made: run cargo xtask ptx";
        report.list(
            "the kernels' sources",
            &Vec::from_iter(changed.then(|| problem.to_owned())),
        );
        Ok(())
    }

    fn ptx(&self, report: &mut Report) -> Result<(), StepError> {
        let built = ptx::build(self.workspace, self.spinner)?;
        let checks = [
            ("local memory", built.problems().to_vec()),
            ("the record", built.changes()?),
            ("the prebuilt PTX", built.outdated()),
        ];
        for (title, problems) in checks {
            report.list(title, &problems);
        }
        Ok(())
    }

    /// What the PTX's build leaves to LLVM, which changes the fences' names: crates elsewhere compile for such a GPU from
    /// the sources.
    fn older_gpu(&self, report: &mut Report) -> Result<(), StepError> {
        let mut command = tools::nightly_cargo(self.workspace);
        command
            .args(["check", "--locked", "-Zbuild-std=core"])
            .args(["--target", ptx::rustc::GPU])
            .current_dir(self.workspace.root.join("ptx/module"))
            .env("RUSTFLAGS", OLDER_GPU_RUSTFLAGS)
            .env("CARGO_TARGET_DIR", self.workspace.target.join("nvptx"));
        report.check(
            "the kernels for an older GPU",
            &self.capture(command, BUILD_DEADLINE)?,
        );
        Ok(())
    }

    /// A folder with a driver that is a fake, for the build of cust, which looks for one; nothing where it does not build.
    fn fake_driver(&self, report: &mut Report) -> Result<Option<PathBuf>, StepError> {
        let driver = self.workspace.target.join("fake-cuda");
        let library = driver.join("lib64");
        std::fs::create_dir_all(&library)?;
        let mut build = clean_command("cc", &self.workspace.root);
        build
            .args(["-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o"])
            .arg(library.join("libcuda.so.1"))
            .arg("host-init/tests/fake_cuda.c");
        let built = self.capture(build, BUILD_DEADLINE)?;
        if !built.success() {
            report.fail("the fake driver", built.account());
            return Ok(None);
        }
        std::fs::write(library.join("libcuda.so"), "INPUT(libcuda.so.1)\n")?;
        Ok(Some(driver))
    }

    /// Links with the fake driver: cust links with the driver.
    fn cust(&self, report: &mut Report) -> Result<(), StepError> {
        let Some(driver) = self.fake_driver(report)? else {
            return Ok(());
        };
        let call = |args: &[&str]| {
            let mut command = self.workspace.cargo();
            command
                .args(args)
                // All but host-init is what the tests have built.
                .args(["--workspace", "--features"])
                .arg(format!("{TEST_FEATURES},{HOST_INIT}/cust"))
                .env("CUDA_LIBRARY_PATH", &driver)
                .env("LD_LIBRARY_PATH", driver.join("lib64"));
            self.capture(command, BUILD_DEADLINE)
        };
        report.check("the example", &call(&["build", "--example", "cust"])?);
        report.tests("host-init with cust", &call(&["test", "--test", "cust"])?);
        Ok(())
    }

    fn fuzz(&self, report: &mut Report) -> Result<(), StepError> {
        let Some(folder) = self.fuzz_folder() else {
            report.skip("there are no fuzz targets");
            return Ok(());
        };
        let call = |subcommand: &str| {
            let mut command = tools::cargo_fuzz(self.workspace);
            command
                .arg(subcommand)
                .arg("--target-dir")
                .arg(self.workspace.target.join("fuzz"));
            command
        };
        let built = self.capture(call("build"), BUILD_DEADLINE)?;
        if !built.success() {
            report.fail("building the fuzz targets", built.account());
            return Ok(());
        }
        let runs = self.extent.fuzz_runs;
        let inputs = u32::try_from(runs).unwrap_or(u32::MAX);
        let deadline = FUZZ_START + FUZZ_PER_INPUT.saturating_mul(inputs);
        let workspace = Workspace::load(&folder)?;
        let packages = workspace.packages();
        let targets: Vec<_> = packages
            .flat_map(|package| workspace.targets(package, "bin"))
            .collect();
        let finished = run::beside_each_other(&targets, |target| {
            let mut command = call("run");
            // Long inputs from the start: a short one tells a decoder nothing.
            command.args([
                target,
                "--",
                "-timeout=60",
                "-max_len=1024",
                "-len_control=0",
            ]);
            command.arg(format!("-runs={runs}"));
            self.capture(command, deadline)
        })?;
        for (target, finished) in targets.iter().zip(&finished) {
            let title = format!("fuzz {target}");
            let ran = count::fuzz_runs(&finished.output);
            if finished.success() && ran.is_none_or(|ran| ran < runs) {
                report.fail(&title, finished.account());
            } else {
                report.check(&title, finished);
            }
        }
        Ok(())
    }

    fn doc(&self, report: &mut Report) -> Result<(), StepError> {
        let mut command = self.workspace.cargo();
        command
            .args(["doc", "--no-deps"])
            .args(self.extent.full.then_some("--workspace"))
            .env("RUSTDOCFLAGS", "-D warnings");
        report.check("cargo doc", &self.capture(command, BUILD_DEADLINE)?);
        Ok(())
    }

    /// Builds the book, and looks for dead links there and in all pages of the repository.
    fn book(&self, report: &mut Report) -> Result<(), StepError> {
        let root = &self.workspace.root;
        let mut command = clean_command(tools::mdbook(self.workspace), root);
        let site = self.workspace.target.join("book");
        command.args(["build", "docs", "--dest-dir"]).arg(&site);
        let built = self.capture(command, BUILD_DEADLINE)?;
        let complains = |line: &&str| ["WARN", "ERROR"].iter().any(|word| line.contains(word));
        let complaints: Vec<_> = built
            .output
            .lines()
            .filter(complains)
            .map(str::to_owned)
            .collect();
        if !report.check("mdbook build", &built) {
            return Ok(());
        }
        report.list("warnings of mdbook", &complaints);
        let dead = book::dead_in_site(&site)?;
        report.list("links of the book", &dead);

        let mut command = clean_command("git", root);
        command.args(["ls-files", "*.md"]);
        let listed = self.capture(command, BUILD_DEADLINE)?;
        let there = |page: &&str| root.join(page).is_file();
        let pages: Vec<_> = listed.stdout.lines().filter(there).collect();
        report.list("links of pages", &book::dead_in_pages(root, &pages)?);
        let mut long = Vec::new();
        for page in pages {
            if page == "README.md" || page.starts_with("docs/tutorial/") {
                let text = fs::read_to_string(root.join(page))?;
                long.extend(book::long_sentences(page, &text));
            }
        }
        report.list("sentences for newcomers", &long);
        Ok(())
    }

    /// Runs a command and shows its newest line.
    fn capture(&self, command: Command, deadline: Duration) -> Result<Finished, RunError> {
        run::capture(command, deadline, |line| {
            self.spinner.set_message(line.trim().to_owned());
        })
    }

    /// The workspace of the fuzz targets, where there is one.
    fn fuzz_folder(&self) -> Option<PathBuf> {
        let folder = self.workspace.root.join("fuzz");
        folder.join("Cargo.toml").is_file().then_some(folder)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_step_has_a_name_of_its_own() {
        let names: HashSet<_> = Step::value_variants()
            .iter()
            .map(|step| step.name())
            .collect();
        assert_eq!(names.len(), Step::value_variants().len());
        assert!(names.contains("hw-tests"));
    }
}
