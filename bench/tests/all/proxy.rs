//! Puts straight to the NIC and by way of a proxy.

use crate::common::{assert_energy, assert_verified, document, failure};
use crate::run;
use warpbell_host_init::cores;

const PROXY: &str = "proxy";

#[test]
fn every_put_arrives_with_and_without_a_proxy() {
    for nic in ["soft", "soft-gpu"] {
        let small = ["--groups", "3", "--threads", "5", "--rounds", "70"];
        let rest = ["--nic", nic, "--singles", "40", "--depth", "16"];
        let drains = ["--drains", "1,2", "--json"];
        let output = run(PROXY, &[&small[..], &rest, &drains].concat());
        let document = document(&output);
        assert_verified(&document, 10);
        assert_energy(&document, "puts");
        let puts = document["puts"].as_array().unwrap();
        let threads: Vec<_> = puts
            .iter()
            .map(|put| put["drain_threads"].as_u64())
            .collect();
        assert_eq!(threads, [0, 0, 1, 1, 2, 2, 1, 1, 2, 2].map(Some));
        let indices: Vec<_> = puts.iter().map(|put| put["indices"].as_bool()).collect();
        assert_eq!(indices[..6], [Some(false); 6]);
        assert_eq!(indices[6..], [Some(true); 4]);
        for put in puts {
            let alone = put["one_at_a_time"].as_bool().unwrap();
            let posts = if alone { 40 } else { 3 * 5 * 70 };
            assert_eq!(put["posts"], posts);
            let doorbells = put["doorbells"].as_u64().unwrap();
            let expected = match put["drain_threads"].as_u64() {
                Some(0) => 0..=0,
                _ => 1..=posts,
            };
            assert!(expected.contains(&doorbells), "{put}");
            let rate = put["posts_per_second"].as_f64().unwrap();
            let seconds = put["seconds"].as_f64().unwrap();
            assert!((rate * seconds / posts as f64 - 1.0).abs() < 1e-9);
            if alone {
                let us = put["us_per_round"].as_f64().unwrap();
                assert!((us * 40.0 / seconds / 1e6 - 1.0).abs() < 1e-9, "{put}");
            }
        }
    }
}

/// Of several groups each takes no longer than all of them.
#[test]
fn one_at_a_time_is_measured_for_each_number_of_threads() {
    let small = ["--groups", "1", "--threads", "1", "--rounds", "1"];
    let waiting = ["--waiting-groups", "3", "--waiting-threads", "1,5,2"];
    let rest = ["--singles", "30", "--drains", "1", "--json"];
    let document = document(&run(PROXY, &[&small[..], &waiting, &rest].concat()));
    assert_verified(&document, 3 * 4);
    for puts in document["puts"].as_array().unwrap().chunks(4) {
        for (put, threads) in puts[1..].iter().zip([1, 5, 2]) {
            assert_eq!(put["threads"], threads);
            assert_eq!(put["posts"], 3 * threads * 30);
            let us = put["us_per_round"].as_f64().unwrap();
            let all = put["seconds"].as_f64().unwrap() * 1e6;
            assert!(us > 0.0 && us * 30.0 <= all, "{put}");
        }
    }
}

/// The payloads of each size are compared, word for word, by the program.
#[test]
fn each_size_is_put_by_one_thread() {
    let small = ["--groups", "1", "--threads", "1", "--rounds", "1"];
    let sizes = ["--waiting-threads", "2", "--sizes", "8,72,4K"];
    let rest = ["--singles", "30", "--drains", "1", "--json"];
    for nic in ["soft", "soft-gpu"] {
        let arguments = [&small[..], &sizes, &rest, &["--nic", nic]].concat();
        let document = document(&run(PROXY, &arguments));
        assert_verified(&document, 3 * 5);
        for puts in document["puts"].as_array().unwrap().chunks(5) {
            let found = |field| puts.iter().map(move |put| put[field].as_u64().unwrap());
            assert!(found("bytes").eq([8, 8, 8, 72, 4096]));
            assert!(found("threads").eq([1, 2, 1, 1, 1]));
            assert!(found("posts").eq([1, 60, 30, 30, 30]));
        }
    }
}

#[test]
fn lines_in_memory_are_used_beside_threads_that_read() {
    let small = ["--groups", "2", "--threads", "3", "--rounds", "50"];
    let rest = ["--singles", "20", "--drains", "1", "--json"];
    let lines = ["--producer-line", "memory", "--streaming", "64K"];
    let document = document(&run(PROXY, &[&small[..], &rest, &lines].concat()));
    assert_verified(&document, 6);
    for put in document["puts"].as_array().unwrap() {
        assert_eq!(put["producer_line"], "memory");
        assert_eq!(put["streamed"], 65_536);
        assert!(put["passes"].as_u64().unwrap() > 0, "{put}");
    }
    // A CPU locks no lines.
    let output = run(
        PROXY,
        &[&small[..], &rest, &["--producer-line", "locked"]].concat(),
    );
    let line = failure(&output);
    assert!(
        line.contains("--producer-line locked needs a GPU's L2 cache"),
        "{line}"
    );
}

#[test]
fn threads_have_the_cores_that_were_chosen() {
    let core = cores::allowed().unwrap()[0].to_string();
    let small = ["--groups", "1", "--threads", "2", "--rounds", "20"];
    let rest = ["--singles", "3", "--drains", "2", "--json"];
    let output = run(PROXY, &[&small[..], &rest, &["--cores", &core]].concat());
    let document = document(&output);
    assert_verified(&document, 6);
    for put in document["puts"].as_array().unwrap() {
        let cores = put["cores"].as_array().unwrap();
        let direct = put["drain_threads"] == 0;
        let expected = if direct { vec![] } else { vec![&core[..]] };
        let cores: Vec<_> = cores.iter().map(ToString::to_string).collect();
        assert_eq!(cores, expected, "{put}");
    }
    let output = run(PROXY, &[&small[..], &["--cores", "1000000"]].concat());
    let line = failure(&output);
    assert!(line.contains("core 1000000 is none of the"), "{line}");
}

#[test]
fn bad_arguments_are_refused() {
    for wrong in [
        &["--groups", "0"][..],
        &["--threads", "0"],
        &["--rounds", "0"],
        &["--drains", "many"],
        &["--cores", "first"],
        &["--waiting-groups", "0"],
        &["--waiting-threads", "1,0"],
        &["--sizes", "12"],
        &["--sizes", "8,0"],
        &["--streaming", "100"],
        &["--producer-line", "here"],
    ] {
        let output = run(PROXY, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
    let few = [
        "--groups",
        "1",
        "--threads",
        "1",
        "--rounds",
        "1",
        "--singles",
        "1",
    ];
    let output = run(PROXY, &[&few[..], &["--drains", "65", "--json"]].concat());
    assert!(failure(&output).contains("65 threads; a proxy has 1 to 64"));
    // A group of n threads takes n blocks at once, which may be half of the ring.
    let output = run(PROXY, &["--threads", "64", "--depth", "64", "--json"]);
    failure(&output);
}
