//! What every example makes of a terminal, of a device that is full, and of arguments that are no text.

mod common;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use common::{command, error_line};
use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

macro_rules! binaries {
    ($($name:literal)*) => {
        [$(env!(concat!("CARGO_BIN_EXE_", $name))),*]
    };
}

const ALL: [&str; 8] = binaries! {
    "active" "bandwidth" "demo" "inbound" "pingpong" "placement" "proxy" "trigger"
};
const PINGPONG: &str = env!("CARGO_BIN_EXE_pingpong");
const DEMO: &str = env!("CARGO_BIN_EXE_demo");
/// A run of the ping-pong that takes no time.
const SHORT: [&str; 4] = ["--sizes", "8", "--rounds", "10"];

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

/// The second one is a path, where any bytes would do: but origins and JSON documents are text.
#[test]
fn an_argument_that_is_no_text_is_refused_in_a_line() {
    let wrong = OsStr::from_bytes(b"/nowhere/\xff");
    let mut calls: Vec<_> = ALL.map(|binary| command(binary, &[])).into();
    calls.push(command(PINGPONG, &["--svg"]));
    calls.push(command(PINGPONG, &["--join"]));
    for mut call in calls {
        let output = call.arg(wrong).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{call:?}");
        assert_eq!(
            error_line(&output),
            "error: the argument \"/nowhere/\\xFF\" is no text in UTF-8\n",
        );
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn output_that_a_full_device_refuses_is_an_error() {
    let mut calls: Vec<_> = ALL.map(|binary| command(binary, &["--help"])).into();
    calls.push(command(PINGPONG, &["--version"]));
    calls.push(command(PINGPONG, &SHORT));
    calls.push(command(PINGPONG, &[&SHORT[..], &["--json"]].concat()));
    for mut call in calls {
        let output = call.stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{call:?}");
        let line = error_line(&output);
        assert!(line.starts_with("error: cannot print: "), "{line}");
        assert!(line.contains("No space left on device"), "{line}");
    }
}

/// The status is all that is left to tell of it.
#[test]
fn errors_that_a_full_device_refuses_keep_their_status() {
    for (arguments, status) in [(&["--sizes", "7"][..], 2), (&["--join", "/no/such"], 1)] {
        let mut call = command(PINGPONG, &[arguments, &["--timeout", "1"]].concat());
        let output = call.stderr(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{call:?}");
    }
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    for arguments in [&SHORT[..], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(PINGPONG, arguments)
            .stdout(writer)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

/// What a program prints on a terminal of so many columns.
fn on_terminal(columns: u16, mut call: Command) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, size).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let open = OpenOptions::new()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap());
    let theirs = OwnedFd::from(open.unwrap());
    let mut child = call
        .env("NO_COLOR", "1")
        .env_remove("COLUMNS")
        .stdout(theirs)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The command still has the other end open, which would keep the terminal alive.
    drop(call);
    let mut printed = Vec::new();
    // Linux ends the words of a terminal that nobody has open any more with this error.
    let end = File::from(terminal).read_to_end(&mut printed).unwrap_err();
    assert_eq!(end.raw_os_error(), Some(Errno::IO.raw_os_error()), "{end}");
    assert!(child.wait().unwrap().success());
    String::from_utf8(printed).unwrap().replace('\r', "")
}

#[test]
fn help_results_and_prose_are_wrapped_to_the_terminal() {
    let pingpong = || command(PINGPONG, &SHORT);
    let calls = [
        || command(PINGPONG, &["--help"]),
        || command(PINGPONG, &SHORT),
        || command(DEMO, &["--quick"]),
    ];
    for call in calls {
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        for columns in [50, 80] {
            let printed = on_terminal(columns, call());
            for line in printed.lines() {
                let fits = line.chars().count() <= usize::from(columns);
                // A word alone may be longer.
                assert!(fits || words(line).len() == 1, "{columns}: {line:?}");
            }
        }
    }
    // Whoever reads it by a program gets whole lines.
    let output = pingpong().output().unwrap();
    let whole = String::from_utf8(output.stdout).unwrap();
    assert!(
        whole.lines().any(|line| line.chars().count() > 80),
        "{whole}"
    );
}
