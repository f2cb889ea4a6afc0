//! The ranks on this machine.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, getppid, kill_process_group,
    set_parent_process_death_signal, waitid,
};

use super::job::{Job, local_variables};
use super::{GRACE, INTERRUPTED, TICK, TIMED_OUT, is_stopped};

/// As a shell has it, for the number of the signal that ended a program.
const SIGNALLED: i32 = 128;

/// A process, and what passes its lines on.
pub struct Rank {
    number: u32,
    child: Child,
    group: Pid,
    is_over: bool,
    readers: [JoinHandle<()>; 2],
}

impl Rank {
    /// Starts the ranks of this machine. If one cannot be started, none runs.
    pub fn start_all(job: &Job) -> Result<Vec<Self>, String> {
        let mut ranks = Vec::new();
        for number in job.ranks.clone() {
            match Self::start(number, job) {
                Ok(rank) => ranks.push(rank),
                Err(error) => {
                    end(ranks);
                    let program = job.program[0].to_string_lossy();
                    return Err(format!("cannot start {program}: {error}"));
                }
            }
        }
        Ok(ranks)
    }

    fn start(number: u32, job: &Job) -> io::Result<Self> {
        let mut command = Command::new(&job.program[0]);
        for (name, _) in local_variables() {
            command.env_remove(name);
        }
        command
            .args(&job.program[1..])
            .envs(job.variables.iter().cloned())
            .env("WARPBELL_LAUNCHER", "hand")
            .env("WARPBELL_RANK", number.to_string())
            .env("WARPBELL_SIZE", job.size.to_string())
            .env(
                "WARPBELL_LOCAL_RANK",
                (number - job.ranks.start).to_string(),
            )
            .env("WARPBELL_ROOT", &job.root)
            .env("WARPBELL_SECRET", &job.secret)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let launcher = getpid();
        // SAFETY: between fork and exec the closure makes two system calls and takes nothing that another thread may hold.
        unsafe { command.pre_exec(move || die_with(launcher)) };
        let mut child = command.spawn()?;
        let group = Pid::from_child(&child);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let readers = [
            thread::spawn(move || pass_on(number, stdout, io::stdout)),
            thread::spawn(move || pass_on(number, stderr, io::stderr)),
        ];
        Ok(Self {
            number,
            child,
            group,
            is_over: false,
            readers,
        })
    }

    /// The status, once the process has ended. What it has started and left behind is killed.
    fn ended(&mut self) -> Option<ExitStatus> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(self.group), look).ok().flatten()?;
        self.kill();
        self.child.wait().ok()
    }

    /// Kills the process and what it has started, before it is reaped: until then nobody else can be given the group's
    /// number.
    fn kill(&mut self) {
        if !self.is_over {
            self.is_over = true;
            // It may have ended by itself.
            let _ = kill_process_group(self.group, Signal::KILL);
        }
    }
}

/// Lets the kernel kill this process when its parent dies, which a killed launcher can no longer do. What a rank has started
/// lives on then.
fn die_with(launcher: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The call before the look, because a launcher that died before the call would go unnoticed.
    match getppid() == Some(launcher) {
        true => Ok(()),
        false => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Kills the ranks that still run, and waits for the last lines of all. A process that left its group may still hold the
/// pipes, so this has an end.
pub fn end(mut ranks: Vec<Rank>) {
    for rank in &mut ranks {
        rank.kill();
    }
    for rank in &mut ranks {
        let _ = rank.child.wait();
    }
    let readers = ranks.iter().flat_map(|rank| &rank.readers);
    let began = Instant::now();
    while began.elapsed() < GRACE && !readers.clone().all(JoinHandle::is_finished) {
        thread::sleep(TICK);
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

/// Waits until all have ended, or one has failed and the others have had their time, or the deadline, or the end of all.
/// `failed` gets the status of the first one that failed and the words for it at once; the status is the same.
pub fn wait(
    ranks: &mut [Rank],
    deadline: Option<Duration>,
    mut failed: impl FnMut(u8, &str),
) -> u8 {
    let began = Instant::now();
    let mut under_way: Vec<_> = ranks.iter_mut().collect();
    let mut first: Option<(u8, Instant)> = None;
    while !under_way.is_empty() {
        under_way.retain_mut(|rank| {
            let Some(status) = rank.ended() else {
                return true;
            };
            if !status.success() && first.is_none() {
                let code = code(status);
                failed(code, &format!("rank {} failed: {status}", rank.number));
                first = Some((code, Instant::now()));
            }
            false
        });
        if is_stopped() {
            return INTERRUPTED;
        }
        if first.is_some_and(|(_, since)| since.elapsed() > GRACE) {
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
            failed(
                TIMED_OUT,
                &format!("not ended after {seconds} s: {numbers}"),
            );
            return first.map_or(TIMED_OUT, |(status, _)| status);
        }
        thread::sleep(TICK);
    }
    first.map_or(0, |(status, _)| status)
}

/// The status as a shell has it.
pub fn code(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| Some(SIGNALLED + status.signal()?));
    number
        .and_then(|number| u8::try_from(number).ok())
        .unwrap_or(1)
}
