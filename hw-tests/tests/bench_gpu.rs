//! The benchmark of NICs of software, with few writes and on the CPU: every row has its number.

use std::process::Command;

use serde_json::Value;

#[test]
fn every_row_has_its_number() {
    let arguments = "--nic soft-gpu --sizes 8,64 --queues 1,4 --in-flight 16 --writes 400 --repetitions 1 --json";
    let output = Command::new(env!("CARGO_BIN_EXE_bench-gpu"))
        .args(arguments.split(' '))
        .output()
        .expect("the benchmark starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    let rows = document["rows"].as_array().expect("rows");
    // Cycles and nanoseconds of each size, and each size through one queue and through four.
    assert_eq!(rows.len(), 2 * 2 + 2 * 2);
    for row in rows {
        assert!(
            row["median"].as_f64().is_some_and(|median| median > 0.0),
            "{row}"
        );
    }
}
