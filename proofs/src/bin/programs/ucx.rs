//! UCX, whose programs check no data, and OpenMPI over it, each with a program of ours that checks all data.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use std::{env, fs, process};

use warpbell_proofs::pair::{self, DEADLINE, Process};
use warpbell_proofs::preloaded;

use crate::{Outcome, missing};

/// UCX's names of transports: reliable connections and datagrams, by libibverbs' own calls and on mlx5's rings.
pub const TRANSPORTS: [&str; 4] = ["rc_v", "ud_v", "rc_x", "ud_x"];
/// Tests of `ucx_perftest`: of each kind of operation one at least.
pub const TESTS: [&str; 9] = [
    "tag_lat",
    "tag_bw",
    "ucp_put_lat",
    "ucp_put_bw",
    "ucp_get",
    "ucp_am_lat",
    "ucp_am_bw",
    "ucp_fadd",
    "ucp_cswap",
];
/// A header of UCX.
const UCP_HEADER: &str = "/usr/include/ucp/api/ucp.h";
/// Processes of an MPI program.
const RANKS: &str = "4";

/// What UCX is told: the device, one transport, and no relaxed ordering.
///
/// On AMD's processors UCX asks for relaxed ordering by itself, with a second key for each region. A device with DEVX
/// has that key as an indirect one, which opens the region at an offset of 8 times the process's number modulo 256. The
/// preloaded device has no indirect keys; without them UCX 1.13.1 registers the region itself and adds the offset all
/// the same, so that a put after a fence goes elsewhere.
pub fn settings(transport: &str) -> [(&'static str, String); 3] {
    [
        ("UCX_NET_DEVICES", "mlx5_0:1".into()),
        ("UCX_TLS", format!("{transport},self")),
        ("UCX_IB_PCI_RELAXED_ORDERING", "no".into()),
    ]
}

/// Whether UCX finds the device and all transports by itself.
pub fn device() -> Outcome {
    if let Some(missing) = missing("ucx_info") {
        return missing;
    }
    let output = preloaded::under("ucx_info").and_then(|mut command| command.arg("-d").output());
    match output {
        Err(error) => Outcome::Badly(error.to_string()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            let told = [
                "Memory domain: mlx5_0",
                "Transport: rc_verbs",
                "Transport: ud_verbs",
                "Transport: rc_mlx5",
                "Transport: ud_mlx5",
            ];
            match told.iter().find(|words| !said.contains(**words)) {
                None => Outcome::Well("mlx5_0 with rc and ud, by verbs and by mlx5".into()),
                Some(words) => Outcome::Badly(format!("it does not say \"{words}\":\n{said}")),
            }
        }
    }
}

/// One of its tests between two processes.
pub fn perftest(transport: &str, test: &str) -> Outcome {
    if let Some(missing) = missing("ucx_perftest") {
        return missing;
    }
    let arguments = ["-t", test, "-n", "1000", "-w", "100"];
    figure(pair::run_with(
        &settings(transport),
        "ucx_perftest",
        &arguments,
    ))
}

/// The figure in what `ucx_perftest`'s client said.
pub fn figure(said: Result<String, String>) -> Outcome {
    match said {
        Err(said) => Outcome::Badly(said),
        Ok(said) => {
            // Iterations, then percentile, average and overall time, in microseconds.
            let mut lines = said.lines();
            let last = lines.find_map(|line| line.trim().strip_prefix("Final:"));
            match last.and_then(|last| last.split_whitespace().nth(3)) {
                Some(time) => Outcome::Well(format!("{time} us")),
                None => Outcome::Badly(format!("no figure in what it said:\n{said}")),
            }
        }
    }
}

/// A program of ours, in a folder that goes when this does.
struct Built {
    folder: PathBuf,
    name: &'static str,
}

impl Built {
    /// Compiles `c/NAME.c`.
    fn by(compiler: &str, name: &'static str, libraries: &[&str]) -> Result<Self, String> {
        let folder = env::temp_dir().join(format!("warpbell-{name}-{}", process::id()));
        let built = Self { folder, name };
        fs::create_dir_all(&built.folder).map_err(|error| error.to_string())?;
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("c/{name}.c"));
        let mut compiler = Command::new(compiler);
        compiler.args(["-std=gnu11", "-O1", "-o"]);
        compiler.arg(built.program()).arg(source).args(libraries);
        let output = compiler.output().map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(built),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    fn program(&self) -> PathBuf {
        self.folder.join(self.name)
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        // What is left lies among the temporary files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Runs a program of ours, which says so if all is right.
fn is_right(command: &mut Command) -> Result<(), String> {
    let (well, said) = Process::start(command).finish(Instant::now() + DEADLINE);
    match well && said.lines().any(|line| line == "right") {
        true => Ok(()),
        false => Err(pair::last(&said)),
    }
}

/// Messages, puts, gets and atomics of UCX between two processes, every byte checked.
pub fn ucp(transport: &str) -> Outcome {
    if !Path::new(UCP_HEADER).is_file() {
        return Outcome::Skipped("libucx-dev is not installed".into());
    }
    let built = Built::by("cc", "ucp", &["-lucp", "-lucs"]);
    let ran = built.and_then(|built| {
        let command = preloaded::under(built.program());
        let mut command = command.map_err(|error| error.to_string())?;
        is_right(command.envs(settings(transport)))
    });
    match ran {
        Ok(()) => Outcome::Well("every byte is right".into()),
        Err(said) => Outcome::Badly(said),
    }
}

/// Sums over four processes, messages, and one-sided access with atomics, every word checked.
pub fn mpi(transport: &str) -> Outcome {
    for program in ["mpicc", "mpirun"] {
        if let Some(missing) = missing(program) {
            return missing;
        }
    }
    let built = Built::by("mpicc", "mpi", &[]);
    match built.and_then(|built| ran(&built.program(), transport)) {
        Ok(()) => Outcome::Well(format!("every word is right on {RANKS} ranks")),
        Err(said) => Outcome::Badly(said),
    }
}

fn ran(program: &Path, transport: &str) -> Result<(), String> {
    let mut command = preloaded::under("mpirun").map_err(|error| error.to_string())?;
    command
        .args(["--allow-run-as-root", "--oversubscribe", "-np", RANKS])
        .args(["--mca", "pml", "ucx", "--mca", "osc", "ucx"])
        // More ranks than cores: one that waits lets others go on.
        .args(["--mca", "mpi_yield_when_idle", "1"])
        .arg(program)
        .envs(settings(transport));
    is_right(&mut command)
}
