//! Applications whose ranks are processes, over both wires.

use std::process::Output;
use std::sync::atomic::{AtomicU16, Ordering};

use crate::common::{assert_stepped, assert_verified, command, document};

const ALLREDUCE: &str = env!("CARGO_BIN_EXE_allreduce");
const JACOBI: &str = env!("CARGO_BIN_EXE_jacobi");
const STENCIL: &str = env!("CARGO_BIN_EXE_stencil");

const WIRES: [&str; 2] = ["shm", "roce"];

/// A port for each job.
static PORT: AtomicU16 = AtomicU16::new(21_020);

/// What each of so many ranks says.
fn job(program: &str, ranks: usize, wire: &str, arguments: &[&str]) -> Vec<Output> {
    let [_, b, c, d] = std::process::id().to_be_bytes();
    let port = PORT.fetch_add(1, Ordering::Relaxed);
    let root = format!("127.{}.{c}.{d}:{port}", 64 + b % 64);
    let start = |rank: usize| {
        let mut command = command(program, arguments);
        command.envs([
            ("WARPBELL_LAUNCHER", "hand"),
            ("WARPBELL_ROOT", &root),
            ("WARPBELL_SIZE", &ranks.to_string()),
            ("WARPBELL_RANK", &rank.to_string()),
            ("WARPBELL_WIRE", wire),
        ]);
        command.spawn().unwrap()
    };
    let started: Vec<_> = (0..ranks).map(start).collect();
    let ended = started.into_iter().map(|child| child.wait_with_output());
    ended.collect::<Result<_, _>>().unwrap()
}

/// The document of rank 0; all others say nothing.
fn document_of(outputs: &[Output]) -> serde_json::Value {
    for other in &outputs[1..] {
        let errors = String::from_utf8_lossy(&other.stderr);
        assert!(other.status.success() && errors.is_empty(), "{errors}");
        assert!(other.stdout.is_empty());
    }
    document(&outputs[0])
}

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
        for (program, size) in [(JACOBI, "--sides=8"), (STENCIL, "--cells=37")] {
            let outputs = job(program, 2, wire, &[&counts[..], &[size]].concat());
            let document = document_of(&outputs);
            assert_verified(&document, 3);
            assert_stepped(&document, 2 * 7);
        }
        let outputs = job(STENCIL, 3, wire, &[&counts[..], &["--cells=5"]].concat());
        let document = document_of(&outputs);
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
            let document = document_of(&outputs);
            assert_verified(&document, 4 * algorithms.split(',').count());
            for measured in document["measured"].as_array().unwrap() {
                assert_eq!(measured["ranks"], ranks);
                assert_eq!(measured["rounds"], 6);
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
    ] {
        for output in job(program, 3, "", arguments) {
            assert_eq!(output.status.code(), Some(1));
            let error = String::from_utf8_lossy(&output.stderr);
            let words = "the program has 2 ranks here, and 3 were started";
            assert!(error.contains(words), "{error}");
        }
    }
}
