//! Where kernels run and which NIC it is: what is missing ends in one clear line; and Ctrl-C.

use std::io::{BufRead, BufReader};
use std::process::Command;

use crate::common::{error_line, failure};
use crate::{command, run};

const PINGPONG: &str = "pingpong";
const BANDWIDTH: &str = "bandwidth";
const PLACEMENT: &str = "placement";

#[test]
fn a_machine_without_a_gpu_says_so() {
    for binary in [PINGPONG, BANDWIDTH, PLACEMENT] {
        // On a machine that has GPUs, this is one too many.
        let output = run(binary, &["--on", "gpu", "--gpu", "77", "--json"]);
        assert!(output.stdout.is_empty());
        let line = failure(&output);
        let missing = ["no NVIDIA driver", "no GPU", "there is no GPU 77"];
        assert!(missing.iter().any(|words| line.contains(words)), "{line}");
    }
}

#[test]
fn a_gpu_for_a_nic_that_is_on_none_is_refused() {
    for (machine, missing) in [
        ("--on cpu", true),
        ("--on cpu --nic soft-gpu", true),
        ("--on gpu", true),
        ("--on gpu --nic soft-host", true),
        // What this one lacks is a driver, or so many GPUs.
        ("--on gpu --nic soft-gpu", false),
    ] {
        let arguments: Vec<_> = machine.split(' ').chain(["--nic-gpu", "77"]).collect();
        for binary in [PINGPONG, BANDWIDTH, PLACEMENT] {
            let output = run(binary, &arguments);
            assert!(output.stdout.is_empty());
            let line = failure(&output);
            let words = "--nic-gpu names the GPU of --on gpu --nic soft-gpu; choose those";
            assert_eq!(line.contains(words), missing, "{machine}: {line}");
        }
    }
}

#[test]
fn ctrl_c_ends_a_run_with_what_was_measured_so_far() {
    let sizes = vec!["8"; 5000].join(",");
    let mut child = command(PINGPONG, &["--sizes", &sizes, "--rounds", "1000"])
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut rows = lines
        .map(Result::unwrap)
        .skip_while(|line| !line.contains("median  "));
    assert!(
        rows.nth(3).unwrap().contains("1000"),
        "the third row is measured"
    );
    let process = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &process]).status();
    assert!(sent.unwrap().success());
    assert!(rows.count() < 4990, "it ends early");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let line = error_line(&output);
    assert!(
        line.contains("interrupted; the results so far are shown"),
        "{line}"
    );
}
