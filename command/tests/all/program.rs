//! The program: what it prints, its status, and its JSON.

use std::io::Write;
use std::process::{Command, Output, Stdio};

const NOP: &str = "00000700 00123401 00000008 00000000";

fn run(arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpbell"));
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that refuses its arguments reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_wqe_is_printed_and_has_status_0() {
    let (status, stdout, stderr) = run(&["decode"], NOP);
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    for line in [
        "Shown as wqe.",
        "send WQE 0x0007: NOP of queue pair 0x001234, 1 block",
        "signalled",
    ] {
        assert!(stdout.contains(line), "{stdout}");
    }
}

#[test]
fn an_error_is_status_1_and_no_bytes_are_status_2() {
    let (status, stdout, _) = run(
        &["decode", "-k", "wqe"],
        &NOP.replace("01 00000008", "00 00000008"),
    );
    assert_eq!(status, Some(1));
    assert!(stdout.contains("error: byte 0x4: ds is 0"), "{stdout}");
    let (status, stdout, stderr) = run(&["decode"], "");
    assert_eq!((status, stdout.as_str()), (Some(2), ""));
    assert_eq!(
        stderr,
        "error: standard input is empty: there is nothing to decode\n"
    );
    for (arguments, why) in [
        (
            &["decode", "--stride", "48"][..],
            "a stride is 16, 32, 64, 128, 256 or 512",
        ),
        (
            &["decode", "--qpn", "0xq"],
            "give a number such as 77 or 0x4d",
        ),
        (
            &["decode", "--answers", "CREATE"],
            "the commands are QUERY_HCA_CAP, CREATE_CQ",
        ),
        (
            &["decode", "--kind", "wq"],
            "possible values: wqe, recv-wqe",
        ),
    ] {
        let (status, _, stderr) = run(arguments, NOP);
        assert_eq!(status, Some(2), "{stderr}");
        assert!(stderr.contains(why), "{stderr}");
    }
}

/// The names that `docs/decode.md` states.
#[test]
fn the_json_has_the_stated_schema() {
    let (status, stdout, _) = run(&["decode", "--json"], NOP);
    assert_eq!(status, Some(0));
    let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (&report["format"], &report["bytes"], &report["kind"]),
        (&1.into(), &16.into(), &"wqe".into())
    );
    assert_eq!(report["candidates"][0]["kind"], "wqe");
    assert!(report["candidates"][0]["why"].is_string());
    let wqe = &report["structures"][0];
    assert_eq!((&wqe["offset"], &wqe["bytes"]), (&0.into(), &16.into()));
    assert!(
        wqe["title"].is_string() && wqe["findings"].is_array() && report["findings"].is_array()
    );
    let index = wqe["fields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|field| field["name"] == "WQE index")
        .unwrap();
    let expected = serde_json::json!({
        "offset": 0, "bytes": 4, "bits": [23, 8], "name": "WQE index", "raw": "0x0007",
        "meaning": "block 7, modulo 65,536",
    });
    assert_eq!(index, &expected);
    let (_, stdout, _) = run(&["decode", "--json", "-k", "wqe", "--qpn", "1"], NOP);
    let report: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let finding = &report["structures"][0]["findings"][0];
    assert_eq!(
        (&finding["severity"], &finding["offset"]),
        (&"error".into(), &4.into())
    );
    assert!(finding["text"].is_string());
}

#[test]
fn output_that_a_full_device_refuses_is_an_error() {
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_warpbell"));
    let output = command
        .arg("decode")
        .arg("/proc/self/status")
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        stderr,
        "error: cannot print: No space left on device (os error 28)\n"
    );
}
