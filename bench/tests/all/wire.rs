//! The RoCE wire beside bare UDP.

use serde_json::Value;

use crate::common::document;
use crate::run;

fn rows(case: &str) -> Vec<Value> {
    let output = run("wire", &["--repetitions", "1", "--json", "--case", case]);
    document(&output)["rows"].as_array().expect("rows").clone()
}

#[test]
fn each_case_has_figures() {
    // Ours, bare UDP's, and the ratio; the loss has no UDP beside it.
    for (case, figures) in [
        ("round trip", 6),
        ("8-byte writes", 3),
        ("64 KiB writes, loss", 2),
    ] {
        let rows = rows(case);
        assert_eq!(rows.len(), figures, "{case}");
        for row in rows {
            assert!(
                row["median"].as_f64().is_some_and(|median| median > 0.0),
                "{row}"
            );
        }
    }
}
