//! GETs from a table in the target's memory, two ways.

use crate::common::{assert_verified, document, failure, run};
use serde_json::Value;

const KV: &str = env!("CARGO_BIN_EXE_kv");

/// The rows of a run.
fn rows(arguments: &[&str]) -> Vec<Value> {
    let arguments: Vec<&str> = arguments.iter().copied().chain(["--json"]).collect();
    let document = document(&run(KV, &arguments));
    let rows = document["rows"].as_array().expect("rows").clone();
    assert_verified(&document, rows.len());
    rows
}

/// With one key in a bucket at most nothing is left to chance.
#[test]
fn a_get_costs_what_its_requests_cost() {
    let arguments = [
        "--keys",
        "8",
        "--load",
        "1",
        "--missing",
        "0",
        "--gets",
        "50",
        "--sizes",
        "64,1500",
    ];
    let rows = rows(&arguments);
    // Two READs of 64 bytes; three WRITEs of 24, 64 and 8 bytes with an acknowledgement each. Then with a value of two
    // packets.
    let read = 78 + 66;
    let (long_read, long_write) = (78 + 2 * 66 + 1500, 78 + 62 + 1500);
    let message = 78 + 24 + 66 + 78 + 8 + 66;
    for (row, way, value, costs) in [
        (0, "reads", 64, [2, 2, 4, 2 * (read + 64)]),
        (1, "active-message", 64, [1, 3, 6, message + 78 + 64 + 66]),
        (2, "reads", 1500, [2, 2, 5, read + 64 + long_read]),
        (
            3,
            "active-message",
            1500,
            [1, 3, 7, message + long_write + 66],
        ),
    ] {
        let row = &rows[row];
        assert_eq!((&row["way"], &row["value"]), (&way.into(), &value.into()));
        assert_eq!((&row["gets"], &row["hits"]), (&50.into(), &50.into()));
        assert_eq!(row["most_buckets"], 1);
        for (name, cost) in ["round_trips", "requests", "packets", "bytes"]
            .into_iter()
            .zip(costs)
        {
            assert_eq!(row[name].as_f64(), Some(f64::from(cost)), "{name}: {row:#}");
        }
        let times = f64::from(costs[3]) / f64::from(value);
        let found = row["amplification"].as_f64().expect("a figure");
        assert!((found - times).abs() < 1e-9, "{found} {times}");
    }
}

#[test]
fn keys_that_are_not_there_are_not_found() {
    let rows = rows(&[
        "--missing",
        "100",
        "--gets",
        "40",
        "--load",
        "1",
        "--keys",
        "8",
        "--sizes",
        "8",
    ]);
    for (row, requests) in rows.iter().zip([1.0, 2.0]) {
        assert_eq!((&row["hits"], &row["wrong"]), (&0.into(), &0.into()));
        assert_eq!(row["requests"].as_f64(), Some(requests));
        assert!(row["amplification"].is_null());
    }
}

#[test]
fn every_value_is_right_for_every_scope() {
    for (nic, who, clients, load, gets) in [
        ("soft", "thread", "3", "75", "100"),
        ("soft", "warp", "2", "99", "40"),
        ("soft", "block", "1", "90", "40"),
        ("soft-gpu", "thread", "2", "75", "20"),
        ("soft-gpu", "block", "1", "99", "10"),
    ] {
        let rows = rows(&[
            "--nic",
            nic,
            "--who",
            who,
            "--clients",
            clients,
            "--load",
            load,
            "--gets",
            gets,
            "--threads",
            "33",
            "--keys",
            "500",
            "--sizes",
            "1,300",
            "--variable",
            "--missing",
            "20",
        ]);
        let hits: Vec<_> = rows.iter().map(|row| &row["hits"]).collect();
        assert_eq!(hits[0], hits[1], "both ways find the same");
        // A table that is nearly full has buckets that run over.
        let most = rows[0]["most_buckets"].as_u64().expect("a number");
        assert!(load == "75" || most > 1, "{load}: {most}");
    }
}

#[test]
fn bad_arguments_are_refused() {
    for wrong in [
        &["--sizes", "0"][..],
        &["--sizes", "16384"],
        &["--load", "100"],
        &["--load", "0"],
        &["--keys", "0"],
        &["--missing", "101"],
        &["--gets", "0"],
        &["--mtu", "1500"],
        &["--who", "grid"],
    ] {
        let output = run(KV, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    // A NIC among the kernels has no room for so many queue pairs.
    let output = run(
        KV,
        &["--nic", "soft-gpu", "--clients", "64", "--sizes", "8"],
    );
    failure(&output);
}
