//! What every application makes of a machine without a GPU, of a device that is full, and of arguments that are no text.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;

use crate::common::{command, error_line, failure, run};

macro_rules! binaries {
    ($($name:literal)*) => {
        [$(env!(concat!("CARGO_BIN_EXE_", $name))),*]
    };
}

const ALL: [&str; 9] = binaries! {
    "allreduce" "daq" "jacobi" "kv" "matvec" "overlap" "report" "serving" "stencil"
};

#[test]
fn a_machine_without_a_gpu_says_so() {
    for binary in binaries! { "matvec" "overlap" "report" } {
        // On a machine that has GPUs, this is one too many.
        let output = run(binary, &["--on", "gpu", "--gpu", "77", "--json"]);
        assert!(output.stdout.is_empty());
        let line = failure(&output);
        let missing = ["no NVIDIA driver", "no GPU", "there is no GPU 77"];
        assert!(missing.iter().any(|words| line.contains(words)), "{line}");
    }
}

#[test]
fn an_argument_that_is_no_text_is_refused_in_a_line() {
    for binary in ALL {
        let mut call = command(binary, &[]);
        let output = call.arg(OsStr::from_bytes(b"/nowhere/\xff")).output();
        let output = output.unwrap();
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
    for binary in ALL {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut call = command(binary, &["--help"]);
        let output = call.stdout(full).output().unwrap();
        let line = failure(&output);
        assert!(line.starts_with("error: cannot print: "), "{line}");
        assert!(line.contains("No space left on device"), "{line}");
    }
}
