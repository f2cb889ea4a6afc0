//! What posting, a proxy and the engine take on one core.

use serde_json::Value;

use crate::common::{document, failure};
use crate::run;

fn rows(case: &str) -> Vec<Value> {
    let output = run(
        "one-core",
        &["--repetitions", "1", "--json", "--case", case],
    );
    document(&output)["rows"].as_array().expect("rows").clone()
}

#[test]
fn a_case_alone_is_measured_alone() {
    // Times, and cycles where the processor counts them.
    let figures = if cfg!(target_arch = "x86_64") { 2 } else { 1 };
    // Two ways to poll, and what one takes over the other.
    let polls = rows("poll: GpuShared");
    assert_eq!(polls.len(), 2 * figures + 1);
    assert_eq!(rows("collapsed").len(), 2 * figures);
    assert_eq!(rows("Proxy").len(), 2);
    for row in polls {
        let name = row["name"].as_str().expect("a name");
        assert!(name.starts_with("poll: GpuShared"), "{row}");
        assert!(
            row["median"].as_f64().is_some_and(|median| median > 0.0),
            "{row}"
        );
    }
}

#[test]
fn a_case_that_is_not_there_is_an_error_with_all_that_are() {
    let output = run("one-core", &["--case", "nothing"]);
    let line = failure(&output);
    assert!(
        line.starts_with("error: no case has nothing in its name; choose one of: post: "),
        "{line}"
    );
    assert!(line.contains("; proxy; engine: 8-byte writes; "), "{line}");
}
