//! A stencil over several ranks, and notifications beside bare writes.

mod common;

use common::{assert_ratio, assert_verified, document, error_line, run};

const STENCIL: &str = env!("CARGO_BIN_EXE_stencil");

#[test]
fn a_stencil_over_ranks_and_blocks_is_right() {
    for (nic, ranks, blocks) in [
        ("soft", "1", "1"),
        ("soft", "3", "1"),
        ("soft", "2", "3"),
        ("soft-gpu", "2", "2"),
    ] {
        let small = ["--cells", "37", "--steps", "20", "--rounds", "50"];
        let shape = ["--nic", nic, "--ranks", ranks, "--blocks", blocks];
        let rest = ["--warm-up", "5", "--threads", "8", "--json"];
        let output = run(STENCIL, &[&small[..], &shape, &rest].concat());
        let document = document(&output);
        assert_verified(&document, 1);
        assert_eq!(document["nic"], nic);
        assert_eq!(document["kernels"]["on"], "cpu");
        assert!(document["origin"]["date"].is_string());
        assert_eq!(document["stencil"]["ranks"].to_string(), ranks);
        assert_eq!(document["stencil"]["steps"], 20);
        let ns = |of: &str| &document[of]["median_ns"];
        assert!(ns("bare_write").as_u64() > Some(0));
        assert_ratio(&document["ratio"], ns("notification"), ns("bare_write"));
    }
}

#[test]
fn bad_arguments_are_refused() {
    for wrong in [
        &["--ranks", "0"][..],
        &["--ranks", "65"],
        &["--blocks", "0"],
        &["--steps", "0"],
        &["--rounds", "0"],
    ] {
        let output = run(STENCIL, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    let output = run(STENCIL, &["--depth", "2", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(error_line(&output).contains("choose 4 or more"));
    // A NIC among the kernels has no room for so many queue pairs.
    let output = run(STENCIL, &["--nic", "soft-gpu", "--ranks", "64"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(error_line(&output).lines().count(), 1);
}
