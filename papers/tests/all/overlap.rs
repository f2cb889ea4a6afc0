//! A large message back and forth, whole and by block.

use crate::common::{assert_verified, document, failure, run};
use crate::interrupted;

const OVERLAP: &str = env!("CARGO_BIN_EXE_overlap");

#[test]
fn every_word_is_right_in_every_way() {
    for (nic, blocks, threads, sizes, more) in [
        ("soft", "1", "1", vec!["8"], &[][..]),
        // Pieces that divide nothing, more of them than a block has threads, and than go under a doorbell.
        (
            "soft",
            "3",
            "5",
            vec!["24", "24024"],
            &["--chunk", "104", "--depth", "8"],
        ),
        ("soft", "2", "64", vec!["64K"], &["--chunk", "1K"]),
        ("soft-gpu", "4", "32", vec!["4K"], &["--chunk", "256"]),
        ("soft-gpu", "32", "32", vec!["4K"], &[]),
    ] {
        let counts = ["--rounds", "5", "--seconds", "100", "--json"];
        let shape = ["--nic", nic, "--blocks", blocks, "--threads", threads];
        let sizes_given = ["--sizes", &sizes.join(",")];
        let output = run(OVERLAP, &[&counts[..], &shape, &sizes_given, more].concat());
        let document = document(&output);
        assert_verified(&document, 3 * sizes.len());
        for result in document["measured"].as_array().unwrap() {
            assert_eq!(result["rounds"], 5, "{document:#}");
            let bits = 5.0 * 16.0 * result["bytes"].as_f64().unwrap();
            let seconds = result["seconds"].as_f64().unwrap();
            let rate = result["gbit_per_s"].as_f64().unwrap() * 1e9;
            assert!((rate * seconds / bits - 1.0).abs() < 1e-9);
        }
        let ways = [0, 1, 2].map(|index| document["measured"][index]["way"].clone());
        assert_eq!(ways, ["host", "whole", "blocks"]);
        let rates = [1, 2].map(|way| document["measured"][way]["gbit_per_s"].as_f64().unwrap());
        if sizes.len() == 1 {
            let ratio = document["verdict"]["found"].as_f64().unwrap();
            assert!((ratio / (rates[1] / rates[0]) - 1.0).abs() < 1e-9);
        }
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
        &["--chunk", "12"],
        &["--chunk", "2M"],
    ] {
        let output = run(OVERLAP, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    // The second size is looked at before the first is measured.
    let output = run(OVERLAP, &["--blocks", "3", "--sizes", "24,1000"]);
    assert_eq!(
        failure(&output).trim(),
        "error: 1000 bytes do not make 3 parts of whole words of 8 bytes; choose a multiple of 24"
    );
    assert!(!String::from_utf8(output.stdout).unwrap().contains("24 B"));
}

#[test]
fn ctrl_c_shows_what_was_measured_so_far() {
    let arguments = ["--sizes", "4K", "--seconds", "600"];
    let rows = interrupted(OVERLAP, &arguments, "µs a round");
    assert!(rows.len() <= 2, "{rows:?}");
}
