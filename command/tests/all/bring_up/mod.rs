//! `warpbell bring-up`, with programs that are scripts. The steps `dist` and `flash` of `cargo xtask test` have the real ones.

mod failures;
mod reports;
mod scrub;
mod steps;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Far more than anything takes here.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(300);

/// A folder with programs that are scripts. Each notes its arguments, and succeeds.
struct Folder {
    folder: TempDir,
}

/// What a script prints if all went well.
const GOOD: [(&str, &str); 4] = [
    ("demo", "echo '62 checks, every byte verified, in 0.1 s.'"),
    (
        "suite",
        "echo '1 of 1: verbs passed in 0.1 s'; echo 'Test OK'",
    ),
    ("bench", "echo 'write 8 B 1.00'"),
    (
        "warpbell-launch",
        "echo '[0] 36 checks, every byte verified, in 0.1 s.'",
    ),
];

impl Folder {
    /// All programs. The doctor finds a GPU and a card, and nothing is missing.
    fn new() -> Self {
        let folder = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        for (name, script) in GOOD {
            folder.script(name, script);
        }
        folder.doctor(&diagnosis());
        folder
    }

    fn path(&self) -> PathBuf {
        fs::canonicalize(self.folder.path()).unwrap()
    }

    /// A program that is this script of a shell.
    fn script(&self, name: &str, script: &str) {
        let path = self.path().join(name);
        let log = self.path().join("log");
        let note = format!("echo \"{name} $*\" >>'{}'", log.display());
        write_program(&path, &format!("#!/bin/sh\n{note}\n{script}\n"));
    }

    /// A program that does not end, and writes its number to a file first.
    fn hanging(&self, name: &str, begun: &Path) {
        self.script(
            name,
            &format!("echo $$ >'{}'; exec sleep 3000", begun.display()),
        );
    }

    /// A doctor with this report.
    fn doctor(&self, report: &Value) {
        let file = self.path().join("diagnosis");
        fs::write(&file, report.to_string()).unwrap();
        // A machine that is not ready for a card has status 1.
        let status = i32::from(report["ready"] != true);
        self.script(
            "warpbell-doctor",
            &format!("cat '{}'; exit {status}", file.display()),
        );
    }

    /// The programs that ran, with their arguments.
    fn log(&self) -> Vec<String> {
        let log = fs::read_to_string(self.path().join("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bring_up();
        command.arg("--programs").arg(self.path()).args(arguments);
        command
    }

    /// Its status, and its document.
    fn document(&self, arguments: &[&str]) -> (Option<i32>, Value) {
        let (status, stdout, stderr) = output(self.command(arguments).arg("--json"));
        let document = serde_json::from_str(&stdout);
        (
            status,
            document.unwrap_or_else(|error| panic!("{error}: {stdout}{stderr}")),
        )
    }

    /// Its status, and its lines.
    fn text(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let (status, stdout, stderr) = output(&mut self.command(arguments));
        (status, stdout + &stderr)
    }
}

/// Another process writes it: a program cannot start while a file of it is open for writing, and one of this process is open
/// in all processes that other tests start at that moment, too.
fn write_program(path: &Path, text: &str) {
    let mut command = Command::new("sh");
    command
        .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
        .arg(path);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    assert!(child.wait().unwrap().success());
}

fn bring_up() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpbell"));
    command.arg("bring-up");
    command
}

fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let words = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), words(stdout), words(stderr))
}

/// What the doctor says of a machine that has all: a GPU, and two cards of which the second one is nearer.
fn diagnosis() -> Value {
    let driver = |nic: &str| finding("nic-driver", "ok", Some(nic));
    json!({
        "format": 1,
        "ready": true,
        "pairs": [
            {"gpu": "0000:18:00.0", "nic": "mlx5_0", "distance": "across-nodes", "ready": true},
            {"gpu": "0000:18:00.0", "nic": "mlx5_1", "distance": "same-switch", "ready": true},
        ],
        "findings": [driver("mlx5_0"), driver("mlx5_1"), finding("cuda", "ok", None)],
    })
}

/// The same of one with neither.
fn bare() -> Value {
    json!({
        "format": 1,
        "ready": false,
        "pairs": [],
        "findings": [finding("gpu", "missing", None), finding("nic", "missing", None)],
    })
}

fn finding(check: &str, state: &str, nic: Option<&str>) -> Value {
    let mut subject = json!({"kind": "node"});
    if let Some(nic) = nic {
        subject = json!({"kind": "nic", "nic": nic});
    }
    let needed_by: &[&str] = match check {
        "gpu" | "cuda" => &["gpu"],
        "nic" | "nic-driver" | "link" => &["card"],
        _ => &[],
    };
    json!({
        "subject": subject, "check": check, "state": state, "needed": true, "needed_by": needed_by,
        "value": "a value", "remedy": "a remedy",
    })
}

/// The verdict of each step, in their order.
fn verdicts(document: &Value) -> Vec<&str> {
    let steps = document["steps"].as_array().unwrap().iter();
    steps
        .map(|step| step["verdict"].as_str().unwrap())
        .collect()
}

/// A step by its name.
#[track_caller]
fn step<'d>(document: &'d Value, name: &str) -> &'d Value {
    let mut steps = document["steps"].as_array().unwrap().iter();
    steps.find(|step| step["step"] == name).unwrap()
}

/// Waits until a process has ended. One that nobody has reaped yet counts.
fn wait_for(process: &str) {
    let began = std::time::Instant::now();
    let runs = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.trim()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    while runs() {
        assert!(began.elapsed() < PATIENCE, "{process} still runs");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Waits for a file with a whole line, and gives the line.
fn line_of(path: &Path) -> String {
    let began = std::time::Instant::now();
    loop {
        let text = fs::read_to_string(path).unwrap_or_default();
        if text.ends_with('\n') {
            return text.trim().into();
        }
        assert!(began.elapsed() < PATIENCE, "no {}", path.display());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}
