//! The command line, and what its subcommands do.

use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::mem;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use console::Term;
use mlx5_wqe::prm::CommandOpcode;
use warpbell_host_init::live::LiveError;

use crate::bring_up::{BringUp, BringUpError};
use crate::decode::{Context, Kind, Service, decode};
use crate::input::{self, InputError};
use crate::live::{LiveReport, QueueError};
use crate::metrics::{Exporter, MetricsError};
use crate::text;
use crate::top::{self, Watch};

/// Bring a machine up, and show what lies in its mlx5 queues.
#[derive(Debug, Parser)]
#[command(name = "warpbell", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Show step by step whether GPU-driven networking works on this machine, and why not
    BringUp(Box<BringUp>),
    /// Show WQEs, CQEs, doorbells and commands field by field
    Decode(Box<Decode>),
    /// Show what the queues of running processes wait for
    Top(Top),
}

/// Why a subcommand did nothing.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The bytes were not read.
    #[error("{0}")]
    Input(#[from] InputError),
    /// The queues of a process were not read.
    #[error("{0}")]
    Queue(#[from] QueueError),
    /// The metrics cannot be served.
    #[error("{0}")]
    Metrics(#[from] MetricsError),
    /// The result has no JSON.
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// There is no report of a bring-up.
    #[error(transparent)]
    BringUp(#[from] BringUpError),
}

impl RunError {
    /// The status of the process.
    pub fn status(&self) -> u8 {
        match self {
            Self::BringUp(error) => error.status(),
            _ => 2,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warpbell decode ring.bin                      say what it can be, and show it
  warpbell decode -k wqe --log-size 6 ring.bin  a whole send ring of 64 blocks
  warpbell decode -k cqe --log-size 6 --index 64 cq.bin
                                                CQEs from number 64 on: lap 1
  xxd wqe.bin | warpbell decode -k wqe          hex on standard input
  warpbell decode --pid 1234 --qpn 0x40         a queue pair of a running process

The status is 1 if a finding is an error, and 2 if the bytes cannot be read.")]
struct Decode {
    /// A file of bytes or of hexadecimal text (hex digits, xxd, hexdump -C, od); - is standard input
    #[arg(default_value = "-")]
    file: PathBuf,
    /// What the bytes are; without it, the likeliest
    #[arg(short, long, value_enum)]
    kind: Option<Kind>,
    /// Index of the first block, receive or CQE, counted since the queue was made
    #[arg(long, value_parser = number)]
    index: Option<u32>,
    /// The queue has 2^N blocks, receives or CQEs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(..=22))]
    log_size: Option<u8>,
    /// The queue pair's number
    #[arg(long, value_parser = number)]
    qpn: Option<u32>,
    /// Transport of the queue pair
    #[arg(long, value_enum, default_value = "rc")]
    transport: Service,
    /// Bytes between two WQEs of a receive queue
    #[arg(long, value_name = "BYTES", default_value = "16", value_parser = stride)]
    stride: usize,
    /// For a devx-answer: the command that it answers, such as CREATE_QP
    #[arg(long, value_name = "COMMAND", value_parser = command)]
    answers: Option<CommandOpcode>,
    /// Show a queue pair of this running process instead of a file; needs --qpn
    #[arg(long, requires = "qpn", conflicts_with_all = ["file", "kind", "index", "log_size", "transport", "stride", "answers"])]
    pid: Option<u32>,
    /// Show a queue pair of the process that left this core dump; needs --qpn
    #[arg(long, value_name = "FILE", requires = "qpn", conflicts_with_all = ["pid", "file", "kind", "index", "log_size", "transport", "stride", "answers"])]
    core: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The processes must have been built with Warpbell, and run as the same user. Nothing
in them changes. `warpbell decode --pid PID --qpn QPN` shows the bytes of a queue.")]
struct Top {
    /// The processes
    #[arg(required = true, value_name = "PID")]
    pids: Vec<u32>,
    /// Print once, and end; also where the output goes to a file
    #[arg(long)]
    once: bool,
    /// Print JSON, one object for each process and second
    #[arg(long)]
    json: bool,
    /// Serve metrics for Prometheus at http://ADDR/metrics instead, such as 127.0.0.1:9464, until Ctrl-C
    #[arg(long, value_name = "ADDR", value_parser = address, conflicts_with_all = ["once", "json"])]
    metrics: Option<SocketAddr>,
}

impl Arguments {
    /// Does what the command line asks for, and appends what is to be printed. False if a finding is an error, or a step
    /// of a bring-up has failed.
    ///
    /// # Errors
    /// [`RunError::Input`] if there is nothing to decode.
    pub fn run(&self, columns: usize, out: &mut String) -> Result<bool, RunError> {
        match &self.action {
            Action::BringUp(options) => Ok(options.run(columns)?),
            Action::Decode(options) => options.run(columns, out),
            Action::Top(options) => options.run(columns, out),
        }
    }
}

impl Decode {
    fn run(&self, columns: usize, out: &mut String) -> Result<bool, RunError> {
        // Both options require the number.
        let qpn = self.qpn.unwrap_or_default();
        let of_queue = match (self.pid, &self.core) {
            (Some(pid), _) => Some(LiveReport::read(pid, qpn)?),
            (None, Some(file)) => Some(LiveReport::of_core(file, qpn)?),
            (None, None) => None,
        };
        if let Some(report) = of_queue {
            return show(&report, self.json, columns, out);
        }
        if self.file == Path::new("-") && io::stdin().is_terminal() {
            eprintln!("reading bytes or hex digits from the terminal; end with Ctrl-D");
        }
        let input = input::read(&self.file)?;
        let context = Context {
            index: self.index,
            log_size: self.log_size,
            qpn: self.qpn,
            transport: self.transport.into(),
            stride: self.stride,
            answers: self.answers,
        };
        let mut report = decode(&input.bytes, self.kind, &context);
        report.findings.splice(0..0, input.findings);
        if self.json {
            // A string takes all that is written to it.
            let _ = writeln!(out, "{}", serde_json::to_string_pretty(&report)?);
        } else {
            out.push_str(&text::page(&report, columns));
        }
        Ok(!report.has_errors())
    }
}

/// Shows queue pairs of a process.
fn show(
    report: &LiveReport,
    json: bool,
    columns: usize,
    out: &mut String,
) -> Result<bool, RunError> {
    if json {
        let _ = writeln!(out, "{}", serde_json::to_string_pretty(report)?);
        return Ok(!report.has_errors());
    }
    for queue in &report.queues {
        let _ = writeln!(
            out,
            "queue pair {:#08x}, send ring at {:#x}",
            queue.qpn, queue.send_ring
        );
        for part in &queue.parts {
            let page = text::page(&part.report, columns);
            let _ = writeln!(out, "\n{}: {}", part.name, page.trim_end());
        }
    }
    Ok(!report.has_errors())
}

impl Top {
    fn run(&self, columns: usize, out: &mut String) -> Result<bool, RunError> {
        let watches = self.pids.iter().map(|pid| Watch::begin(*pid));
        let watches: Result<Vec<_>, _> = watches.collect();
        let mut watches = watches.map_err(QueueError::Live)?;
        if let Some(address) = self.metrics {
            let exporter = Arc::new(Exporter::new(watches));
            exporter.clone().serve(address)?;
            eprintln!("metrics at http://{address}/metrics");
            exporter.count();
        }
        let term = Term::stdout();
        loop {
            let mut pages = String::new();
            for mut watch in mem::take(&mut watches) {
                let screen = match watch.look() {
                    Ok(screen) => screen,
                    Err(LiveError::NoProcess { pid }) => {
                        eprintln!("process {pid} has ended");
                        continue;
                    }
                    Err(error) => return Err(QueueError::Live(error).into()),
                };
                watches.push(watch);
                pages += &match (self.json, self.once) {
                    (true, true) => serde_json::to_string_pretty(&screen)? + "\n",
                    (true, false) => serde_json::to_string(&screen)? + "\n",
                    (false, _) => top::page(&screen, columns),
                };
            }
            if self.once || !self.json && !term.is_term() {
                out.push_str(&pages);
                return Ok(true);
            }
            if watches.is_empty() {
                return Ok(true);
            }
            let cleared = match self.json {
                true => Ok(()),
                false => term.clear_screen(),
            };
            // A reader that has gone ends the watch.
            if cleared.and_then(|()| term.write_str(&pages)).is_err() {
                return Ok(true);
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }
}

/// A number in decimal, or in hexadecimal after `0x`.
fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| format!("{error}; give a number such as 77 or 0x4d"))
}

/// An address that others can be told.
fn address(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() != 0 => Ok(address),
        Ok(_) => Err("port 0 is any port; choose one, such as 9464".into()),
        Err(error) => Err(format!(
            "{error}; give one such as 127.0.0.1:9464 or [::1]:9464"
        )),
    }
}

fn stride(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes @ (16 | 32 | 64 | 128 | 256 | 512)) => Ok(bytes),
        _ => Err("a stride is 16, 32, 64, 128, 256 or 512".into()),
    }
}

fn command(text: &str) -> Result<CommandOpcode, String> {
    let known = || CommandOpcode::KNOWN.iter();
    if let Some(found) = known().find(|opcode| opcode.to_string().eq_ignore_ascii_case(text)) {
        return Ok(*found);
    }
    let names: Vec<_> = known().map(ToString::to_string).collect();
    Err(format!("the commands are {}", names.join(", ")))
}
