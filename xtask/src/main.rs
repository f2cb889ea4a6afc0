//! The project's own commands: `cargo xtask test`, `fuzz`, `mutants`, `ptx`, `bench`, `launch`, `flash`, `doctor`,
//! `dist` and `house`.

mod built;
mod count;
mod dist;
mod flash;
mod house;
mod installs;
mod launch;
mod mutants;
mod ptx;
mod report;
mod run;
mod say;
mod steps;
mod tools;
mod workspace;

use std::env;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::builder::PossibleValuesParser;
use clap::{Parser, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use thiserror::Error;

use count::Counts;
use dist::DistError;
use flash::{Flash, FlashError};
use house::HouseError;
use installs::{Installs, Missing};
use launch::{Launch, LaunchError, become_launcher};
use mutants::{Group, MutantsError};
use ptx::by_rust_cuda;
use ptx::rust_cuda::{COMPONENTS, Checkout};
use ptx::{Compiler, PtxError};
use report::{Failure, Report};
use run::{Ending, RunError};
use say::say;
use steps::{BENCH, Extent, PROGRAMS, PROOFS, Step, Steps};
use tools::{Tool, Toolbox};
use workspace::{Workspace, WorkspaceError, clean_command};

/// How many inputs a fuzz target gets in `test`, which is to stay short, and in `fuzz`.
const SHORT_FUZZ_RUNS: u64 = 200_000;
const FULL_FUZZ_RUNS: u64 = 5_000_000;

/// How long a benchmark may take, with its build.
const BENCH_DEADLINE: Duration = Duration::from_secs(60 * 60);

/// As a shell has it, for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// The package that looks a node over, and its program.
const DOCTOR: &str = "warpbell-doctor";

/// The project's own commands.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Install what the tests need, then run the daily steps, or all steps with --full
    Test {
        /// Run every step, not only the daily ones
        #[arg(long)]
        full: bool,
        /// Run only this step, daily or not (may be repeated)
        #[arg(long, value_name = "STEP")]
        only: Vec<Step>,
        /// Leave this step out (may be repeated)
        #[arg(long, value_name = "STEP")]
        skip: Vec<Step>,
        /// Inputs for each fuzz target
        #[arg(long, value_name = "N", default_value_t = SHORT_FUZZ_RUNS)]
        fuzz_runs: u64,
        /// Install nothing; a step that lacks a tool fails and names it
        #[arg(long)]
        no_install: bool,
        /// List the steps, run nothing
        #[arg(long)]
        list: bool,
    },
    /// Run the fuzz targets for a long time
    Fuzz {
        /// Inputs for each fuzz target
        #[arg(long, value_name = "N", default_value_t = FULL_FUZZ_RUNS)]
        runs: u64,
    },
    /// Change the sources a little at a time, and count the changes that no test detects
    Mutants {
        /// Change only this group's sources (may be repeated)
        #[arg(long, value_name = "GROUP")]
        group: Vec<Group>,
        /// Run a part: the Kth of N, from 0
        #[arg(long, value_name = "K/N")]
        shard: Option<String>,
    },
    /// Compile the kernels to PTX, check them, and renew the prebuilt PTX
    Ptx {
        /// Who compiles them; Rust-CUDA's PTX goes to target/rust-cuda, and its record beside rustc's
        #[arg(long, value_enum, default_value_t = Compiler::Rustc)]
        compiler: Compiler,
        /// A checkout of Rust-CUDA
        #[arg(long, value_name = "DIR", required_if_eq("compiler", "rust-cuda"))]
        source: Option<PathBuf>,
        /// Build for this GPU alone, by Rust-CUDA (may be repeated)
        #[arg(long, value_name = "GPU", value_parser = PossibleValuesParser::new(ptx::target_names()), requires = "source", conflicts_with = "renew_record")]
        target: Vec<String>,
        /// Change no file: compare with the prebuilt PTX and the record
        #[arg(long, conflicts_with = "renew_record")]
        check: bool,
        /// Accept the present cost of the kernels
        #[arg(long)]
        renew_record: bool,
    },
    /// Run a benchmark, such as `posting`, `pingpong` or `libmlx5`; `help` lists them
    Bench {
        /// A benchmark of the command `bench`, or of the proofs: `libmlx5`, `programs`
        name: String,
        /// Arguments of the benchmark
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Start a program as several ranks, on this machine or on others; `--` goes before its arguments
    Launch {
        /// How many ranks
        #[arg(short = 'n', long, value_name = "NUMBER")]
        ranks: u32,
        /// The hosts, such as node1:4,node2:4; they need this folder, too
        #[arg(long, value_name = "HOSTS")]
        hosts: Option<String>,
        /// What starts a command on a host, in place of ssh
        #[arg(long, value_name = "PROGRAM", requires = "hosts")]
        rsh: Option<String>,
        /// Where the other ranks reach rank 0, if not by the first host's name
        #[arg(long, value_name = "ADDRESS", requires = "hosts")]
        address: Option<String>,
        /// The wire between the software NICs of all ranks, shm or roce, in place of the best one for each two
        #[arg(long, value_name = "WIRE")]
        wire: Option<String>,
        /// End all ranks after so many seconds, with status 124
        #[arg(long, value_name = "SECONDS")]
        deadline: Option<u64>,
        /// Build with optimisations
        #[arg(long)]
        release: bool,
        /// An example or a program of the workspace, or a path; and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<String>,
    },
    /// Copy the programs to other machines by ssh, look these over, and run a program there as ranks
    Flash(Flash),
    /// Check whether this machine has what a GPU-driven queue needs
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Build all programs for machines without Rust: a folder, an archive and a Debian package in target/dist
    Dist {
        /// The machines' processor; another one than here takes its cross-compiler
        #[arg(long, value_enum, default_value_t)]
        target: dist::Target,
    },
    /// Count the workspace's figures, and print each beside its goal
    House,
}

/// Why a command could not do its work.
#[derive(Debug, Error)]
enum CommandError {
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Ptx(#[from] PtxError),
    #[error(transparent)]
    Mutants(#[from] MutantsError),
    #[error(transparent)]
    House(#[from] HouseError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Dist(#[from] DistError),
    #[error(transparent)]
    Flash(#[from] FlashError),
    #[error(transparent)]
    Tool(#[from] Missing),
    #[error("cannot handle Ctrl-C: {0}")]
    CtrlC(#[from] ctrlc::Error),
}

fn main() -> ExitCode {
    if env::var_os(ptx::nvvm::AS_NVVM).is_some() {
        return ptx::nvvm::become_compiler(env::args_os().skip(1));
    }
    if env::var_os(ptx::rustc::AS_RUSTC).is_some() {
        return ptx::rustc::become_rustc(env::args_os().skip(1));
    }
    let done = match Arguments::try_parse() {
        Ok(arguments) => act(arguments.command),
        Err(wrong) if wrong.use_stderr() => wrong.exit(),
        Err(help) => {
            say::note(help.print().and_then(|()| io::stdout().flush()));
            Ok(0)
        }
    };
    match (done, say::unsaid()) {
        (Err(error), _) => {
            say::complain(format_args!("{error}"));
            ExitCode::from(2)
        }
        (Ok(_), Some(error)) => {
            say::complain(format_args!("cannot print: {error}"));
            ExitCode::FAILURE
        }
        (Ok(status), None) => ExitCode::from(status),
    }
}

/// Carries a command out, and gives the status of this process.
fn act(action: Action) -> Result<u8, CommandError> {
    let on_ctrl_c = match action {
        // It removes what is its own before it ends.
        Action::Flash(_) => flash::stop,
        _ => || {
            run::kill_running();
            std::process::exit(INTERRUPTED.into());
        },
    };
    ctrlc::set_handler(on_ctrl_c)?;
    let done = match action {
        Action::Flash(flash) => return Ok(flash::flash(&flash)?),
        Action::Test { list: true, .. } => {
            for step in Step::value_variants() {
                let kind = if step.is_daily() { "" } else { "--full" };
                let label = format!("{:<12} {kind:<6} ", step.name());
                say!("{}", say::wrap(&label, step.summary(), say::columns()));
            }
            Ok(true)
        }
        Action::Test {
            full,
            only,
            skip,
            fuzz_runs,
            no_install,
            list: false,
        } => {
            let (chosen, left_out): (Vec<_>, Vec<_>) = Step::value_variants()
                .iter()
                .partition(|step| chosen(**step, full, &only, &skip));
            let extent = Extent { full, fuzz_runs };
            test(&chosen, &left_out, extent, Installs::chosen(no_install))
        }
        Action::Fuzz { runs } => {
            let extent = Extent {
                full: true,
                fuzz_runs: runs,
            };
            test(&[Step::Fuzz], &[], extent, Installs::chosen(false))
        }
        Action::Mutants { group, shard } => count_mutants(&group, shard.as_deref()),
        Action::Ptx {
            compiler: Compiler::Rustc,
            check,
            renew_record,
            ..
        } => build_ptx(check, renew_record),
        Action::Ptx {
            source,
            target,
            check,
            renew_record,
            ..
        } => build_by_rust_cuda(&source.unwrap_or_default(), &target, check, renew_record),
        Action::Bench { name, arguments } => bench(&name, &arguments),
        Action::Launch {
            ranks,
            hosts,
            rsh,
            address,
            wire,
            deadline,
            release,
            program,
        } => {
            let deadline = deadline.map(|seconds| seconds.to_string());
            let options = [
                ("--hosts", hosts),
                ("--rsh", rsh),
                ("--address", address),
                ("--wire", wire),
                ("--deadline", deadline),
            ];
            let launch = Launch {
                ranks,
                options,
                release,
                program: &program,
            };
            match become_launcher(&launch)? {}
        }
        Action::Doctor { json } => Err(become_doctor(json).into()),
        Action::Dist { target } => distribute(target),
        Action::House => {
            house::count_and_print(&Workspace::load(Path::new("."))?.root)?;
            Ok(true)
        }
    };
    done.map(|good| u8::from(!good))
}

/// Whether a step is to run, by the options `--full`, `--only` and `--skip`.
fn chosen(step: Step, full: bool, only: &[Step], skip: &[Step]) -> bool {
    let asked = match only {
        [] => full || step.is_daily(),
        _ => only.contains(&step),
    };
    asked && !skip.contains(&step)
}

/// How many steps run at a time where they may: processes of one thread leave a core idle, and two cores are what is
/// certain.
const AT_A_TIME: usize = 2;
/// By how much steps that can wait give way to others: by all that there is.
const GIVES_WAY: i32 = 19;

/// Runs steps, prints a line for each and the counts at the end; false if anything failed.
fn test(
    chosen: &[Step],
    left_out: &[Step],
    extent: Extent,
    installs: Installs,
) -> Result<bool, CommandError> {
    let started = Instant::now();
    let workspace = Workspace::load(Path::new("."))?;
    let spinner = spinner();
    let needs: Vec<_> = chosen
        .iter()
        .flat_map(|step| step.needs())
        .copied()
        .collect();
    let toolbox = Mutex::new(Toolbox::new(&workspace, &spinner, installs, &needs));
    let steps = Steps {
        workspace: &workspace,
        spinner: &spinner,
        extent,
    };
    let carry_out = |step: &Step| {
        spinner.set_prefix(step.name());
        spinner.set_message("");
        let tools = {
            let mut toolbox = toolbox.lock().unwrap_or_else(PoisonError::into_inner);
            toolbox.ensure(step.needs())
        };
        let step_started = Instant::now();
        let report = match tools {
            Ok(()) => steps.run(*step),
            Err(missing) => Report::without(&step.name(), &missing),
        };
        spinner.suspend(|| print_report(*step, &report, step_started.elapsed()));
        let name = step.name();
        let short = report.failures.iter().flat_map(Failure::in_short);
        let short = short.map(|line| format!("failed: {name}: {line}"));
        (report.counts, short.collect::<Vec<_>>())
    };
    let (patient, others): (Vec<_>, Vec<_>) = chosen.iter().partition(|step| step.can_wait());
    let ended = thread::scope(|scope| {
        let beside = scope.spawn(|| {
            // This thread's, and that of all that it starts. Whoever may not lower it has the same right to the processors.
            let _ = rustix::process::nice(GIVES_WAY);
            Vec::from_iter(patient.iter().map(carry_out))
        });
        let groups = others.chunk_by(|one, next| one.stands_apart() && next.stands_apart());
        let at_a_time = |group| run::so_many_at_a_time(AT_A_TIME, group, carry_out);
        let mut ended = Vec::from_iter(groups.flat_map(at_a_time));
        ended.extend(beside.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended
    });
    let mut total = Counts::default();
    let mut failures = Vec::new();
    for (counts, short) in ended {
        total += counts;
        failures.extend(short);
    }
    spinner.finish_and_clear();
    if !left_out.is_empty() {
        let names: Vec<_> = left_out.iter().map(|step| step.name()).collect();
        say!("left out: {}", names.join(", "));
    }
    // Once more, because their output may be far above.
    failures.iter().for_each(|line| say!("{line}"));
    say!("took {}", in_words(started.elapsed()));
    say!("{total}");
    Ok(total.failed == 0)
}

/// Prints a step's counts, why it skipped what, and the output of what failed.
fn print_report(step: Step, report: &Report, took: Duration) {
    for failure in &report.failures {
        say!("---- {} ----\n{}", failure.title, failure.output.trim_end());
    }
    for why in &report.skips {
        say!("skipped: {}: {why}", step.name());
    }
    let counts = report.counts.to_string();
    say!("{:<12} {counts:<32} {}", step.name(), in_words(took));
}

/// A time such as `9 min 3 s`, or `3.2 s` under a minute.
fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{} min {} s", seconds / 60, seconds % 60)
    }
}

/// A spinner with the step and the newest line of its output; hidden where there is no terminal.
fn spinner() -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix}: {wide_msg}") {
        spinner.set_style(style);
    }
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

/// Counts the mutants of groups, or of all, that the tests catch; false if a group is below its goal.
fn count_mutants(chosen: &[Group], shard: Option<&str>) -> Result<bool, CommandError> {
    let started = Instant::now();
    let workspace = Workspace::load(Path::new("."))?;
    let spinner = spinner();
    let needs = [Tool::CargoMutants];
    Toolbox::new(&workspace, &spinner, Installs::chosen(false), &needs).ensure(&needs)?;
    let mut enough = true;
    for group in Group::value_variants() {
        if chosen.is_empty() || chosen.contains(group) {
            let counted = mutants::count(&workspace, &spinner, *group, shard)?;
            spinner.suspend(|| counted.print());
            enough &= counted.is_enough();
        }
    }
    spinner.finish_and_clear();
    say!("took {}", in_words(started.elapsed()));
    Ok(enough)
}

/// Compiles the kernels to PTX and says what is wrong; false if anything is.
fn build_ptx(check: bool, renew_record: bool) -> Result<bool, CommandError> {
    let started = Instant::now();
    let workspace = Workspace::load(Path::new("."))?;
    let spinner = spinner();
    let needs = [Tool::Nightly, Tool::Ptxas];
    Toolbox::new(&workspace, &spinner, Installs::chosen(false), &needs).ensure(&needs)?;
    let built = ptx::build(&workspace, &spinner)?;
    spinner.finish_and_clear();
    let changes = built.changes()?;
    let mut wrong = built.problems().to_vec();
    if check {
        wrong.extend(built.outdated());
    } else if wrong.is_empty() && (renew_record || changes.is_empty()) {
        built.write()?;
    }
    for change in &changes {
        say!("recorded otherwise: {change}");
    }
    for problem in &wrong {
        say!("wrong: {problem}");
    }
    if renew_record && wrong.is_empty() {
        built.write_record()?;
        say!("the record is renewed");
    } else if !changes.is_empty() {
        say!("if that is meant: cargo xtask ptx --renew-record");
    }
    say!("took {}", in_words(started.elapsed()));
    Ok(wrong.is_empty() && (renew_record || changes.is_empty()))
}

/// Compiles the kernels to PTX by Rust-CUDA and says what is wrong; false if anything is.
fn build_by_rust_cuda(
    source: &Path,
    targets: &[String],
    check: bool,
    renew_record: bool,
) -> Result<bool, CommandError> {
    let started = Instant::now();
    let workspace = Workspace::load(Path::new("."))?;
    let checkout = Checkout::find(source)?;
    if let Some(warning) = checkout.warning() {
        say!("warning: {warning}");
    }
    let spinner = spinner();
    let needs = [Tool::Nightly, Tool::Ptxas, Tool::Llvm, Tool::Cuda];
    let mut toolbox = Toolbox::new(&workspace, &spinner, Installs::chosen(false), &needs);
    toolbox.ensure(&needs)?;
    toolbox.ensure_nightly(&checkout.nightly, &COMPONENTS)?;
    let built = by_rust_cuda::build(&workspace, &spinner, &checkout, &ptx::targets(targets))?;
    spinner.finish_and_clear();
    for problem in &built.problems {
        say!("wrong: {problem}");
    }
    let whole = targets.is_empty();
    let changes = if whole { built.changes()? } else { Vec::new() };
    if renew_record && built.problems.is_empty() {
        built.write_record()?;
        built.write_pack()?;
        say!("the record and the packed PTX are renewed");
    } else if !changes.is_empty() {
        for change in &changes {
            say!("recorded otherwise: {change}");
        }
        say!("if that is meant: add --renew-record");
    }
    if !check {
        for file in &built.files {
            say!("{}", file.display());
        }
    }
    say!("from the built backend to PTX in {}", in_words(built.took));
    for (column, ratio) in built.ratios() {
        say!("{column:<9} {ratio:.3} of rustc's");
    }
    say!("took {}", in_words(started.elapsed()));
    Ok(built.problems.is_empty() && (renew_record || changes.is_empty()))
}

/// Runs a benchmark with its arguments; false if it failed. Those of the proofs compile C, and stay there.
fn bench(name: &str, arguments: &[String]) -> Result<bool, CommandError> {
    let workspace = Workspace::load(Path::new("."))?;
    let target = format!("bench-{name}");
    let mut command = workspace.cargo();
    if workspace.targets(PROOFS, "bench").contains(&&*target) {
        command.args(["bench", "--quiet", "-p", PROOFS, "--bench", &target, "--"]);
    } else if name == PROGRAMS {
        command.args(["run", "--quiet", "--release", "-p", PROOFS, "--"]);
    } else {
        command.args(["run", "--quiet", "--release", "-p", BENCH, "--", name]);
    }
    command.args(arguments);
    match run::forward(command, BENCH_DEADLINE)? {
        Ending::Exited(status) => Ok(status.success()),
        Ending::TimedOut(deadline) => {
            let took = in_words(deadline);
            say::complain(format_args!("{name} was killed after {took}"));
            Ok(false)
        }
    }
}

/// Builds what goes to machines without Rust, and says what it made.
fn distribute(target: dist::Target) -> Result<bool, CommandError> {
    let started = Instant::now();
    let workspace = Workspace::load(Path::new("."))?;
    let spinner = spinner();
    // Compiles the gallery's kernels.
    let needs = [Tool::Nightly];
    Toolbox::new(&workspace, &spinner, Installs::chosen(false), &needs).ensure(&needs)?;
    let made = dist::make(&workspace, target, &spinner)?;
    spinner.finish_and_clear();
    for line in made.lines()? {
        say!("{line}");
    }
    say!("took {}", in_words(started.elapsed()));
    Ok(true)
}

/// Puts Cargo, and then the doctor, in this process's place: the status is the doctor's. Comes back only if Cargo is not there.
fn become_doctor(json: bool) -> RunError {
    let mut command = clean_command("cargo", Path::new("."));
    command.args(["run", "--quiet", "-p", DOCTOR, "--"]);
    command.args(json.then_some("--json"));
    RunError::Start {
        program: "cargo".into(),
        source: command.exec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_and_skip_choose_steps() {
        for full in [false, true] {
            assert!(chosen(Step::Doc, full, &[], &[]));
            assert!(chosen(Step::Doc, full, &[Step::Doc], &[]));
            assert!(!chosen(Step::Doc, full, &[Step::Fmt], &[]));
            assert!(!chosen(Step::Doc, full, &[], &[Step::Doc]));
            assert!(!chosen(Step::Doc, full, &[Step::Doc], &[Step::Doc]));
        }
    }

    #[test]
    fn steps_that_are_not_daily_run_when_asked_for() {
        assert!(!chosen(Step::Miri, false, &[], &[]));
        assert!(chosen(Step::Miri, true, &[], &[]));
        assert!(chosen(Step::Miri, false, &[Step::Miri], &[]));
        assert!(!chosen(Step::Miri, true, &[], &[Step::Miri]));
    }

    #[test]
    fn times_are_written_in_minutes_and_seconds() {
        assert_eq!(in_words(Duration::from_millis(3_200)), "3.2 s");
        assert_eq!(in_words(Duration::from_secs(60)), "1 min 0 s");
        assert_eq!(in_words(Duration::from_secs(723)), "12 min 3 s");
    }

    #[test]
    fn arguments_are_well_formed() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_benchmark_gets_all_arguments_after_its_name() {
        let arguments = Arguments::parse_from(["xtask", "bench", "posting", "--json", "-n", "3"]);
        let Action::Bench { name, arguments } = arguments.command else {
            panic!("not read as a benchmark");
        };
        assert_eq!(name, "posting");
        assert_eq!(arguments, ["--json", "-n", "3"]);
    }
}
