//! Tasks that kernels start in another one.

use crate::common::{assert_ratio, assert_verified, document, failure};
use crate::run;

const ACTIVE: &str = "active";
/// All ways, in their order.
const WAYS: [&str; 3] = ["host", "launched", "resident"];

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
        assert_verified(&document, WAYS.len());
        let ways = document["ways"].as_array().unwrap();
        for (result, way) in ways.iter().zip(WAYS) {
            assert_eq!(result["way"], way);
            let reduction = &result["reduction"];
            assert_eq!(reduction["tasks"], blocks * messages);
            assert_eq!(reduction["refused"], blocks);
            assert!(result["task"]["min_ns"].as_u64() > Some(0), "{result}");
            assert!(reduction["seconds"].as_f64() > Some(0.0), "{result}");
        }
        let notification = &document["notification"]["median_ns"];
        for (number, name) in ["value", "arguments", "payload"].into_iter().enumerate() {
            let start = &document["starts"][name]["median_ns"];
            assert_ratio(&document["ratios"][number], start, notification);
        }
    }
}

#[test]
fn the_ways_that_are_named_are_rows_of_a_file() {
    let file = format!("active-{}.csv", std::process::id());
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    let csv = path.to_str().unwrap();
    let output = run(
        ACTIVE,
        &[
            "--ways",
            "resident,launched",
            "--csv",
            csv,
            "--messages",
            "10",
            "--rounds",
            "20",
            "--warm-up",
            "2",
        ],
    );
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    let rows: Vec<Vec<_>> = text.lines().map(|row| row.split(',').collect()).collect();
    let head = "way,task_median_us,task_min_us,blocks,threads,bytes,vectors,us_per_vector,verified";
    assert_eq!(rows[0].join(","), head);
    assert_eq!(rows.len(), 3);
    for (row, way) in rows[1..].iter().zip(["resident", "launched"]) {
        assert_eq!(row[0], way);
        // Two blocks of 64 threads, with 256 words a vector, unless said otherwise.
        assert_eq!(row[3..7], ["2", "64", "2048", "20"]);
        assert_eq!(row[8], "true");
        let [median, min, each] = [1, 2, 7].map(|at: usize| row[at].parse::<f64>().unwrap());
        assert!(0.0 < min && min <= median && each > 0.0, "{row:?}");
    }
}

#[test]
fn bad_arguments_are_refused() {
    for wrong in [
        &["--blocks", "0"][..],
        &["--words", "0"],
        &["--slots", "65"],
        &["--bytes", "0"],
        &["--ways", "none"],
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
        failure(&output);
    }
}
