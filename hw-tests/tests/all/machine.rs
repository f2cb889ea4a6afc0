//! What a test of the suite refuses before it begins.

use std::process::Command;

#[test]
fn a_gpu_for_a_nic_that_is_on_none_is_refused() {
    for machine in [
        "--on cpu",
        "--on cpu --nic soft-gpu",
        "--on gpu",
        "--on gpu --nic soft-host",
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_suite"))
            .arg("verbs")
            .args(machine.split(' '))
            .args(["--nic-gpu", "1"])
            .output()
            .expect("the test starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{machine}: {said}");
        assert_eq!(
            said,
            "error: --nic-gpu names the GPU of --on gpu --nic soft-gpu; choose those, or leave it out\n"
        );
    }
}
