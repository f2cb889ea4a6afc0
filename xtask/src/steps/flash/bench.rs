//! Two machines with servers of ssh's, a third one with the user, and a folder to copy.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::dist::manifest::{Manifest, SCHEMA, files};
use crate::run::{self, Ending, Finished, Group, Stream};
use crate::steps::minutes;
use crate::steps::net::Net;

/// A hang ends then, and nothing else.
pub const DEADLINE: Duration = minutes(5);
const TICK: Duration = Duration::from_millis(50);
/// The user's machine; the nodes are 0 and 1.
const USER: u32 = 2;
pub const NODES: u32 = 2;
/// A copy of this program in the folder: a step before may have built another one in its place.
const OWN: &str = "xtask";

/// Programs of a few lines, for what the project's own ones do not show.
const SCRIPTS: [(&str, &str); 3] = [
    // It ends only with its group.
    ("sleeper", "sleep 3000 & echo $$; echo $!; wait"),
    ("fails", "exit 7"),
    // The folder without links: the test's own may be one.
    ("shows", r#"echo "$SETTING" "$@" in "$(pwd -P)""#),
];

/// What all cases share.
pub struct Bench {
    net: Net,
    /// All that the cases write.
    pub folder: PathBuf,
    servers: Vec<Child>,
}

impl Bench {
    /// Programs, by their names, become the folder that is copied.
    pub fn new(folder: PathBuf, programs: &[(&str, PathBuf)]) -> Result<Self, String> {
        let net = Net::new(NODES + 1)?;
        let mut bench = Self {
            net,
            folder,
            servers: Vec::new(),
        };
        bench.set_up(programs).map_err(|error| error.to_string())?;
        for rank in 0..NODES {
            bench.serve(rank)?;
        }
        Ok(bench)
    }

    fn set_up(&self, programs: &[(&str, PathBuf)]) -> io::Result<()> {
        self.unmount_small();
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)?;
        }
        for folder in ["dist/bin", "ssh", "tmp"] {
            fs::create_dir_all(self.folder.join(folder))?;
        }
        fs::copy("/proc/self/exe", self.folder.join(OWN))?;
        for (name, path) in programs {
            fs::copy(path, self.folder.join("dist/bin").join(name))?;
        }
        for (name, text) in SCRIPTS {
            self.script(&format!("dist/bin/{name}"), text)?;
        }
        self.mount_small()?;
        self.write("dist/note", "one")?;
        self.write_manifest("one", |_| {})?;
        // Before the user's own on the path: with a configuration of the test, not the user's.
        let config = self.folder.join("ssh/config").display().to_string();
        self.script("ssh/ssh", &format!("exec /usr/bin/ssh -F {config} \"$@\""))?;
        self.log_in_by("user")?;
        let nodes = (0..NODES).map(|rank| self.node(rank, ""));
        self.write("nodes.toml", &nodes.collect::<String>())
    }

    pub fn write(&self, name: &str, text: &str) -> io::Result<()> {
        fs::write(self.folder.join(name), text)
    }

    fn script(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n"))?;
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755))
    }

    /// A node in the form of nodes.toml, with further keys. Both machines have the same files, so each has a folder.
    pub fn node(&self, rank: u32, more: &str) -> String {
        let (host, folder) = (Net::address(rank), self.folder_of(rank));
        let folder = folder.display();
        format!("[[node]]\nhost = \"{host}\"\nfolder = \"{folder}\"\n{more}\n")
    }

    /// A node's copy.
    pub fn folder_of(&self, rank: u32) -> PathBuf {
        self.folder.join(format!("node-{rank}"))
    }

    /// Lists what is to be copied, as some commit; the change makes it something else.
    pub fn write_manifest(
        &self,
        commit: &str,
        change: impl FnOnce(&mut Manifest),
    ) -> io::Result<()> {
        let folder = self.folder.join("dist");
        let mut manifest = Manifest {
            schema: SCHEMA,
            name: "warpbell".into(),
            version: "0.1.0".into(),
            commit: commit.into(),
            target: "x86_64-unknown-linux-gnu".into(),
            glibc: "2.17".into(),
            files: files(&folder).map_err(io::Error::other)?,
        };
        change(&mut manifest);
        manifest.write(&folder).map_err(io::Error::other)
    }

    /// Chooses the key with which the user logs in.
    pub fn log_in_by(&self, key: &str) -> io::Result<()> {
        let mut config = String::new();
        for (option, file) in [("IdentityFile", key), ("UserKnownHostsFile", "known_hosts")] {
            let file = self.folder.join("ssh").join(file);
            // Writing to a String cannot fail.
            let _ = writeln!(config, "{option} {}", file.display());
        }
        self.write(
            "ssh/config",
            &(config + "GlobalKnownHostsFile /dev/null\nIdentitiesOnly yes\n"),
        )
    }

    /// A key of its own, if there is none yet.
    fn key(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.folder.join("ssh").join(name);
        if !path.exists() {
            let mut command = Command::new("ssh-keygen");
            command
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(&path);
            let made = command.status().map_err(|error| error.to_string())?;
            if !made.success() {
                return Err(format!("ssh-keygen: {made}"));
            }
        }
        Ok(path)
    }

    /// Writes down that each node has the host key of this name.
    pub fn know(&self, key: impl Fn(u32) -> String) -> Result<(), String> {
        let mut known = String::new();
        for rank in 0..NODES {
            let key = self.key(&key(rank))?.with_extension("pub");
            let key = fs::read_to_string(key).map_err(|error| error.to_string())?;
            known += &format!("{} {key}", Net::address(rank));
        }
        self.write("ssh/known_hosts", &known)
            .map_err(|error| error.to_string())
    }

    /// As [`know`](Self::know), with the right keys.
    pub fn know_all(&self) -> Result<(), String> {
        self.know(|rank| format!("host-{rank}"))
    }

    /// Starts the server of a node, and waits until it answers.
    fn serve(&mut self, rank: u32) -> Result<(), String> {
        let host = self.key(&format!("host-{rank}"))?;
        let user = self.key("user")?;
        // Where sshd gives up its privileges, says Debian.
        fs::create_dir_all("/run/sshd").map_err(|error| error.to_string())?;
        let mut command = self.net.command(rank, Path::new("/usr/sbin/sshd"));
        command.args([
            "-D",
            "-f",
            "/dev/null",
            "-o",
            "PidFile=none",
            "-o",
            "StrictModes=no",
            "-h",
        ]);
        command.arg(host).arg("-o");
        command.arg(format!("AuthorizedKeysFile={}.pub", user.display()));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.servers
            .push(command.spawn().map_err(|error| error.to_string())?);
        eventually("an answer of sshd", || {
            let mut command = self.net.command(USER, Path::new("bash"));
            command.args(["-c", &format!("exec 3<>/dev/tcp/{}/22", Net::address(rank))]);
            command.stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        })
    }

    /// This program.
    pub fn own(&self) -> PathBuf {
        self.folder.join(OWN)
    }

    /// `cargo xtask flash` on the user's machine.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.on(USER, &self.own());
        command.arg("flash").args(arguments);
        command
    }

    /// A program on a machine, with the user's ssh.
    fn on(&self, rank: u32, program: &Path) -> Command {
        let mut command = self.net.command(rank, program);
        let path = std::env::var("PATH").unwrap_or_default();
        let ssh = self.folder.join("ssh");
        command.env("PATH", format!("{}:{path}", ssh.display()));
        command.env("TMPDIR", self.folder.join("tmp"));
        command.current_dir(&self.folder);
        command
    }

    /// Runs a program of the first node's copy there, to its end. The other node has the same files.
    pub fn run_on_node(&self, program: &str, arguments: &[&str]) -> Result<Finished, String> {
        let bin = self.folder_of(0).join("current/bin");
        let mut command = self.on(0, &bin.join(program));
        command.args(arguments);
        run::capture(command, DEADLINE, |_| {}).map_err(|error| error.to_string())
    }

    /// Runs it with the folder, to its end.
    pub fn flash(&self, arguments: &[&str]) -> Result<Finished, String> {
        self.run(&[&["--from", "dist"], arguments].concat())
    }

    pub fn run(&self, arguments: &[&str]) -> Result<Finished, String> {
        run::capture(self.command(arguments), DEADLINE, |_| {}).map_err(|error| error.to_string())
    }

    /// Starts a program that does not end by itself, on both nodes, and waits for its processes.
    pub fn start(&self, arguments: &[&str]) -> Result<Running, String> {
        let arguments = [&["--from", "dist", "--nodes", "nodes.toml"], arguments].concat();
        let mut command = self.command(&[&arguments[..], &["--", "sleeper"]].concat());
        command.stdin(Stdio::null());
        let mut running = Running::start(command)?;
        running.wait_for_processes(2 * NODES as usize)?;
        Ok(running)
    }

    /// Ends the processes of ssh that have the connections.
    pub fn break_connections(&self) -> Result<(), String> {
        for process in self.net.processes(USER)? {
            let words = fs::read_to_string(format!("/proc/{}/cmdline", process.as_raw_nonzero()));
            if words.is_ok_and(|words| words.contains("ControlMaster=yes")) {
                // It may have ended by itself.
                let _ = kill_process(process, Signal::KILL);
            }
        }
        Ok(())
    }

    /// Pulls a node's cable, or plugs it in.
    pub fn set_port(&self, rank: u32, state: &str) -> Result<(), String> {
        self.net.set_port(rank, state)
    }

    /// Waits until the nodes have no process but their servers, and the user none.
    pub fn until_nothing_runs(&self) -> Result<(), String> {
        let servers = Vec::from_iter(self.servers.iter().map(Pid::from_child));
        eventually("the end of all processes", || {
            (0..=USER).all(|rank| {
                let processes = self.net.processes(rank).unwrap_or_default();
                processes.iter().all(|process| servers.contains(process))
            })
        })
    }

    /// That no flash has left anything of its own on the user's machine.
    pub fn is_tidy(&self) -> Result<(), String> {
        let left = fs::read_dir(self.folder.join("tmp")).map_err(|error| error.to_string())?;
        match left.count() {
            0 => Ok(()),
            count => Err(format!("{count} private folders are left")),
        }
    }

    /// A folder whose file system has 2 MiB.
    pub fn small(&self) -> PathBuf {
        self.folder.join("small")
    }

    /// Mounts it, before the servers start: each has mounts of its own.
    fn mount_small(&self) -> io::Result<()> {
        fs::create_dir_all(self.small())?;
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=2m", "warpbell"]);
        match command.arg(self.small()).status()?.success() {
            true => Ok(()),
            false => Err(io::Error::other("cannot mount a tmpfs")),
        }
    }

    fn unmount_small(&self) {
        // It is there only while a bench is, or after one that was killed.
        let mut command = Command::new("umount");
        let _ = command.arg(self.small()).stderr(Stdio::null()).status();
    }

    /// A folder of somebody else's, where a node's would be.
    pub fn foreign(&self) -> io::Result<PathBuf> {
        let path = self.folder.join("foreign");
        fs::create_dir_all(&path)?;
        fs::write(path.join("mine"), "mine")?;
        if !path.join("link").is_symlink() {
            symlink("mine", path.join("link"))?;
        }
        Ok(path)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // One may have ended.
            let _ = server.kill();
            let _ = server.wait();
        }
        self.unmount_small();
    }
}

