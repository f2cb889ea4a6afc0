//! What completions cost from a completion queue in common.

use serde_json::Value;

use crate::common::{document, failure};
use crate::run;

fn rows(arguments: &[&str]) -> Vec<Value> {
    let quick = [
        "--repetitions",
        "1",
        "--polls",
        "20",
        "--load-ms",
        "5",
        "--json",
    ];
    let output = run("completions", &[&quick, arguments].concat());
    document(&output)["rows"].as_array().expect("rows").clone()
}

/// Each case of each number of queues, on each NIC: a poll that finds what it should not is an error.
#[test]
fn each_case_is_measured() {
    for nic in ["soft", "soft-gpu"] {
        let rows = rows(&["--queues", "1,2", "--nic", nic]);
        let named = |text: &str| {
            let named = |row: &&Value| row["name"].as_str().expect("a name").contains(text);
            rows.iter().filter(named).collect::<Vec<_>>()
        };
        assert_eq!(named("no CQE").len(), 2 * 2 * 3);
        assert_eq!(
            named(", own CQE,").len() + named(", own CQE:").len(),
            2 * 2 * 3
        );
        // One queue meets no other's.
        assert_eq!(named("own CQE behind 31").len(), 2);
        assert_eq!(named("another's CQE").len(), 2);
        assert_eq!(named("found by another").len(), 2 * 2);
        assert_eq!(named("memory").len(), 2 * 2);
        assert_eq!(named("load").len(), 2 * 2 * 3);
        let median = |row: &Value| row["median"].as_f64().expect("a number");
        for row in &rows {
            assert!(median(row) >= 0.0, "{row}");
        }
        let shares = [named("fewest"), named("median of"), named("most")];
        for ((fewest, middle), most) in shares[0].iter().zip(&shares[1]).zip(&shares[2]) {
            assert!(median(fewest) <= median(middle) && median(middle) <= median(most));
        }
        // 16 blocks: a ring of 16 CQEs with its two records; an entry with two, and a share of ring, state and table.
        let bytes: Vec<f64> = named("memory").into_iter().map(median).collect();
        assert_eq!(
            bytes[2..],
            [1152.0, 192.0 + (32.0 * 64.0 + 64.0 + 128.0 + 64.0) / 2.0]
        );
    }
}

#[test]
fn a_case_that_is_not_there_is_an_error() {
    let output = run("completions", &["--queues", "1", "--case", "nothing"]);
    let line = failure(&output);
    assert!(
        line.contains("; memory for a queue, 1 queues, each its own; "),
        "{line}"
    );
}
