//! `cargo xtask flash`: copies the programs to other machines, looks these over, and runs a program there as ranks.
//!
//! Each node has a [`connection`], by [`ssh`] or as steps of a job ([`slurm`]), on which a script runs (`node.sh`). A node
//! keeps nothing but one folder: `current`, the copy; `work`, where programs run; `lock`, which a flash holds as long as its
//! connection lives; and a marker, without which nothing is removed.

mod connection;
mod copy;
mod doctor;
mod job;
mod nodes;
mod problem;
mod slurm;
mod source;
mod ssh;

use std::fmt;
use std::fs;
use std::io::{self, Write, stderr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use thiserror::Error;

use crate::dist::manifest::{File, Manifest};
use crate::dist::{self, DistError, Target};
use crate::run::{self, RunError, beside_each_other};
use crate::say::say;
use crate::workspace::{Workspace, WorkspaceError};
use connection::Connection;
use copy::Present;
use doctor::Missing;
use job::{Job, Rank};
use nodes::{Node, NodesError};
use problem::Problem;
use slurm::{Allocation, SlurmError};
use source::{Source, SourceError};

/// Whether Ctrl-C was pressed.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// What is flashed, and where to.
#[derive(Args)]
pub struct Flash {
    /// The nodes, as user@host:port; the user and the port may be left out
    #[arg(value_name = "NODE")]
    words: Vec<String>,
    /// A file with nodes and their settings, such as nodes.toml
    #[arg(long, value_name = "FILE")]
    nodes: Option<PathBuf>,
    /// Use the nodes of this Slurm job; outside of a job, make one with these options of salloc, such as
    /// --slurm="--nodes=2 --partition=gpu". The file of nodes then has only settings
    #[arg(long, value_name = "OPTIONS", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    #[arg(conflicts_with = "words")]
    slurm: Option<String>,
    /// The folder that is copied, with its manifest.json [default: what `cargo xtask dist` builds]
    #[arg(long, value_name = "FOLDER")]
    from: Option<PathBuf>,
    /// How many ranks [default: one on each node]
    #[arg(short = 'n', long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    /// Where the other nodes reach rank 0 [default: where ssh or Slurm finds the first node]
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
    /// The wire between the software NICs of all ranks, shm or roce, in place of the best one for each two
    #[arg(long, value_name = "WIRE")]
    wire: Option<String>,
    /// End all ranks after so many seconds, with status 124
    #[arg(long, value_name = "SECONDS")]
    deadline: Option<u64>,
    /// End all ranks if a node or this machine is silent for so many seconds [default: 60]
    #[arg(long, value_name = "SECONDS")]
    silence: Option<u64>,
    /// Go on if the doctor misses something
    #[arg(long)]
    ignore_doctor: bool,
    /// Print a JSON document with the nodes and what each rank printed; lines go to standard error
    #[arg(long)]
    json: bool,
    /// End what runs from the nodes' folders, and remove them
    #[arg(long, conflicts_with_all = ["from", "program", "json"])]
    clean: bool,
    /// A program of the folder, and its arguments
    #[arg(last = true, value_names = ["PROGRAM", "ARGUMENTS"])]
    program: Vec<String>,
}

/// Why the nodes were not flashed.
#[derive(Debug, Error)]
pub enum FlashError {
    #[error(transparent)]
    Nodes(#[from] NodesError),
    #[error(transparent)]
    Slurm(#[from] SlurmError),
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
    #[error(transparent)]
    Dist(#[from] DistError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("cannot write into a folder of its own: {0}")]
    Private(io::Error),
    /// All nodes with a problem.
    #[error("{}", Vec::from_iter(.0.iter().map(Failed::to_string)).join("\n"))]
    Failed(Vec<Failed>),
}

impl FlashError {
    fn of(node: &Node, problem: Problem) -> Self {
        Self::Failed(vec![Failed {
            node: node.to_string(),
            problem,
        }])
    }
}

/// A node, and what is wrong with it.
#[derive(Debug)]
pub struct Failed {
    node: String,
    problem: Problem,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.problem)
    }
}

/// What has become of a node.
#[derive(Debug, Serialize)]
struct Flashed {
    node: String,
    /// The version and commit that was there before.
    replaced: Option<String>,
    files: usize,
    bytes: u64,
    missing: Vec<Missing>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    version: &'a str,
    commit: &'a str,
    nodes: &'a [Flashed],
    /// That of the program, if one ran.
    status: Option<u8>,
    ranks: &'a [Rank],
}

/// Flashes the nodes and runs the program. Gives the status of this process.
///
/// # Errors
/// All nodes with a problem. Nothing is copied to any node if one cannot have a copy, and nothing runs if one lacks a thing.
pub fn flash(flash: &Flash) -> Result<u8, FlashError> {
    let done = match flash.clean {
        true => clean(flash),
        false => copy_and_run(flash),
    };
    // What was under way has failed then, whatever it says.
    match is_stopped() {
        true => Ok(crate::INTERRUPTED),
        false => done,
    }
}

fn is_stopped() -> bool {
    STOPPED.load(Ordering::Acquire)
}

/// Ends what this process has started; the connections end what the nodes run. For the handler of Ctrl-C.
pub fn stop() {
    // Before the kills, because what fails by them asks for it.
    STOPPED.store(true, Ordering::Release);
    run::kill_running();
}

fn copy_and_run(flash: &Flash) -> Result<u8, FlashError> {
    let began = Instant::now();
    if flash.slurm.is_none() {
        // Before the build, which takes a while.
        nodes::read(&flash.words, flash.nodes.as_deref())?;
    }
    let source = match &flash.from {
        Some(folder) => Source::open(folder)?,
        None => Source::open(&build()?)?,
    };
    let manifest = &source.manifest;
    let mut program = flash.program.clone();
    if let Some(name) = program.first_mut() {
        *name = source.program(name)?.to_owned();
    }
    let private = tempfile::Builder::new()
        .prefix("flash")
        .tempdir()
        .map_err(FlashError::Private)?;
    let (nodes, _allocation) = nodes(flash)?;
    let connections = connect(nodes, private.path(), manifest)?;
    let mut flashed = copy(&connections, &source)?;
    let lacking = each(&connections, |one| &one.node, doctor::examine)?;
    for (one, lacking) in flashed.iter_mut().zip(lacking) {
        one.missing = lacking;
    }
    if !flash.ignore_doctor {
        refuse(&flashed)?;
    }
    tell(&format!(
        "{} nodes have {} after {:.1} s",
        connections.len(),
        copy::named(Some(manifest.clone())),
        began.elapsed().as_secs_f64()
    ));
    let (status, ranks) = match program.is_empty() {
        true => (None, Vec::new()),
        false => {
            let nodes = u32::try_from(connections.len()).unwrap_or(u32::MAX);
            let seconds = |seconds: Option<u64>| seconds.map(|seconds| seconds.to_string());
            let job = Job {
                from: &source.folder,
                private: private.path(),
                ranks: flash.ranks.unwrap_or(nodes),
                address: flash.address.as_deref(),
                options: [
                    ("--wire", flash.wire.clone()),
                    ("--deadline", seconds(flash.deadline)),
                    ("--silence", seconds(flash.silence)),
                ],
                program: &program,
            };
            let on_line = |line: &str| match flash.json {
                true => tell(line),
                false => say!("{line}"),
            };
            let (status, ranks) = job::run(&job, &connections, on_line)?;
            (Some(status), ranks)
        }
    };
    if flash.json {
        let document = Document {
            format: 1,
            version: &manifest.version,
            commit: &manifest.commit,
            nodes: &flashed,
            status,
            ranks: &ranks,
        };
        let json = serde_json::to_string_pretty(&document);
        say!("{}", json.expect("a document has only strings and numbers"));
    }
    Ok(status.unwrap_or(0))
}

/// The nodes, and the job that they belong to, if it is one. Before the job ends, the connections must have ended.
fn nodes(flash: &Flash) -> Result<(Vec<Node>, Option<Allocation>), FlashError> {
    let file = flash.nodes.as_deref();
    let Some(options) = &flash.slurm else {
        return Ok((nodes::read(&flash.words, file)?, None));
    };
    let allocation = Allocation::new(options)?;
    let nodes = nodes::of_job(&allocation.hosts, &allocation.step, file)?;
    Ok((nodes, Some(allocation)))
}

/// Builds all programs, which is quick if little has changed.
fn build() -> Result<PathBuf, FlashError> {
    let spinner = crate::spinner();
    spinner.set_prefix("building");
    let folder = dist::stage(
        &Workspace::load(Path::new("."))?,
        Target::default(),
        &spinner,
    )?;
    spinner.finish_and_clear();
    Ok(folder)
}

/// Connects to all nodes and takes their locks, if all can have a copy.
fn connect(
    nodes: Vec<Node>,
    private: &Path,
    manifest: &Manifest,
) -> Result<Vec<Connection>, FlashError> {
    let who = who();
    let numbered = Vec::from_iter(nodes.into_iter().enumerate());
    each(
        &numbered,
        |(_, node)| node,
        |(number, node)| {
            let control = connection::control(private, *number);
            let (connection, said) = Connection::open(node.clone(), control, &who)?;
            copy::check_machine(&said, node, manifest)?;
            Ok(connection)
        },
    )
}

/// Copies what has changed to all nodes, if all have room.
fn copy(connections: &[Connection], source: &Source) -> Result<Vec<Flashed>, FlashError> {
    let manifest = &source.manifest;
    let plans = each(
        connections,
        |one| &one.node,
        |one| {
            let present = Present::read(&one.lock()?)?;
            let changed = present.changed(manifest)?;
            Ok((present.version, changed))
        },
    )?;
    let plans = Vec::from_iter(connections.iter().zip(plans));
    let own = copy::named(Some(manifest.clone()));
    each(
        &plans,
        |(one, ..)| &one.node,
        |(one, (version, changed))| {
            copy::send(one, &source.folder, manifest, changed)?;
            let replaced = version.clone().filter(|version| *version != own);
            let flashed = Flashed {
                node: one.node.to_string(),
                replaced,
                files: changed.len(),
                bytes: changed.iter().map(|file: &&File| file.bytes).sum(),
                missing: Vec::new(),
            };
            tell(&flashed.to_string());
            Ok(flashed)
        },
    )
}

impl fmt::Display for Flashed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, files, .. } = self;
        let megabytes = self.bytes as f64 / 1e6;
        let plural = if *files == 1 { "" } else { "s" };
        write!(f, "{node}: {files} file{plural} copied ({megabytes:.1} MB)")?;
        match &self.replaced {
            None => Ok(()),
            Some(version) => write!(f, ", in place of version {version}"),
        }
    }
}

