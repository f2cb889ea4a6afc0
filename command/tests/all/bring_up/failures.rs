//! Each step's failure, and each way in which a program can fail.

use std::fs::{self, OpenOptions};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Folder, bring_up, diagnosis, finding, line_of, output, step, verdicts, wait_for};

/// Fails for the arguments that this pattern of a shell matches.
fn failing(pattern: &str, otherwise: &str) -> String {
    format!("case \"$*\" in {pattern}) echo 'error: it broke' >&2; exit 3 ;; esac; {otherwise}")
}

const VERIFIED: &str = "echo 'every byte verified'";

#[test]
fn each_step_that_fails_says_why_and_what_to_do_and_ends_what_is_built_on_it() {
    let all = [
        "doctor",
        "cpu",
        "two-nodes",
        "gpu-host-memory",
        "gpu-memory",
        "two-gpus",
        "suite",
        "latency",
        "bandwidth",
    ];
    let cases: [(&str, &str, String, &[&str], &str); 9] = [
        (
            "doctor",
            "warpbell-doctor",
            "echo no report; exit 3".into(),
            &[],
            "as root once",
        ),
        (
            "cpu",
            "demo",
            failing("'--nic mlx5_0'", VERIFIED),
            &[
                "two-nodes",
                "gpu-host-memory",
                "gpu-memory",
                "two-gpus",
                "suite",
                "latency",
                "bandwidth",
            ],
            "`ibv_devinfo` must list it",
        ),
        (
            "two-nodes",
            "warpbell-launch",
            failing("*'demo --nic'*", VERIFIED),
            &["two-gpus"],
            "Try `ssh NODE true`",
        ),
        (
            "gpu-host-memory",
            "demo",
            failing("*--host-memory", VERIFIED),
            &["gpu-memory", "two-gpus"],
            "PeerMappingOverride=1",
        ),
        (
            "gpu-memory",
            "demo",
            failing("'--on gpu --nic mlx5_0'", VERIFIED),
            &["two-gpus"],
            "nvidia_peermem",
        ),
        (
            "two-gpus",
            "warpbell-launch",
            failing("*'--on gpu'*", VERIFIED),
            &[],
            "on the other node, too",
        ),
        ("suite", "suite", failing("*", ""), &[], "Run it alone"),
        (
            "latency",
            "bench",
            failing("pingpong*", ""),
            &[],
            "while nothing else runs",
        ),
        (
            "bandwidth",
            "bench",
            failing("bandwidth*", ""),
            &[],
            "while nothing else runs",
        ),
    ];
    assert_eq!(cases.each_ref().map(|case| case.0), all);
    for (name, program, script, dependants, remedy) in &cases {
        let folder = Folder::new();
        folder.script(program, script);
        let (status, document) = folder.document(&["--nic", "mlx5_0", "--node", "node2"]);
        assert_eq!(
            (status, &document["verdict"]),
            (Some(1), &json!("failed")),
            "{name}"
        );
        let failed = step(&document, name);
        assert_eq!(failed["why"], "it ended with status 3", "{failed}");
        let words = if *name == "doctor" {
            "no report"
        } else {
            "error: it broke"
        };
        assert_eq!(failed["output"], json!([words]), "{name}");
        assert!(
            failed["remedy"].as_str().unwrap().contains(remedy),
            "{failed}"
        );
        let expected = all.map(|step| match step {
            step if step == *name => "failed",
            step if dependants.contains(&step) => "skipped",
            _ => "passed",
        });
        assert_eq!(verdicts(&document), expected, "{name}");
        for dependant in *dependants {
            let why = step(&document, dependant)["why"].as_str().unwrap();
            assert!(why.ends_with(", which has not passed"), "{why}");
        }
    }
}

/// What is wrong with the program of the first step that needs no doctor: why, and what to do.
fn wrong(prepare: impl FnOnce(&Folder), options: &[&str]) -> (Value, Value) {
    let folder = Folder::new();
    prepare(&folder);
    let (status, document) = folder.document(&[options, &["--names"]].concat());
    assert_eq!(status, Some(1));
    let cpu = step(&document, "cpu");
    assert_eq!(cpu["verdict"], "failed");
    (cpu["why"].clone(), cpu["remedy"].clone())
}

