//! The command, as a user starts it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

pub(crate) fn cluster(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cluster"));
    command.args(arguments).output().unwrap()
}

pub(crate) fn text(output: &[u8]) -> String {
    String::from_utf8(output.to_vec()).unwrap()
}

/// An empty folder, or a file's path in it.
pub(crate) fn place(name: &str) -> PathBuf {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    if place.exists() {
        std::fs::remove_dir_all(&place).unwrap();
    }
    std::fs::create_dir_all(&place).unwrap();
    place
}

/// A schedule that the command printed runs, and two runs give the same bytes.
#[test]
fn a_generated_schedule_runs_the_same_each_time() {
    let file = place("runs").join("tree.goal");
    for workload in [
        "put",
        "ring",
        "doubling",
        "tree",
        "all-to-all",
        "jacobi",
        "training",
    ] {
        let made = cluster(&["generate", workload, "--nodes", "4"]);
        assert!(made.status.success(), "{}", text(&made.stderr));
        std::fs::write(&file, &made.stdout).unwrap();
        let run = || cluster(&["run", file.to_str().unwrap(), "--ranks", "--seed", "7"]);
        let (one, other) = (run(), run());
        assert!(one.status.success(), "{}", text(&one.stderr));
        assert_eq!(one.stdout, other.stdout);
        let lines = text(&one.stdout).lines().count();
        let ranks = if workload == "put" { 2 } else { 4 };
        assert_eq!(lines, 1 + 9 * (ranks + 1));
    }
}

#[test]
fn figures_are_files_with_the_same_bytes_each_time() {
    let figures = |name: &str, more: &[&str]| {
        let place = place(name);
        let mut arguments = vec!["figures", "--only", "put,jacobi", "--nodes", "4", "--out"];
        arguments.push(place.to_str().unwrap());
        arguments.extend(more);
        let output = cluster(&arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let mut files: Vec<_> = std::fs::read_dir(&place)
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        files.sort();
        let read = |path: PathBuf| {
            (
                path.file_name().unwrap().to_owned(),
                std::fs::read(path).unwrap(),
            )
        };
        files.into_iter().map(read).collect::<Vec<_>>()
    };
    let one = figures("figures", &[]);
    assert_eq!(one, figures("figures", &[]));
    let names: Vec<_> = one.iter().map(|file| file.0.to_str().unwrap()).collect();
    assert_eq!(names, ["jacobi.csv", "jacobi.svg", "put.csv", "put.svg"]);
    let csv = text(&one[0].1);
    assert_eq!(
        csv.lines().next(),
        Some("nodes,host (µs),gds (µs),proxy (µs),triggered (µs),kernel (µs)")
    );
    assert_eq!(csv.lines().count(), 3);
    assert!(text(&one[1].1).contains(">nodes<"));
    let paper = figures("figures", &["--paper"]);
    assert_eq!(paper[0].0, "jacobi-paper.csv");
}

/// A put of 8 bytes depends most on the bus, also on the launch, and not on the memory's rate.
#[test]
fn sensitivity_names_what_decides() {
    let output = cluster(&["sensitivity", "--figure", "put", "--over", "8"]);
    let text = text(&output.stdout);
    assert_eq!(
        text.lines().nth(1).unwrap().split(',').next(),
        Some("pcie_latency"),
        "{text}"
    );
    assert!(text.contains("\ngpu_launch,") && !text.contains("gpu_memory"));
}

#[test]
fn bad_input_ends_with_a_line_that_names_it() {
    let file = place("bad").join("bad.goal");
    let file = file.to_str().unwrap();
    for (goal, arguments, named) in [
        (
            "num_ranks 2\nrank 0 {\nsend 8b to 1 tag 0 }",
            &[][..],
            "line 3: rank 1 has no receive",
        ),
        (
            "num_ranks 1\nrank 0 { a: calc 1\n a requires a }",
            &[],
            "waits for itself",
        ),
        (
            "num_ranks 1",
            &["--set", "link_rate=0"],
            "parameter link_rate is 0 Gbit/s",
        ),
        ("num_ranks 1", &["--set", "colour=0"], "no parameter colour"),
        (
            "num_ranks 1",
            &["--cut", "0-99"],
            "no link joins switches 0 and 99",
        ),
        (
            "num_ranks 3\nrank 0 { send 8b to 2 }\nrank 2 { recv 8b from 0 }",
            &["--cut", "0-8", "--cut", "0-9"],
            "no route leads from node 0 to node 2",
        ),
    ] {
        std::fs::write(file, goal).unwrap();
        let output = cluster(&[&["run", file], arguments].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(named), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let most = "18446744073709551615";
    for (arguments, named) in [
        (
            &["generate", "ring", "--bytes", most, "--chunk", "1"][..],
            "has 18446744073709551615 chunks; at most 16777216",
        ),
        (
            &["figures", "--only", "put,jacobi", "--nodes", "8192"],
            "the figure jacobi with 8192 nodes; it has 2 to 4096",
        ),
    ] {
        let output = cluster(arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(named), "{error}");
        // Nothing was simulated before.
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let missing = cluster(&["run", "no/such.goal"]);
    assert!(text(&missing.stderr).contains("no/such.goal"));
}

/// A line for each workload and number of nodes. Drivers other than the host gain, and never beyond the bound.
#[test]
fn projection_stays_below_the_bound_of_blocked_time() {
    let place = place("projection");
    let folder = place.to_str().unwrap();
    let output = cluster(&["projection", "--nodes", "4", "--out", folder]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let csv = std::fs::read_to_string(place.join("projection.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 6 * 2);
    for line in csv.lines().skip(1) {
        let fields: Vec<f64> = line
            .split(',')
            .skip(2)
            .map(|field| field.parse().unwrap())
            .collect();
        let (bound, host, others) = (fields[0], fields[1], &fields[2..]);
        assert_eq!((host, others.len()), (1.0, 4), "{line}");
        assert!(
            others.iter().all(|other| (1.0..bound).contains(other)),
            "{line}"
        );
    }
    assert!(place.join("projection.svg").exists());
    let refused = cluster(&[
        "projection",
        "--bytes",
        "18446744073709551615",
        "--out",
        folder,
    ]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("bytes"),
        "{}",
        text(&refused.stderr)
    );
}

/// The P - N rule is a line of the table, and headers leave less.
#[test]
fn paths_has_the_rule_for_traffic_between_host_and_soc() {
    let rule = |arguments: &[&str]| {
        let output = text(&cluster(arguments).stdout);
        let line = output
            .lines()
            .find(|line| line.starts_with("1 write + 1 read + 3"));
        line.unwrap().to_owned()
    };
    assert!(rule(&["paths"]).ends_with(",200.0 + 200.0 + 56.0,456.0"));
    assert!(!rule(&["paths", "--headers"]).contains("56.0"));
}

/// A reader such as `head` that has seen enough is no error.
#[test]
fn a_closed_pipe_ends_the_command_in_silence() {
    let command = env!("CARGO_BIN_EXE_cluster");
    let mut command = Command::new(command);
    // More than a pipe holds.
    command.args(["generate", "ring", "--nodes", "64", "--bytes", "64000000"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stderr), "");
    assert!(output.status.success());
}

/// The page has the table that the command prints.
#[test]
fn the_page_has_the_parameters() {
    let output = cluster(&["parameters"]);
    let page = include_str!("../../README.md");
    assert!(
        page.contains(&text(&output.stdout)),
        "put the table of `cluster parameters` into README.md"
    );
}
