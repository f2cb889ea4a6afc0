//! Runs an example and reads what it says.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::Value;

/// Runs a binary to its end.
pub fn run(binary: &str, arguments: &[&str]) -> Output {
    command(binary, arguments)
        .output()
        .expect("the example starts")
}

/// A binary to be started, with its output kept.
pub fn command(binary: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// What a program says that ended with status 1, one line.
#[track_caller]
pub fn failure(output: &Output) -> String {
    let line = error_line(output);
    assert_eq!(output.status.code(), Some(1), "{line}");
    line
}

/// What it says on stderr, one line expected.
#[track_caller]
pub fn error_line(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).expect("text");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

/// Its JSON document, after an end without error.
pub fn document(output: &Output) -> Value {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

/// Whether a field is one figure over another one, which is taken for 1 where it is less.
#[track_caller]
pub fn assert_ratio(ratio: &Value, figure: &Value, over: &Value) {
    let number = |field: &Value| field.as_f64().expect("a number");
    let expected = number(figure) / number(over).max(1.0);
    let found = number(ratio);
    assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
}

/// Whether each of these results has the energy that the document's sources can be read for, and none of the others.
#[track_caller]
pub fn assert_energy(document: &Value, results: &str) {
    let sources = &document["energy_sources"];
    for (of, joules) in [("cpus", "cpu_joules"), ("gpus", "gpu_joules")] {
        let readable = sources[of]["read"].is_string();
        let says_why = sources[of]["unreadable"].is_string();
        assert_ne!(readable, says_why, "{sources}");
        for result in document[results].as_array().expect("results") {
            assert_eq!(result[joules].is_number(), readable, "{result}");
            assert_eq!(result[joules].is_null(), says_why, "{result}");
        }
    }
}

/// Every field called `verified` in a document.
pub fn verified(value: &Value) -> Vec<bool> {
    match value {
        Value::Array(values) => values.iter().flat_map(verified).collect(),
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| match (name.as_str(), value) {
                ("verified", Value::Bool(verified)) => vec![*verified],
                ("verified", other) => panic!("verified is {other}"),
                _ => verified(value),
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Whether there are so many fields called `verified`, all of them true.
pub fn assert_verified(document: &Value, count: usize) {
    let fields = verified(document);
    assert_eq!(fields.len(), count, "{document:#}");
    assert!(fields.iter().all(|&verified| verified), "{document:#}");
}

/// Fails unless a stencil took so many steps in each of its ways, the first three in order, at the time a step that follows.
pub fn assert_stepped(document: &Value, steps: u64) {
    let measured = document["measured"].as_array().unwrap();
    for result in measured {
        assert_eq!(result["steps"], steps, "{document:#}");
        let us = 1e6 * result["seconds"].as_f64().unwrap() / steps as f64;
        assert!((result["us_per_step"].as_f64().unwrap() / us - 1.0).abs() < 1e-9);
    }
    let ways = [0, 1, 2].map(|index| &measured[index]["way"]);
    assert_eq!(ways, ["host", "notified", "triggered"]);
}

/// The wires between ranks.
pub const WIRES: [&str; 2] = ["shm", "roce"];

/// A port for each job.
static PORT: AtomicU16 = AtomicU16::new(21_020);

/// Starts the ranks of a job, over a wire of [`WIRES`], or one that is chosen.
pub fn start(program: &str, ranks: usize, wire: &str, arguments: &[&str]) -> Vec<Child> {
    let [_, b, c, d] = std::process::id().to_be_bytes();
    let port = PORT.fetch_add(1, Ordering::Relaxed);
    let root = format!("127.{}.{c}.{d}:{port}", 64 + b % 64);
    let start = |rank: usize| {
        let mut command = command(program, arguments);
        command.envs([
            ("WARPBELL_LAUNCHER", "hand"),
            ("WARPBELL_ROOT", &root),
            ("WARPBELL_SIZE", &ranks.to_string()),
            ("WARPBELL_RANK", &rank.to_string()),
            ("WARPBELL_WIRE", wire),
        ]);
        command.spawn().expect("the rank starts")
    };
    (0..ranks).map(start).collect()
}

/// What each rank of a job says.
pub fn job(program: &str, ranks: usize, wire: &str, arguments: &[&str]) -> Vec<Output> {
    let started = start(program, ranks, wire, arguments).into_iter();
    let ended = started.map(|child| child.wait_with_output());
    ended.collect::<Result<_, _>>().expect("a rank's output")
}

/// The document of rank 0 of a job; all others say nothing.
pub fn document_of_ranks(outputs: &[Output]) -> Value {
    for other in &outputs[1..] {
        let errors = String::from_utf8_lossy(&other.stderr);
        assert!(other.status.success() && errors.is_empty(), "{errors}");
        assert!(other.stdout.is_empty());
    }
    document(&outputs[0])
}
