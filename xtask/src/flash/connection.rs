//! A node's connection: a process of [`ssh`]'s or [`slurm`]'s, which ends everything on the node when it ends.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::nodes::Node;
use super::problem::Problem;
use super::{slurm, ssh};
use crate::run::{self, Ending, Finished, Group, Stream};

/// What a node runs.
const SCRIPT: &str = include_str!("node.sh");

/// How long a node may take to say what it is, and what it has. It reads all files of a copy for that.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long the process of a connection may take to end.
const GRACE: Duration = Duration::from_secs(3);
/// So many last lines of a program that failed say why.
const LINES: usize = 3;

/// How often a wait for words looks whether Ctrl-C was pressed.
const TICK: Duration = Duration::from_millis(50);

/// What runs a command on a node. `shared` are the options of a connection that several calls of ssh share.
fn reach(node: &Node, shared: &[String], command: &str) -> Command {
    match &node.step {
        Some(step) => step.command(&node.host, command),
        None => ssh::command(node, shared, command),
    }
}

/// Where other nodes reach a node.
pub fn address(node: &Node) -> Result<String, Problem> {
    match &node.step {
        Some(_) => slurm::address(&node.host),
        None => ssh::address(node),
    }
}

/// What a node runs for a call: a function of the script, and before it the values that it needs.
fn script(node: &Node, function: &str, who: &str) -> String {
    let (folder, who) = (quoted(&node.folder), quoted(who));
    format!("folder={folder}\nwho={who}\n{SCRIPT}\n{function}\n")
}

