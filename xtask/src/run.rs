//! Runs a process with a deadline: it and all that it started end at the latest then.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use thiserror::Error;

/// How often a running process is looked at.
const TICK: Duration = Duration::from_millis(50);

/// How long a killed process may take to end. One that sits in a broken driver never does.
const REAP: Duration = Duration::from_secs(2);

/// How long an ended process's output may be silent before it counts as complete, if something still holds the pipes.
const DRAIN: Duration = Duration::from_secs(10);

/// The process groups that run now, for [`kill_running`].
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Why a process could not be run.
#[derive(Debug, Error)]
pub enum RunError {
    #[error("cannot start {program}: {source}")]
    Start { program: String, source: io::Error },
    #[error("cannot wait for {program}: {source}")]
    Wait { program: String, source: io::Error },
}

/// How a process ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ending {
    Exited(ExitStatus),
    /// It was killed, with its group, at this deadline.
    TimedOut(Duration),
}

/// A process that has ended, with what it printed.
#[derive(Debug)]
pub struct Finished {
    pub ending: Ending,
    /// Its standard output alone.
    pub stdout: String,
    /// Its standard output and error, line by line as they came.
    pub output: String,
}

impl Finished {
    /// Whether it exited with status 0, in time.
    pub fn success(&self) -> bool {
        matches!(self.ending, Ending::Exited(status) if status.success())
    }

    /// The output with a last line that says how the process ended.
    pub fn account(&self) -> String {
        let mut account = self.output.clone();
        // Writing to a String cannot fail.
        let _ = match self.ending {
            Ending::Exited(status) => writeln!(account, "({status})"),
            Ending::TimedOut(deadline) => {
                writeln!(account, "(killed: over {} s)", deadline.as_secs())
            }
        };
        account
    }
}

/// Which of the two streams a line came from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// Runs a command to its end or to the deadline, and keeps what it prints.
///
/// `on_line` sees each line as it comes. The command reads nothing.
pub fn capture(
    mut command: Command,
    deadline: Duration,
    on_line: impl FnMut(&str),
) -> Result<Finished, RunError> {
    command.stdin(Stdio::null());
    keep(command, |_| {}, deadline, on_line)
}

/// As [`capture`], but a thread of its own writes what the command reads.
pub fn feed(
    mut command: Command,
    write: impl FnOnce(ChildStdin) + Send + 'static,
    deadline: Duration,
) -> Result<Finished, RunError> {
    command.stdin(Stdio::piped());
    let feed = |group: &mut Group| {
        if let Some(stdin) = group.child.stdin.take() {
            thread::spawn(move || write(stdin));
        }
    };
    keep(command, feed, deadline, |_| {})
}

fn keep(
    mut command: Command,
    started: impl FnOnce(&mut Group),
    deadline: Duration,
    mut on_line: impl FnMut(&str),
) -> Result<Finished, RunError> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut group = Group::start(command)?;
    started(&mut group);
    let lines = group.lines();
    let mut stdout = String::new();
    let mut output = String::new();
    let mut take = |(stream, line): (Stream, String)| {
        on_line(line.trim_end());
        if stream == Stream::Stdout {
            stdout.push_str(&line);
        }
        output.push_str(&line);
    };
    let ending = group.wait(deadline, |patience| receive(&lines, patience, &mut take))?;
    // A process that left the group may still hold the pipes, so this has an end of its own.
    let drained_by = Instant::now() + 6 * DRAIN;
    while let Ok(line) = lines.recv_timeout(DRAIN)
        && Instant::now() < drained_by
    {
        take(line);
    }
    Ok(Finished {
        ending,
        stdout,
        output,
    })
}

/// Runs a command to its end or to the deadline; it prints where this process prints.
pub fn forward(mut command: Command, deadline: Duration) -> Result<Ending, RunError> {
    command.stdin(Stdio::null());
    Group::start(command)?.wait(deadline, thread::sleep)
}

