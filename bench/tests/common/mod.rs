//! Runs an example and reads what it says.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::process::{Command, Output, Stdio};

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

/// What it says on stderr, one line expected.
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

/// Fails unless a stencil took so many steps in each of its three ways, in order, at the time a step that follows.
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