#[test]
fn a_program_fails_in_each_of_these_ways() {
    let (why, remedy) = wrong(
        |folder| fs::remove_file(folder.path().join("demo")).unwrap(),
        &[],
    );
    let why = why.as_str().unwrap();
    assert!(
        why.ends_with("/demo does not start: No such file or directory (os error 2)"),
        "{why}"
    );
    assert!(
        remedy
            .as_str()
            .unwrap()
            .ends_with("cargo build -p warpbell-demo"),
        "{remedy}"
    );

    let (why, remedy) = wrong(|folder| folder.script("demo", "kill -9 $$"), &[]);
    assert_eq!(why, "signal 9 killed it");
    assert!(
        remedy.as_str().unwrap().contains("memory is short"),
        "{remedy}"
    );

    let (why, remedy) = wrong(|folder| folder.script("demo", "kill -11 $$"), &[]);
    assert_eq!(why, "signal 11 killed it");
    assert_eq!(remedy, "This is a bug. Please send us the report.");

    let (why, remedy) = wrong(
        |folder| folder.script("demo", "echo of another version"),
        &[],
    );
    assert_eq!(
        why,
        "it ended with status 0, but did not print \"every byte verified\""
    );
    assert!(
        remedy
            .as_str()
            .unwrap()
            .contains("Copy the whole folder again"),
        "{remedy}"
    );
}

/// Neither the program nor what it has started lives on, whichever of them holds the pipe.
#[test]
fn a_program_that_hangs_is_ended_at_the_deadline() {
    let folder = Folder::new();
    let (one, other) = (folder.path().join("one"), folder.path().join("other"));
    let script = format!(
        "trap '' TERM; sleep 3000 & echo $! >'{}'; echo $$ >'{}'; echo begun; wait; wait",
        one.display(),
        other.display()
    );
    folder.script("demo", &script);
    let (status, document) = folder.document(&["--deadline", "1", "--steps", "cpu,suite"]);
    assert_eq!(status, Some(1));
    let cpu = step(&document, "cpu");
    assert_eq!(cpu["why"], "it did not end within 1 s");
    assert_eq!(cpu["output"], json!(["begun"]));
    assert!(
        cpu["remedy"].as_str().unwrap().contains("--deadline"),
        "{cpu}"
    );
    assert_eq!(step(&document, "suite")["verdict"], "skipped");
    wait_for(&line_of(&one));
    wait_for(&line_of(&other));
}

#[test]
fn ctrl_c_ends_the_program_and_the_steps_but_not_the_report() {
    let folder = Folder::new();
    let (begun, report) = (
        folder.path().join("begun"),
        folder.path().join("report.json"),
    );
    folder.hanging("demo", &begun);
    let mut command = folder.command(&["--report"]);
    let mut child = command
        .arg(&report)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let process = line_of(&begun);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let stderr = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    assert_eq!(
        stderr,
        "error: ended by Ctrl-C; the steps that are left were not run\n"
    );
    wait_for(&process);
    let document: Value = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
    assert_eq!(document["verdict"], "interrupted");
    assert_eq!(step(&document, "doctor")["verdict"], "passed");
    assert_eq!(step(&document, "cpu")["why"], "Ctrl-C ended it");
    assert_eq!(step(&document, "suite")["why"], "Ctrl-C came before it");
    assert!(!folder.log().iter().any(|line| line.starts_with("suite")));
}

