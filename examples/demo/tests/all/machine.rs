//! Where kernels run and which NIC it is: what is missing ends in one clear line.

use crate::DEMO;
use crate::common::{error_line, run};

#[test]
fn a_machine_without_a_gpu_says_so() {
    // On a machine that has GPUs, this is one too many.
    let output = run(DEMO, &["--on", "gpu", "--gpu", "77", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let line = error_line(&output);
    let missing = ["no NVIDIA driver", "no GPU", "there is no GPU 77"];
    assert!(missing.iter().any(|words| line.contains(words)), "{line}");
}

#[test]
fn a_nic_that_does_not_work_with_the_kernels_is_refused() {
    for (on, nic, able) in [
        ("cpu", "soft-host", "soft or soft-gpu"),
        ("gpu", "soft", "soft-host or soft-gpu"),
    ] {
        let output = run(DEMO, &["--on", on, "--nic", nic]);
        assert_eq!(output.status.code(), Some(1));
        let line = error_line(&output);
        let wanted =
            format!("the NIC {nic} does not work with kernels on the {on}; choose --nic {able},");
        assert!(line.contains(&wanted), "{line}");
    }
    let output = run(DEMO, &["--on", "tpu"]);
    assert_eq!(output.status.code(), Some(2));
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
        let output = run(DEMO, &arguments);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
        let line = error_line(&output);
        let words = "--nic-gpu names the GPU of --on gpu --nic soft-gpu; choose those";
        assert_eq!(line.contains(words), missing, "{machine}: {line}");
    }
}

#[test]
fn a_file_that_is_no_ptx_of_the_kernels_is_refused() {
    let foreign = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    for (path, words) in [
        (foreign, "has none of the kernels"),
        ("missing.ptx", "missing.ptx cannot be read"),
    ] {
        let output = run(DEMO, &["--on", "gpu", "--ptx", path]);
        assert_eq!(output.status.code(), Some(1));
        let line = error_line(&output);
        assert!(line.contains(words), "{line}");
    }
}
