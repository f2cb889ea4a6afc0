//! The applications, as a user runs them.

mod allreduce;
mod command_line;
#[path = "../../../bench/tests/common/mod.rs"]
mod common;
mod daq;
mod jacobi;
mod kv;
mod matvec;
mod overlap;
mod ranks;
mod report;
mod serving;
mod stencil;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use common::{command, error_line};

/// Runs an application, and presses Ctrl-C half a second behind the line that has this text. Gives what it prints from
/// there on.
fn interrupted(program: &str, arguments: &[&str], header: &str) -> Vec<String> {
    let mut child = command(program, arguments).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(header)));
    thread::sleep(Duration::from_millis(500));
    press_ctrl_c(&child);
    let rows = lines.map(Result::unwrap).collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let line = error_line(&output);
    assert!(line.contains("interrupted; the results so far"), "{line}");
    rows
}

fn press_ctrl_c(child: &Child) {
    let process = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &process]).status();
    assert!(sent.unwrap().success());
}
