//! Predictions against closed forms, and the documents that they come from.

use std::fs;
use std::path::{Path, PathBuf};

use warpbell_cluster::predict::{Algorithm, Benchmarks, Case, Error, Parts};

use crate::command::{cluster, place, text};

const CASE: Case = Case {
    algorithm: Algorithm::Ring,
    ranks: 4,
    blocks: 1,
    threads: 32,
    bytes: 4096,
    slice: 4096,
    rounds: 3,
};

const PARTS: Parts = Parts {
    engines: 64,
    cores: 0,
    gap: 400.0,
    rate: 2.0,
    latency: 3000.0,
    post: 700.0,
    wait: 300.0,
    add: 2.0,
    add_in_place: 1.0,
    launch: 9000.0,
};

/// A machine where nothing costs anything.
const FREE: Parts = Parts {
    gap: 0.0,
    rate: 1e4,
    latency: 0.0,
    post: 0.0,
    wait: 0.0,
    add: 0.0,
    add_in_place: 0.0,
    launch: 0.0,
    ..PARTS
};

/// All rounds of a case, in nanoseconds.
fn predicted(case: &Case, parts: &Parts) -> f64 {
    1e3 * f64::from(case.rounds) * case.predict(parts).unwrap()
}

fn assert_near(found: f64, expected: f64) {
    let within = (1e-3 * expected).max(20.0);
    assert!((found - expected).abs() < within, "{found} for {expected}");
}

/// An engine for each rank. A ring has 2 (N - 1) steps, of which N - 1 add an N-th of the vector. Doubling has log2 N steps
/// with all of it, each of which adds: in place, but for the last.
#[test]
fn steps_take_their_closed_form() {
    for ranks in [2_u32, 4, 8] {
        let (n, log) = (f64::from(ranks), f64::from(ranks.ilog2()));
        let bytes = f64::from(4096_u32);
        let way =
            |bytes: f64| PARTS.post + PARTS.gap + bytes / PARTS.rate + PARTS.latency + PARTS.wait;
        let ring = 2.0 * (n - 1.0) * way(bytes / n) + (n - 1.0) * PARTS.add * bytes / n;
        let last = PARTS.add * bytes;
        let doubling = log * way(bytes) + (log - 1.0) * PARTS.add_in_place * bytes + last;
        for (algorithm, round) in [(Algorithm::Ring, ring), (Algorithm::Doubling, doubling)] {
            let case = Case {
                algorithm,
                ranks,
                ..CASE
            };
            let all = PARTS.launch + f64::from(case.rounds) * round;
            assert_near(predicted(&case, &PARTS), all);
            // Blocks of a rank have nothing to do with each other.
            let blocks = Case {
                blocks: 3,
                bytes: 3 * case.bytes,
                ..case
            };
            assert_near(predicted(&blocks, &PARTS), all);
        }
    }
}

/// One engine carries every message of every rank, cut into slices, and is never idle: 2 (N - 1) N messages of k slices.
#[test]
fn one_engine_carries_all_slices() {
    let parts = Parts {
        engines: 1,
        gap: 1000.0,
        ..FREE
    };
    for ranks in [2, 4] {
        let case = Case {
            ranks,
            slice: 4096 / 5 / u64::from(ranks) + 1,
            ..CASE
        };
        let messages = f64::from(case.rounds * 2 * (ranks - 1) * ranks * 5);
        assert_near(predicted(&case, &parts), messages * parts.gap);
    }
}

/// Four ranks on two cores add twice as long as on four; on one core the engine takes its turn, too.
#[test]
fn cores_limit_what_runs_at_the_same_time() {
    let adds = Parts { add: 2.0, ..FREE };
    let round = 3.0 * 1024.0 * 2.0;
    for (cores, times) in [(0, 1.0), (4, 1.0), (2, 2.0), (1, 4.0)] {
        let parts = Parts { cores, ..adds };
        let all = f64::from(CASE.rounds) * times * round;
        assert_near(predicted(&CASE, &parts), all);
    }
    let both = Parts {
        cores: 1,
        engines: 1,
        gap: 100.0,
        ..adds
    };
    let messages = f64::from(CASE.rounds * 6 * 4);
    let adding = f64::from(CASE.rounds) * 4.0 * round;
    assert_near(predicted(&CASE, &both), adding + messages * both.gap);
}

#[test]
fn what_nobody_measures_is_named() {
    for case in [
        Case { ranks: 1, ..CASE },
        Case { slice: 0, ..CASE },
        Case { rounds: 0, ..CASE },
        Case { blocks: 0, ..CASE },
        Case { bytes: 3, ..CASE },
        Case {
            algorithm: Algorithm::Doubling,
            ranks: 6,
            ..CASE
        },
    ] {
        let error = case.predict(&PARTS).unwrap_err();
        assert!(matches!(error, Error::Case(of) if of == case), "{error}");
    }
    let error = CASE.predict(&Parts { gap: -1.0, ..PARTS }).unwrap_err();
    assert!(error.to_string().contains("engine_gap"), "{error}");
}

