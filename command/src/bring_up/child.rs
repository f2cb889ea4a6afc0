//! Runs a program to its end or to its deadline: it and all that it started end then. The program also ends if this
//! process is killed.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process_group,
    set_parent_process_death_signal, waitid,
};

/// How often a running program is looked at.
const TICK: Duration = Duration::from_millis(20);
/// How long a program that has to end may take to end what it has started elsewhere, as the launcher does.
const GRACE: Duration = Duration::from_secs(5);
/// How long a killed program may take to end, and an ended one's output to arrive.
const DRAIN: Duration = Duration::from_secs(2);
/// Lines that are kept: the last ones.
const LINES: usize = 40;
/// The most characters of a line.
const LONGEST_LINE: usize = 300;
/// Bytes of standard output that are kept: the first ones. A document is shorter.
const DOCUMENT: usize = 4 << 20;

/// Whether Ctrl-C was pressed.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Lets Ctrl-C and its kin end the program that runs, and the others not begin.
pub fn catch_signals() -> Result<(), ctrlc::Error> {
    ctrlc::set_handler(|| STOPPED.store(true, Ordering::Release))
}

/// Whether Ctrl-C was pressed.
pub fn is_stopped() -> bool {
    STOPPED.load(Ordering::Acquire)
}

/// How a program ended.
#[derive(Debug)]
pub enum Ending {
    /// By itself, or by a signal.
    Exited(ExitStatus),
    /// It was ended at its deadline.
    TimedOut,
    /// It was ended by Ctrl-C.
    Stopped,
    /// It did not start.
    NotStarted(io::Error),
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ran {
    /// How.
    pub ending: Ending,
    /// From its start to its end.
    pub took: Duration,
    /// The start of its standard output.
    pub stdout: String,
    /// The last lines of its standard output and its standard error.
    pub lines: Vec<String>,
}

/// What the readers of a program have heard.
#[derive(Default)]
struct Heard {
    stdout: Vec<u8>,
    lines: VecDeque<String>,
}

/// Runs a command. It reads nothing, and gets a process group of its own.
pub fn run(command: &mut Command, deadline: Duration) -> Ran {
    let began = Instant::now();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Ctrl-C at a terminal goes to this process alone.
        .process_group(0);
    let own = getpid();
    // SAFETY: between fork and exec it makes two system calls, and its error has no memory of its own.
    unsafe { command.pre_exec(move || end_with(own)) };
    let heard = Arc::new(Mutex::new(Heard::default()));
    let ending = match command.spawn() {
        Ok(mut child) => {
            let readers = [
                listen(child.stdout.take(), &heard, true),
                listen(child.stderr.take(), &heard, false),
            ];
            let ending = wait(&mut child, deadline);
            // A process that left the group may still hold the pipes.
            wait_until(DRAIN, || readers.iter().all(JoinHandle::is_finished));
            ending
        }
        Err(error) => Ending::NotStarted(error),
    };
    let Heard { stdout, lines } = std::mem::take(&mut *lock(&heard));
    Ran {
        ending,
        took: began.elapsed(),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        lines: lines.into(),
    }
}

/// Lets the kernel end this process when its parent dies, which can no longer do that. The launcher then ends its ranks.
fn end_with(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // The call before the look, because a parent that died before the call would go unnoticed.
    match getppid() == Some(parent) {
        true => Ok(()),
        false => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Waits for the leader's end, the deadline or Ctrl-C, and ends the rest of the group.
fn wait(child: &mut Child, deadline: Duration) -> Ending {
    let group = Pid::from_child(child);
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let has_ended = || !matches!(waitid(WaitId::Pid(group), look), Ok(None));
    let mut early = None;
    wait_until(deadline, || {
        early = is_stopped().then_some(Ending::Stopped);
        early.is_some() || has_ended()
    });
    if early.is_none() && !has_ended() {
        early = Some(Ending::TimedOut);
    }
    if early.is_some() {
        // The launcher ends its ranks then, which are in groups of their own.
        let _ = kill_process_group(group, Signal::TERM);
        wait_until(GRACE, has_ended);
    }
    // The kill before the reaping: until then nobody else can be given the group's number. It may have ended by itself.
    let _ = kill_process_group(group, Signal::KILL);
    if !wait_until(DRAIN, has_ended) {
        // It sits in a driver that does not answer.
        return early.unwrap_or(Ending::TimedOut);
    }
    match (early, child.wait()) {
        (Some(early), _) => early,
        (None, Ok(status)) => Ending::Exited(status),
        (None, Err(error)) => Ending::NotStarted(error),
    }
}

/// Whether it is so before the time is over.
fn wait_until(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if began.elapsed() >= limit {
            return false;
        }
        thread::sleep(TICK);
    }
}

/// Takes all that a program says, so that it never waits for a reader.
fn listen(
    from: Option<impl Read + Send + 'static>,
    heard: &Arc<Mutex<Heard>>,
    is_stdout: bool,
) -> JoinHandle<()> {
    let heard = Arc::clone(heard);
    thread::spawn(move || {
        let Some(mut from) = from else { return };
        let (mut bytes, mut line) = ([0; 4096], Vec::new());
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let mut heard = lock(&heard);
            if is_stdout {
                let room = DOCUMENT.saturating_sub(heard.stdout.len());
                heard.stdout.extend(&bytes[..count.min(room)]);
            }
            for &byte in &bytes[..count] {
                match byte {
                    b'\n' => heard.push(&std::mem::take(&mut line)),
                    // UTF-8 has at most four bytes a character.
                    _ if line.len() < 4 * LONGEST_LINE => line.push(byte),
                    _ => {}
                }
            }
        }
        if !line.is_empty() {
            lock(&heard).push(&line);
        }
    })
}

impl Heard {
    fn push(&mut self, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let text = console::strip_ansi_codes(text.trim_end());
        if text.is_empty() {
            return;
        }
        // Nothing acts upon the terminal.
        let printable = |c: char| if c.is_control() { '\u{fffd}' } else { c };
        let text = text.replace('\t', "    ");
        self.lines
            .push_back(text.chars().take(LONGEST_LINE).map(printable).collect());
        if self.lines.len() > LINES {
            self.lines.pop_front();
        }
    }
}

fn lock(heard: &Mutex<Heard>) -> MutexGuard<'_, Heard> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A status in words.
pub fn words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("it ended with status {code}"),
        (None, Some(signal)) => format!("signal {signal} killed it"),
        (None, None) => status.to_string(),
    }
}
