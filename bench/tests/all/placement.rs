//! Where queues lie.

use crate::common::{assert_verified, document, failure};
use crate::run;

const PLACEMENT: &str = "placement";

#[test]
fn measures_the_places_that_kernels_and_nic_reach() {
    let picture =
        std::env::temp_dir().join(format!("warpbell-placement-{}.svg", std::process::id()));
    for nic in ["soft", "soft-gpu"] {
        let small = ["--nic", nic, "--sizes", "8,4K", "--messages", "50"];
        let rest = ["--repetitions", "2", "--json", "--svg"];
        let path = [picture.to_str().unwrap()];
        let output = run(PLACEMENT, &[&small[..], &rest, &path].concat());
        let document = document(&output);
        assert_verified(&document, 2);
        for (result, bytes) in document["results"]
            .as_array()
            .unwrap()
            .iter()
            .zip([8, 4096])
        {
            assert_eq!(result["bytes"], bytes);
            assert_eq!(
                (&result["rings"], &result["completions"]),
                (&"host".into(), &"host".into())
            );
            let of = |field: &str| result[field].as_f64().unwrap();
            assert!(of("latency_us") > 0.0);
            let rate = of("million_per_s") * bytes as f64 / 1e3;
            assert!((of("gb_per_s") - rate).abs() < 1e-9 * rate);
        }
        let unreached = document["unreached"].as_array().unwrap();
        assert_eq!(unreached.len(), 3);
        assert!(
            unreached
                .iter()
                .all(|place| place["why"] == "kernels on the CPU know no GPU memory")
        );
        let drawn = std::fs::read_to_string(&picture).unwrap();
        std::fs::remove_file(&picture).unwrap();
        assert!(drawn.contains("rings host, CQ host"));
    }
}

#[test]
fn bad_arguments_are_refused() {
    for wrong in [
        &["--sizes", "4"][..],
        &["--repetitions", "0"],
        &["--messages", "0"],
    ] {
        let output = run(PLACEMENT, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
        assert!(!output.stderr.is_empty());
    }
    let output = run(PLACEMENT, &["--depth", "24", "--json"]);
    assert!(failure(&output).contains("use 16 or 32"));
}

#[test]
fn a_case_alone_is_measured_alone() {
    let small = [
        "--sizes",
        "8",
        "--messages",
        "20",
        "--repetitions",
        "1",
        "--json",
    ];
    let places = |case: &str| {
        let document = document(&run(PLACEMENT, &[&small[..], &["--case", case]].concat()));
        let count = |list: &str| document[list].as_array().unwrap().len();
        (count("results"), count("unreached"))
    };
    assert_eq!(places("rings host"), (1, 1));
    assert_eq!(places("CQ gpu"), (0, 2));
}