/// Writes documents of all benchmarks, as short as they can be: two of the additions, whose medians count.
fn written(name: &str, nic: &str) -> PathBuf {
    let folder = place(name);
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    let row = |way: &str, one_way: u32, reader: u32| {
        format!(r#"{{"way":"{way}","bytes":64,"one_way_ns":{one_way},"reader":{reader}}}"#)
    };
    let rows = [
        row("completion of a send", 1, 1),
        row("flag behind the data", 6000, 800),
    ];
    write(
        "inbound.json",
        &format!(r#"{{"rows":[{}]}}"#, rows.join(",")),
    );
    // 100 ns a message, and 1,000 ns for 64 KiB.
    let rung =
        |bytes: u32, rate: f64| format!(r#"{{"bytes":{bytes},"median_million_per_s":{rate}}}"#);
    let ladder = |rungs: [String; 2]| format!(r#"{{"results":[{}]}}"#, rungs.join(","));
    let short = ladder([rung(64, 2.0), rung(64, 10.0)]);
    let long = ladder([rung(65_536, 1.0), rung(65_536, 0.5)]);
    write("ladder.json", &(short + &long));
    let post = |doorbell: &str, scope: &str, cycles: f64| {
        format!(
            r#"{{"case":"warp, one doorbell, exclusive","lap":"steady","doorbell":"{doorbell}","scope":"{scope}","record":false,"cycles":{{"median":{cycles}}}}}"#
        )
    };
    let posts = [post("device", "gpu", 50.0), post("pinned", "system", 100.0)].join(",");
    write(
        "posting.json",
        &format!(r#"{{"cycles_per_ns":2.0,"rows":[{posts}]}}"#),
    );
    let additions = |more: f64| {
        let row = |ranks: u32, bytes: u32, in_place: bool, us: f64| {
            format!(
                r#"{{"ranks":{ranks},"blocks":1,"bytes":{bytes},"in_place":{in_place},"us":{us}}}"#
            )
        };
        let rows = [
            row(2, 1000, false, 12.0),
            row(2, 5000, false, 20.0 + more),
            row(2, 1000, true, 11.0),
            row(2, 5000, true, 15.0 + more),
            row(4, 1000, false, 14.0),
            row(4, 5000, false, 30.0 + more),
            row(4, 1000, true, 14.0),
            row(4, 5000, true, 30.0 + more),
        ];
        format!(r#"{{"measured":[{}]}}"#, rows.join(","))
    };
    write(
        "additions.json",
        &(additions(-4.0) + "\n" + &additions(4.0)),
    );
    let sum = |way: &str, us: f64| {
        format!(r#"{{"algorithm":"ring","way":"{way}","ranks":4,"bytes":4096,"us_per_sum":{us}}}"#)
    };
    let reduced = |us: f64| {
        let series = r#"{"blocks":1,"threads":32,"slice":65536,"rounds":null}"#;
        let measured = [sum("posted", us), sum("host", 1.0)].join(",");
        format!(r#"{{"nic":"{nic}","series":{series},"measured":[{measured}]}}"#)
    };
    write(
        "allreduce.json",
        &(reduced(10.0) + &reduced(70.0) + &reduced(50.0)),
    );
    folder
}

/// Each part by hand. 64 KiB less 64 bytes take 900 ns more than a message, which the rate leaves out.
#[test]
fn parts_come_from_documents() {
    let read = |name: &str, nic: &str| Benchmarks::read(&written(name, nic)).unwrap();
    let soft = read("predict-soft", "soft");
    let measured = soft.measured();
    assert_eq!(measured.len(), 1);
    let case = measured[0].case;
    assert_eq!((case.ranks, case.rounds, measured[0].us), (4, 64, 50.0));
    let rate = 65_536.0 / 900.0;
    let expected = Parts {
        engines: 1,
        cores: 0,
        gap: 200.0,
        rate,
        latency: 6000.0 - 1600.0 - 800.0 - 200.0 - 64.0 / rate,
        post: 1600.0,
        wait: 800.0,
        add: 4.0,
        add_in_place: 4.0,
        launch: 10_000.0,
    };
    let (parts, sources) = soft.parts(&case, 0).unwrap();
    assert_eq!((parts, sources.len()), (expected, 8));
    // Two cores: two blocks add at a time.
    let two = Parts {
        cores: 2,
        add: 2.0,
        add_in_place: 1.0,
        ..expected
    };
    assert_eq!(soft.parts(&case, 2).unwrap().0, two);
    // In a GPU eight engines do together what was measured, and posts stay in it.
    let (gpu, _) = read("predict-soft-gpu", "soft-gpu")
        .parts(&case, 0)
        .unwrap();
    assert_eq!(
        (gpu.engines, gpu.gap, gpu.rate, gpu.post),
        (8, 1600.0, rate / 8.0, 800.0)
    );
}

#[test]
fn the_command_prints_predicted_and_measured() {
    let folder = written("predict-command", "soft");
    let run = |folder: &Path| cluster(&["predict", folder.to_str().unwrap()]);
    let output = run(&folder);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let last = printed.lines().last().unwrap();
    assert!(
        last.starts_with("ring,4,4096,") && last.contains(",50.00,"),
        "{last}"
    );

    // A row that is missing, a file that is none, and one that is no document.
    for (file, content, error) in [
        (
            "posting.json",
            r#"{"cycles_per_ns":1.0,"rows":[]}"#,
            "posting.json has no row of warp",
        ),
        (
            "inbound.json",
            r#"{"rows":[]}"#,
            "inbound.json has no row of flag behind the data",
        ),
        (
            "ladder.json",
            r#"{"results":7}"#,
            "ladder.json: invalid type",
        ),
    ] {
        let folder = written("predict-refused", "soft");
        fs::write(folder.join(file), content).unwrap();
        let output = run(&folder);
        assert!(!output.status.success());
        assert!(
            text(&output.stderr).contains(error),
            "{}",
            text(&output.stderr)
        );
    }
    fs::remove_file(folder.join("inbound.json")).unwrap();
    let output = run(&folder);
    assert!(
        text(&output.stderr).contains("inbound.json: No such file"),
        "{}",
        text(&output.stderr)
    );
}
