//! Operations that kernels trigger, and what it costs.

use crate::common::{assert_ratio, assert_verified, document, failure};
use crate::run;

const TRIGGER: &str = "trigger";

#[test]
fn each_level_sends_everything_once() {
    for (nic, blocks, threads) in [("soft", 1, 1), ("soft", 3, 33), ("soft-gpu", 2, 4)] {
        let (blocks_text, threads_text) = (blocks.to_string(), threads.to_string());
        let shape = [
            "--nic",
            nic,
            "--blocks",
            &blocks_text,
            "--threads",
            &threads_text,
        ];
        let rest = [
            "--rounds",
            "50",
            "--warm-up",
            "5",
            "--hops",
            "3",
            "--chains",
            "9",
            "--json",
        ];
        let document = document(&run(TRIGGER, &[&shape[..], &rest].concat()));
        // The three levels, and the chain.
        assert_verified(&document, 4);
        let sent = document["sent"].as_array().unwrap();
        let of = |level: usize, what: &str| sent[level][what].as_u64().unwrap();
        for (level, operations, threshold) in
            [(0, blocks * threads, 1), (1, blocks, 1), (2, 1, blocks)]
        {
            assert_eq!(of(level, "operations"), operations);
            assert_eq!(of(level, "threshold"), threshold);
            assert_eq!(of(level, "bytes") * operations, 8 * blocks * threads);
        }
        for costs in ["costs", "costs_without_record"].map(|which| &document[which]) {
            for [ratio, figure, over] in [
                ["sending_ratio", "trigger_sending", "post_shared"],
                ["sending_own_ratio", "trigger_sending_own", "post_exclusive"],
                ["counting_ratio", "trigger_counting", "post_shared"],
            ] {
                assert_ratio(&costs[ratio], &costs[figure], &costs[over]);
            }
        }
        assert_eq!(document["unit"], "ns");
        let hops = &document["hops"];
        assert_eq!(hops["hops"], 3);
        assert_ratio(&hops["ratio"], &hops["by_nic"], &hops["by_kernel"]);
    }
}

#[test]
fn bad_arguments_are_refused() {
    for wrong in [
        &["--blocks", "0"][..],
        &["--threads", "513"],
        &["--rounds", "0"],
        &["--bytes", "7"],
        &["--hops", "1"],
    ] {
        let output = run(TRIGGER, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    // A NIC among the kernels has no room for so many queue pairs.
    let output = run(TRIGGER, &["--nic", "soft-gpu", "--threads", "64"]);
    failure(&output);
}
