//! What the demo makes of a terminal, of a device that is full, and of arguments that are no text.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;

use crate::DEMO;
use crate::common::{command, error_line};
use crate::on_terminal::assert_wrapped;

#[test]
fn an_argument_that_is_no_text_is_refused_in_a_line() {
    let wrong = OsStr::from_bytes(b"/nowhere/\xff");
    let output = command(DEMO, &[]).arg(wrong).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        error_line(&output),
        "error: the argument \"/nowhere/\\xFF\" is no text in UTF-8\n",
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn output_that_a_full_device_refuses_is_an_error() {
    for arguments in ["--help", "--version"] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(DEMO, &[arguments]).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        let line = error_line(&output);
        assert!(line.starts_with("error: cannot print: "), "{line}");
        assert!(line.contains("No space left on device"), "{line}");
    }
}

#[test]
fn help_results_and_prose_are_wrapped_to_the_terminal() {
    assert_wrapped(|| command(DEMO, &["--help"]));
    assert_wrapped(|| command(DEMO, &["--quick"]));
}
