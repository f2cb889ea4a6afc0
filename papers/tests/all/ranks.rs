//! Applications whose ranks are processes, over both wires.

use std::io::{BufRead, BufReader};
use std::thread;
use std::time::Duration;

use crate::common::{
    WIRES, assert_stepped, assert_verified, document_of_ranks, error_line, failure, job, start,
};
use crate::press_ctrl_c;

const ALLREDUCE: &str = env!("CARGO_BIN_EXE_allreduce");
const DAQ: &str = env!("CARGO_BIN_EXE_daq");
const JACOBI: &str = env!("CARGO_BIN_EXE_jacobi");
const KV: &str = env!("CARGO_BIN_EXE_kv");
const SERVING: &str = env!("CARGO_BIN_EXE_serving");
const STENCIL: &str = env!("CARGO_BIN_EXE_stencil");

#[test]
fn every_cell_of_both_stencils_is_right() {
    let counts = [
        "--steps",
        "7",
        "--repetitions",
        "2",
        "--seconds",
        "100",
        "--json",
    ];
    for wire in WIRES {
        for (program, size, ways) in [(JACOBI, "--sides=8", 4), (STENCIL, "--cells=37", 3)] {
            let outputs = job(program, 2, wire, &[&counts[..], &[size]].concat());
            let document = document_of_ranks(&outputs);
            assert_verified(&document, ways);
            assert_stepped(&document, 2 * 7);
        }
        let outputs = job(STENCIL, 3, wire, &[&counts[..], &["--cells=5"]].concat());
        let document = document_of_ranks(&outputs);
        assert_verified(&document, 1);
        assert_eq!(document["series"]["ranks"], 3);
        assert_eq!(document["measured"][0]["way"], "notified");
    }
}

#[test]
fn every_sum_is_right_in_every_way() {
    let counts = ["--rounds=3", "--repetitions=2", "--seconds=100", "--json"];
    // Slices that divide nothing.
    let shape = ["--blocks=2", "--threads=5", "--slice=200", "--sizes=1248"];
    for wire in WIRES {
        for (ranks, algorithms) in [(2, "ring,doubling"), (3, "ring"), (4, "doubling")] {
            let shape = [&shape[..], &["--algorithms", algorithms]].concat();
            let outputs = job(ALLREDUCE, ranks, wire, &[&counts[..], &shape].concat());
            let document = document_of_ranks(&outputs);
            assert_verified(&document, 4 * algorithms.split(',').count());
            for measured in document["measured"].as_array().unwrap() {
                assert_eq!(measured["ranks"], ranks);
                assert_eq!(measured["rounds"], 6);
            }
        }
    }
}

#[test]
fn clients_of_other_ranks_get_every_value() {
    let few = ["--keys=200", "--gets=100", "--sizes=16,300", "--json"];
    for wire in WIRES {
        for (ranks, clients) in [(2, "--clients=3"), (3, "--clients=1")] {
            let outputs = job(KV, ranks, wire, &[&few[..], &[clients]].concat());
            let document = document_of_ranks(&outputs);
            let rows = document["rows"].as_array().unwrap();
            assert_verified(&document, 2 * (ranks - 1));
            for (row, rank) in rows.iter().zip((1..ranks).cycle()) {
                assert_eq!(row["way"], "reads");
                assert_eq!(row["rank"], rank);
                assert!(row["hits"].as_u64() > Some(0));
            }
        }
    }
}

#[test]
fn a_client_at_another_rank_gets_every_value_of_every_answer() {
    let counts = ["--rounds=3", "--warm-up=1", "--seconds=100", "--json"];
    // Neither tiles nor parts divide the picture.
    let shape = ["--blocks=3", "--threads=16", "--parts=3", "--piece=4K"];
    let ways = ["--ways=host,asleep,spinning,graph", "--sides=9,18"];
    let networks = ["--network=superresolution,squeeze", "--every=50"];
    for wire in WIRES {
        let arguments = [&counts[..], &shape, &ways, &networks].concat();
        let document = document_of_ranks(&job(SERVING, 2, wire, &arguments));
        assert_verified(&document, 16);
        let results = document["measured"].as_array().unwrap();
        for (result, way) in results
            .iter()
            .zip(["host", "asleep", "spinning", "graph"].iter().cycle())
        {
            assert_eq!(
                (&result["way"], &result["rounds"]),
                (&(*way).into(), &3.into())
            );
            assert_eq!(result["distribution"]["events"], 3);
            // Of the server, which the client asks for it.
            assert!(result["compute_us"].as_f64() > Some(0.0), "{document:#}");
            assert_eq!(result["over_time"][0]["requests"], 3, "{document:#}");
        }
    }
}