/// A flash that does not end by itself.
pub struct Running {
    group: Option<Group>,
    lines: Receiver<(Stream, String)>,
    said: String,
    /// Those of its ranks.
    processes: Vec<u32>,
}

impl Running {
    /// Starts it. What it reads is the command's.
    pub fn start(mut command: Command) -> Result<Self, String> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut group = Group::start(command).map_err(|error| error.to_string())?;
        let lines = group.lines();
        Ok(Self {
            group: Some(group),
            lines,
            said: String::new(),
            processes: Vec::new(),
        })
    }

    /// Waits until it says a line.
    pub fn wait_for(&mut self, word: &str) -> Result<(), String> {
        let end = Instant::now() + DEADLINE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok((_, line)) if line.trim_end() == word => return Ok(()),
                Ok((_, line)) => self.said += &line,
                Err(_) => return Err(format!("it does not say {word}:\n{}", self.said)),
            }
        }
    }

    /// Lets what it reads end.
    pub fn end_input(&mut self) {
        drop(
            self.group
                .as_mut()
                .and_then(|group| group.child.stdin.take()),
        );
    }

    /// Waits until its ranks have said their processes.
    pub fn wait_for_processes(&mut self, count: usize) -> Result<(), String> {
        let end = Instant::now() + DEADLINE;
        while self.processes.len() < count {
            let left = end.saturating_duration_since(Instant::now());
            let Ok((_, line)) = self.lines.recv_timeout(left) else {
                return Err(format!("it does not start its ranks:\n{}", self.said));
            };
            let words = line.trim_end().rsplit(' ').next();
            let process = words.filter(|_| line.contains("] "));
            self.processes
                .extend(process.and_then(|word| word.parse::<u32>().ok()));
            self.said += &line;
        }
        Ok(())
    }

    /// The process of the flash.
    pub fn process(&self) -> Result<Pid, String> {
        let group = self.group.as_ref().ok_or("it has ended")?;
        Ok(Pid::from_child(&group.child))
    }

    /// Sends it a signal, as a terminal does with Ctrl-C, but to the process alone.
    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        kill_process(self.process()?, signal).map_err(|error| error.to_string())
    }

    /// Waits until it has ended: its status, if it has one, and its words.
    pub fn end(&mut self) -> Result<(Option<i32>, String), String> {
        let group = self.group.take().ok_or("it has ended")?;
        let ended = group.wait(DEADLINE, thread::sleep);
        let status = match ended.map_err(|error| error.to_string())? {
            Ending::Exited(status) => status.code(),
            Ending::TimedOut(_) => return Err("it hangs".into()),
        };
        self.said.extend(self.lines.iter().map(|(_, line)| line));
        Ok((status, std::mem::take(&mut self.said)))
    }

    /// Waits until all processes of its ranks have ended.
    pub fn until_ranks_end(&self) -> Result<(), String> {
        let runs = |process: &u32| {
            let stat = fs::read_to_string(format!("/proc/{process}/stat"));
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        eventually("the end of all ranks", || !self.processes.iter().any(runs))
    }
}

/// Waits until it is so.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), String> {
    let end = Instant::now() + DEADLINE;
    while !is_so() {
        if Instant::now() > end {
            return Err(format!("waited in vain for: {what}"));
        }
        thread::sleep(TICK);
    }
    Ok(())
}
