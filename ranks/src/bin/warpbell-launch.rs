//! Starts a program as several ranks on this machine:
//!
//! ```console
//! $ warpbell-launch -n 4 ./program --its-options
//! ```
//!
//! On several machines, mpirun, srun or torchrun start the ranks.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// How often the ranks are looked at.
const TICK: Duration = Duration::from_millis(10);

/// How long the other ranks may take to say what they think of the failure of one.
const GRACE: Duration = Duration::from_secs(2);

/// As `timeout` has it (coreutils).
const TIMED_OUT: u8 = 124;
/// As a shell has it, for a program that cannot be started.
const NOT_STARTED: u8 = 127;
/// As a shell has it, for the number of the signal that ended a program.
const SIGNALLED: i32 = 128;

/// The process groups of ranks that run, for the end of this process.
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Starts a program as several ranks on this machine.
///
/// Each line that a rank prints begins with its number. If one fails, all others end 2 s later, and the status is that of
/// the one that failed first.
#[derive(Parser)]
#[command(name = "warpbell-launch", version)]
struct Arguments {
    /// How many ranks
    #[arg(short = 'n', long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=i64::from(warpbell_ranks::MOST_RANKS)))]
    ranks: u32,
    /// Ends all ranks after so many seconds, with status 124
    #[arg(long, value_name = "SECONDS")]
    deadline: Option<u64>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_names = ["PROGRAM", "ARGUMENTS"])]
    program: Vec<std::ffi::OsString>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match launch(&arguments) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("warpbell-launch: {error}");
            ExitCode::from(NOT_STARTED)
        }
    }
}

/// Starts all ranks, waits for all, and gives the status.
fn launch(arguments: &Arguments) -> Result<u8, String> {
    let stop = || {
        kill_all();
        std::process::exit(SIGNALLED + Signal::INT.as_raw());
    };
    ctrlc::set_handler(stop).map_err(|error| format!("cannot handle Ctrl-C: {error}"))?;
    let root = root().map_err(|error| format!("no port for rank 0: {error}"))?;
    let secret = secret().map_err(|error| format!("no random bytes: {error}"))?;
    let mut ranks = Vec::new();
    for rank in 0..arguments.ranks {
        match Rank::start(rank, arguments, &root, &secret) {
            Ok(started) => ranks.push(started),
            Err(error) => {
                kill_all();
                let program = arguments.program[0].to_string_lossy();
                return Err(format!("cannot start {program}: {error}"));
            }
        }
    }
    let status = wait(&mut ranks, arguments.deadline.map(Duration::from_secs));
    kill_all();
    for rank in ranks {
        rank.end();
    }
    Ok(status)
}

/// A port on a loopback address that no other launcher has.
fn root() -> io::Result<String> {
    let [_, b, c, d] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 192 | b & 0x3f, c, d);
    Ok(TcpListener::bind((address, 0))?.local_addr()?.to_string())
}

fn secret() -> io::Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A process, and what passes its lines on.
struct Rank {
    number: u32,
    child: Child,
    group: Pid,
    readers: [JoinHandle<()>; 2],
}

impl Rank {
    fn start(number: u32, arguments: &Arguments, root: &str, secret: &str) -> io::Result<Self> {
        let mut command = Command::new(&arguments.program[0]);
        command
            .args(&arguments.program[1..])
            .env("WARPBELL_LAUNCHER", "hand")
            .env("WARPBELL_RANK", number.to_string())
            .env("WARPBELL_SIZE", arguments.ranks.to_string())
            .env("WARPBELL_LOCAL_RANK", number.to_string())
            .env("WARPBELL_ROOT", root)
            .env("WARPBELL_SECRET", secret)
            .env_remove("WARPBELL_BIND")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // Held over the start, so that a Ctrl-C in between cannot miss the group.
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = command.spawn()?;
        let group = Pid::from_child(&child);
        running.push(group);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let readers = [
            thread::spawn(move || pass_on(number, stdout, io::stdout)),
            thread::spawn(move || pass_on(number, stderr, io::stderr)),
        ];
        Ok(Self {
            number,
            child,
            group,
            readers,
        })
    }

    /// The status, once the process has ended. What it has started and left behind is killed.
    fn ended(&mut self) -> Option<ExitStatus> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.group), look).ok().flatten()?;
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|group| *group != self.group);
        // Kill before reaping, because until then nobody else can be given the group's number.
        let _ = kill_process_group(self.group, Signal::KILL);
        self.child.wait().ok()
    }

    /// Waits for a process that has ended or was killed, and for its last lines. A process that left the group may still
    /// hold the pipes, so this has an end.
    fn end(mut self) {
        let _ = self.child.wait();
        let began = Instant::now();
        while !self.readers.iter().all(JoinHandle::is_finished) && began.elapsed() < GRACE {
            thread::sleep(TICK);
        }
    }
}

/// Kills all ranks that run, with what they have started.
fn kill_all() {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    for group in running.drain(..) {
        // It may have ended in between.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Passes whole lines on, each with the rank's number.
fn pass_on<W: Write>(rank: u32, from: Option<impl Read>, to: impl Fn() -> W) {
    let Some(from) = from else { return };
    let mut from = BufReader::new(from);
    let mut line = format!("[{rank}] ").into_bytes();
    let prefix = line.len();
    while from
        .read_until(b'\n', &mut line)
        .is_ok_and(|bytes| bytes > 0)
    {
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        // In one call, so that lines of other ranks do not run into it. Nobody may want to read it.
        let _ = to().write_all(&line);
        line.truncate(prefix);
    }
}

/// Waits until all have ended, or one has failed and the others have had their time, or the deadline. The status is that
/// of the first one that failed.
fn wait(ranks: &mut [Rank], deadline: Option<Duration>) -> u8 {
    let began = Instant::now();
    let mut under_way: Vec<_> = ranks.iter_mut().collect();
    let mut failed: Option<(u8, Instant)> = None;
    while !under_way.is_empty() {
        under_way.retain_mut(|rank| {
            let Some(status) = rank.ended() else {
                return true;
            };
            if !status.success() && failed.is_none() {
                eprintln!("warpbell-launch: rank {} failed: {status}", rank.number);
                failed = Some((code(status), Instant::now()));
            }
            false
        });
        if failed.is_some_and(|(_, since)| since.elapsed() > GRACE) {
            break;
        }
        if let Some(deadline) = deadline
            && began.elapsed() > deadline
        {
            let numbers: Vec<_> = under_way
                .iter()
                .map(|rank| rank.number.to_string())
                .collect();
            let (numbers, seconds) = (numbers.join(", "), deadline.as_secs());
            eprintln!("warpbell-launch: not ended after {seconds} s: {numbers}");
            return failed.map_or(TIMED_OUT, |(status, _)| status);
        }
        thread::sleep(TICK);
    }
    failed.map_or(0, |(status, _)| status)
}

/// The status as a shell has it.
fn code(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| Some(SIGNALLED + status.signal()?));
    number
        .and_then(|number| u8::try_from(number).ok())
        .unwrap_or(1)
}
