//! The cases with a Slurm, whose two nodes are this machine.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::bench::{Bench, DEADLINE, NODES, Running, eventually};
use super::{check, text};
use crate::run::{self, Finished};
use crate::steps::{Report, Steps};
use crate::workspace::clean_command;

/// What happens, and how it is checked. They run in this order.
type Case = (&'static str, fn(&Cluster) -> Result<(), String>);

pub const CASES: [Case; 10] = [
    ("a machine without Slurm", absent),
    ("a job that Slurm refuses", |cluster| {
        let words = ["Slurm gives no job: it says: ", "nvalid partition"];
        check(
            cluster.flash(&["--slurm=--nodes=2 --partition=none"])?,
            2,
            &words,
        )
        .map(drop)
    }),
    ("a job of its own, and ranks in it", own_job),
    ("a batch job", batch),
    ("a card that a node does not have", doctor),
    ("Ctrl-C ends a job of its own", |cluster| {
        let running = cluster.start(&[TWO_NODES], &[])?;
        running.signal(Signal::INT)?;
        cluster.ends(running, Some(130), "")
    }),
    ("a flash that is killed", |cluster| {
        let mut running = cluster.start(&[TWO_NODES], &[])?;
        running.signal(Signal::KILL)?;
        let (_, said) = running.end()?;
        running.until_ranks_end().map_err(|error| error + &said)?;
        cluster.clear_tmp()
    }),
    ("a job that is cancelled", cancelled),
    ("Ctrl-C while other jobs have the nodes", waiting),
    ("Ctrl-C in a job of the user's, and --clean", in_a_job),
];

/// A job with both nodes.
const TWO_NODES: &str = "--slurm=--nodes=2";

/// A Slurm, for as long as this lives.
pub struct Cluster<'b> {
    bench: &'b Bench,
    folder: PathBuf,
    running: Running,
}

impl Steps<'_> {
    pub(super) fn flash_by_slurm(&self, report: &mut Report, bench: &Bench) {
        let folder = self.workspace.target.join("flash-slurm");
        let mut command = self.slurm(&folder);
        command
            .args(["sh", "-c", "echo ready; exec cat"])
            .stdin(Stdio::piped());
        let cluster = Running::start(command).and_then(|mut running| {
            let ready = running.wait_for("ready");
            let cluster = Cluster {
                bench,
                folder,
                running,
            };
            ready.map(|()| cluster)
        });
        let cluster = match cluster {
            Ok(cluster) => cluster,
            Err(error) => return report.fail("two nodes of Slurm", error),
        };
        for (title, case) in CASES {
            self.spinner.set_message(title);
            // Nothing is left running, and nothing of a flash's own.
            let problem = case(&cluster)
                .and_then(|()| cluster.until_nothing_runs())
                .and_then(|()| bench.is_tidy());
            report.list(title, &Vec::from_iter(problem.err()));
        }
    }
}

