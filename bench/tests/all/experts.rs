//! Dispatch and combine in the kernel, and from the host.

use serde_json::Value;

use crate::common::{assert_ratio, assert_verified, document, failure};
use crate::run;

const EXPERTS: &str = "experts";
const QUICK: [&str; 7] = ["--quick", "--experts", "8", "--top-k", "3", "--ranks", "2"];

#[test]
fn both_ways_have_the_results_of_a_loop() {
    for (nic, ranks, blocks) in [("soft", 4, 2), ("soft-gpu", 2, 1)] {
        let numbers = [("--ranks", ranks), ("--blocks", blocks)];
        let mut arguments: Vec<String> = ["--quick", "--experts", "16", "--json"]
            .map(String::from)
            .into();
        arguments.extend(["--nic".into(), nic.into()]);
        for (name, value) in numbers {
            arguments.extend([String::from(name), value.to_string()]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let document = document(&run(EXPERTS, &arguments));
        assert_verified(&document, 4);
        assert_eq!(
            (&document["ranks"], &document["blocks"]),
            (&ranks.into(), &blocks.into())
        );
        let measured = document["measured"].as_array().unwrap();
        let names = measured.iter().map(|row| [&row["values"], &row["way"]]);
        let names: Vec<[&str; 2]> = names
            .map(|name| name.map(|name| name.as_str().unwrap()))
            .collect();
        let both = |values| [[values, "kernel"], [values, "host"]];
        assert_eq!(names, [both("bf16"), both("fp8")].concat());
        for (row, phases) in measured.iter().zip([4, 6, 4, 6]) {
            let shares = row["phases"].as_array().unwrap().iter();
            let shares: Vec<f64> = shares
                .map(|phase| phase["share"].as_f64().unwrap())
                .collect();
            assert_eq!(shares.len(), phases);
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{row}");
            let us = |what: &str| row[what].as_f64().unwrap();
            assert!(us("dispatch_us") > 0.0 && us("combine_us") > 0.0, "{row}");
        }
        let ratios = document["ratios"].as_array().unwrap();
        for (ratio, rows) in ratios.iter().zip(measured.chunks_exact(2)) {
            for what in ["dispatch", "combine", "round"] {
                let us = |row: &Value| row[format!("{what}_us")].clone();
                assert_ratio(&ratio[what], &us(&rows[1]), &us(&rows[0]));
            }
        }
    }
}

#[test]
fn the_format_that_is_named_has_rows_of_a_file() {
    let file = format!("experts-{}.csv", std::process::id());
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    let csv = path.to_str().unwrap();
    let output = run(
        EXPERTS,
        &[&QUICK[..], &["--formats", "fp8", "--csv", csv]].concat(),
    );
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    let rows: Vec<Vec<_>> = text.lines().map(|row| row.split(',').collect()).collect();
    assert_eq!(rows.len(), 3);
    for (row, way) in rows[1..].iter().zip(["kernel", "host"]) {
        assert_eq!(row[..9], ["fp8", way, "2", "8", "8", "3", "256", "2", "64"]);
        assert_eq!(row[12], "true");
    }
}

#[test]
fn bad_arguments_are_refused() {
    for wrong in [
        &["--ranks", "1"][..],
        &["--threads", "48"],
        &["--hidden", "0"],
        &["--formats", "f32"],
        &["--top-k", "33"],
    ] {
        assert_eq!(run(EXPERTS, wrong).status.code(), Some(2), "{wrong:?}");
    }
    for (wrong, said) in [
        (&["--ranks", "3"][..], "a multiple of 3"),
        (&["--hidden", "300"], "a multiple of 256"),
        (&["--experts", "4", "--top-k", "5"], "choose 1 to 4"),
    ] {
        let output = run(EXPERTS, wrong);
        let error = failure(&output);
        assert!(error.contains(said), "{error}");
    }
}
