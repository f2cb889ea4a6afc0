//! A stencil over several ranks in all ways, and notifications beside bare writes.

use crate::common::{assert_ratio, assert_stepped, assert_verified, document, failure, run};
use crate::interrupted;

const STENCIL: &str = env!("CARGO_BIN_EXE_stencil");

/// Few round trips of notifications.
const FEW: [&str; 4] = ["--rounds", "50", "--warm-up", "5"];

#[test]
fn every_cell_is_right_in_every_way() {
    for (nic, blocks, threads, cells, steps) in [
        // Both ends of a strip are one cell, and both neighbours one strip.
        ("soft", "1", "1", vec!["1"], "1"),
        ("soft", "3", "8", vec!["2", "37"], "20"),
        ("soft-gpu", "2", "32", vec!["64"], "9"),
    ] {
        let counts = ["--repetitions", "2", "--seconds", "100", "--json"];
        let shape = ["--nic", nic, "--blocks", blocks, "--threads", threads];
        let sizes = ["--steps", steps, "--cells", &cells.join(",")];
        let output = run(STENCIL, &[&FEW[..], &counts, &shape, &sizes].concat());
        let document = document(&output);
        assert_verified(&document, 3 * cells.len());
        assert_eq!(document["nic"], nic);
        assert_eq!(document["kernels"]["on"], "cpu");
        assert!(document["origin"]["date"].is_string());
        assert_eq!(document["series"]["ranks"], 2);
        assert_stepped(&document, 2 * steps.parse::<u64>().unwrap());
        let ns = |of: &str| &document[of]["median_ns"];
        assert!(ns("bare_write").as_u64() > Some(0));
        assert_ratio(&document["ratio"], ns("notification"), ns("bare_write"));
    }
}

#[test]
fn notifications_take_other_numbers_of_ranks() {
    for (nic, ranks, blocks) in [
        ("soft", "1", "1"),
        ("soft", "1", "2"),
        ("soft", "3", "2"),
        ("soft-gpu", "3", "1"),
        // 96 queue pairs.
        ("soft-gpu", "3", "8"),
    ] {
        let shape = ["--nic", nic, "--ranks", ranks, "--blocks", blocks];
        let small = ["--cells", "7", "--threads", "8", "--steps", "5"];
        let once = ["--repetitions", "1", "--json"];
        let output = run(STENCIL, &[&FEW[..], &shape, &small, &once].concat());
        let document = document(&output);
        assert_verified(&document, 1);
        assert_eq!(document["series"]["ranks"].to_string(), ranks);
        assert_eq!(document["measured"][0]["way"], "notified");
        assert_eq!(document["measured"][0]["steps"], 5);
    }
}

#[test]
fn bad_arguments_are_refused() {
    for wrong in [
        &["--ranks", "0"][..],
        &["--ranks", "65"],
        &["--blocks", "0"],
        &["--threads", "0"],
        &["--cells", "0"],
        &["--steps", "0"],
        &["--rounds", "0"],
        &["--repetitions", "0"],
        &["--seconds", "0"],
        &["--ways", "posted"],
    ] {
        let output = run(STENCIL, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    for (wrong, words) in [
        (
            &["--depth", "2", "--ways", "notified"][..],
            "choose 4 or more",
        ),
        (
            &["--ranks", "3", "--ways", "notified,host"],
            "error: edges between kernels take two ranks, not 3; choose that, or --ways notified",
        ),
        (
            &["--ways", "notified,proxied"],
            "error: the stencil has no way by proxy; choose other --ways",
        ),
        (
            &["--blocks", "17", "--ways", "triggered"],
            "error: edges triggered within take at most 16 blocks, not 17; choose that, or --ways notified",
        ),
        (
            &[
                "--blocks=65",
                "--ways=notified",
                "--cells=1",
                "--threads=1",
                "--steps=1",
                "--repetitions=1",
                "--rounds=1",
                "--warm-up=0",
            ],
            "error: 2 ranks of 65 blocks are more than the 128 blocks",
        ),
    ] {
        let output = run(STENCIL, wrong);
        let line = failure(&output);
        assert!(line.contains(words), "{line}");
        // Nothing was measured.
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains("within "), "{text}");
    }
}

#[test]
fn ctrl_c_shows_what_was_measured_so_far() {
    let plot = format!("{}/stencil.svg", env!("CARGO_TARGET_TMPDIR"));
    let _ = std::fs::remove_file(&plot);
    let arguments = ["--cells", "8", "--steps", "10", "--seconds", "600"];
    let arguments = [&arguments[..], &["--svg", &plot]].concat();
    let rows = interrupted(STENCIL, &arguments, "µs a step");
    // The one way that was under way, and no round trips.
    assert!(rows.len() <= 1, "{rows:?}");
    assert_eq!(std::fs::exists(&plot).unwrap(), rows.len() == 1);
}
