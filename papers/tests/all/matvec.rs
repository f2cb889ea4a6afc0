//! The product of a matrix with a stream of vectors, driven by the host and by the kernel.

use crate::common::{assert_verified, document, error_line, run};
use crate::interrupted;

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
        let drivers = [0, 1].map(|index| document["measured"][index]["driver"].clone());
        assert_eq!(drivers, ["host", "kernel"]);
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
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        error_line(&output).trim(),
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
