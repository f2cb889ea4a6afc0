//! The demo, as a user runs it.

#[path = "../../../../bench/tests/common/mod.rs"]
mod common;
mod machine;
#[path = "../../../../bench/tests/common/on_terminal.rs"]
mod on_terminal;
mod terminal;

use common::{assert_verified, document, document_of_ranks, error_line, job, run};

const DEMO: &str = env!("CARGO_BIN_EXE_demo");

#[test]
fn every_check_is_verified() {
    let output = run(DEMO, &["--quick", "--json", "--seed", "5", "--size", "999"]);
    let document = document(&output);
    // 18 verbs in 2 directions, 9 ways to share, 2 latencies, 3 sizes of 3 verbs, 6 errors, and the whole.
    assert_verified(&document, 36 + 9 + 2 + 9 + 6 + 1);
    assert_eq!(document["checks"], 62);
    assert_eq!(document["nic"], "soft");
    assert_eq!(document["kernels"]["on"], "cpu");
    let troubles = document["trouble"].as_array().unwrap();
    let syndromes: Vec<_> = troubles
        .iter()
        .filter_map(|trouble| trouble["completion"]["syndrome"].as_u64())
        .collect();
    // Remote access error three times, transport retry counter exceeded once: mlx5dv.h. None is a flush (0x05).
    assert_eq!(syndromes, [0x13, 0x13, 0x13, 0x15]);
}

#[test]
fn every_verb_is_verified_between_two_ranks() {
    // Over RoCE without 4 masked atomics.
    for (wire, checks) in [("shm", 36), ("roce", 28)] {
        // Each rank has a seed of its own, and takes that of the first one.
        let document = document_of_ranks(&job(DEMO, 2, wire, &["--json", "--size", "999"]));
        assert_verified(&document, checks + 1);
        assert!(document["trouble"].is_null());
    }
    let output = &job(DEMO, 2, "", &["--seed", "1"])[0];
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("bandwidth and errors are left out"), "{text}");
    for output in job(DEMO, 3, "", &[]) {
        assert_eq!(output.status.code(), Some(1));
        assert!(error_line(&output).contains("has 2 ranks, and 3 were started"));
    }
}

/// The engine is a kernel on a grid of its own.
#[test]
fn every_check_is_verified_with_a_nic_among_the_kernels() {
    let arguments = [
        "--quick", "--json", "--nic", "soft-gpu", "--seed", "6", "--size", "1001",
    ];
    let document = document(&run(DEMO, &arguments));
    assert_verified(&document, 63);
    assert_eq!(document["nic"], "soft-gpu");
}

#[test]
fn the_smallest_queue_will_do() {
    let output = run(DEMO, &["--quick", "--json", "--depth", "8", "--size", "64"]);
    assert_verified(&document(&output), 63);
}

#[test]
fn lines_for_a_human_carry_no_colours_into_a_file() {
    let output = run(DEMO, &["--quick", "--seed", "1"]);
    assert!(output.status.success());
    assert!(output.stderr.is_empty());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("This demo shows "), "{text}");
    assert!(!text.contains('\x1b') && !text.contains("WRONG"), "{text}");
    assert!(
        text.contains("remote access error (syndrome 0x13)"),
        "{text}"
    );
    assert!(text.contains("62 checks, every byte verified"), "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn bad_numbers_end_in_one_clear_line() {
    let output = run(DEMO, &["--depth", "100", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let line = error_line(&output);
    assert!(
        line.contains("100 is no power of two; use 64 or 128"),
        "{line}"
    );

    let output = run(DEMO, &["--depth", "65536"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(error_line(&output).contains("outside 1 to 32768"));

    // A kernel's own error: a WQE of two blocks in a ring of four.
    let output = run(DEMO, &["--depth", "4"]);
    assert_eq!(output.status.code(), Some(1));
    let line = error_line(&output);
    assert!(
        line.contains("2 blocks of 64 bytes, the queue takes 1"),
        "{line}"
    );

    // No name of a NIC is wrong before it was looked for.
    let output = run(DEMO, &["--nic", "real"]);
    assert_eq!(output.status.code(), Some(1));
    let line = error_line(&output);
    let words =
        "the NIC real is none of software (soft, soft-host, soft-gpu), nor a card that works";
    assert!(line.contains(words), "{line}");
    // A port is none of the card's name.
    let line = error_line(&run(DEMO, &["--nic", "real:2", "--gid-index", "0"]));
    assert!(line.contains("the NIC real:2 is none"), "{line}");
    assert!(!line.contains("device real:2"), "{line}");

    for wrong in [["--size", "63"], ["--depth", "many"]] {
        let output = run(DEMO, &wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(!output.stderr.is_empty());
    }
}
