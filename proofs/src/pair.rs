//! A server and a client, each a process of its own, under a deadline.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{fs, io};

use crate::namespace::Namespace;
use crate::preloaded;

/// How long a run may take on a machine that is busy with other things.
pub const DEADLINE: Duration = Duration::from_secs(300);
/// Between two looks at the processes.
const NAP: Duration = Duration::from_millis(5);
/// How long each end is heard.
const OUTPUT_LINES: usize = 20;
/// What the pingpongs of rdma-core say of bytes that are not as they were sent, if they are to look (`-c`). Their status is
/// a good one all the same.
const WRONG_DATA: &str = "invalid data";

/// A process that ends at the latest when this is dropped.
pub struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Starts it; what it writes is kept for its end.
    ///
    /// # Panics
    /// If there is no such program.
    pub fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null());
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        Self(child.unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Kills it, if it has not ended.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
    }

    /// What each of its threads does: name, state and where the kernel has it wait, as the system says.
    fn threads(&self) -> String {
        let folder = format!("/proc/{}/task", self.id());
        let threads = fs::read_dir(folder).into_iter().flatten().flatten();
        let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
        let thread = |folder: PathBuf| {
            let status = read(folder.join("status"));
            let line = |name| {
                status
                    .lines()
                    .find_map(|line: &str| line.strip_prefix(name))
            };
            let [name, state] = ["Name:\t", "State:\t"].map(|name| line(name).unwrap_or("?"));
            format!("{name}: {state} {}\n", read(folder.join("wchan")))
        };
        threads.map(|entry| thread(entry.path())).collect()
    }

    /// Waits for its end, or brings it about: what it wrote, and whether it ended by itself in time. If not, its errors end
    /// with what its threads were doing.
    ///
    /// # Panics
    /// If the system loses it.
    pub fn end(mut self, deadline: Instant) -> (Output, bool) {
        while self.0.try_wait().unwrap().is_none() && Instant::now() < deadline {
            sleep(NAP);
        }
        let in_time = self.0.try_wait().unwrap().is_some();
        let threads = if in_time {
            String::new()
        } else {
            self.threads()
        };
        if !in_time {
            self.kill();
        }
        let [stdout, stderr] = [
            self.0.stdout.take().map(drain),
            self.0.stderr.take().map(drain),
        ];
        let output = Output {
            status: self.0.wait().unwrap(),
            stdout: stdout.unwrap_or_default(),
            stderr: [stderr.unwrap_or_default(), threads.into_bytes()].concat(),
        };
        (output, in_time)
    }

    /// Waits for its end; whether it went well, and what it wrote.
    pub fn finish(self, deadline: Instant) -> (bool, String) {
        let (output, in_time) = self.end(deadline);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        match in_time {
            true => (
                output.status.success() && is_right(&said),
                format!("{said}\n{}", output.status),
            ),
            false => (false, format!("{said}\nnot ended after {DEADLINE:?}")),
        }
    }
}

/// Whether a program found nothing wrong with the data.
pub fn is_right(said: &str) -> bool {
    !said.contains(WRONG_DATA)
}

/// What is in a pipe whose writer has ended. The programs write less than it holds.
fn drain(mut pipe: impl io::Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).unwrap();
    bytes
}

/// One pair at a time: the programs spin.
static ALONE: Mutex<()> = Mutex::new(());

/// Keeps other pairs away.
pub fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where an end runs: with these variables in its environment, and in a network namespace if not in this one.
#[derive(Clone, Copy, Default)]
pub struct Side<'a> {
    /// The namespace.
    pub namespace: Option<&'a Namespace>,
    /// The variables.
    pub environment: &'a [(&'a str, String)],
}

impl Side<'_> {
    /// A call of a program that has the device.
    ///
    /// # Panics
    /// If the library is not where Cargo builds it.
    #[must_use]
    pub fn call(&self, program: &str, arguments: &[&str]) -> Command {
        let mut call =
            preloaded::under(program).expect("Cargo builds the library beside the tests");
        call.args(arguments);
        call.envs(self.environment.iter().map(|(name, value)| (name, value)));
        match self.namespace {
            None => call,
            Some(namespace) => namespace.call(&call),
        }
    }
}

/// A program as a server and once more as its client, just started.
struct Pair {
    server: Process,
    client: Process,
    port: u16,
    deadline: Instant,
    _alone: MutexGuard<'static, ()>,
}

