//! Tasks that kernels start in another one.

use crate::common::{assert_ratio, assert_verified, document, error_line};
use crate::run;

const ACTIVE: &str = "active";

#[test]
fn every_vector_is_added_up_once() {
    for (nic, blocks, threads, words, slots, messages) in [
        ("soft", 1, 1, 1, 1, 20),
        ("soft", 3, 33, 100, 4, 50),
        ("soft-gpu", 2, 64, 70, 2, 30),
    ] {
        let mut arguments: Vec<String> = ["--nic", nic].map(String::from).into();
        for (name, value) in [
            ("--blocks", blocks),
            ("--threads", threads),
            ("--words", words),
            ("--slots", slots),
            ("--messages", messages),
            ("--rounds", 50),
            ("--warm-up", 5),
        ] {
            arguments.extend([name.into(), value.to_string()]);
        }
        arguments.push("--json".into());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let document = document(&run(ACTIVE, &arguments));
        assert_verified(&document, 1);
        let reduction = &document["reduction"];
        assert_eq!(reduction["tasks"], blocks * messages);
        assert_eq!(reduction["refused"], blocks);
        let notification = &document["notification"]["median_ns"];
        for (number, name) in ["value", "arguments", "payload"].into_iter().enumerate() {
            let start = &document["starts"][name]["median_ns"];
            assert_ratio(&document["ratios"][number], start, notification);
        }
    }
}

#[test]
fn bad_arguments_are_refused() {
    for wrong in [
        &["--blocks", "0"][..],
        &["--words", "0"],
        &["--slots", "65"],
        &["--bytes", "0"],
    ] {
        let output = run(ACTIVE, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    for wrong in [
        // No power of two.
        &["--slots", "3"][..],
        // A NIC among the kernels has no room for so many queue pairs.
        &["--nic", "soft-gpu", "--blocks", "64"],
    ] {
        let output = run(ACTIVE, wrong);
        assert_eq!(output.status.code(), Some(1), "{wrong:?}");
        assert_eq!(error_line(&output).lines().count(), 1);
    }
}