/// Does the same for all items at once, each on a thread of its own; the results in their order, or the first error.
///
/// For work that is a process of one thread.
pub fn beside_each_other<'a, T: Sync, R: Send, E: Send>(
    items: &'a [T],
    work: impl Fn(&'a T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = items
            .iter()
            .map(|item| scope.spawn(move || work(item)))
            .collect();
        let ended = threads.into_iter().map(ScopedJoinHandle::join);
        ended
            .map(|result| result.unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

/// Does the same for all items, in their order and so many at a time. The results in the order of the items.
pub fn so_many_at_a_time<'a, T: Sync, R: Send>(
    count: usize,
    items: &'a [T],
    work: impl Fn(&'a T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take = |_: &usize| {
        let mut done = Vec::new();
        while let index = next.fetch_add(1, Ordering::Relaxed)
            && let Some(item) = items.get(index)
        {
            done.push((index, work(item)));
        }
        Ok::<_, Infallible>(done)
    };
    let Ok(done) = beside_each_other(&Vec::from_iter(0..count), take);
    let mut done = Vec::from_iter(done.into_iter().flatten());
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Kills the process groups that run now. For the handler of Ctrl-C.
pub fn kill_running() {
    if let Ok(running) = RUNNING.lock() {
        for group in &*running {
            // The group may have ended by itself in between.
            let _ = kill_process_group(*group, Signal::KILL);
        }
    }
}

/// A process that leads a group of its own.
#[derive(Debug)]
pub struct Group {
    program: String,
    pub child: Child,
    pid: Pid,
}

impl Group {
    /// Starts it. Ctrl-C ends it, too.
    pub fn start(mut command: Command) -> Result<Self, RunError> {
        let program = command.get_program().to_string_lossy().into_owned();
        // Held over the start, so that a Ctrl-C in between cannot miss the group.
        let mut running = RUNNING
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        match command.process_group(0).spawn() {
            Ok(child) => {
                let pid = Pid::from_child(&child);
                running.push(pid);
                Ok(Self {
                    program,
                    child,
                    pid,
                })
            }
            Err(source) => Err(RunError::Start { program, source }),
        }
    }

    /// The lines of its output and its errors, as they come; each must be a pipe. To be called once.
    pub fn lines(&mut self) -> Receiver<(Stream, String)> {
        let (sender, lines) = channel();
        if let Some(stdout) = self.child.stdout.take() {
            forward_lines(stdout, Stream::Stdout, sender.clone());
        }
        if let Some(stderr) = self.child.stderr.take() {
            forward_lines(stderr, Stream::Stderr, sender);
        }
        lines
    }

    /// Waits for the leader's end or the deadline, then kills what is left of the group.
    ///
    /// `pass_time` is called between two looks and may take up to the time that it is given.
    pub fn wait(
        mut self,
        deadline: Duration,
        mut pass_time: impl FnMut(Duration),
    ) -> Result<Ending, RunError> {
        let wait_error = |program: &str, source: io::Error| RunError::Wait {
            program: program.into(),
            source,
        };
        let started = Instant::now();
        let timed_out = loop {
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            match waitid(WaitId::Pid(self.pid), look) {
                Ok(Some(_)) => break false,
                Ok(None) if started.elapsed() >= deadline => break true,
                Ok(None) => pass_time(TICK),
                Err(error) => return Err(wait_error(&self.program, error.into())),
            }
        };
        self.kill();
        if timed_out {
            self.reap_within(REAP);
            return Ok(Ending::TimedOut(deadline));
        }
        let status = self
            .child
            .wait()
            .map_err(|source| wait_error(&self.program, source))?;
        Ok(Ending::Exited(status))
    }

    /// Kills what is left of the group, and forgets it.
    fn kill(&self) {
        let mut running = RUNNING
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        // Kill before reaping, because until then nobody else can be given the group's number.
        let _ = kill_process_group(self.pid, Signal::KILL);
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

/// Sends the lines of a stream, from a thread, until the stream ends.
fn forward_lines(
    stream: impl Read + Send + 'static,
    name: Stream,
    sender: Sender<(Stream, String)>,
) {
    thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line).into_owned();
            if sender.send((name, text)).is_err() {
                break;
            }
            line.clear();
        }
    });
}