/// A command for any shell that a user may have. It takes the script from standard input, byte by byte, so that what
/// comes behind the script is left to the script.
fn taking(script: &str) -> String {
    let bytes = script.len();
    format!(r#"exec sh -c 'eval "$(dd ibs=1 count={bytes} 2> /dev/null)"'"#)
}

/// Runs a function of the script by a connection of its own.
pub fn call_once(node: &Node, function: &str) -> Result<String, Problem> {
    call(&[], node, function, |_| {}, PATIENCE).and_then(succeeded)
}

fn call(
    shared: &[String],
    node: &Node,
    function: &str,
    write: impl FnOnce(ChildStdin) + Send + 'static,
    deadline: Duration,
) -> Result<Finished, Problem> {
    check_stopped()?;
    let script = script(node, function, "");
    let command = reach(node, shared, &taking(&script));
    let write = move |mut stdin: ChildStdin| {
        // If the node takes no more, its status says why.
        if stdin.write_all(script.as_bytes()).is_ok() {
            write(stdin);
        }
    };
    Ok(run::feed(command, write, deadline)?)
}

/// Starts nothing more after Ctrl-C, which ends only what runs.
fn check_stopped() -> Result<(), Problem> {
    match super::is_stopped() {
        true => Err(Problem::Stopped),
        false => Ok(()),
    }
}

/// What a call said, if it went well.
pub fn succeeded(finished: Finished) -> Result<String, Problem> {
    match finished.ending {
        Ending::Exited(status) if status.success() => Ok(finished.stdout),
        Ending::Exited(status) => Err(failed(status, &finished.output)),
        Ending::TimedOut(deadline) => Err(Problem::Silent(deadline.as_secs())),
    }
}

/// Why a call failed: there is no connection, or what the node says.
fn failed(status: ExitStatus, words: &str) -> Problem {
    let lost = ssh::lost(status, words).or_else(|| slurm::lost(words));
    lost.unwrap_or_else(|| Problem::Remote(last(words, LINES)))
}

/// The last lines with words.
pub fn last(words: &str, count: usize) -> String {
    let lines = words.lines().map(str::trim);
    let lines = Vec::from_iter(lines.filter(|line| !line.is_empty()));
    match lines.len() {
        0 => "it does not say why".into(),
        all => lines[all.saturating_sub(count)..].join("; "),
    }
}

/// A word in quotes for a POSIX shell.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// An open connection. The node's side ends with it.
#[derive(Debug)]
pub struct Connection {
    pub node: Node,
    control: PathBuf,
    /// What the lock says while this process holds it.
    who: String,
    hold: Mutex<Hold>,
}

impl Connection {
    /// Connects, and starts `hold`, which says what the machine is. `who` is what a second flash is told.
    pub fn open(node: Node, control: PathBuf, who: &str) -> Result<(Self, Vec<String>), Problem> {
        let shared = [
            "ControlMaster=yes".to_owned(),
            format!("ControlPath={}", control.display()),
        ];
        let script = script(&node, "hold", who);
        let mut hold = Hold::start(reach(&node, &shared, &taking(&script)))?;
        hold.say(&script);
        let said = hold.until("probed", PATIENCE)?;
        let hold = Mutex::new(hold);
        let connection = Self {
            node,
            control,
            who: who.into(),
            hold,
        };
        Ok((connection, said))
    }

    /// Lets the node take the lock, and say what it has.
    pub fn lock(&self) -> Result<Vec<String>, Problem> {
        let mut hold = self.hold.lock().unwrap_or_else(PoisonError::into_inner);
        hold.say("go on\n");
        match hold.until("held", PATIENCE) {
            Err(Problem::Busy(who)) if who == self.who => Err(Problem::Shared {
                folder: self.node.folder.clone(),
            }),
            said => said,
        }
    }

    /// Runs a function of the script beside `hold`.
    pub fn call(
        &self,
        function: &str,
        write: impl FnOnce(ChildStdin) + Send + 'static,
        deadline: Duration,
    ) -> Result<Finished, Problem> {
        call(&self.shared(), &self.node, function, write, deadline)
    }

    /// The options of ssh for this connection, and for no other one.
    fn shared(&self) -> [String; 3] {
        [
            "ControlMaster=no".to_owned(),
            format!("ControlPath={}", self.control.display()),
            // Without the connection, ssh would make a new one, which nobody would end.
            "ProxyCommand=false".to_owned(),
        ]
    }

    /// The words of a shell that run a command over this connection. Words behind them are the command's arguments.
    pub fn words(&self, command: &str) -> String {
        let command = reach(&self.node, &self.shared(), command);
        let words = [command.get_program()]
            .into_iter()
            .chain(command.get_args());
        let words = words.map(|word| quoted(&word.to_string_lossy()));
        Vec::from_iter(words).join(" ")
    }
}

/// A process that says a few words and then holds something, until its standard input ends: the first call of a
/// connection, or a job.
#[derive(Debug)]
pub struct Hold {
    /// None once it has ended.
    group: Option<Group>,
    stdin: Option<ChildStdin>,
    lines: Receiver<(Stream, String)>,
}

impl Hold {
    pub fn start(mut command: Command) -> Result<Self, Problem> {
        check_stopped()?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut group = Group::start(command)?;
        let lines = group.lines();
        Ok(Self {
            stdin: group.child.stdin.take(),
            group: Some(group),
            lines,
        })
    }

    /// Writes to it. If it takes no more, its answer says why.
    fn say(&mut self, words: &str) {
        let stdin = self.stdin.as_mut();
        let _ = stdin.map(|stdin| stdin.write_all(words.as_bytes()));
    }

    /// Its lines up to this one.
    pub fn until(&mut self, word: &str, patience: Duration) -> Result<Vec<String>, Problem> {
        let (mut said, mut complaints) = (Vec::new(), String::new());
        let began = Instant::now();
        loop {
            match self.lines.recv_timeout(TICK) {
                Ok((Stream::Stdout, line)) if line.trim_end() == word => return Ok(said),
                Ok((Stream::Stdout, line)) => said.push(line.trim_end().to_owned()),
                Ok((Stream::Stderr, line)) => complaints.push_str(&line),
                Err(RecvTimeoutError::Timeout) => {
                    // Something beside the process may have its pipes.
                    check_stopped()?;
                    if began.elapsed() > patience {
                        return Err(Problem::Silent(patience.as_secs()));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Some(who) = said.iter().find_map(|line| line.strip_prefix("busy ")) {
            return Err(Problem::Busy(who.into()));
        }
        let group = self.group.take();
        let ending = group.map(|group| group.wait(GRACE, thread::sleep));
        match ending.transpose()? {
            Some(Ending::Exited(status)) => Err(failed(status, &complaints)),
            _ => Err(Problem::Unreachable(last(&complaints, 1))),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if let Some(group) = self.group.take() {
            // If it does not end, it is killed.
            let _ = group.wait(GRACE, thread::sleep);
        }
    }
}

/// A path for the socket of a connection. It is short: the system takes no more than 107 bytes.
pub fn control(folder: &Path, number: usize) -> PathBuf {
    folder.join(number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_say_why() {
        let words = "a banner\n\ntar: x: no space\n  tar: y\ntar: exit\n\n";
        assert_eq!(last(words, LINES), "tar: x: no space; tar: y; tar: exit");
        assert_eq!(last(words, 1), "tar: exit");
        assert_eq!(last("\n", 1), "it does not say why");
    }

    #[test]
    fn the_script_takes_its_own_bytes_and_leaves_the_rest() {
        let script = "read -r line\nsay() { echo \"it's $line\"; }\nsay\n";
        let mut command = Command::new("sh");
        command.args(["-c", &taking(script)]);
        let write = move |mut stdin: ChildStdin| {
            let words = format!("{script}the rest\n");
            stdin.write_all(words.as_bytes()).unwrap();
        };
        let finished = run::feed(command, write, PATIENCE).unwrap();
        assert_eq!(finished.output, "it's the rest\n");
    }
}