impl Pair {
    #[track_caller]
    fn start(
        [server, client]: [Side<'_>; 2],
        host: &str,
        program: &str,
        arguments: &[&str],
    ) -> Self {
        let _alone = alone();
        let deadline = Instant::now() + DEADLINE;
        let port = free_port();
        let number = port.to_string();
        let arguments = [&["-p", number.as_str()], arguments].concat();
        let server = Process::start(&mut server.call(program, &arguments));
        let server = listening(server, port, deadline);
        let client = Process::start(&mut client.call(program, &[&arguments[..], &[host]].concat()));
        Self {
            server,
            client,
            port,
            deadline,
            _alone,
        }
    }
}

/// Waits until a server listens.
///
/// # Panics
/// If it does not in time.
#[track_caller]
pub fn listening(server: Process, port: u16, deadline: Instant) -> Process {
    while !is_listening(server.id(), port) {
        if Instant::now() > deadline {
            panic!("the server does not listen: {}", server.finish(deadline).1);
        }
        sleep(NAP);
    }
    server
}

/// The last lines of what a program said.
pub fn last(said: &str) -> String {
    let lines: Vec<_> = said.lines().collect();
    lines[lines.len().saturating_sub(OUTPUT_LINES)..].join("\n")
}

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Who calls.
    Client,
    /// Who is called.
    Server,
}

/// Runs a program as a server, and again as its client.
///
/// # Errors
/// What both said, unless both end well, in time; else gives what the client said.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    run_with(&[], program, arguments)
}

/// The same, with these variables in both ends' environment.
///
/// # Errors
/// As [`run`].
pub fn run_with(
    environment: &[(&str, String)],
    program: &str,
    arguments: &[&str],
) -> Result<String, String> {
    let side = Side {
        environment,
        ..Side::default()
    };
    run_between([side; 2], "localhost", program, arguments)
}

/// The same, with the server and the client where these say. `host` is the server's name.
///
/// # Errors
/// As [`run`].
pub fn run_between(
    sides: [Side<'_>; 2],
    host: &str,
    program: &str,
    arguments: &[&str],
) -> Result<String, String> {
    let pair = Pair::start(sides, host, program, arguments);
    let ends = [pair.client, pair.server].map(|process| process.finish(pair.deadline));
    let [(client_well, client), (server_well, server)] = ends;
    match client_well && server_well {
        true => Ok(client),
        false => Err(format!(
            "client: {}\nserver: {}",
            last(&client),
            last(&server)
        )),
    }
}

/// The same, but that one end is killed, so long after the client has called: before, its server would wait for another one,
/// and rightly.
///
/// # Errors
/// What the other end said, unless it ends by itself, in error and in time.
pub fn run_and_kill(
    program: &str,
    arguments: &[&str],
    killed: End,
    moment: Duration,
) -> Result<(), String> {
    let mut pair = Pair::start([Side::default(); 2], "localhost", program, arguments);
    while !is_called(pair.server.id(), pair.port) && Instant::now() < pair.deadline {
        sleep(NAP);
    }
    sleep(moment);
    let other = match killed {
        End::Server => {
            pair.server.kill();
            pair.client
        }
        End::Client => {
            pair.client.kill();
            pair.server
        }
    };
    let (well, said) = other.finish(pair.deadline);
    match !well && said.contains("exit status") {
        true => Ok(()),
        false => Err(format!("after {moment:?}: {}", last(&said))),
    }
}

/// A port that nobody listens at.
///
/// # Panics
/// If there is none.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// Whether somebody listens at a port in the network namespace of a process, without a connection that a server would take for its client's.
fn is_listening(process: u32, port: u16) -> bool {
    has_socket(process, port, "0A")
}

/// Whether somebody has called there.
fn is_called(process: u32, port: u16) -> bool {
    has_socket(process, port, "01")
}

/// Whether there is a socket with this local port in a state, of which the system's numbers are 01 (established) and 0A
/// (listens).
fn has_socket(process: u32, port: u16, wanted: &str) -> bool {
    // Columns: number, local address, remote address, state.
    let port = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let path = format!("/proc/{process}/net/{table}");
        let sockets = fs::read_to_string(path).unwrap_or_default();
        sockets.lines().any(|line| {
            let mut columns = line.split_whitespace().skip(1);
            let (local, state) = (columns.next(), columns.nth(1));
            local.is_some_and(|local| local.ends_with(&port)) && state == Some(wanted)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_data_is_no_good_end() {
        let said = |words| {
            Process::start(Command::new("echo").arg(words)).finish(Instant::now() + DEADLINE)
        };
        assert!(said("1000 iters in 0.01 seconds").0);
        assert!(!said("invalid data in page 3").0);
    }

    #[test]
    fn a_program_that_does_not_end_says_what_it_does() {
        let mut sleeper = Command::new("sleep");
        let process = Process::start(sleeper.arg("3000"));
        // Until it is what it shall be, and sleeps.
        while !process.threads().contains("sleep: S (sleeping)") {
            sleep(NAP);
        }
        let (well, said) = process.finish(Instant::now());
        assert!(!well && said.contains("sleep: S (sleeping)"), "{said}");
        assert!(said.ends_with("not ended after 300s"), "{said}");
    }
}
