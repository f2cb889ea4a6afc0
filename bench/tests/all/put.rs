//! A put behind an empty kernel, in each way that a CPU has.

use crate::common::{assert_verified, document};
use crate::run;

const PUT: &str = "put";

#[test]
fn each_way_has_a_time_line() {
    for nic in ["soft", "soft-gpu"] {
        let shape = ["--nic", nic, "--rounds", "20", "--warm-up", "3"];
        let document = document(&run(
            PUT,
            &[&shape[..], &["--words", "33", "--json"]].concat(),
        ));
        assert_verified(&document, 3);
        assert_eq!(document["bytes"], 264);
        let puts = document["puts"].as_array().unwrap();
        let ways: Vec<_> = puts
            .iter()
            .map(|put| put["way"].as_str().unwrap())
            .collect();
        assert_eq!(ways, ["host", "triggered", "kernel"], "a CPU has no stream");
        for put in puts {
            let of = |point: &str| put["median"][point].as_u64().unwrap();
            let begun = of("begun_ns");
            // Each kernel begins before it ends, and before anybody sends.
            assert!(0 < begun && begun <= of("ended_ns"), "{put}");
            assert!(begun <= of("visible_ns"), "{put}");
            if put["way"] == "host" {
                // By another thread's clock reading than the kernel's marks.
                assert!(of("returned_ns") < of("sent_ns"), "{put}");
                assert!(of("returned_ns") < of("visible_ns"), "{put}");
            } else {
                assert!(begun <= of("sent_ns"), "{put}");
            }
        }
    }
}

#[test]
fn the_table_names_the_way_that_is_not_there() {
    let output = run(PUT, &["--nic", "soft", "--rounds", "2", "--warm-up", "0"]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        text.contains("stream-ordered  no streams on a CPU"),
        "{text}"
    );
}

#[test]
fn bad_arguments_are_refused() {
    for wrong in [
        &["--rounds", "0"][..],
        &["--words", "0"],
        &["--words", "8193"],
    ] {
        assert_eq!(run(PUT, wrong).status.code(), Some(2), "{wrong:?}");
    }
}