impl Cluster<'_> {
    /// The copy of a node, in the home that both share.
    fn folder_of(&self, host: &str) -> PathBuf {
        self.bench.folder.join(format!("warpbell-flash-{host}"))
    }

    /// A command of Slurm's, or a flash.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = clean_command(program, &self.bench.folder);
        command.env("SLURM_CONF", self.folder.join("slurm.conf"));
        command.env("TMPDIR", self.bench.folder.join("tmp"));
        command.env("HOME", &self.bench.folder);
        command
    }

    fn flash_command(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(self.bench.own());
        command.args(["flash", "--from", "dist"]).args(arguments);
        command
    }

    /// A flash, to its end.
    fn flash(&self, arguments: &[&str]) -> Result<Finished, String> {
        run_to_end(self.flash_command(arguments))
    }

    /// What a command of Slurm's says.
    fn said(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let mut command = self.command(program);
        command.args(arguments);
        let finished = run_to_end(command)?;
        match finished.success() {
            true => Ok(finished.stdout.trim().to_owned()),
            false => Err(format!("{program}: {}", finished.account())),
        }
    }

    /// Starts a program that does not end by itself, on both nodes, and waits for its processes.
    fn start(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Result<Running, String> {
        let first = [arguments, &["--", "sleeper"]].concat();
        let mut command = self.flash_command(&first);
        command.envs(variables.iter().copied()).stdin(Stdio::null());
        let mut running = Running::start(command)?;
        running.wait_for_processes(2 * NODES as usize)?;
        Ok(running)
    }

    /// A job of the user's on both nodes, until it is cancelled: its number.
    fn hold_nodes(&self) -> Result<String, String> {
        self.said("salloc", &["--quiet", "--no-shell", "--nodes=2"])?;
        self.said("squeue", &["--noheader", "--format=%i"])
    }

    /// It ends with this status and says this, and its ranks end.
    fn ends(&self, mut running: Running, expected: Option<i32>, words: &str) -> Result<(), String> {
        let (status, said) = running.end()?;
        running.until_ranks_end()?;
        let is_right = expected.map_or(status != Some(0), |_| status == expected);
        match is_right && said.contains(words) {
            true => Ok(()),
            false => Err(format!("status {status:?}:\n{said}")),
        }
    }

    /// Waits until Slurm has no job and no step.
    fn until_nothing_runs(&self) -> Result<(), String> {
        for what in [&["--noheader"][..], &["--noheader", "--steps"]] {
            eventually("the end of all jobs and steps", || {
                self.said("squeue", what).is_ok_and(|said| said.is_empty())
            })?;
        }
        Ok(())
    }

    /// One that was killed cannot remove its folder.
    fn clear_tmp(&self) -> Result<(), String> {
        for left in fs::read_dir(self.bench.folder.join("tmp")).map_err(text)? {
            fs::remove_dir_all(left.map_err(text)?.path()).map_err(text)?;
        }
        Ok(())
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        self.running.end_input();
        // The daemons end with the script's group.
        let _ = self.running.end();
    }
}

fn run_to_end(command: Command) -> Result<Finished, String> {
    run::capture(command, DEADLINE, |_| {}).map_err(|error| error.to_string())
}

fn absent(cluster: &Cluster) -> Result<(), String> {
    let mut command = cluster.flash_command(&["--slurm"]);
    command.env("PATH", &cluster.folder);
    let words = ["this machine has no Slurm: cannot start salloc: No such file"];
    check(run_to_end(command)?, 2, &words).map(drop)
}

/// The second one finds the copies of the first.
fn own_job(cluster: &Cluster) -> Result<(), String> {
    let options = [
        TWO_NODES,
        "--wire",
        "roce",
        "-n",
        "4",
        "--",
        super::ALLREDUCE,
    ];
    let files = format!("two: {} files copied (", super::PROGRAMS.len() + 4);
    let words = [
        "one [0] ",
        "one [1] rank 1 ",
        "two [3] rank 3 ",
        "one [0] Test OK",
        &files,
    ];
    check(cluster.flash(&options)?, 0, &words)?;
    let home = fs::canonicalize(&cluster.bench.folder).map_err(text)?;
    let place = format!("two [1]  in {}/warpbell-flash-two/work\n", home.display());
    let words = ["one: 0 files copied", "two: 0 files copied", &place];
    check(cluster.flash(&[TWO_NODES, "--", "shows"])?, 0, &words)?;
    let failed = cluster.flash(&[TWO_NODES, "--", "fails"])?;
    check(failed, 7, &["warpbell-launch: "]).map(drop)
}

