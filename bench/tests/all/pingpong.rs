//! The ping-pong, in one process and in two.

use std::path::PathBuf;

use crate::common::{assert_verified, document, failure};
use crate::{command, run};

const PINGPONG: &str = "pingpong";

/// A path for a socket that no other test uses.
fn socket(name: &str) -> PathBuf {
    let file = format!("warpbell-{name}-{}.sock", std::process::id());
    std::env::temp_dir().join(file)
}

#[test]
fn measures_in_one_process() {
    let sizes = ["--sizes", "8,24,5K", "--rounds", "50", "--warm-up", "5"];
    let output = run(
        PINGPONG,
        &[&sizes[..], &["--json", "--depth", "8"]].concat(),
    );
    let document = document(&output);
    assert_verified(&document, 3);
    for (result, bytes) in document["results"]
        .as_array()
        .unwrap()
        .iter()
        .zip([8, 24, 5120])
    {
        assert_eq!(result["bytes"], bytes);
        assert_eq!(result["rounds"], 50);
        let of = |field: &str| result[field].as_u64().unwrap();
        assert!(of("min_ns") > 0);
        assert!(of("min_ns") <= of("median_ns") && of("median_ns") <= of("p99_ns"));
        let bare = document["bare_round_trip"]["median_ns"].as_f64().unwrap();
        let ratio = result["bare_round_trips"].as_f64().unwrap();
        let median = result["median_ns"].as_f64().unwrap();
        assert!((ratio * bare - median).abs() < 1e-6 * median);
    }
}

#[test]
fn measures_without_a_doorbell_record() {
    let sizes = ["--sizes", "8,64", "--rounds", "20", "--json"];
    for (option, records) in [(None, true), (Some("--without-record"), false)] {
        let arguments: Vec<_> = sizes.into_iter().chain(option).collect();
        let document = document(&run(PINGPONG, &arguments));
        assert_verified(&document, 2);
        assert_eq!(document["doorbell_records"], records);
    }
}

#[test]
fn measures_between_two_processes() {
    let path = socket("pair");
    let path = path.to_str().unwrap();
    let listener = command(PINGPONG, &["--listen", path, "--json"])
        .spawn()
        .unwrap();
    let sizes = ["--sizes", "8,1K,100K", "--rounds", "20", "--warm-up", "0"];
    let joiner = run(
        PINGPONG,
        &[&["--join", path, "--json"], &sizes[..]].concat(),
    );
    let listener = listener.wait_with_output().unwrap();
    for output in [&joiner, &listener] {
        let document = document(output);
        assert_verified(&document, 3);
        assert_eq!(document["processes"], 2);
        assert_eq!(document["results"][2]["bytes"], 102_400);
        assert!(document["results"][2]["bare_round_trips"].is_null());
    }
}

#[test]
fn nobody_there_ends_in_one_clear_line() {
    for role in ["--listen", "--join"] {
        let path = socket(&role[2..]);
        let output = run(
            PINGPONG,
            &[role, path.to_str().unwrap(), "--timeout", "1", "--json"],
        );
        assert!(failure(&output).contains("within 1s"));
        assert!(!path.exists());
    }
}

#[test]
fn bad_arguments_are_refused() {
    for wrong in [
        &["--sizes", "4"][..],
        &["--rounds", "0"],
        &["--listen", "/tmp/a", "--join", "/tmp/a"],
        &["--listen", "/tmp/a", "--rounds", "5"],
    ] {
        let output = run(PINGPONG, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(!output.stderr.is_empty());
    }
    let output = run(PINGPONG, &["--depth", "24"]);
    assert!(failure(&output).contains("use 16 or 32"));
}
