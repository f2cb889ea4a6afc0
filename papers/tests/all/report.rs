//! One page of all applications.

use std::fs;

use crate::common::{assert_verified, document, failure, run};

const REPORT: &str = env!("CARGO_BIN_EXE_report");

#[test]
fn a_report_has_every_application_with_every_nic() {
    let path = format!("{}/report.html", env!("CARGO_TARGET_TMPDIR"));
    let output = run(
        REPORT,
        &["--seconds", "0.01", "--quick", "--json", "--out", &path],
    );
    let document = document(&output);
    let runs = document["runs"].as_array().unwrap();
    let names: Vec<_> = runs
        .iter()
        .map(|run| run["application"].as_str().unwrap())
        .collect();
    let each = [
        "matvec",
        "overlap",
        "jacobi",
        "stencil",
        "allreduce",
        "daq",
        "serving",
        "generator",
    ];
    assert_eq!(names, [each, each].concat());
    // Two drivers, three ways and four ways, thrice each, with two NICs.
    assert_verified(&document, 54);
    let html = fs::read_to_string(&path).unwrap();
    for nic in ["soft", "soft-gpu"] {
        let heading = format!("<h3>CPU threads, NIC {nic}</h3>");
        assert_eq!(html.matches(&heading).count(), each.len());
    }
    assert_eq!(html.matches("<svg").count(), 2 * each.len());
    assert_eq!(html.matches("are right.").count(), 2 * each.len());
    // The paper's figures are beside ours.
    assert!(html.contains("<td>22.4</td>") && html.contains("<td>40.50</td>"));
    assert!(html.contains("the runs say nothing about a wire"));
}

#[test]
fn a_page_stays_where_nothing_has_run() {
    let path = format!("{}/failed.html", env!("CARGO_TARGET_TMPDIR"));
    fs::write(&path, "an older page").unwrap();
    let shape = ["--nic", "nowhere", "--json", "--out", &path];
    let output = run(REPORT, &shape);
    let line = failure(&output);
    assert!(line.contains("the NIC nowhere is none of"), "{line}");
    assert!(output.stdout.is_empty());
    assert_eq!(fs::read_to_string(&path).unwrap(), "an older page");
    fs::remove_file(&path).unwrap();
    assert_eq!(run(REPORT, &shape).status.code(), Some(1));
    assert!(!fs::exists(&path).unwrap(), "nothing was there before");
}

#[test]
fn what_cannot_be_is_refused() {
    let output = run(REPORT, &["--only", "nothing"]);
    assert_eq!(output.status.code(), Some(2));
    let one = [
        "--seconds",
        "0.01",
        "--nic",
        "soft",
        "--quick",
        "--only",
        "matvec",
    ];
    let output = run(REPORT, &[&one[..], &["--out", "/nowhere/x.html"]].concat());
    // Nothing ran.
    assert!(output.stdout.is_empty());
    let line = failure(&output);
    assert!(
        line.contains("the page /nowhere/x.html cannot be written"),
        "{line}"
    );
}
