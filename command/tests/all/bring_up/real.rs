//! The real programs, which Cargo builds beside `warpbell` with the workspace. Where they are not built, nothing is tested,
//! which is said: `cargo test -p warpbell-command` alone builds none of them. The steps `dist` and `flash` of
//! `cargo xtask test` run them in any case.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{bring_up, output, step, write_program};

const NEEDED: [&str; 3] = ["warpbell-doctor", "warpbell-launch", "demo"];

/// The document of a run with software NICs, if the programs are there.
fn document(arguments: &[&str]) -> Option<Value> {
    let folder = Path::new(env!("CARGO_BIN_EXE_warpbell")).parent().unwrap();
    if let Some(missing) = NEEDED.iter().find(|name| !folder.join(name).exists()) {
        println!("not tested: {missing} is not built");
        return None;
    }
    let mut command = bring_up();
    command.args(["--quick", "--nic", "soft-host", "--json", "--names"]);
    let (status, stdout, stderr) = output(command.args(arguments));
    assert_eq!(status, Some(0), "{stdout}{stderr}");
    Some(serde_json::from_str(&stdout).unwrap())
}

fn lines(step: &Value) -> Vec<&str> {
    let lines = step["output"].as_array().unwrap().iter();
    lines.map(|line| line.as_str().unwrap()).collect()
}

#[test]
fn the_doctors_command_can_be_pasted() {
    let Some(document) = document(&["--steps", "doctor"]) else {
        return;
    };
    assert!(!document["findings"].as_array().unwrap().is_empty());
    let command = step(&document, "doctor")["command"].as_str().unwrap();
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    let pasted: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = |document: &Value| document["findings"].as_array().unwrap().len();
    assert_eq!(found(&pasted), found(&document));
}

/// The other node is this machine, too: a script carries the commands in place of ssh.
#[test]
fn kernels_here_reach_kernels_on_another_node() {
    let folder = tempfile::tempdir().unwrap();
    let rsh = folder.path().join("rsh");
    write_program(
        &rsh,
        "#!/bin/sh\n[ \"$1\" = node2 ] || exit 255\nshift\nexec sh -c \"$*\"\n",
    );
    let rsh = rsh.to_str().unwrap();
    let options = [
        "--steps",
        "cpu,two-nodes",
        "--address",
        "127.0.0.1",
        "--node",
    ];
    let Some(document) = document(&[&options[..], &["node2", "--rsh", rsh]].concat()) else {
        return;
    };
    assert_eq!(step(&document, "cpu")["verdict"], "passed");
    let nodes = step(&document, "two-nodes");
    assert_eq!(nodes["verdict"], "passed");
    assert!(
        lines(nodes).last().unwrap().contains("every byte verified"),
        "{nodes}"
    );
}
