//! What the commands make of output that goes nowhere.

use std::fs::OpenOptions;
use std::process::Command;

const CALLS: [&[&str]; 2] = [&["--help"], &["test", "--list"]];

fn xtask(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(arguments);
    command
}

#[test]
fn output_that_a_full_device_refuses_is_an_error() {
    for arguments in CALLS {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = xtask(arguments).stdout(full).output().unwrap();
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
        let mut command = xtask(arguments);
        let status = command.stdout(full()).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(1), "{arguments:?}");
    }
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    for arguments in CALLS {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = xtask(arguments).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}
