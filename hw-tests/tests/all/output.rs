//! What the programs make of output that goes nowhere.

use std::fs::OpenOptions;
use std::process::Command;

use warpbell_hw_tests::run::TESTS;

macro_rules! binaries {
    ($($name:literal)*) => {
        [$(($name, env!(concat!("CARGO_BIN_EXE_", $name)))),*]
    };
}

const ALL: [(&str, &str); 16] = binaries! {
    "arrival" "deadlines" "errors" "faults" "gaspi" "litmus" "proxied" "receive" "rounds" "shared" "state" "tasks"
    "triggers" "trouble" "verbs" "suite"
};

#[test]
fn all_tests_are_looked_at() {
    for test in TESTS {
        assert!(ALL.iter().any(|(name, _)| *name == test), "{test}");
    }
}

#[test]
fn output_that_a_full_device_refuses_is_an_error() {
    let helps = ALL.map(|(_, path)| (path, &["--help"][..]));
    // Of the tests the one that takes the least, and says it is skipped.
    let skipped = (env!("CARGO_BIN_EXE_rounds"), &[][..]);
    for (path, arguments) in helps.into_iter().chain([skipped]) {
        let full = OpenOptions::new().write(true).open("/dev/full");
        let output = Command::new(path)
            .args(arguments)
            .stdout(full.expect("Linux has it"))
            .output()
            .expect("the program starts");
        assert_eq!(output.status.code(), Some(1), "{path} {arguments:?}");
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "error: cannot print: No space left on device (os error 28)\n",
        );
    }
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    for (_, path) in ALL {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = Command::new(path).arg("--help").stdout(writer).output();
        let output = output.expect("the program starts");
        assert_eq!(output.status.code(), Some(0), "{path}: {output:?}");
    }
}
