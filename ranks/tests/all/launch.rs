//! `warpbell-launch` on this machine.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::ioctl_fionbio;

use crate::PATIENCE;

/// The launcher.
pub const LAUNCH: &str = env!("CARGO_BIN_EXE_warpbell-launch");

/// A shell's script as three ranks.
fn launched(options: &[&str], script: &str) -> (Option<i32>, String, String) {
    let started = Command::new(LAUNCH)
        .args(["-n", "3"])
        .args(options)
        .args(["sh", "-c", script])
        // The launcher chooses where rank 0 listens.
        .env("WARPBELL_BIND", "::1")
        .output();
    let Output {
        status,
        stdout,
        stderr,
    } = started.unwrap();
    let words = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), words(stdout), words(stderr))
}

#[test]
fn the_launcher_numbers_lines_and_ranks() {
    let script = "echo $WARPBELL_RANK of $WARPBELL_SIZE$WARPBELL_BIND; printf %s $WARPBELL_SECRET | wc -c >&2; cat";
    let (status, stdout, stderr) = launched(&[], script);
    let sorted = |words: &str| {
        let mut lines: Vec<_> = words.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(status, Some(0));
    assert_eq!(sorted(&stdout), ["[0] 0 of 3", "[1] 1 of 3", "[2] 2 of 3"]);
    assert_eq!(sorted(&stderr), ["[0] 64", "[1] 64", "[2] 64"]);
}

#[test]
fn the_launcher_forces_a_wire() {
    let script = "echo $WARPBELL_WIRE";
    for wire in ["shm", "roce"] {
        let (status, stdout, _) = launched(&["--wire", wire], script);
        assert_eq!(status, Some(0));
        assert_eq!(stdout.matches(wire).count(), 3, "{stdout}");
    }
    let (status, _, stderr) = launched(&["--wire", "ib"], script);
    assert_eq!(status, Some(2));
    assert!(stderr.contains("[possible values: shm, roce]"), "{stderr}");
}

/// The others, and what they have started, would take longer than this test may.
#[test]
fn the_launcher_ends_all_ranks_if_one_fails() {
    let others = "sleep 3000 & echo $!; wait";
    for (fails, status) in [("exit 7", 7), ("kill -9 $$", 137)] {
        let script = format!("if [ $WARPBELL_RANK = 1 ]; then sleep 1; {fails}; fi; {others}");
        let (found, stdout, stderr) = launched(&[], &script);
        assert_eq!(found, Some(status), "{stderr}");
        assert!(stderr.contains("rank 1 failed"), "{stderr}");
        let numbers = stdout.lines().filter_map(|line| line.split_once("] "));
        let numbers: Vec<_> = numbers.map(|(_, number)| number).collect();
        assert_eq!(numbers.len(), 2, "{stdout}");
        for number in numbers {
            assert!(!runs(number), "{number} lives on");
        }
    }
}

/// A launcher that is killed can end nobody itself.
#[test]
fn ranks_end_with_a_launcher_that_is_killed() {
    let mut command = Command::new(LAUNCH);
    command.args(["-n", "3", "sh", "-c", "echo $$; exec sleep 3000"]);
    let mut launcher = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
    let ranks: Vec<_> = (0..3).map(|_| lines.next().unwrap().unwrap()).collect();
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    let began = Instant::now();
    for rank in ranks {
        let (_, number) = rank.split_once("] ").unwrap();
        while runs(number) {
            assert!(began.elapsed() < PATIENCE, "{rank} lives on");
            sleep(Duration::from_millis(10));
        }
    }
}

/// Whether the process runs. One that has ended may be there until somebody reaps it.
fn runs(number: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{number}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// A pipe that is full, and its other end.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    ioctl_fionbio(&writer, true).unwrap();
    // The last bytes before it is full go one by one.
    for bytes in [&[b'x'; 4096][..], b"x"] {
        while writer.write(bytes).is_ok() {}
    }
    ioctl_fionbio(&writer, false).unwrap();
    (reader, writer)
}

/// Ranks end even though the launcher cannot say why.
#[test]
fn the_launcher_needs_nobody_to_read_its_complaints() {
    for options in [&[][..], &["--hosts", "localhost:3"]] {
        let (_reader, stderr) = full_pipe();
        let mut command = Command::new(LAUNCH);
        command.args(["-n", "3"]).args(options);
        command.args([
            "sh",
            "-c",
            "[ $WARPBELL_RANK = 0 ] || exec sleep 3000; exit 7",
        ]);
        let mut launcher = command.stderr(stderr).spawn().unwrap();
        let began = Instant::now();
        let status = loop {
            if let Some(status) = launcher.try_wait().unwrap() {
                break status;
            }
            if began.elapsed() > PATIENCE {
                launcher.kill().unwrap();
            }
            sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(7));
    }
}

#[test]
fn the_launcher_has_a_deadline_and_says_what_it_cannot_start() {
    let (status, _, stderr) =
        launched(&["--deadline", "1"], "[ $WARPBELL_RANK = 1 ] || sleep 3000");
    assert_eq!(status, Some(124));
    assert!(stderr.contains("not ended after 1 s: 0, 2"), "{stderr}");
    let missing = Command::new(LAUNCH).args(["-n", "2", "/no/such"]).output();
    let missing = missing.unwrap();
    assert_eq!(missing.status.code(), Some(127));
    let words = String::from_utf8(missing.stderr).unwrap();
    assert!(words.contains("cannot start /no/such"), "{words}");
}