/// Takes the lines that come within a time; once the streams have ended, only lets it pass.
fn receive(
    lines: &Receiver<(Stream, String)>,
    patience: Duration,
    mut keep: impl FnMut((Stream, String)),
) {
    match lines.recv_timeout(patience) {
        Ok(line) => {
            keep(line);
            lines.try_iter().for_each(keep);
        }
        Err(RecvTimeoutError::Timeout) => {}
        Err(RecvTimeoutError::Disconnected) => thread::sleep(patience),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const LONG: Duration = Duration::from_secs(300);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn keeps_both_streams_and_the_status() {
        let finished = capture(shell("echo out; echo err >&2; exit 3"), LONG, |_| {}).unwrap();
        assert!(!finished.success());
        assert_eq!(finished.stdout, "out\n");
        assert_eq!(finished.output.len(), "out\nerr\n".len());
        assert!(finished.account().contains("exit status: 3"));
    }

    #[test]
    fn shows_each_line_and_reads_no_input() {
        let mut seen = Vec::new();
        let finished = capture(shell("cat; echo a; printf b"), LONG, |line| {
            seen.push(line.to_owned());
        });
        assert!(finished.unwrap().success());
        assert_eq!(seen, ["a", "b"]);
    }

    #[test]
    fn work_beside_each_other_is_done_at_once_and_its_results_keep_their_order() {
        let here = AtomicUsize::new(0);
        let done = beside_each_other(&[3, 1, 2], |item| {
            here.fetch_add(1, Ordering::SeqCst);
            let give_up = Instant::now() + Duration::from_secs(300);
            while here.load(Ordering::SeqCst) < 3 && Instant::now() < give_up {
                thread::sleep(TICK);
            }
            Ok::<_, ()>((item * 10, here.load(Ordering::SeqCst)))
        });
        assert_eq!(done, Ok(vec![(30, 3), (10, 3), (20, 3)]));
        let failed = beside_each_other(
            &[1, 2, 3],
            |item| {
                if *item > 1 { Err(*item) } else { Ok(()) }
            },
        );
        assert_eq!(failed, Err(2));
    }

    #[test]
    fn so_much_is_done_at_a_time_and_all_of_it_once() {
        let (here, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let items = Vec::from_iter(0..20);
        let give_up = Instant::now() + Duration::from_secs(300);
        let done = so_many_at_a_time(2, &items, |item| {
            most.fetch_max(here.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // The first waits for the second.
            while most.load(Ordering::SeqCst) < 2 && Instant::now() < give_up {
                thread::sleep(TICK);
            }
            here.fetch_sub(1, Ordering::SeqCst);
            item * 10
        });
        assert_eq!(done, Vec::from_iter((0..20).map(|item| item * 10)));
        assert_eq!(most.into_inner(), 2);
    }

    #[test]
    fn kills_the_whole_group_at_the_deadline() {
        // Both sleeps hold the pipe: only if both die does the output end.
        // Long enough for the shell to have spoken, on a busy machine too.
        let deadline = Duration::from_secs(5);
        let finished = capture(shell("sleep 600 & echo $!; sleep 600"), deadline, |_| {}).unwrap();
        assert_eq!(finished.ending, Ending::TimedOut(deadline));
        assert!(has_ended(finished.stdout.trim()));
    }

    #[test]
    fn leaves_nothing_behind_after_an_ordinary_end() {
        let finished = capture(shell("sleep 600 & echo $!"), LONG, |_| {}).unwrap();
        assert!(finished.success());
        assert!(has_ended(finished.stdout.trim()));
    }

    #[test]
    fn a_thread_writes_what_the_command_reads() {
        let write = |mut stdin: ChildStdin| stdin.write_all(b"one\n").unwrap();
        let finished = feed(shell("cat; echo two"), write, LONG).unwrap();
        assert_eq!(finished.stdout, "one\ntwo\n");
    }

    #[test]
    fn names_a_program_that_is_not_there() {
        let error = capture(Command::new("no-such-program"), LONG, |_| {}).unwrap_err();
        assert!(error.to_string().contains("no-such-program"), "{error}");
    }

    /// Whether a killed process is gone, or a zombie that waits for its new parent, within five minutes.
    fn has_ended(pid: &str) -> bool {
        assert!(pid.parse::<u32>().is_ok(), "no process id: {pid}");
        let ended = || match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
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
