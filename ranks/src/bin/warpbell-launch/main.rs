//! Starts a program as several ranks:
//!
//! ```console
//! $ warpbell-launch -n 4 ./program --its-options
//! $ warpbell-launch -n 4 --hosts node1:2,node2:2 ./program --its-options
//! ```
//!
//! The first line starts them on this machine ([`ranks`]). For the second, OpenSSH's client or another program starts
//! this launcher on each host ([`away`], [`serve`]), and it starts the host's ranks there.

mod away;
mod complaints;
mod hosts;
mod job;
mod ranks;
mod serve;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Parser, ValueEnum};

use complaints::Complaints;
use job::{Job, local_variables};
use ranks::Rank;

/// As a shell has it, for a program that cannot be started.
const NOT_STARTED: u8 = 127;
/// As `timeout` has it (coreutils).
const TIMED_OUT: u8 = 124;
/// As ssh has it, for a connection that broke.
const LOST: u8 = 255;
/// As a shell has it, for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// How long ranks may take to report why they end, once one has failed.
const GRACE: Duration = Duration::from_secs(2);
/// How often ranks and hosts are looked at.
const TICK: Duration = Duration::from_millis(10);

/// Whether all is to end: by Ctrl-C, or because the launcher that started this one is gone.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Starts a program as several ranks, on this machine or on others.
///
/// Each line that a rank prints begins with its number. If one fails, all others end 2 s later, and the status is that of
/// the one that failed first.
#[derive(Parser)]
#[command(name = "warpbell-launch", version)]
struct Arguments {
    /// How many ranks
    #[arg(short = 'n', long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=i64::from(warpbell_ranks::MOST_RANKS)))]
    ranks: u32,
    /// The hosts, such as node1:4,node2:4 for 4 ranks on each; without a number a host gets one rank
    #[arg(long, value_name = "HOSTS")]
    hosts: Option<String>,
    /// What starts a command on a host, called as PROGRAM HOST COMMAND [default: ssh, without asking for a password]
    #[arg(long, value_name = "PROGRAM", requires = "hosts")]
    rsh: Option<OsString>,
    /// Where the other ranks reach rank 0, as HOST or HOST:PORT [default: the first host, and a free port there]
    #[arg(long, value_name = "ADDRESS", requires = "hosts")]
    address: Option<String>,
    /// Where ranks work on each host; a relative path begins where --rsh starts the launcher [default: this folder]
    #[arg(long, value_name = "FOLDER", requires = "hosts")]
    folder: Option<OsString>,
    /// After so many seconds without a word from this launcher, a host ends its ranks; without one from a host, the job ends
    #[arg(long, value_name = "SECONDS", requires = "hosts", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    silence: u64,
    /// The wire between the software NICs of all ranks, in place of the best one for each two
    #[arg(long)]
    wire: Option<Wire>,
    /// Ends all ranks after so many seconds, with status 124
    #[arg(long, value_name = "SECONDS")]
    deadline: Option<u64>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_names = ["PROGRAM", "ARGUMENTS"])]
    program: Vec<OsString>,
}

/// A wire, as in `WARPBELL_WIRE`.
#[derive(Clone, Copy, ValueEnum)]
enum Wire {
    /// Shared memory, within one machine
    Shm,
    /// RoCE v2, also within one machine
    Roce,
}

impl Arguments {
    /// The user's variables for Warpbell, and those that options stand for.
    fn variables(&self) -> Vec<(OsString, OsString)> {
        let wire = self.wire.and_then(|wire| wire.to_possible_value());
        let wire = wire.map(|wire| ("WARPBELL_WIRE".into(), wire.get_name().into()));
        // Of two with one name the last one holds.
        local_variables().chain(wire).collect()
    }

    fn deadline(&self) -> Option<Duration> {
        self.deadline.map(Duration::from_secs)
    }
}

fn main() -> ExitCode {
    let complaints = Complaints::start();
    let served = serve::asked();
    let done = match served {
        Some(silence) => catch_signals().and_then(|()| serve::serve(silence)),
        None => launch(&Arguments::parse(), &complaints),
    };
    let status = done.unwrap_or_else(|error| {
        complaints.say(&error);
        NOT_STARTED
    });
    complaints.end();
    ExitCode::from(status)
}

/// Starts all ranks, waits for all, and gives the status.
fn launch(arguments: &Arguments, complaints: &Complaints) -> Result<u8, String> {
    let hosts = arguments.hosts.as_deref();
    let hosts = hosts.map(|list| hosts::share_out(list, arguments.ranks));
    let hosts = hosts.transpose().map_err(|error| error.to_string())?;
    catch_signals()?;
    let folder = match &arguments.folder {
        Some(folder) => folder.clone(),
        None => std::env::current_dir()
            .map_err(|error| format!("no working directory: {error}"))?
            .into(),
    };
    let mut job = Job {
        ranks: 0..arguments.ranks,
        size: arguments.ranks,
        root: String::new(),
        secret: secret().map_err(|error| format!("no random bytes: {error}"))?,
        folder,
        variables: arguments.variables(),
        program: arguments.program.clone(),
    };
    if let Some(hosts) = hosts {
        return away::launch(hosts, arguments, job, complaints);
    }
    job.root = root().map_err(|error| format!("no port for rank 0: {error}"))?;
    // Rank 0 listens there and nowhere else.
    job.variables.retain(|(name, _)| name != "WARPBELL_BIND");
    let mut ranks = Rank::start_all(&job)?;
    let failed = |_, words: &str| complaints.say(words);
    let status = ranks::wait(&mut ranks, arguments.deadline(), failed);
    ranks::end(ranks);
    Ok(status)
}

/// Lets Ctrl-C and its kin end the ranks.
fn catch_signals() -> Result<(), String> {
    ctrlc::set_handler(|| STOPPED.store(true, Ordering::Release))
        .map_err(|error| format!("cannot handle Ctrl-C: {error}"))
}

fn is_stopped() -> bool {
    STOPPED.load(Ordering::Acquire)
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
