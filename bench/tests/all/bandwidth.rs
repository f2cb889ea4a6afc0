//! The bandwidth test.

use serde_json::Value;

use crate::common::{
    WIRES, assert_verified, document, document_of_ranks, error_line, failure, job,
};
use crate::run;

const BANDWIDTH: &str = "bandwidth";

#[test]
fn measures_every_verb_both_ways() {
    for ways in [&[][..], &["--both-ways"]] {
        let small = [
            "--from",
            "8",
            "--to",
            "32",
            "--messages",
            "100",
            "--repetitions",
            "2",
        ];
        let queue = [
            "--json",
            "--depth",
            "16",
            "--batch",
            "3",
            "--signal-every",
            "7",
        ];
        let output = run(BANDWIDTH, &[&small[..], &queue, ways].concat());
        let document = document(&output);
        // 4 verbs of 3 sizes, and fetch-and-add of 8 bytes.
        assert_verified(&document, 13);
        assert_eq!(document["both_ways"], !ways.is_empty());
        for result in document["results"].as_array().unwrap() {
            let of = |field: &str| result[field].as_f64().unwrap();
            assert!(of("min_gb_per_s") > 0.0);
            assert!(of("min_gb_per_s") <= of("median_gb_per_s"));
        }
    }
}

#[test]
fn as_many_messages_share_a_doorbell_as_are_advised() {
    for (nic, depth, batch) in [("soft", "256", 8), ("soft", "16", 4), ("soft-gpu", "4", 1)] {
        let output = run(
            BANDWIDTH,
            &[
                "--nic",
                nic,
                "--depth",
                depth,
                "--verbs",
                "write",
                "--to",
                "8",
                "--messages",
                "20",
                "--repetitions",
                "1",
                "--json",
            ],
        );
        let document = document(&output);
        assert_verified(&document, 1);
        assert_eq!(document["batch"], batch, "{nic}, {depth}");
    }
}

#[test]
fn long_reads_are_told_of_if_somebody_looks() {
    let arguments = |bytes, watch: &'static [&str]| {
        let case = [
            "--verbs",
            "read",
            "--from",
            bytes,
            "--to",
            bytes,
            "--messages",
            "2",
            "--repetitions",
            "1",
            "--json",
        ];
        [&case[..], watch].concat()
    };
    let told = |bytes, watch| {
        let output = run(BANDWIDTH, &arguments(bytes, watch));
        assert_verified(&document(&output), 1);
        String::from_utf8(output.stderr).unwrap()
    };
    let line = told("16M", &["--watch"]);
    assert!(line.contains("2 READs of up to 16777216 bytes"), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    assert_eq!(told("16M", &[]), "");
    assert_eq!(told("4M", &["--watch"]), "");
    let refused = run(
        BANDWIDTH,
        &arguments("8", &["--nic", "soft-gpu", "--watch"]),
    );
    assert!(failure(&refused).contains("watched"));
}

#[test]
fn sizes_that_end_between_two_packets_arrive_whole() {
    let sizes = [
        "--from",
        "4097",
        "--to",
        "10K",
        "--messages",
        "9",
        "--repetitions",
        "1",
    ];
    let verbs = ["--verbs", "write,read,send", "--json"];
    let output = run(BANDWIDTH, &[&sizes[..], &verbs].concat());
    assert_verified(&document(&output), 6);
}

#[test]
fn climbs_the_ladder_and_draws_it() {
    let picture = std::env::temp_dir().join(format!("warpbell-ladder-{}.svg", std::process::id()));
    let path = picture.to_str().unwrap();
    for nic in ["soft", "soft-gpu"] {
        let ladder = ["--ladder", "--nic", nic, "--queues", "3", "--depth", "128"];
        let small = ["--from", "8", "--to", "32", "--repetitions", "2"];
        let messages = ["--messages", "100", "--json", "--svg", path];
        let output = run(BANDWIDTH, &[&ladder[..], &small, &messages].concat());
        let document = document(&output);
        // 6 rungs of 3 sizes.
        assert_verified(&document, 18);
        let command = document["origin"]["command"].as_str().unwrap();
        assert!(command.starts_with("bench bandwidth --ladder"), "{command}");
        let results = document["results"].as_array().unwrap();
        // 100 messages of each queue; as many of each thread of a warp or of a block.
        for (rung, queues, messages) in [
            ("naive", 1, 100),
            ("reuse", 1, 100),
            ("pipelined", 1, 100),
            ("fewer-doorbells", 1, 100),
            ("queue-per-warp", 3, 3 * 128),
            ("queue-per-block", 3, 3 * 128),
        ] {
            let of_rung = || results.iter().filter(|result| result["rung"] == rung);
            assert_eq!(of_rung().count(), 3, "{rung}");
            assert!(of_rung().all(|result| result["queues"] == queues));
            assert!(of_rung().all(|result| result["messages"] == messages));
        }
        let drawn = std::fs::read_to_string(&picture).unwrap();
        // The document alone gives the same drawing.
        let json = picture.with_extension("json");
        std::fs::write(&json, &output.stdout).unwrap();
        std::fs::remove_file(&picture).unwrap();
        let again = run("draw", &[json.to_str().unwrap()]);
        assert_eq!(again.status.code(), Some(0));
        assert_eq!(std::fs::read_to_string(&picture).unwrap(), drawn);
        for file in [&picture, &json] {
            std::fs::remove_file(file).unwrap();
        }
        for words in [
            "<svg",
            "WQE reuse",
            "a queue per block",
            "message size (bytes)",
        ] {
            assert!(drawn.contains(words), "{words}");
        }
    }
}

