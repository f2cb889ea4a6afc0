//! The ways by which a kernel knows that data is there.

use crate::common::{assert_verified, document, failure};
use crate::run;

const INBOUND: &str = "inbound";
const SHORT: [&str; 6] = ["--rounds", "30", "--warm-up", "2", "--sizes", "1,300,5000"];

#[test]
fn every_way_holds_where_writes_keep_their_order() {
    for (nic, who) in [("soft", "thread"), ("soft-gpu", "warp"), ("soft", "block")] {
        let rest = ["--nic", nic, "--who", who, "--threads", "40", "--json"];
        let document = document(&run(INBOUND, &[&SHORT[..], &rest].concat()));
        assert_verified(&document, 33);
        let rows = document["rows"].as_array().unwrap();
        for row in rows {
            assert_eq!((&row["stale"], &row["holds"]), (&0.into(), &true.into()));
            assert!(row["reader"].as_u64().is_some() && row["one_way_ns"].as_u64() > Some(0));
        }
        // 75 values of four bytes: a word each, 15 in a line, 62 in 256 bytes.
        let written: Vec<_> = rows[11..22]
            .iter()
            .map(|row| row["written"].as_u64())
            .collect();
        assert_eq!(written[..8], [Some(300); 8]);
        assert_eq!(written[8..], [Some(600), Some(320), Some(512)]);
    }
}

#[test]
fn without_luck_some_do_not() {
    for (piece, holding) in [("64", 7), ("8", 6)] {
        let rest = ["--unlucky", "--piece", piece, "--who", "thread", "--json"];
        let document = document(&run(INBOUND, &[&SHORT[..], &rest].concat()));
        assert_verified(&document, 33);
        let rows = document["rows"].as_array().unwrap();
        let (hold, do_not): (Vec<_>, Vec<_>) =
            rows.iter().partition(|row| row["holds"].as_bool().unwrap());
        assert_eq!(hold.len(), 3 * holding);
        assert!(hold.iter().all(|row| row["stale"] == 0));
        let stale: u64 = do_not
            .iter()
            .map(|row| row["stale"].as_u64().unwrap())
            .sum();
        assert!(stale > 0, "nothing stale was seen");
    }
}

#[test]
fn bad_arguments_are_refused() {
    for wrong in [&["--sizes", "0"][..], &["--rounds", "0"], &["--piece", "0"]] {
        assert_eq!(run(INBOUND, wrong).status.code(), Some(2), "{wrong:?}");
    }
    let output = run(INBOUND, &["--nic", "soft-gpu", "--unlucky"]);
    assert!(failure(&output).contains("soft-host"));
}
