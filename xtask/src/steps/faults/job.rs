//! A job of ranks, whose processes live and die one by one.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::steps::minutes;
use crate::steps::net::Net;

/// How long ranks may take to say something.
const DEADLINE: Duration = minutes(5);

/// A rank, and a line that it said.
pub type Line = (u32, String);

/// What is needed to start jobs.
pub struct Bench<'a> {
    pub net: &'a Net,
    /// Goes on in rounds, with those that are left.
    pub rounds: &'a Path,
    /// Ends by itself.
    pub moe: &'a Path,
    /// The file at which rounds end.
    pub stop: PathBuf,
}

/// A job, and all that its processes have said. They end with it.
pub struct Job<'a> {
    bench: &'a Bench<'a>,
    program: &'a Path,
    arguments: Vec<&'a OsStr>,
    ranks: u32,
    port: u16,
    /// The newest process of each rank, and those beside them.
    processes: Vec<(u32, Child)>,
    said: Vec<Line>,
    lines: (Sender<Line>, Receiver<Line>),
}

impl<'a> Job<'a> {
    /// A job of [`Bench::rounds`] without any process.
    pub fn new(bench: &'a Bench<'a>, ranks: u32, port: u16) -> Self {
        // It is there after a job before this one.
        let _ = fs::remove_file(&bench.stop);
        let mut job = Self::of(bench, bench.rounds, ranks, port);
        job.arguments = vec![bench.stop.as_os_str(), OsStr::new("--take-in")];
        job
    }

    /// A job of a program without any process.
    pub fn of(bench: &'a Bench<'a>, program: &'a Path, ranks: u32, port: u16) -> Self {
        Self {
            bench,
            program,
            arguments: Vec::new(),
            ranks,
            port,
            processes: Vec::new(),
            said: Vec::new(),
            lines: channel(),
        }
    }

    /// Starts all ranks, and waits until they have had a round.
    pub fn started(bench: &'a Bench<'a>, ranks: u32, port: u16) -> Result<Self, String> {
        let mut job = Self::new(bench, ranks, port);
        for rank in 0..ranks {
            job.start(rank)?;
        }
        job.all_say(0..ranks, "round")?;
        Ok(job)
    }

    /// Starts a process of a rank.
    pub fn start(&mut self, rank: u32) -> Result<(), String> {
        let root = format!("{}:{}", Net::address(0), self.port);
        let mut command = self.bench.net.command(rank, self.program);
        command.args(&self.arguments);
        command.envs([
            ("WARPBELL_LAUNCHER", "hand"),
            ("WARPBELL_ROOT", &root),
            ("WARPBELL_SECRET", "of the ranks that fail"),
            ("WARPBELL_SIZE", &self.ranks.to_string()),
            ("WARPBELL_RANK", &rank.to_string()),
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        if let Some(stdout) = child.stdout.take() {
            self.hear(rank, stdout);
        }
        if let Some(stderr) = child.stderr.take() {
            self.hear(rank, stderr);
        }
        self.processes.push((rank, child));
        Ok(())
    }

    fn hear(&self, rank: u32, from: impl std::io::Read + Send + 'static) {
        let to = self.lines.0.clone();
        thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                if to.send((rank, line)).is_err() {
                    break;
                }
            }
        });
    }

    fn newest(&mut self, rank: u32) -> Result<&mut Child, String> {
        let of_rank = self.processes.iter_mut().rev();
        let newest = of_rank
            .map(|(of, child)| (*of, child))
            .find(|(of, _)| *of == rank);
        Ok(newest.ok_or("no such process")?.1)
    }

    /// Forgets the newest process, which has ended: the one before is the rank's.
    pub fn forget_newest(&mut self) {
        self.processes.pop();
    }

    /// Ends the newest process of a rank at once.
    pub fn kill(&mut self, rank: u32) -> Result<(), String> {
        let child = self.newest(rank)?;
        child.kill().map_err(|error| error.to_string())?;
        child.wait().map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Lets the newest process of a rank stand still, or go on.
    pub fn signal(&mut self, rank: u32, signal: Signal) -> Result<(), String> {
        let child = self.newest(rank)?;
        let pid = Pid::from_child(child);
        kill_process(pid, signal).map_err(|error| error.to_string())
    }

    /// Where a rank's lines begin that come from now on.
    pub fn now(&mut self) -> usize {
        self.said.extend(self.lines.1.try_iter());
        self.said.len()
    }

    /// Waits until it is so, of the lines after that one; the error has all that ranks said.
    pub fn until(
        &mut self,
        what: &str,
        from: usize,
        mut is_so: impl FnMut(&[Line]) -> bool,
    ) -> Result<(), String> {
        let end = Instant::now() + DEADLINE;
        loop {
            self.now();
            if is_so(&self.said[from..]) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(self.account(&format!("waited in vain for: {what}")));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until each of these ranks has said such words.
    pub fn all_say(
        &mut self,
        ranks: impl IntoIterator<Item = u32> + Clone,
        words: &str,
    ) -> Result<(), String> {
        self.all_say_after(0, ranks, words)
    }

    /// The same in lines after that one.
    pub fn all_say_after(
        &mut self,
        from: usize,
        ranks: impl IntoIterator<Item = u32> + Clone,
        words: &str,
    ) -> Result<(), String> {
        self.until(words, from, |said| {
            let says = |rank| {
                said.iter()
                    .any(|(of, line)| *of == rank && line.contains(words))
            };
            ranks.clone().into_iter().all(says)
        })
    }

    /// Fails if a rank has said such words.
    pub fn nobody_says(&mut self, words: &str) -> Result<(), String> {
        self.now();
        match self.said.iter().any(|(_, line)| line.contains(words)) {
            true => Err(self.account(&format!("somebody says: {words}"))),
            false => Ok(()),
        }
    }

    /// Waits until the newest process of a rank has ended; whether it succeeded.
    pub fn ended(&mut self, rank: u32) -> Result<bool, String> {
        let end = Instant::now() + DEADLINE;
        loop {
            let status = self.newest(rank)?.try_wait();
            if let Some(status) = status.map_err(|error| error.to_string())? {
                return Ok(status.success());
            }
            if Instant::now() > end {
                return Err(self.account(&format!("rank {rank} hangs")));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Lets the rounds end: these ranks have done all of them, with each other, and their newest processes succeed.
    pub fn finish(&mut self, ranks: &[u32]) -> Result<(), String> {
        let from = self.now();
        fs::write(&self.bench.stop, "").map_err(|error| error.to_string())?;
        self.all_say_after(
            from,
            ranks.iter().copied(),
            &format!("with {ranks:?}: Test OK"),
        )?;
        for &rank in ranks {
            if !self.ended(rank)? {
                return Err(self.account(&format!("rank {rank} failed")));
            }
        }
        Ok(())
    }

    /// What went wrong, and the last words of all.
    pub fn account(&self, what: &str) -> String {
        const LAST: usize = 60;
        let rounds = |line: &str| line.contains(" round ");
        let lines = self.said.iter().filter(|(_, line)| !rounds(line));
        let lines: Vec<_> = lines.collect();
        let mut account = what.to_owned();
        for (rank, line) in &lines[lines.len().saturating_sub(LAST)..] {
            // Writing to a String cannot fail.
            let _ = write!(account, "\n[{rank}] {line}");
        }
        account
    }
}

impl Drop for Job<'_> {
    fn drop(&mut self) {
        for (_, child) in &mut self.processes {
            // Most have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
