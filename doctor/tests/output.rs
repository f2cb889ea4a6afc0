//! The options, the exit status, and what becomes of output that goes nowhere.

use std::fs::OpenOptions;
use std::process::{Command, Output};

const CALLS: [&[&str]; 3] = [&["--help"], &[], &["--json"]];

fn doctor(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpbell-doctor"));
    command.args(arguments);
    command
}

fn outcome(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = doctor(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn output_that_a_full_device_refuses_is_an_error() {
    for arguments in CALLS {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = doctor(arguments).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_eq!(
            String::from_utf8(output.stderr).unwrap(),
            "error: cannot print: No space left on device (os error 28)\n",
        );
    }
}

/// The status is all that is left to tell of it.
#[test]
fn errors_that_a_full_device_refuses_keep_their_status() {
    for arguments in CALLS {
        let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = doctor(arguments);
        let status = command.stdout(full()).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(1), "{arguments:?}");
    }
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = doctor(&["--help"]).stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn help_is_printed_for_either_option() {
    for option in ["--help", "-h"] {
        let (status, stdout, stderr) = outcome(&[option]);
        assert_eq!((status, stderr.as_str()), (Some(0), ""));
        assert!(stdout.contains("--json  Print JSON"), "{stdout}");
    }
}

#[test]
fn an_unknown_argument_ends_with_status_2() {
    for (arguments, why) in [
        (&["--jsn"][..], "invalid option '--jsn'"),
        (&["--json=yes"], "unexpected argument for option '--json'"),
        (&["--json", "node"], "unexpected argument \"node\""),
    ] {
        let (status, stdout, stderr) = outcome(arguments);
        assert_eq!((status, stdout.as_str()), (Some(2), ""));
        assert!(stderr.starts_with(&format!("error: {why}")), "{stderr}");
        assert!(stderr.ends_with("; try --help\n"), "{stderr}");
    }
}

#[test]
fn the_status_is_that_of_the_report() {
    let (status, stdout, _) = outcome(&["--json"]);
    let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let ready = report["ready"].as_bool().unwrap();
    assert_eq!(status, Some(if ready { 0 } else { 1 }));
}
