//! The sum of several ranks' vectors at each of them, in all ways.

use crate::common::{assert_energy, assert_verified, document, failure, run};
use crate::interrupted;

const ALLREDUCE: &str = env!("CARGO_BIN_EXE_allreduce");

const WAYS: [&str; 4] = ["host", "posted", "triggered", "proxied"];

#[test]
fn every_sum_is_right_in_every_way() {
    // NIC, ranks, blocks, threads, element, slice; sizes; algorithms; rounds.
    for (shape, sizes, algorithms, rounds) in [
        // Chunks of a word; all slots have had several rounds.
        (
            ["soft", "2", "1", "2", "u32", "64K"],
            vec!["16"],
            "ring,doubling",
            8,
        ),
        // Slices that divide nothing, longer and shorter than what a block adds at a time.
        (
            ["soft", "3", "2", "5", "f32", "200"],
            vec!["960", "1200"],
            "ring",
            3,
        ),
        (
            ["soft-gpu", "4", "1", "32", "f32", "1304"],
            vec!["8K"],
            "ring,doubling",
            4,
        ),
        (
            ["soft", "8", "1", "2", "u32", "64"],
            vec!["192"],
            "doubling",
            4,
        ),
        (
            ["soft-gpu", "5", "1", "2", "u32", "64"],
            vec!["80"],
            "ring",
            2,
        ),
    ] {
        let [nic, ranks, blocks, threads, element, slice] = shape;
        let numbers = ["--ranks", ranks, "--blocks", blocks, "--threads", threads];
        let what = ["--nic", nic, "--element", element, "--slice", slice];
        let sums = ["--sizes", &sizes.join(","), "--algorithms", algorithms];
        let counts = ["--repetitions", "1", "--seconds", "100", "--json"];
        let rounds_given = ["--rounds", &rounds.to_string(), "--depth", "16"];
        let output = run(
            ALLREDUCE,
            &[&numbers[..], &what, &sums, &counts, &rounds_given].concat(),
        );
        let document = document(&output);
        assert_energy(&document, "measured");
        let algorithms: Vec<_> = algorithms.split(',').collect();
        assert_verified(&document, 4 * sizes.len() * algorithms.len());
        let mut measured = document["measured"].as_array().unwrap().iter();
        for _ in &sizes {
            for algorithm in &algorithms {
                for way in WAYS {
                    let result = measured.next().unwrap();
                    assert_eq!(result["algorithm"], *algorithm, "{document:#}");
                    assert_eq!(result["way"], way, "{document:#}");
                    assert_eq!(result["rounds"], rounds, "{document:#}");
                    let number = |name: &str| result[name].as_f64().unwrap();
                    let us = 1e6 * number("seconds") / f64::from(rounds);
                    assert!((number("us_per_sum") / us - 1.0).abs() < 1e-9);
                    let rate = number("bytes") / us / 1e3;
                    assert!((number("gb_per_s") / rate - 1.0).abs() < 1e-9);
                }
            }
        }
    }
}

/// The others have sent all that they may while it has taken nothing: what waits for it in its slots is not overwritten.
#[test]
fn a_slow_rank_gets_every_sum_right() {
    for (ranks, algorithm, slow, slice) in [
        ("3", "ring", "1", "8"),
        ("4", "doubling", "1", "64K"),
        ("4", "doubling", "3", "8"),
    ] {
        let shape = ["--ranks", ranks, "--algorithms", algorithm, "--sizes", "96"];
        let pace = ["--slow-rank", slow, "--slow-us", "5000", "--rounds", "6"];
        let counts = ["--repetitions", "1", "--element", "u32", "--json"];
        let blocks = ["--blocks", "1", "--threads", "2", "--slice", slice];
        let output = run(ALLREDUCE, &[&shape[..], &pace, &counts, &blocks].concat());
        let document = document(&output);
        assert_verified(&document, 4);
        let steps = if ranks == "3" { 4.0 } else { 2.0 };
        for result in document["measured"].as_array().unwrap() {
            // It was slow.
            assert!(result["us_per_sum"].as_f64().unwrap() >= 5000.0 * steps);
        }
    }
}

