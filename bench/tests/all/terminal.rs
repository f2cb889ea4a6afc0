//! What every benchmark makes of a terminal, of a device that is full, and of arguments that are no text.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;

use crate::common::{error_line, failure};
use crate::on_terminal::assert_wrapped;
use crate::{ALL, command};

const PINGPONG: &str = "pingpong";
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
        let line = failure(&output);
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

#[test]
fn help_and_results_are_wrapped_to_the_terminal() {
    let pingpong = || command(PINGPONG, &SHORT);
    assert_wrapped(|| command(PINGPONG, &["--help"]));
    assert_wrapped(pingpong);
    // Whoever reads it by a program gets whole lines.
    let output = pingpong().output().unwrap();
    let whole = String::from_utf8(output.stdout).unwrap();
    assert!(
        whole.lines().any(|line| line.chars().count() > 80),
        "{whole}"
    );
}
