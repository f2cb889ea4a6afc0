//! SimGrid runs the same schedules on the same star, and agrees on the time (`simgrid.cpp`; Debian's `libsimgrid-dev`).
//!
//! SimGrid shares a link equally among the messages on it, and here the first goes first. So both agree on the time of a
//! schedule where messages that share a link are all needed next. In a tree of many pieces they are not: there the first
//! child can go on while the second still waits.

use std::path::{Path, PathBuf};
use std::process::Command;

use warpbell_cluster::driver::Driver;
use warpbell_cluster::generate::{self, Algorithm, Reduction};
use warpbell_cluster::goal::Schedule;
use warpbell_cluster::simulate::{Cluster, run};
use warpbell_cluster::topology::Topology;

/// The judge's program.
fn judge() -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simgrid.cpp");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("simgrid-judge");
    let built = Command::new("g++")
        .arg("-std=c++17")
        .arg(source)
        .arg("-lsimgrid")
        .arg("-o")
        .arg(&program)
        .status();
    assert!(built.unwrap().success(), "simgrid.cpp does not compile");
    program
}

/// The end of a schedule, in seconds: by the judge, and here with nothing but links.
fn ends(judge: &Path, name: &str, schedule: Schedule) -> (f64, f64) {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("judged-{name}.goal"));
    std::fs::write(&file, schedule.to_string()).unwrap();
    let output = Command::new(judge)
        .arg(file)
        .args(["100", "100"])
        .args(["--cfg=network/model:CM02", "--cfg=network/crosstraffic:0"])
        .output()
        .unwrap();
    let judged = String::from_utf8(output.stdout).unwrap();
    let judged = judged.trim().parse().expect(&judged);

    let topology = Topology::star(schedule.ranks().len());
    let cluster = Cluster {
        topology,
        parameters: super::simulation::bare(),
        driver: Driver::Kernel,
        seed: 1,
    };
    let end = run(&cluster, schedule.check().unwrap()).unwrap().end();
    (judged, end.picoseconds() as f64 / 1e12)
}

#[test]
#[ignore = "needs SimGrid (libsimgrid-dev) and g++"]
fn simgrid_agrees() {
    let judge = judge();
    let reduce = |ranks, algorithm, chunk| {
        let reduction = Reduction {
            algorithm,
            bytes: 4 << 20,
            chunk,
            memory: 4800.0,
        };
        generate::all_reduce(ranks, &reduction).unwrap()
    };
    for ranks in [2, 4, 8, 16] {
        let all = u64::MAX;
        for (name, schedule, within) in [
            ("ring", reduce(ranks, Algorithm::Ring, 1 << 16), 0.1),
            ("doubling", reduce(ranks, Algorithm::Doubling, 1 << 16), 0.1),
            // Nothing shares a link here.
            ("ring-whole", reduce(ranks, Algorithm::Ring, all), 0.001),
            (
                "doubling-whole",
                reduce(ranks, Algorithm::Doubling, all),
                0.001,
            ),
            (
                "all-to-all",
                generate::all_to_all(ranks, 1 << 20).unwrap(),
                0.001,
            ),
            (
                "jacobi",
                generate::jacobi(ranks, 4096, 10, 4800.0).unwrap(),
                0.001,
            ),
        ] {
            let (judged, here) = ends(&judge, name, schedule);
            let ratio = here / judged;
            assert!(
                (ratio - 1.0).abs() < within,
                "{name}, {ranks} ranks: {here} s, SimGrid {judged} s"
            );
        }
    }
}
