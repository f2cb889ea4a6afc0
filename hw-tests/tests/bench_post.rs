//! The benchmark of posting and polling, with few posts and on the CPU: every row has its number, and every queue was
//! rung up to where it was posted.

use std::process::Command;

use serde_json::Value;

#[test]
fn every_row_has_its_number() {
    let file = |ending| {
        let name = format!("warpbell-post-{}.{ending}", std::process::id());
        std::env::temp_dir().join(name)
    };
    let (csv, svg) = (file("csv"), file("svg"));
    let output = Command::new(env!("CARGO_BIN_EXE_bench-post"))
        .args(["--posts", "4", "--repetitions", "1", "--json", "--csv"])
        .args([&csv, std::path::Path::new("--svg"), &svg])
        .output()
        .expect("the benchmark starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let document: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    let rows = document["rows"].as_array().expect("rows");
    // Each way to post: both laps, places of the doorbell, scopes, with and without a record. Each way to poll: both
    // scopes.
    assert_eq!(rows.len(), 20 * 16 + 6 * 2);
    for row in rows {
        let positive = |value: &Value| value.as_f64().is_some_and(|number| number > 0.0);
        assert!(positive(&row["cycles"]["median"]), "{row}");
        assert!(positive(&row["floor"]["median"]), "{row}");
        assert!(positive(&row["ratio"]), "{row}");
    }
    let text = std::fs::read_to_string(&csv).expect("a CSV file");
    std::fs::remove_file(&csv).expect("the file goes");
    assert_eq!(text.lines().count(), 1 + rows.len());
    let picture = std::fs::read_to_string(&svg).expect("a picture");
    std::fs::remove_file(&svg).expect("the file goes");
    // A dot and a ring: of each way to post with a record and without, and of each way to poll.
    assert_eq!(picture.matches("<circle").count(), 2 * (20 * 2 + 6));
}
