//! The benchmarks, as a user runs them.

mod active;
mod bandwidth;
#[path = "../common/mod.rs"]
mod common;
mod completions;
mod experts;
mod inbound;
mod machine;
#[path = "../common/on_terminal.rs"]
mod on_terminal;
mod one_core;
mod pingpong;
mod placement;
mod posting;
mod proxy;
mod put;
mod strangers;
mod terminal;
mod trigger;
mod wire;

use std::process::{Command, Output};

/// All benchmarks.
const ALL: [&str; 13] = [
    "active",
    "bandwidth",
    "completions",
    "experts",
    "inbound",
    "one-core",
    "pingpong",
    "placement",
    "posting",
    "proxy",
    "put",
    "trigger",
    "wire",
];

/// Runs a benchmark to its end.
fn run(benchmark: &str, arguments: &[&str]) -> Output {
    command(benchmark, arguments)
        .output()
        .expect("the benchmark starts")
}

/// A benchmark to be started, with its output kept.
fn command(benchmark: &str, arguments: &[&str]) -> Command {
    let arguments = [&[benchmark], arguments].concat();
    common::command(env!("CARGO_BIN_EXE_bench"), &arguments)
}
