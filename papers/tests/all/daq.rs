//! A stream of a detector's events, taken by a kernel for each batch and by one that stays.

use crate::common::{assert_verified, document, run};
use crate::interrupted;
use serde_json::Value;

const DAQ: &str = env!("CARGO_BIN_EXE_daq");

/// What was measured with these arguments, one rate with both receivers.
fn measured(arguments: &[&str]) -> [Value; 2] {
    let long = ["--seconds", "100", "--json"];
    let document = document(&run(DAQ, &[arguments, &long].concat()));
    assert_verified(&document, 2);
    let of = |index: usize| document["measured"][index].clone();
    assert_eq!(
        [0, 1].map(|at| of(at)["driver"].clone()),
        ["host", "kernel"]
    );
    [of(0), of(1)]
}

fn number(result: &Value, field: &str) -> u64 {
    result[field].as_u64().expect("a number")
}

#[test]
fn every_event_has_one_primitive_and_it_is_right() {
    for (nic, ways, slots, more) in [
        ("soft", "1", "1", ["--rates", "2000"]),
        ("soft", "3", "4", ["--gather-us", "3000"]),
        ("soft", "2", "32", ["--seed", "7"]),
        ("soft-gpu", "2", "16", ["--overload", "drop"]),
    ] {
        // More than all rings hold.
        let shape = ["--nic", nic, "--ways", ways, "--slots", slots];
        let rates: &[&str] = match more[0] {
            "--rates" => &[],
            _ => &["--rates", "1000"],
        };
        let events = ["--events", "101", "--warm-up", "10"];
        for result in measured(&[&shape[..], &more, &events, rates].concat()) {
            let [sent, dropped] = ["sent", "dropped"].map(|field| number(&result, field));
            assert_eq!(sent + dropped, 101, "{result:#}");
            assert!(dropped == 0 || more[0] == "--overload");
            let nothing = ["lost", "wrong", "left"].map(|field| number(&result, field));
            assert_eq!(nothing, [0; 3]);
            let distribution = &result["distribution"];
            // Those that came first do not count.
            assert!(number(distribution, "events") >= sent - 10);
            assert!(number(distribution, "events") < sent);
            let percentiles = ["p50_us", "p90_us", "p99_us", "p999_us", "longest_us"];
            let percentiles = percentiles.map(|name| distribution[name].as_f64().unwrap());
            assert!(
                percentiles[0] > 0.0 && percentiles.is_sorted(),
                "{result:#}"
            );
        }
    }
}

#[test]
fn events_that_come_too_fast_are_held_or_dropped_and_counted() {
    // All of them are there before the first primitive is.
    let flood = ["--rates", "100000000", "--ways", "2", "--slots", "2"];
    let flood = [&flood[..], &["--events", "120", "--warm-up", "0"]].concat();
    for held in measured(&flood) {
        assert_eq!(number(&held, "sent"), 120, "{held:#}");
        assert_eq!(number(&held, "dropped"), 0);
        assert!(number(&held, "held") > 0);
    }
    for dropped in measured(&[&flood[..], &["--overload", "drop"]].concat()) {
        assert_eq!(number(&dropped, "held"), 0, "{dropped:#}");
        assert!(number(&dropped, "dropped") > 0);
        let counted = ["sent", "dropped"].map(|field| number(&dropped, field));
        assert_eq!(counted.iter().sum::<u64>(), 120);
    }
    // Time ends the flood, and says what it left.
    let output = run(DAQ, &[&flood[..4], &["--seconds", "0.05"]].concat());
    let lines = String::from_utf8(output.stdout).unwrap();
    let named = "at 100000000 events/s the persistent receiver";
    let line = lines.lines().find(|line| line.contains(named)).unwrap();
    assert!(line.contains("not sent when time was over"), "{lines}");
    assert!(output.status.success());
}

#[test]
fn one_receiver_alone_is_measured() {
    for (receiver, driver) in [("classic", "host"), ("persistent", "kernel")] {
        let few = ["--rates", "1000", "--events", "20", "--json"];
        let document = document(&run(DAQ, &[&few[..], &["--receiver", receiver]].concat()));
        assert_verified(&document, 1);
        assert_eq!(document["measured"][0]["driver"], driver);
        assert_eq!(document["verdicts"].as_array().unwrap().len(), 0);
    }
}

#[test]
fn bad_arguments_are_refused() {
    for wrong in [
        &["--rates", "99"][..],
        &["--rates", "100000001"],
        &["--ways", "0"],
        &["--ways", "33"],
        &["--slots", "0"],
        &["--slots", "24"],
        &["--slots", "2048"],
        &["--events", "0"],
        &["--seconds", "0"],
        &["--overload", "wait"],
    ] {
        let output = run(DAQ, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    let slots = run(DAQ, &["--slots", "24"]);
    let line = String::from_utf8(slots.stderr).unwrap();
    assert!(line.contains("choose a power of two up to 1024"), "{line}");
}

#[test]
fn ctrl_c_shows_what_was_measured_so_far() {
    let arguments = ["--rates", "200", "--seconds", "600"];
    let rows = interrupted(DAQ, &arguments, "p99.9 µs");
    let whole = rows.iter().any(|row| row.contains("persistent"));
    assert!(!whole, "{rows:?}");
}
