//! The benchmark of posting, polling and executed writes, with little of each and on the CPU: every row has its number,
//! and every queue was rung up to where it was posted.

use std::process::Output;

use serde_json::Value;

use crate::command;
use crate::common::{document, error_line};

/// Runs it.
fn output(arguments: &[&str]) -> Output {
    command("posting", &[])
        .args(["--posts", "4", "--repetitions", "1", "--json"])
        .args(["--queues", "1,4", "--in-flight", "16", "--writes", "400"])
        .args(arguments)
        .output()
        .expect("the benchmark starts")
}

/// The rows of its JSON document.
fn rows(arguments: &[&str]) -> Vec<Value> {
    let mut document = document(&output(arguments));
    serde_json::from_value(document["rows"].take()).expect("rows")
}

fn is_positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number > 0.0)
}

/// Ways to post, three of them with a trace.
const POST_WAYS: usize = 31;
/// Each of them: both laps, places of the doorbell, scopes, with and without a record.
const POSTS: usize = POST_WAYS * 16;
/// Ways to poll, in either memory.
const POLL_WAYS: usize = 6 * 2;
/// Each of them: both scopes, beside the load of a word and beside a collapsed queue.
const POLLS: usize = POLL_WAYS * 2 * 2;
/// One write at a time of each size, with and without a record, and each size through one queue and through four.
const EXECUTED: usize = 2 * 2 + 2 * 2;

/// Circles of a drawing's legend.
const LEGEND: usize = 4;

#[test]
fn every_row_has_its_number() {
    let file = |ending| {
        let name = format!("warpbell-bench-{}.{ending}", std::process::id());
        std::env::temp_dir().join(name)
    };
    let (csv, svg) = (file("csv"), file("svg"));
    let [csv_name, svg_name] = [&csv, &svg].map(|path| path.to_str().expect("a plain name"));
    let rows = rows(&["--csv", csv_name, "--svg", svg_name]);
    assert_eq!(rows.len(), POSTS + POLLS + EXECUTED);
    for row in &rows {
        assert!(is_positive(&row["cycles"]["median"]), "{row}");
        assert!(is_positive(&row["million_a_second"]), "{row}");
        if row["lap"] != "executed" {
            assert!(is_positive(&row["floor"]["median"]), "{row}");
            assert!(is_positive(&row["ratio"]), "{row}");
        }
    }
    let text = std::fs::read_to_string(&csv).expect("a CSV file");
    std::fs::remove_file(&csv).expect("the file goes");
    assert_eq!(text.lines().count(), 1 + rows.len());
    let picture = std::fs::read_to_string(&svg).expect("a picture");
    std::fs::remove_file(&svg).expect("the file goes");
    // A dot and a ring: of each way to post with a record and without, and of each way to poll once. A dot of the rest.
    let circles = 2 * (POST_WAYS * 2 + POLL_WAYS) + EXECUTED + LEGEND;
    assert_eq!(picture.matches("<circle").count(), circles);
}

#[test]
fn rows_are_compared_with_those_of_a_file() {
    let path = std::env::temp_dir().join(format!("warpbell-against-{}.csv", std::process::id()));
    let file = path.to_str().expect("a plain name");
    let polls = |case| ["--only", "polling", "--case", case];
    let with = |case, option| rows(&[&polls(case)[..], &[option, file]].concat());
    let earlier = with("poll empty, exclusive", "--csv");
    let later = with("poll empty", "--against");
    let text = std::fs::read_to_string(&path).expect("a CSV file");
    std::fs::write(&path, text.replace("lap", "round")).expect("the file changes");
    let refused = output(&[&polls("poll empty")[..], &["--against", file]].concat());
    std::fs::remove_file(&path).expect("the file goes");

    let same = |row: &Value, other: &Value| {
        let keys = ["case", "record", "lap", "doorbell", "scope"];
        keys.iter().all(|key| row[key] == other[key])
    };
    let cycles = |row: &Value| row["cycles"]["median"].as_f64().expect("cycles");
    for row in &later {
        match earlier.iter().find(|other| same(row, other)) {
            // The file has four digits behind the point.
            Some(other) => {
                let ratio = row["against"].as_f64().expect("a ratio");
                assert!((ratio / (cycles(row) / cycles(other)) - 1.0).abs() < 1e-4);
            }
            None => assert!(row["against"].is_null(), "{row}"),
        }
    }
    let compared = later.iter().filter(|row| !row["against"].is_null());
    assert_eq!(compared.count(), earlier.len());
    assert!(earlier.iter().all(|row| row["against"].is_null()));
    assert!(!refused.status.success());
    assert!(error_line(&refused).contains(file));
}

#[test]
fn a_part_alone_is_measured_alone() {
    assert_eq!(rows(&["--only", "polling"]).len(), POLLS);
    assert_eq!(rows(&["--only", "executing"]).len(), EXECUTED);
}

#[test]
fn a_case_alone_is_measured_alone() {
    let alone = |case| rows(&["--case", case]);
    for (case, count) in [
        ("block of 128", 2 * 16),
        ("poll empty", 2 * 2 * 4),
        ("of 8 bytes executed, one", 2),
    ] {
        let rows = alone(case);
        assert_eq!(rows.len(), count, "{case}");
        let named = |row: &Value| row["case"].as_str().is_some_and(|name| name.contains(case));
        assert!(rows.iter().all(named), "{case}");
    }
}