#[test]
fn bad_arguments_are_refused() {
    for wrong in [
        &["--ranks", "0"][..],
        &["--ranks", "1"],
        &["--ranks", "9"],
        &["--blocks", "0"],
        &["--blocks", "33"],
        &["--threads", "1"],
        &["--rounds", "0"],
        &["--repetitions", "0"],
        &["--seconds", "0"],
        &["--sizes", "0"],
        &["--slice", "12"],
        &["--slice", "2M"],
        &["--algorithms", "star"],
        &["--ways", "pigeon"],
        &["--element", "f16"],
        &["--slow-rank", "1"],
        &["--gpus", "0,x"],
        &["--gpu", "0", "--gpus", "0,1"],
    ] {
        let output = run(ALLREDUCE, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    // The last one is looked at before the first is measured.
    for (wrong, said) in [
        (
            &["--ranks", "2,4", "--sizes", "64,80"][..],
            "80 bytes do not make 4 parts of whole words of 8 bytes; choose a multiple of 32",
        ),
        (
            &["--ranks", "2,3", "--sizes", "48"],
            "recursive doubling needs a number of ranks that is a power of two, not 3; choose --algorithms ring, or other --ranks",
        ),
        (
            &["--slow-rank", "2", "--slow-us", "1", "--ranks", "4,2"],
            "there is no rank 2 among 2, which are counted from 0",
        ),
        (
            &["--gpus", "0,1"],
            "--gpus needs --on gpu; add it, or leave --gpus out",
        ),
        // Before there is a look for any.
        (
            &["--on", "gpu", "--gpus", "1,0,1"],
            "--gpus names GPU 1 twice; name each GPU once",
        ),
        (
            &["--ranks", "8", "--blocks", "32"],
            "8 ranks of 32 blocks are more than the 128 blocks that are certain to run at the same time; choose fewer",
        ),
    ] {
        let output = run(ALLREDUCE, wrong);
        assert_eq!(failure(&output).trim(), format!("error: {said}"));
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(!shown.contains("by hosts"), "{shown}");
    }
}

#[test]
fn a_machine_with_too_few_gpus_says_so() {
    for nic in ["soft-host", "soft-gpu"] {
        // On a machine that has GPUs, the last of these is one too many.
        let output = run(
            ALLREDUCE,
            &["--on", "gpu", "--nic", nic, "--gpus", "0,77", "--json"],
        );
        assert!(output.stdout.is_empty());
        let line = failure(&output);
        let missing = ["no NVIDIA driver", "no GPU", "there is no GPU 77"];
        assert!(missing.iter().any(|words| line.contains(words)), "{line}");
    }
}

#[test]
fn ctrl_c_shows_what_was_measured_so_far() {
    let arguments = ["--sizes", "1K", "--seconds", "600", "--rounds", "2"];
    let rows = interrupted(ALLREDUCE, &arguments, "µs a sum");
    assert!(rows.len() <= 1, "{rows:?}");
}

#[test]
fn hosts_hear_ctrl_c_within_a_repetition() {
    // It would take some 10 s.
    let long = ["--slow-rank", "0", "--slow-us", "5000", "--rounds", "1000"];
    let what = ["--sizes", "64", "--ways", "host", "--ranks", "2"];
    let only = ["--algorithms", "ring", "--repetitions", "1"];
    let arguments = [&long[..], &what, &only].concat();
    let rows = interrupted(ALLREDUCE, &arguments, "µs a sum");
    // No repetition was over.
    assert!(!rows.iter().any(|row| row.contains("by hosts")), "{rows:?}");
}

/// Sums of two and three ranks at once, in place and to a new place, whose slices divide nothing.
#[test]
fn additions_are_measured_by_themselves() {
    for element in ["f32", "u32"] {
        let shape = [
            "--ranks",
            "2,3",
            "--blocks",
            "2",
            "--threads",
            "5",
            "--slice",
            "72",
        ];
        let what = [
            "--additions",
            "--element",
            element,
            "--seconds",
            "0.01",
            "--json",
        ];
        let document = document(&run(ALLREDUCE, &[&shape[..], &what].concat()));
        assert_verified(&document, 8);
        let rows = document["measured"].as_array().unwrap();
        for (row, slices) in rows.iter().zip([1, 16].iter().cycle()) {
            assert_eq!(row["bytes"], 72 * slices);
            assert!(row["us"].as_f64().unwrap() > 0.0);
        }
    }
    let output = run(ALLREDUCE, &["--additions", "--sizes", "1K"]);
    assert_eq!(output.status.code(), Some(2));
}
