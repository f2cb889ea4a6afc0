//! `warpbell-launch` with hosts, which are all this machine: a script carries the commands in ssh's place.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio, id};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::launch::LAUNCH;
use crate::{ANOTHER, PART, PATIENCE};

const RSH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/rsh.sh");

/// Ranks on these hosts, of which the first is at the address.
fn launcher(ranks: u32, hosts: &str) -> Command {
    let mut command = Command::new(LAUNCH);
    command.args(["-n", &ranks.to_string(), "--hosts", hosts, "--rsh", RSH]);
    command.args(["--address", "127.0.0.1"]);
    command
}

/// Its status, and what it prints.
fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let words = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code(), words(stdout), words(stderr))
}

#[test]
fn hosts_have_blocks_of_ranks_in_the_same_folder() {
    let folder = fs::canonicalize(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let script = r#"echo "$WARPBELL_RANK of $WARPBELL_SIZE: $TEST_HOST $WARPBELL_LOCAL_RANK $WARPBELL_WIRE" \
        "$(pwd -P) $WARPBELL_STRAY$WARPBELL_BIND" "$1""#;
    let mut command = launcher(4, "a:2,me@b:3,c");
    command.args(["sh", "-c", script, "sh", "it's  one"]);
    command
        .env("WARPBELL_WIRE", "roce")
        .env("WARPBELL_BIND", "::1");
    let (status, stdout, stderr) = output(command.current_dir(&folder));
    assert_eq!((status, &*stderr), (Some(0), ""));
    let mut lines: Vec<_> = stdout.lines().collect();
    lines.sort_unstable();
    let folder = folder.display();
    let hosts = ["a 0", "a 1", "me@b 0", "me@b 1"];
    let expected = hosts
        .iter()
        .enumerate()
        .map(|(rank, host)| format!("[{rank}] {rank} of 4: {host} roce {folder} ::1 it's  one"));
    assert_eq!(lines, Vec::from_iter(expected));
}

#[test]
fn the_folder_need_not_be_utf_8() {
    let name = [&b"caf\xe9-"[..], id().to_string().as_bytes()].concat();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(OsStr::from_bytes(&name));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("there"), "it is").unwrap();
    let found = output(launcher(1, "a").args(["cat", "there"]).current_dir(&folder));
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(found, (Some(0), "[0] it is\n".into(), String::new()));
}

/// The script that stands for ssh starts the launcher in this process's folder.
#[test]
fn another_folder_begins_where_the_launcher_starts() {
    let inner = format!("inner-{}", id());
    let folder = fs::canonicalize(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::create_dir_all(folder.join(&inner)).unwrap();
    let mut command = launcher(1, "a");
    command.args(["--folder", &inner, "pwd", "-P"]);
    let found = output(command.current_dir(&folder));
    fs::remove_dir_all(folder.join(&inner)).unwrap();
    let expected = format!("[0] {}\n", folder.join(&inner).display());
    assert_eq!(found, (Some(0), expected, String::new()));
}

#[test]
fn ranks_of_several_hosts_find_each_other() {
    let mut command = launcher(3, "a:2,localhost");
    command.arg(std::env::current_exe().unwrap()).args(ANOTHER);
    let (status, stdout, stderr) = output(command.env(PART, "exchange"));
    assert_eq!(status, Some(0), "{stderr}");
    let exchanged = stdout
        .lines()
        .filter(|line| line.ends_with("all three have exchanged"));
    assert_eq!(exchanged.count(), 3, "{stdout}");
}

#[test]
fn the_secret_is_on_no_command_line() {
    let script = "echo $WARPBELL_SECRET; cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '";
    let (status, stdout, _) = output(launcher(1, "a").args(["sh", "-c", script]));
    let (secret, lines) = stdout.split_once('\n').unwrap();
    let secret = secret.strip_prefix("[0] ").unwrap();
    assert_eq!((status, secret.len()), (Some(0), 64));
    assert!(lines.contains("rsh.sh") || lines.contains("--serve"));
    assert!(!lines.contains(secret));
}

#[test]
fn what_is_wrong_with_a_host_is_a_line_with_its_name() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    for (hosts, program, status, expected) in [
        (
            "a,nowhere",
            "true",
            255,
            "nowhere: cannot start the launcher there (exit status: 255): no route to nowhere",
        ),
        (
            "empty,a",
            "true",
            127,
            "empty: cannot start the launcher there (exit status: 127): ",
        ),
        (
            "older,a",
            "true",
            127,
            "older: its launcher is version 0.0.0, this is ",
        ),
        ("a,mute", "true", 127, "mute: no answer after 10 s"),
        (
            "a,b",
            "/no/such",
            127,
            "cannot start /no/such: No such file or directory",
        ),
        ("a,a", "true", 127, "--hosts: a is there twice"),
        ("a", "true", 127, "2 ranks, but a has only 1 slots"),
    ] {
        let mut command = launcher(2, hosts);
        // Long enough for a busy machine to start what answers.
        command.args([
            "--silence",
            if hosts == "a,mute" { "10" } else { "300" },
            program,
        ]);
        let (found, stdout, stderr) = output(command.current_dir(folder));
        assert_eq!((found, &*stdout), (Some(status), ""), "{hosts}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{hosts}: {stderr}");
        assert!(
            stderr.starts_with("warpbell-launch: ") && stderr.contains(expected),
            "{stderr}"
        );
    }
}

