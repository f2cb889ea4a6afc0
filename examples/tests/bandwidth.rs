//! The bandwidth test.

mod common;

use common::{assert_verified, document, error_line, run};

const BANDWIDTH: &str = env!("CARGO_BIN_EXE_bandwidth");

#[test]
fn measures_every_verb_both_ways() {
    for ways in [&[][..], &["--both-ways"]] {
        let small = [
            "--from",
            "8",
            "--to",
            "32",
            "--messages",
            "100",
            "--repetitions",
            "2",
        ];
        let queue = [
            "--json",
            "--depth",
            "16",
            "--batch",
            "3",
            "--signal-every",
            "7",
        ];
        let output = run(BANDWIDTH, &[&small[..], &queue, ways].concat());
        let document = document(&output);
        // 4 verbs of 3 sizes, and fetch-and-add of 8 bytes.
        assert_verified(&document, 13);
        assert_eq!(document["both_ways"], !ways.is_empty());
        for result in document["results"].as_array().unwrap() {
            let of = |field: &str| result[field].as_f64().unwrap();
            assert!(of("min_gb_per_s") > 0.0);
            assert!(of("min_gb_per_s") <= of("median_gb_per_s"));
        }
    }
}

#[test]
fn sizes_that_end_between_two_packets_arrive_whole() {
    let sizes = [
        "--from",
        "4097",
        "--to",
        "10K",
        "--messages",
        "9",
        "--repetitions",
        "1",
    ];
    let verbs = ["--verbs", "write,read,send", "--json"];
    let output = run(BANDWIDTH, &[&sizes[..], &verbs].concat());
    assert_verified(&document(&output), 6);
}

#[test]
fn bad_arguments_are_refused() {
    for wrong in [
        &["--verbs", "teleport"][..],
        &["--from", "7"],
        &["--batch", "0"],
        &["--signal-every", "0"],
        &["--repetitions", "0"],
        &["--messages", "0"],
    ] {
        let output = run(BANDWIDTH, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(!output.stderr.is_empty());
    }
    let output = run(BANDWIDTH, &["--depth", "8", "--batch", "5", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let line = error_line(&output);
    assert!(
        line.contains("5 blocks of 64 bytes, the queue takes 4"),
        "{line}"
    );
}
