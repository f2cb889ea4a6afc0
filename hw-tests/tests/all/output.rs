//! What the programs make of output that goes nowhere.

use std::fs::OpenOptions;
use std::process::Command;

const SUITE: &str = env!("CARGO_BIN_EXE_suite");

/// What asks for help: the suite, and each test.
fn helps() -> Vec<Vec<String>> {
    let listed = Command::new(SUITE).arg("--list").output();
    let listed = String::from_utf8(listed.expect("the suite starts").stdout).expect("names");
    let tests = listed
        .lines()
        .map(|name| vec![name.to_owned(), "--help".into()]);
    let all: Vec<_> = tests.chain([vec!["--help".into()]]).collect();
    assert!(all.len() > 10, "{all:?}");
    all
}

#[test]
fn output_that_a_full_device_refuses_is_an_error() {
    // Of the tests the one that takes the least, and says it is skipped.
    let skipped = vec!["rounds".into()];
    for arguments in helps().into_iter().chain([skipped]) {
        let full = OpenOptions::new().write(true).open("/dev/full");
        let output = Command::new(SUITE)
            .args(&arguments)
            .stdout(full.expect("Linux has it"))
            .output()
            .expect("the program starts");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "error: cannot print: No space left on device (os error 28)\n",
        );
    }
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    for arguments in helps() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = Command::new(SUITE).args(&arguments).stdout(writer).output();
        let output = output.expect("the program starts");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {output:?}");
    }
}