/// The nodes that lack something are an error.
fn refuse(flashed: &[Flashed]) -> Result<(), FlashError> {
    let lacking = flashed.iter().filter(|one| !one.missing.is_empty());
    let failed = lacking.map(|one| Failed {
        node: one.node.clone(),
        problem: Problem::Missing(one.missing.clone()),
    });
    let failed = Vec::from_iter(failed);
    match failed.is_empty() {
        true => Ok(()),
        false => Err(FlashError::Failed(failed)),
    }
}

/// Ends what runs from the nodes' folders, and removes them.
fn clean(flash: &Flash) -> Result<u8, FlashError> {
    let (nodes, _allocation) = nodes(flash)?;
    each(
        &nodes,
        |node| node,
        |node| {
            let said = connection::call_once(node, "clean")?;
            for line in said.lines() {
                match line.split_once(' ') {
                    Some(("owner", "none")) => {
                        tell(&format!("{node}: there is no {}", node.folder))
                    }
                    Some(("owner", owner)) => copy::check_owner(owner, node)?,
                    _ => tell(&format!("{node}: {} is removed", node.folder)),
                }
            }
            Ok(())
        },
    )?;
    Ok(0)
}

/// Does the same for all nodes at once. The error has all nodes with a problem.
fn each<T: Sync, R: Send>(
    items: &[T],
    node: impl Fn(&T) -> &Node,
    work: impl Fn(&T) -> Result<R, Problem> + Sync,
) -> Result<Vec<R>, FlashError> {
    let done = beside_each_other(items, |item| Ok::<_, FlashError>(work(item)))?;
    let (mut all, mut failed) = (Vec::new(), Vec::new());
    for (item, result) in items.iter().zip(done) {
        match result {
            Ok(result) => all.push(result),
            Err(problem) => failed.push(Failed {
                node: node(item).to_string(),
                problem,
            }),
        }
    }
    match failed.is_empty() {
        true => Ok(all),
        false => Err(FlashError::Failed(failed)),
    }
}

/// Who holds a lock, for another one who wants it.
fn who() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("process {} on {}", std::process::id(), name.trim())
}

/// Says how far the work is. There is no better place to say that this cannot be said.
fn tell(words: &str) {
    let _ = writeln!(stderr(), "{words}");
}
