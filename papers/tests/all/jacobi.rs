//! Jacobi's relaxation over two ranks, their edges exchanged in four ways.

use crate::common::{assert_energy, assert_stepped, assert_verified, document, failure, run};
use crate::interrupted;

const JACOBI: &str = env!("CARGO_BIN_EXE_jacobi");

#[test]
fn every_cell_is_right_in_every_way() {
    for (nic, blocks, threads, sides, steps) in [
        // A row for each block: both of its neighbours are others.
        ("soft", "2", "1", vec!["2"], "1"),
        ("soft", "3", "5", vec!["9", "30"], "7"),
        ("soft", "2", "64", vec!["64"], "12"),
        ("soft-gpu", "4", "32", vec!["16"], "9"),
    ] {
        let counts = ["--repetitions", "2", "--seconds", "100", "--json"];
        let shape = ["--nic", nic, "--blocks", blocks, "--threads", threads];
        let sides_given = ["--steps", steps, "--sides", &sides.join(",")];
        let output = run(JACOBI, &[&counts[..], &shape, &sides_given].concat());
        let document = document(&output);
        assert_verified(&document, 4 * sides.len());
        assert_eq!(document["measured"][3]["way"], "proxied");
        assert_energy(&document, "measured");
        assert_stepped(&document, 2 * steps.parse::<u64>().unwrap());
    }
}

#[test]
fn bad_arguments_are_refused() {
    for wrong in [
        &["--blocks", "1"][..],
        &["--blocks", "33"],
        &["--threads", "0"],
        &["--steps", "0"],
        &["--repetitions", "0"],
        &["--seconds", "0"],
        &["--sides", "0"],
    ] {
        let output = run(JACOBI, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    // The second side is looked at before the first is measured.
    let output = run(JACOBI, &["--blocks", "4", "--sides", "8,10"]);
    assert_eq!(
        failure(&output).trim(),
        "error: 400 bytes do not make 4 parts of whole rows of 40 bytes; choose a multiple of 160"
    );
    assert!(
        !String::from_utf8(output.stdout)
            .unwrap()
            .contains("between")
    );
}

#[test]
fn ctrl_c_shows_what_was_measured_so_far() {
    let arguments = ["--sides", "8", "--steps", "10", "--seconds", "600"];
    let rows = interrupted(JACOBI, &arguments, "µs a step");
    assert!(rows.len() <= 1, "{rows:?}");
}
