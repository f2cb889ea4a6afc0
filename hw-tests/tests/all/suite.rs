//! What the suite says of its tests.

use std::io::Read;
use std::process::{Command, Stdio};

#[test]
fn a_test_is_named_while_it_runs_and_one_that_is_late_has_failed() {
    // The second one takes many seconds.
    let mut suite = Command::new(env!("CARGO_BIN_EXE_suite"))
        .args(["--tests", "rounds,collectives", "--deadline", "3"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the suite starts");
    let mut output = suite.stdout.take().expect("a pipe");
    let (mut said, mut part) = (Vec::new(), [0; 4096]);
    while !said.ends_with(b"), collectives") {
        let read = output.read(&mut part).expect("a part");
        said.extend(&part[..read]);
        assert!(read > 0, "the end: {}", String::from_utf8_lossy(&said));
    }
    output.read_to_end(&mut said).expect("the rest");
    let said = String::from_utf8_lossy(&said);
    let (line, rest) = said.split_once('\n').expect("a line");
    assert!(line.starts_with("1 of 1: rounds skipped ("), "{line}");
    assert!(line.contains("), collectives FAILED in "), "{line}");
    assert!(rest.starts_with("---- collectives ----\n"), "{rest}");
    assert!(rest.contains(" s  calls by a "), "{rest}");
    let ended = suite.wait_with_output().expect("its end");
    assert_eq!(ended.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&ended.stderr),
        "error: 1 tests failed\n"
    );
}