#[test]
fn a_receiver_at_another_rank_sends_every_primitive() {
    let counts = ["--events=101", "--warm-up=10", "--seconds=100", "--json"];
    for wire in WIRES {
        // More events than all slots hold.
        for shape in [["--ways=1", "--slots=1"], ["--ways=3", "--slots=4"]] {
            let arguments = [&counts[..], &shape, &["--rates=1000"]].concat();
            let document = document_of_ranks(&job(DAQ, 2, wire, &arguments));
            assert_verified(&document, 2);
            let results = document["measured"].as_array().unwrap();
            for (result, driver) in results.iter().zip(["host", "kernel"]) {
                assert_eq!(
                    (&result["driver"], &result["sent"]),
                    (&driver.into(), &101.into())
                );
                let nothing = ["lost", "wrong", "dropped", "left"].map(|field| &result[field]);
                assert_eq!(nothing, [&0; 4]);
            }
        }
    }
}

#[test]
fn another_number_of_ranks_is_refused_by_all() {
    for (program, arguments) in [
        (JACOBI, &[][..]),
        (STENCIL, &["--ranks", "2"]),
        (ALLREDUCE, &["--ranks", "2"]),
        (SERVING, &[]),
        (DAQ, &[]),
    ] {
        for output in job(program, 3, "", arguments) {
            assert_eq!(output.status.code(), Some(1));
            let error = String::from_utf8_lossy(&output.stderr);
            let words = "the program has 2 ranks here, and 3 were started";
            assert!(error.contains(words), "{error}");
        }
    }
}

#[test]
fn a_driver_alone_is_refused_by_both_ranks() {
    for output in job(SERVING, 2, "", &["--driver-alone"]) {
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8_lossy(&output.stderr);
        let words = "--driver-alone measures in one process, and a launcher has started several";
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn all_ranks_end_behind_the_row_in_which_one_is_interrupted() {
    let stencil = ["--cells=8", "--steps=10", "--seconds=2"];
    let serving = ["--sides=8", "--warm-up=0", "--seconds=2"];
    // Many short rows: on a busy machine, too, each ends before its kernel's deadline.
    let sizes: Vec<_> = (1..=24).map(|words| (8 * words).to_string()).collect();
    let sizes = format!("--sizes={}", sizes.join(","));
    let kv = [&sizes, "--keys=200", "--gets=2000"];
    for (program, arguments, header, all) in [
        (STENCIL, stencil, "µs a step", 3),
        (SERVING, serving, "driven by  ", 3),
        (KV, kv, "round trips", 24),
    ] {
        for pressed in [0, 1] {
            let mut ranks = start(program, 2, "", &arguments);
            let mut lines = BufReader::new(ranks[0].stdout.take().unwrap()).lines();
            assert!(lines.any(|line| line.unwrap().contains(header)));
            thread::sleep(Duration::from_millis(500));
            press_ctrl_c(&ranks[pressed]);
            let rows = lines.map(Result::unwrap).filter(|row| row.contains("ok"));
            assert!(rows.count() < all);
            let [first, second] = [ranks.remove(0), ranks.remove(0)];
            let first = first.wait_with_output().unwrap();
            let line = error_line(&first);
            assert!(line.contains("interrupted; the results so far"), "{line}");
            assert_eq!(first.status.code(), Some(130));
            // It shows nothing.
            let second = second.wait_with_output().unwrap();
            let errors = String::from_utf8_lossy(&second.stderr);
            assert!(second.status.success() && errors.is_empty(), "{errors}");
        }
    }
}

#[test]
fn a_rank_that_is_gone_is_named() {
    let stencil = ["--cells=8", "--steps=10", "--seconds=600"];
    let serving = ["--ways=asleep", "--sides=8", "--seconds=600"];
    let daq = ["--receiver=persistent", "--rates=200", "--seconds=600"];
    let kv = ["--gets=100000", "--clients=1", "--keys=16"];
    for (program, arguments, ranks, gone, header) in [
        (STENCIL, stencil, 3, 2, "µs a step"),
        (KV, kv, 2, 0, "round trips"),
        (KV, kv, 2, 1, "round trips"),
        (SERVING, serving, 2, 0, "driven by  "),
        (SERVING, serving, 2, 1, "driven by  "),
        (DAQ, daq, 2, 0, "p99.9 µs"),
        (DAQ, daq, 2, 1, "p99.9 µs"),
    ] {
        let mut ranks = start(program, ranks, "", &arguments);
        // All have begun.
        let mut lines = BufReader::new(ranks[0].stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains(header)));
        thread::sleep(Duration::from_millis(500));
        let mut killed = ranks.remove(gone);
        killed.kill().unwrap();
        killed.wait().unwrap();
        for survivor in ranks {
            let output = survivor.wait_with_output().unwrap();
            let error = failure(&output);
            let named = format!("error: rank {gone} ");
            assert!(error.starts_with(&named), "{program}: {error}");
        }
    }
}