/// As docs/how-to/two-nodes.md has it.
fn batch(cluster: &Cluster) -> Result<(), String> {
    let demo = format!("{} --quick --size=999 --seed=5 --json", super::DEMO);
    let job = format!(
        "{} flash --from dist --slurm --json -- {demo}",
        cluster.bench.own().display()
    );
    let output = cluster.folder.join("output").display().to_string();
    let mut command = cluster.command("sbatch");
    command
        .args(["--wait", "--nodes=2", "--output", &output])
        .args(["--wrap", &job]);
    let finished = run_to_end(command)?;
    let said = fs::read_to_string(&output).unwrap_or_default();
    let words = ["\"node\": \"two\"", "\"size\": 999", "\"status\": 0"];
    let missing = words.iter().find(|words| !said.contains(**words));
    match (finished.success(), missing) {
        (true, None) => Ok(()),
        (_, missing) => Err(format!("{missing:?}\n{}{said}", finished.account())),
    }
}

fn doctor(cluster: &Cluster) -> Result<(), String> {
    let node = "[[node]]\nhost = \"one\"\nnic = \"mlx5_77\"\n";
    cluster.bench.write("slurm.toml", node).map_err(text)?;
    let finished = cluster.flash(&["--nodes", "slurm.toml", TWO_NODES])?;
    let words = [
        "one: it lacks what its GPU or NIC needs:\n    ",
        "rdma-modules: ",
    ];
    check(finished, 2, &words).map(drop)
}

/// By its number, as a user does.
fn cancelled(cluster: &Cluster) -> Result<(), String> {
    let running = cluster.start(&[TWO_NODES], &[])?;
    let job = cluster.said("squeue", &["--noheader", "--format=%i"])?;
    cluster.said("scancel", &[&job])?;
    cluster.ends(running, None, "warpbell-launch: ")
}

/// The user has another job, which keeps the nodes.
fn waiting(cluster: &Cluster) -> Result<(), String> {
    let job = cluster.hold_nodes()?;
    let jobs = || cluster.said("squeue", &["--noheader", "--format=%i"]);
    let mut command = cluster.flash_command(&["--slurm=--nodes=2 --exclusive"]);
    command.stdin(Stdio::null());
    let running = Running::start(command)?;
    eventually("a second job", || {
        jobs().is_ok_and(|jobs| jobs.lines().count() == 2)
    })?;
    running.signal(Signal::INT)?;
    cluster.ends(running, Some(130), "")?;
    eventually("the end of the second job", || {
        jobs().is_ok_and(|jobs| jobs == job)
    })?;
    cluster.said("scancel", &[&job]).map(drop)
}

/// The job stays, and nothing of the flash does.
fn in_a_job(cluster: &Cluster) -> Result<(), String> {
    let job = cluster.hold_nodes()?;
    let variables = [("SLURM_JOB_ID", &*job), ("SLURM_JOB_NODELIST", "one,two")];
    let running = cluster.start(&["--slurm"], &variables)?;
    running.signal(Signal::INT)?;
    cluster.ends(running, Some(130), "")?;
    eventually("the end of all steps", || {
        let steps = cluster.said("squeue", &["--noheader", "--steps"]);
        steps.is_ok_and(|steps| steps.is_empty())
    })?;
    let mut command = cluster.flash_command(&[TWO_NODES]);
    command.envs(variables);
    let words =
        format!("the options \"--nodes=2\" are for a new job, and this is already job {job}");
    check(run_to_end(command)?, 2, &[&words])?;
    let mut command = cluster.command(cluster.bench.own());
    command
        .args(["flash", "--clean", "--slurm"])
        .envs(variables);
    check(
        run_to_end(command)?,
        0,
        &[
            "warpbell-flash-one is removed",
            "warpbell-flash-two is removed",
        ],
    )?;
    if let Some(host) = ["one", "two"]
        .iter()
        .find(|host| cluster.folder_of(host).exists())
    {
        return Err(format!("node {host} still has a folder"));
    }
    match cluster.said("squeue", &["--noheader", "--format=%i"])? {
        left if left == job => cluster.said("scancel", &[&job]).map(drop),
        left => Err(format!("the job is {left:?} now")),
    }
}