/// The process of which a rank prints the number.
fn process(line: &str) -> u32 {
    let (_, number) = line.split_once("] ").unwrap();
    number.parse().unwrap()
}

/// Waits until these processes have ended.
fn wait_for(processes: &[u32]) {
    let began = Instant::now();
    // Nobody may have reaped one yet.
    let runs = |process: &u32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    while processes.iter().any(runs) {
        assert!(began.elapsed() < PATIENCE, "{processes:?} still run");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A job whose processes would take longer than this test may. It ends with this.
struct Long {
    launcher: Child,
    processes: Vec<u32>,
}

impl Long {
    /// On each host a rank that starts another process, and once more as a group of its own.
    fn start(options: &[&str]) -> Self {
        let script = "sleep 3000 & echo $!; echo $$; wait";
        let mut command = launcher(2, "a,b");
        command.args(options).args(["sh", "-c", script]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut launcher = command.spawn().unwrap();
        let lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
        let processes = lines.take(4).map(|line| process(&line.unwrap())).collect();
        Self {
            launcher,
            processes,
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.launcher), signal).unwrap();
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
    }
}

#[test]
fn ctrl_c_ends_the_ranks_of_all_hosts() {
    let mut job = Long::start(&[]);
    job.signal(Signal::INT);
    assert_eq!(job.launcher.wait().unwrap().code(), Some(130));
    wait_for(&job.processes);
}

#[test]
fn the_ranks_of_all_hosts_end_if_the_launcher_is_killed() {
    let job = Long::start(&[]);
    job.signal(Signal::KILL);
    wait_for(&job.processes);
}

/// As if the host lost its power: the connection stays open.
#[test]
fn a_host_that_goes_silent_ends_the_job() {
    let mut command = launcher(1, "lost");
    command.args(["--silence", "10", "true"]);
    command.env("TEST_VERSION", env!("CARGO_PKG_VERSION"));
    let (status, _, stderr) = output(&mut command);
    assert_eq!(status, Some(255));
    let expected = "warpbell-launch: lost: lost the connection: no answer for 10 s\n";
    assert_eq!(stderr, expected);
}

#[test]
fn a_host_is_not_lost_while_nobody_reads_its_lines() {
    let mut command = launcher(1, "a");
    let command = command.args(["--silence", "5", "sh", "-c", "yes | head -n 100000"]);
    let mut launcher = command.stdout(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_secs(8));
    let lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
    assert_eq!(lines.count(), 100_000);
    assert!(launcher.wait().unwrap().success());
}

/// As if the connections broke: they stay open, and nothing comes.
#[test]
fn a_host_ends_its_ranks_if_the_launcher_is_silent() {
    let mut job = Long::start(&["--silence", "10"]);
    job.signal(Signal::STOP);
    wait_for(&job.processes);
    job.signal(Signal::CONT);
    let mut words = String::new();
    let stderr = job.launcher.stderr.take();
    stderr.unwrap().read_to_string(&mut words).unwrap();
    let expected = ": no word from the launcher for 10 s\n";
    assert!(words.ends_with(expected), "{words}");
}

#[test]
fn a_deadline_names_the_hosts_that_are_late() {
    let mut command = launcher(3, "a,b:2");
    command.args(["--deadline", "5", "sh", "-c"]);
    command.arg("[ $WARPBELL_RANK = 0 ] || sleep 3000");
    let (status, _, stderr) = output(&mut command);
    assert_eq!(status, Some(124));
    assert!(
        stderr.contains("not ended after 5 s: b (ranks 1 to 2)"),
        "{stderr}"
    );
}

#[test]
fn a_rank_that_fails_ends_those_of_all_hosts() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("began-{}", id()));
    fs::create_dir_all(&folder).unwrap();
    // Rank 1 fails once the others have begun.
    let script = r#"if [ $WARPBELL_RANK = 1 ]; then until [ -e 0 ] && [ -e 2 ]; do sleep 0.1; done; exit 7; fi
        echo $$; touch $WARPBELL_RANK; exec sleep 3000"#;
    let mut command = launcher(3, "a:2,b");
    let command = command.args(["sh", "-c", script]).current_dir(&folder);
    let (status, stdout, stderr) = output(command);
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(status, Some(7));
    assert_eq!(
        stderr,
        "warpbell-launch: a: rank 1 failed: exit status: 7\n"
    );
    let processes = Vec::from_iter(stdout.lines().map(process));
    assert_eq!(processes.len(), 2, "{stdout}");
    wait_for(&processes);
}

/// The launcher on a host is killed, and cannot say why.
#[test]
fn a_host_that_is_lost_ends_the_others() {
    let script = "if [ $WARPBELL_RANK = 1 ]; then kill -9 $PPID; fi; exec sleep 20";
    let (status, _, stderr) = output(launcher(2, "a,b").args(["sh", "-c", script]));
    assert_eq!(status, Some(137));
    assert!(
        stderr.starts_with("warpbell-launch: b: lost the connection ("),
        "{stderr}"
    );
}
