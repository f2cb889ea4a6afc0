//! Runs a program with a deadline: it and all that it started end at the latest then.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

/// How often a running program is looked at.
const TICK: Duration = Duration::from_millis(50);

/// How long a killed program may take to end. One that sits in a broken driver never does.
const REAP: Duration = Duration::from_secs(2);

/// How long an ended program's output may still take to arrive.
const DRAIN: Duration = Duration::from_secs(2);

/// The process groups that run now, for [`kill_running`].
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Runs a command to its end or to the deadline, and keeps the first `limit` bytes of its standard output.
/// Its status is none if it was killed at the deadline.
///
/// The rest is not read, and its standard error is thrown away: neither a flood of output nor a process
/// that cannot be killed holds the caller up. The command reads nothing.
pub fn capture_start(
    mut command: Command,
    deadline: Duration,
    limit: u64,
) -> io::Result<(Option<ExitStatus>, Vec<u8>)> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut group = Group::start(command)?;
    let (sender, output) = channel();
    if let Some(stdout) = group.child.stdout.take() {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // Bytes from before an error are kept.
            let _ = stdout.take(limit).read_to_end(&mut bytes);
            // Nobody waits any more if the command was given up.
            let _ = sender.send(bytes);
        });
    }
    let status = group.wait(deadline)?;
    Ok((status, output.recv_timeout(DRAIN).unwrap_or_default()))
}

/// Kills the process groups that run now. For the handler of Ctrl-C.
pub fn kill_running() {
    if let Ok(running) = RUNNING.lock() {
        for group in &*running {
            // The group may have ended by itself in between.
            let _ = killpg(*group, Signal::SIGKILL);
        }
    }
}

/// A process that leads a group of its own.
struct Group {
    child: Child,
    pid: Pid,
}

impl Group {
    fn start(mut command: Command) -> io::Result<Self> {
        // Held over the start, so that a Ctrl-C in between cannot miss the group.
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.process_group(0).spawn()?;
        let pid = Pid::from_raw(child.id().cast_signed());
        running.push(pid);
        Ok(Self { child, pid })
    }

    /// Waits for the leader's end or the deadline, then kills the rest of the group.
    fn wait(mut self, deadline: Duration) -> io::Result<Option<ExitStatus>> {
        let started = Instant::now();
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let timed_out = loop {
            match waitid(Id::Pid(self.pid), look)? {
                WaitStatus::StillAlive if started.elapsed() >= deadline => break true,
                WaitStatus::StillAlive => thread::sleep(TICK),
                _ => break false,
            }
        };
        self.kill();
        if timed_out {
            self.reap_within(REAP);
            return Ok(None);
        }
        self.child.wait().map(Some)
    }

    /// Kills the rest of the group, and forgets it.
    fn kill(&self) {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        // Kill before reaping, because until then nobody else can be given the group's number.
        let _ = killpg(self.pid, Signal::SIGKILL);
        running.retain(|group| *group != self.pid);
    }

    /// Waits for the killed leader's end, but not for ever.
    fn reap_within(&mut self, limit: Duration) {
        let give_up = Instant::now() + limit;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < give_up {
            thread::sleep(TICK);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const LONG: Duration = Duration::from_secs(300);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn keeps_the_start_of_a_flood() {
        let (_, output) = capture_start(shell("yes"), LONG, 4).unwrap();
        assert_eq!(output, b"y\ny\n");
        let (status, output) = capture_start(shell("echo a; exit 3"), LONG, 9).unwrap();
        assert_eq!(output, b"a\n");
        assert_eq!(status.unwrap().code(), Some(3));
    }

    #[test]
    fn kills_the_whole_group_at_the_deadline() {
        // Both sleeps hold the pipe: only if both die does the output end.
        let script = shell("sleep 600 & echo $!; sleep 600");
        // Long enough for the shell to have spoken, on a busy machine too.
        let (status, output) = capture_start(script, Duration::from_secs(5), 99).unwrap();
        assert_eq!(status, None);
        assert!(has_ended(&output));
    }

    #[test]
    fn leaves_nothing_behind_after_an_ordinary_end() {
        let (status, output) = capture_start(shell("sleep 600 & echo $!"), LONG, 99).unwrap();
        assert!(status.unwrap().success());
        assert!(has_ended(&output));
    }

    /// Whether a killed process is gone, or a zombie that waits for its new parent, within five minutes.
    fn has_ended(output: &[u8]) -> bool {
        let pid: u32 = str::from_utf8(output).unwrap().trim().parse().unwrap();
        let ended = || match fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) => stat.contains(") Z "),
            Err(_) => true,
        };
        let give_up = Instant::now() + Duration::from_secs(300);
        while !ended() && Instant::now() < give_up {
            thread::sleep(TICK);
        }
        ended()
    }
}