#[test]
fn a_picture_that_cannot_be_drawn_is_one_line() {
    let output = run(
        BANDWIDTH,
        &[
            "--verbs",
            "fetch-add",
            "--messages",
            "9",
            "--json",
            "--svg",
            "/nowhere/a.svg",
        ],
    );
    let line = failure(&output);
    assert!(
        line.contains("the plot /nowhere/a.svg cannot be written"),
        "{line}"
    );
}

#[test]
fn documents_that_cannot_be_drawn_are_one_line() {
    let other = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for (file, why) in [
        ("/nowhere/a.json", "No such file"),
        (other, "expected value"),
    ] {
        let output = run("draw", &[file]);
        let line = failure(&output);
        assert!(line.contains(why), "{line}");
    }
}

#[test]
fn bad_arguments_are_refused() {
    for wrong in [
        &["--verbs", "teleport"][..],
        &["--from", "7"],
        &["--batch", "0"],
        &["--signal-every", "0"],
        &["--repetitions", "0"],
        &["--messages", "0"],
        &["--ladder", "--verbs", "read"],
        &["--ladder", "--queues", "0"],
        &["--queues", "2"],
    ] {
        let output = run(BANDWIDTH, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(!output.stderr.is_empty());
    }
    let output = run(BANDWIDTH, &["--depth", "8", "--batch", "5", "--json"]);
    let line = failure(&output);
    assert!(
        line.contains("5 blocks of 64 bytes, the queue takes 4"),
        "{line}"
    );
}

#[test]
fn a_case_alone_is_measured_alone() {
    let small = [
        "--messages",
        "64",
        "--repetitions",
        "1",
        "--to",
        "64",
        "--json",
    ];
    let results = |case: &[&str]| {
        let document = document(&run(BANDWIDTH, &[&small[..], case].concat()));
        document["results"].as_array().unwrap().clone()
    };
    let reads = results(&["--case", "read 64 B"]);
    assert_eq!(reads.len(), 1);
    assert_eq!(
        (&reads[0]["verb"], &reads[0]["bytes"]),
        (&"read".into(), &64.into())
    );
    let rungs = results(&["--ladder", "--case", "reuse", "--case", "naive 8 B"]);
    let rungs: Vec<_> = rungs
        .iter()
        .map(|step| (&step["rung"], &step["bytes"]))
        .collect();
    let [naive, reuse] = ["naive", "reuse"].map(Value::from);
    let [b8, b16, b32, b64] = [8, 16, 32, 64].map(Value::from);
    assert_eq!(
        rungs,
        [
            (&naive, &b8),
            (&reuse, &b8),
            (&reuse, &b16),
            (&reuse, &b32),
            (&reuse, &b64)
        ]
    );
    for mode in [&[][..], &["--ladder"]] {
        let output = run(BANDWIDTH, &[mode, &["--case", "fetch 64"]].concat());
        assert!(failure(&output).contains("no case has fetch 64 in its name"));
    }
}

#[test]
fn every_byte_arrives_at_another_rank() {
    let few = [
        "--from=8",
        "--to=64",
        "--messages=300",
        "--repetitions=2",
        "--json",
    ];
    for wire in WIRES {
        for ways in [&[][..], &["--both-ways"]] {
            let arguments = [&["bandwidth"], &few[..], ways].concat();
            let document =
                document_of_ranks(&job(env!("CARGO_BIN_EXE_bench"), 2, wire, &arguments));
            // Four sizes of four verbs, and fetch-and-add.
            assert_verified(&document, 4 * 4 + 1);
            for result in document["results"].as_array().unwrap() {
                assert!(result["min_gb_per_s"].as_f64() > Some(0.0), "{result}");
            }
        }
    }
    for output in job(env!("CARGO_BIN_EXE_bench"), 3, "", &["bandwidth"]) {
        let error = error_line(&output);
        assert!(
            error.contains("the program has 2 ranks here, and 3 were started"),
            "{error}"
        );
    }
}
