//! The product of a matrix with a stream of vectors, driven by the host and by the kernel.

use crate::common::{assert_verified, document, failure, run};
use crate::interrupted;
use serde_json::Value;

const MATVEC: &str = env!("CARGO_BIN_EXE_matvec");

#[test]
fn every_product_of_both_drivers_is_right() {
    for (nic, blocks, threads, sizes) in [
        ("soft", "1", "1", vec!["128"]),
        ("soft", "3", "37", vec!["384", "9600"]),
        // More vectors of a part than a block takes into shared memory at once.
        ("soft", "2", "64", vec!["34048"]),
        ("soft-gpu", "4", "32", vec!["4K"]),
        ("soft-gpu", "32", "32", vec!["4K"]),
    ] {
        let counts = ["--rounds", "6", "--warm-up", "2", "--seconds", "100"];
        let shape = ["--nic", nic, "--blocks", blocks, "--threads", threads];
        let sizes_given = ["--json", "--sizes", &sizes.join(",")];
        let output = run(MATVEC, &[&counts[..], &shape, &sizes_given].concat());
        let document = document(&output);
        assert_verified(&document, 2 * sizes.len());
        for result in document["measured"].as_array().unwrap() {
            assert_eq!(result["rounds"], 6, "{document:#}");
            assert_eq!(result["wrong"], 0);
            let vectors = result["bytes"].as_u64().unwrap() / 128;
            assert_eq!(result["vectors"], vectors);
            let seconds = result["seconds"].as_f64().unwrap();
            let rate = result["million_per_s"].as_f64().unwrap() * 1e6;
            assert!((rate * seconds / (6 * vectors) as f64 - 1.0).abs() < 1e-9);
        }
        assert!(document["verdict_driver_alone"].is_null());
        let drivers = [0, 1].map(|index| document["measured"][index]["driver"].clone());
        assert_eq!(drivers, ["host", "kernel"]);
    }
}

#[test]
fn each_driver_is_measured_alone_beside_the_nic() {
    for nic in ["soft", "soft-gpu"] {
        let short = ["--sizes", "1536", "--blocks", "3", "--seconds", "0.05"];
        let alone = ["--nic", nic, "--json", "--driver-alone"];
        let document = document(&run(MATVEC, &[&short[..], &alone].concat()));
        // With the products of the drivers alone.
        assert_verified(&document, 2);
        let number = |value: &Value| value.as_f64().unwrap();
        let us = [0, 1].map(|index| {
            let result = &document["measured"][index];
            let with = 1e6 * number(&result["seconds"]) / number(&result["rounds"]);
            let alone = &result["driver_alone"];
            let us = number(&alone["us"]);
            assert!(us * number(&alone["rounds"]) > 0.0);
            let share = 100.0 * (1.0 - us / with);
            assert!((number(&alone["nic_percent"]) - share).abs() < 1e-6);
            us
        });
        let verdict = &document["verdict_driver_alone"];
        assert!((number(&verdict["found"]) / (us[0] / us[1]) - 1.0).abs() < 1e-9);
        assert_eq!(verdict["wanted"], document["verdict"]["wanted"]);
    }
}

#[test]
fn time_ends_a_run() {
    let small = ["--seconds", "0.05", "--sizes", "4K", "--warm-up", "0"];
    let output = run(MATVEC, &[&small[..], &["--json"]].concat());
    let document = document(&output);
    assert_verified(&document, 2);
    for result in document["measured"].as_array().unwrap() {
        assert!(result["seconds"].as_f64().unwrap() >= 0.05, "{document:#}");
        assert!(result["longest_us"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn bad_arguments_are_refused() {
    for wrong in [
        &["--blocks", "0"][..],
        &["--blocks", "33"],
        &["--threads", "0"],
        &["--rounds", "0"],
        &["--seconds", "0"],
        &["--sizes", "0"],
    ] {
        let output = run(MATVEC, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    // The second size is looked at before the first is measured.
    let output = run(MATVEC, &["--blocks", "30", "--sizes", "60K,61000"]);
    assert_eq!(
        failure(&output).trim(),
        "error: 61000 bytes do not make 30 parts of whole vectors of 128 bytes; choose a multiple of 3840"
    );
    assert!(!String::from_utf8(output.stdout).unwrap().contains("60 KiB"));
}

#[test]
fn ctrl_c_shows_what_was_measured_so_far() {
    let arguments = ["--sizes", "4K,8K", "--seconds", "600"];
    let rows = interrupted(MATVEC, &arguments, "driven by   M");
    // It runs, or is about to.
    let measured = rows.iter().filter(|row| row.contains("KiB"));
    assert!(measured.count() <= 1, "{rows:?}");
}
