//! UCX, whose programs check no data, and OpenMPI over it, with a program of ours that checks every word.

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
/// Processes of an MPI program.
const RANKS: &str = "4";

/// What UCX is told: the device, and one transport.
fn settings(transport: &str) -> [(&'static str, String); 2] {
    [
        ("UCX_NET_DEVICES", "mlx5_0:1".into()),
        ("UCX_TLS", format!("{transport},self")),
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
    match pair::run_with(&settings(transport), "ucx_perftest", &arguments) {
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

/// A folder that goes when this does.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left lies among the temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Sums over four processes, messages, and one-sided access with atomics, every word checked.
pub fn mpi(transport: &str) -> Outcome {
    for program in ["mpicc", "mpirun"] {
        if let Some(missing) = missing(program) {
            return missing;
        }
    }
    let folder = Folder(env::temp_dir().join(format!("warpbell-mpi-{}", process::id())));
    match built(&folder.0).and_then(|program| ran(&program, transport)) {
        Ok(()) => Outcome::Well(format!("every word is right on {RANKS} ranks")),
        Err(said) => Outcome::Badly(said),
    }
}

fn built(folder: &Path) -> Result<PathBuf, String> {
    fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let program = folder.join("mpi");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/mpi.c");
    let mut compiler = Command::new("mpicc");
    let output = compiler.arg("-O1").arg("-o").arg(&program).arg(source);
    let output = output.output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(program),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
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
    let (well, said) = Process::start(&mut command).finish(Instant::now() + DEADLINE);
    match well && said.lines().any(|line| line == "right") {
        true => Ok(()),
        false => Err(pair::last(&said)),
    }
}
