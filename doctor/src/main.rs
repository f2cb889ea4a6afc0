//! Looks a node over, and says what a queue driven by the GPU lacks there.
//!
//! It changes nothing. Facts come from sysfs and procfs; what only a program or a library knows is asked in
//! a process of its own with a deadline. Everything is read below a root folder, so that the tests examine
//! trees that they make up.

mod acs;
mod cuda;
mod distance;
mod driver;
mod finding;
mod firmware;
mod gpu;
mod iommu;
mod json;
mod nic;
mod node;
mod pair;
mod pci;
mod port;
mod privileges;
mod rdma_core;
mod report;
mod run;
mod system;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tree;

use std::env;
use std::io::{self, ErrorKind, Write, stderr, stdout};
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use console::Term;
use lexopt::{Arg, Parser};

use cuda::Answer;
use finding::{Check, Finding, Subject};
use nic::Nic;
use pair::Pair;
use pci::Address;
use report::Report;
use system::{ProgramError, System};
use table::Table;

/// How long finding the devices may take, and how long examining all of them at once may.
const DEADLINE: Duration = Duration::from_secs(30);

const HELP: &str = "\
Look this machine over: does it have what a queue driven by the GPU needs?

Usage: warpbell-doctor [OPTIONS]

Options:
      --json  Print JSON
  -h, --help  Print help
";

/// What the command line asks for.
enum Request {
    Help,
    Table,
    Json,
}

fn main() -> ExitCode {
    if env::var_os(cuda::ASK).is_some() {
        return cuda::answer();
    }
    let json = match request(Parser::from_env()) {
        Ok(Request::Help) => return status(write!(stdout(), "{HELP}"), true),
        Ok(Request::Table) => false,
        Ok(Request::Json) => true,
        Err(error) => {
            complain(&format!("{error}; try --help"));
            return ExitCode::from(2);
        }
    };
    let handled = ctrlc::set_handler(|| {
        run::kill_running();
        process::exit(130);
    });
    if let Err(error) = handled {
        complain(&format!("cannot handle Ctrl-C: {error}"));
        return ExitCode::from(2);
    }
    let report = examine(System::this(), DEADLINE);
    // A job that was given up may have left a program running.
    run::kill_running();
    status(print(&report, json), report.ready)
}

fn request(mut arguments: Parser) -> Result<Request, lexopt::Error> {
    let mut request = Request::Table;
    while let Some(argument) = arguments.next()? {
        match argument {
            Arg::Long("json") => request = Request::Json,
            Arg::Short('h') | Arg::Long("help") => return Ok(Request::Help),
            _ => return Err(argument.unexpected()),
        }
    }
    Ok(request)
}

fn print(report: &Report, json: bool) -> io::Result<()> {
    match json {
        true => writeln!(stdout(), "{}", serde_json::to_string_pretty(report)?),
        false => {
            let size = Term::stdout().size_checked();
            let columns = size.map_or(usize::MAX, |(_, columns)| columns.into());
            let table = Table { report, columns };
            writeln!(stdout(), "{}", table.to_string().trim_end())
        }
    }
}

/// The exit status. A reader that has seen enough, such as `head`, is no error.
fn status(printed: io::Result<()>, good: bool) -> ExitCode {
    match printed {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            complain(&format!("cannot print: {error}"));
            ExitCode::FAILURE
        }
        _ if good => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Says an error. There is no better place to say that this cannot be said.
fn complain(error: &str) {
    let _ = writeln!(stderr(), "error: {error}");
}

/// Examines a machine. It ends within twice the deadline and the time that CUDA is given, whatever hangs.
fn examine(system: System, deadline: Duration) -> Report {
    let cuda = Arc::new(cuda::ask(&system));
    let system = Arc::new(system);
    let found = {
        let (system, cuda) = (system.clone(), cuda.clone());
        start(move || devices(&system, &cuda)).recv_timeout(deadline)
    };
    let Ok((gpus, nics, pairs)) = found else {
        return Report::new(&[], vec![gave_up(&Subject::Node)]);
    };
    let mut findings = absent(gpus.is_empty(), nics.is_empty());
    let mut jobs: Vec<(Subject, Receiver<Vec<Finding>>)> = Vec::new();
    {
        let (system, cuda) = (system.clone(), cuda.clone());
        let job = start(move || node::examine(&system, &cuda));
        jobs.push((Subject::Node, job));
    }
    for gpu in gpus {
        let (system, cuda) = (system.clone(), cuda.clone());
        let job = start(move || gpu::examine(&system, gpu, &cuda));
        jobs.push((Subject::Gpu { gpu }, job));
    }
    for nic in nics {
        let system = system.clone();
        let subject = nic.subject();
        jobs.push((subject, start(move || nic::examine(&system, &nic))));
    }
    for pair in pairs.clone() {
        let system = system.clone();
        let subject = pair.subject();
        jobs.push((subject, start(move || pair.examine(&system))));
    }
    let give_up = Instant::now() + deadline;
    for (subject, result) in jobs {
        let left = give_up.saturating_duration_since(Instant::now());
        let result = result.recv_timeout(left);
        findings.extend(result.unwrap_or_else(|_| vec![gave_up(&subject)]));
    }
    Report::new(&pairs, findings)
}

/// Finds the GPUs, the NICs, and the pairs of those that speak mlx5.
fn devices(
    system: &System,
    cuda: &Result<Answer, ProgramError>,
) -> (Vec<Address>, Vec<Nic>, Vec<Pair>) {
    let gpus = gpu::list(system, cuda);
    let nics = nic::list(system);
    let usable = nics.iter().filter(|nic| nic.rdma && nic.mlx5);
    let of_gpu = |gpu: &Address| {
        let (gpu, usable) = (*gpu, usable.clone());
        usable.map(move |nic| Pair::read(system, gpu, nic))
    };
    let pairs = gpus.iter().flat_map(of_gpu).collect();
    (gpus, nics, pairs)
}

/// Says which kind of device there is none of.
fn absent(no_gpu: bool, no_nic: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    if no_gpu {
        findings.push(Subject::Node.missing(Check::Gpu, "none of NVIDIA", "lspci -d 10de:"));
    }
    if no_nic {
        findings.push(Subject::Node.missing(Check::Nic, "none for RDMA", "lspci -d 15b3:"));
    }
    findings
}

/// Starts a job that can run beside others. Its result never comes if it hangs or panics.
fn start<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (sender, result) = channel();
    thread::spawn(move || {
        // Nobody waits any more if the job was given up.
        let _ = sender.send(job());
    });
    result
}

fn gave_up(subject: &Subject) -> Finding {
    subject.unknown(
        Check::Examination,
        "no answer in time: a driver or a device hangs",
        "sudo dmesg | tail -50",
    )
}