#[test]
fn a_bring_up_that_is_killed_leaves_no_program_running() {
    let folder = Folder::new();
    let begun = folder.path().join("begun");
    folder.hanging("demo", &begun);
    let mut command = folder.command(&["--steps", "cpu"]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let process = line_of(&begun);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for(&process);
}

#[test]
fn what_the_doctor_misses_is_listed_with_its_remedies_and_the_steps_go_on() {
    let folder = Folder::new();
    let mut report = diagnosis();
    report["ready"] = false.into();
    let findings = report["findings"].as_array_mut().unwrap();
    findings.push(finding("peer-mapping", "missing", None));
    findings.push(finding("link", "unknown", Some("mlx5_0")));
    findings.push(finding("link", "missing", Some("mlx5_1")));
    folder.doctor(&report);
    // Neither the other card nor what only a card needs counts.
    for (nic, expected) in [
        ("mlx5_0", &["missing: peer-mapping", "unknown: link"][..]),
        ("mlx5_1", &["missing: peer-mapping", "missing: link"]),
        ("soft", &[]),
    ] {
        let (status, document) = folder.document(&["--nic", nic]);
        let doctor = step(&document, "doctor");
        let expected = expected
            .iter()
            .map(|words| format!("{words}: a value (look at: a remedy)"));
        let expected = Vec::from_iter(expected);
        assert_eq!(doctor["output"], json!(expected), "{nic}");
        assert_eq!(status, Some(i32::from(!expected.is_empty())));
        assert_eq!(step(&document, "gpu-memory")["verdict"], "passed");
    }
    let (_, text) = folder.text(&["--nic", "mlx5_1"]);
    assert!(text.contains("2 things are missing or unknown"), "{text}");
    assert!(
        text.contains("| missing: link: a value (look at: a remedy)"),
        "{text}"
    );
}

#[test]
fn a_doctor_of_another_version_is_named() {
    let folder = Folder::new();
    folder.script("warpbell-doctor", "echo '{\"findings\": []}'");
    let (status, document) = folder.document(&[]);
    assert_eq!(status, Some(1));
    let why = step(&document, "doctor")["why"].as_str().unwrap();
    assert!(
        why.starts_with("its report cannot be read: missing field `pairs`"),
        "{why}"
    );
}

#[test]
fn wrong_options_are_status_2_and_nothing_runs() {
    let folder = Folder::new();
    for (arguments, why) in [
        (
            &["--report", "/no/such/folder/file"][..],
            "cannot write /no/such/folder/file: No such file",
        ),
        (&["--nic", "mlx5_0,mlx5_1"], "give one NIC, such as mlx5_0"),
        (&["--nic", "-x"], "unexpected argument '-x'"),
        (&["--node", "a,b"], "give one host, as ssh takes it"),
        (&["--address", "10.0.0.1"], "--node <HOST>"),
        (&["--deadline", "0"], "0 is not in 1.."),
        (
            &["--steps", "gpus"],
            "possible values: doctor, cpu, two-nodes, ",
        ),
    ] {
        let (status, text) = folder.text(arguments);
        assert_eq!(status, Some(2), "{text}");
        assert!(text.contains(why), "{why}: {text}");
    }
    assert!(folder.log().is_empty());
}

#[test]
fn output_that_a_full_device_refuses_is_an_error_and_the_steps_go_on() {
    for json in [&[][..], &["--json"]] {
        let folder = Folder::new();
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = folder.command(json);
        let output = command.stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let stderr = String::from_utf8(output.stderr).unwrap();
        let why = "error: cannot print: No space left on device (os error 28)\n";
        assert!(stderr.ends_with(why), "{stderr}");
        assert!(folder.log().last().unwrap().starts_with("bench bandwidth"));
    }
}

#[test]
fn the_programs_are_looked_for_beside_this_one() {
    let folder = Folder::new();
    let own = folder.path().join("warpbell");
    // By another process, as with all programs here.
    let mut copy = std::process::Command::new("cp");
    let copied = copy.arg(env!("CARGO_BIN_EXE_warpbell")).arg(&own).status();
    assert!(copied.unwrap().success());
    let mut command = std::process::Command::new(&own);
    let (status, stdout, _) = output(command.args(["bring-up", "--steps", "cpu", "--nic", "soft"]));
    assert_eq!(status, Some(0), "{stdout}");
    assert_eq!(folder.log(), ["demo --nic soft"]);
    let (status, stdout, _) = output(bring_up().args(["--programs", "/no/such", "--steps", "cpu"]));
    assert_eq!(status, Some(1));
    assert!(stdout.contains("/no/such/demo does not start"), "{stdout}");
}
