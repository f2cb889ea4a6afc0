//! Pictures that are made larger, driven by the host and by the kernel.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command};
use std::time::{Duration, Instant};

use crate::common::{assert_verified, command, document, error_line, failure, run};
use crate::{interrupted, press_ctrl_c};
use serde_json::Value;
use warpbell_papers::serving::model::{Model, Picture};
use warpbell_papers::serving::{Architecture, files};

const SERVING: &str = env!("CARGO_BIN_EXE_serving");

#[test]
fn every_value_of_every_answer_is_right_in_every_way() {
    let [larger, squeeze] = ["superresolution", "squeeze"];
    for (network, nic, side, shape) in [
        // Neither tiles nor parts divide the picture.
        (
            larger,
            "soft",
            "18",
            "--blocks 3 --threads 16 --parts 3 --piece 4K",
        ),
        (
            larger,
            "soft",
            "8",
            "--blocks 1 --threads 48 --parts 1 --piece 128 --depth 64",
        ),
        (
            larger,
            "soft-gpu",
            "16",
            "--blocks 4 --threads 32 --parts 2",
        ),
        // Odd windows of the pools, and parts that do not divide the scores.
        (
            squeeze,
            "soft",
            "19",
            "--blocks 3 --threads 48 --parts 3 --piece 16",
        ),
        (
            squeeze,
            "soft-gpu",
            "8",
            "--blocks 2 --threads 16 --parts 2",
        ),
    ] {
        let counts =
            "--ways host,asleep,spinning,graph --rounds 3 --warm-up 1 --seconds 100 --json";
        let all = format!("--network {network} --nic {nic} --sides {side} {shape} {counts}");
        let output = run(SERVING, &all.split(' ').collect::<Vec<_>>());
        let document = document(&output);
        assert_verified(&document, 4);
        let results = document["measured"].as_array().unwrap();
        let ways: Vec<_> = results.iter().map(|result| &result["way"]).collect();
        assert_eq!(ways, ["host", "asleep", "spinning", "graph"]);
        for result in results {
            assert_eq!(result["rounds"], 3, "{document:#}");
            assert_eq!(
                (&result["wrong"], &result["dropped"]),
                (&0.into(), &0.into())
            );
            let number = |field: &str| result[field].as_f64().unwrap();
            let answer = match network {
                "squeeze" => 4.0 * 16.0,
                _ => 9.0 * number("bytes"),
            };
            assert_eq!(number("answer_bytes"), answer);
            assert_eq!(result["architecture"], network);
            let of = &result["distribution"];
            let time = |field: &str| of[field].as_f64().unwrap();
            assert_eq!(of["events"], 3);
            assert!(time("p50_us") <= time("p99_us") && time("p99_us") <= time("p999_us"));
            assert_eq!(time("p999_us"), time("longest_us"));
            assert!(number("total_us") <= time("longest_us"));
            let counts = of["histogram"].as_array().unwrap().iter();
            assert_eq!(counts.map(|one| one[1].as_u64().unwrap()).sum::<u64>(), 3);
            assert!(number("compute_us") > 0.0 && number("send_us") > 0.0);
            // The host copies, and a kernel where the NIC reaches other memory than it.
            let copies = number("copy_in_us") > 0.0 && number("copy_out_us") > 0.0;
            assert_eq!(copies, result["way"] == "host" || nic == "soft");
        }
    }
}

#[test]
fn each_driver_is_measured_alone_beside_the_nic() {
    let shape = "--blocks 3 --threads 16 --parts 3 --piece 1K --sides 9 --rounds 3 --seconds 100";
    for (network, nic) in [("superresolution", "soft"), ("squeeze", "soft-gpu")] {
        let alone = "--ways host,asleep,spinning,graph --every 50 --driver-alone --json";
        let all = format!("--network {network} --nic {nic} {shape} {alone}");
        let document = document(&run(SERVING, &all.split(' ').collect::<Vec<_>>()));
        // With an answer of each driver alone.
        assert_verified(&document, 4);
        let results = document["measured"].as_array().unwrap();
        for result in results {
            let number = |value: &Value| value.as_f64().unwrap();
            let alone = &result["driver_alone"];
            let us = number(&alone["us"]);
            assert!(us * number(&alone["rounds"]) > 0.0, "{document:#}");
            let share = 100.0 * (1.0 - us / number(&result["total_us"]));
            assert!((number(&alone["nic_percent"]) - share).abs() < 1e-6);
        }
        let alone = |verdict: &&Value| verdict["what"].to_string().contains("drivers alone");
        let verdicts = document["verdicts"].as_array().unwrap().iter();
        let ratios: Vec<_> = verdicts
            .filter(alone)
            .map(|verdict| verdict["found"].as_f64().unwrap())
            .collect();
        let us = |way: usize| results[way]["driver_alone"]["us"].as_f64().unwrap();
        // Of the network that the paper has.
        let expected = match network {
            "squeeze" => vec![],
            _ => vec![us(0) / us(1), us(0) / us(3)],
        };
        assert_eq!(ratios.len(), expected.len(), "{document:#}");
        for (ratio, expected) in ratios.iter().zip(expected) {
            assert!((ratio / expected - 1.0).abs() < 1e-9, "{document:#}");
        }
    }
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(format!("{}/{name}.png", env!("CARGO_TARGET_TMPDIR")))
}

/// 20 × 9 pixels, each of a shade that a file can have.
fn picture() -> Picture {
    Picture {
        width: 20,
        values: (0..20 * 9)
            .map(|at| (at % 20 + at / 20 * 3) as f32 / 51.0)
            .collect(),
    }
}

/// That picture, three times as wide and as high.
#[track_caller]
fn assert_larger(file: &Path, expected: &[f32]) {
    let found = files::read(file).unwrap();
    assert_eq!((found.width, found.height()), (60, 27));
    for (at, (found, expected)) in found.values.iter().zip(expected).enumerate() {
        // A shade is the nearest one.
        let beside = (found - expected.clamp(0.0, 1.0)).abs();
        assert!(beside <= 0.51 / 255.0, "{at}");
    }
}

#[test]
fn a_picture_comes_back_larger_from_file_to_file() {
    let (small, larger) = (file("small"), file("larger"));
    let picture = picture();
    files::write(&small, &picture).unwrap();
    let paths = [
        "--picture",
        small.to_str().unwrap(),
        "--larger",
        larger.to_str().unwrap(),
    ];
    let counts = ["--rounds", "2", "--warm-up", "0", "--seed", "5", "--json"];
    let document = document(&run(SERVING, &[&paths[..], &counts].concat()));
    assert_verified(&document, 3);
    assert_eq!(document["measured"][0]["answer_bytes"], 4 * 60 * 27);
    assert_larger(
        &larger,
        &Model::new(Architecture::Superresolution, 5).answer(&picture),
    );

    let cut = file("cut");
    let bytes = fs::read(&small).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 40]).unwrap();
    let wide = file("wide");
    let values = vec![0.0; 8 * 1025];
    files::write(
        &wide,
        &Picture {
            width: 1025,
            values,
        },
    )
    .unwrap();
    for (path, why) in [
        (file("nowhere"), "No such file"),
        (env!("CARGO_MANIFEST_DIR").to_owned().into(), "directory"),
        (PathBuf::from(SERVING), "Invalid PNG signature"),
        (cut, ""),
        (
            wide,
            "it has 1025 × 8 pixels; choose from 8 to 1024 either way",
        ),
    ] {
        let output = run(SERVING, &["--picture", path.to_str().unwrap()]);
        let line = failure(&output);
        let named = format!("the picture {} cannot be served: ", path.display());
        assert!(line.contains(&named) && line.contains(why), "{line}");
    }
}

#[test]
fn what_comes_too_often_is_dropped_and_counted() {
    // A picture takes longer than a millisecond here, whatever the machine.
    let fast = "--sides 16 --rate 1000 --seconds 0.2 --warm-up 1 --json";
    let document = document(&run(SERVING, &fast.split(' ').collect::<Vec<_>>()));
    assert_verified(&document, 3);
    for result in document["measured"].as_array().unwrap() {
        let number = |field: &str| result[field].as_f64().unwrap();
        assert!(number("dropped") > 0.0, "{document:#}");
        // Each that was due was answered or dropped, but for those behind the end.
        let due = number("seconds") * 1000.0;
        assert!(
            (number("rounds") + number("dropped") - due).abs()
                < 2.0 + result["distribution"]["longest_us"].as_f64().unwrap() / 1000.0
        );
    }
}

#[test]
fn what_does_not_suffice_is_named_before_anything_runs() {
    for (wrong, word) in [
        (
            &["--parts", "3"][..],
            "3 parts want as many blocks, and there are 2",
        ),
        (
            &["--blocks", "65"],
            "65 blocks of 32 threads may not all run at the same time, 64 do",
        ),
        (
            &["--threads", "40"],
            "40 threads make no tiles of 16 columns",
        ),
        (
            &["--network", "squeeze", "--parts", "9", "--blocks", "9"],
            "an answer has words for 8 parts, not for 9",
        ),
        (&["--every", "0.000005"], "more than 100001 spans of time"),
        (
            &["--sides", "16,512", "--piece", "1K"],
            "4609 work requests under one doorbell, and 33 are possible",
        ),
    ] {
        let output = run(SERVING, wrong);
        let line = failure(&output);
        assert!(line.contains(word), "{line}");
        assert!(!String::from_utf8(output.stdout).unwrap().contains(" × "));
    }
    for wrong in [
        &["--sides", "7"][..],
        &["--blocks", "0"],
        &["--piece", "12"],
        &["--rate", "0.5"],
        &["--rounds", "0"],
        &["--network", "none"],
        &["--csv", "x"],
        &["--listen", "/nowhere/x", "--driver-alone"],
        &["--connect", "/nowhere/x", "--driver-alone"],
    ] {
        assert_eq!(run(SERVING, wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn each_request_is_in_a_span_of_time_and_each_span_in_both_files() {
    let [csv, svg] =
        ["csv", "svg"].map(|kind| format!("{}/over-time.{kind}", env!("CARGO_TARGET_TMPDIR")));
    let all = format!(
        "--network superresolution,squeeze --sides 8 --ways asleep,spinning --seconds 1 --every 0.25 \
         --csv {csv} --svg {svg} --json"
    );
    let document = document(&run(SERVING, &all.split(' ').collect::<Vec<_>>()));
    assert_verified(&document, 4);
    let mut lines = 1;
    for result in document["measured"].as_array().unwrap() {
        let moments = result["over_time"].as_array().unwrap();
        lines += moments.len();
        // The last one has what was answered behind the end.
        assert!((4..=5).contains(&moments.len()), "{document:#}");
        let requests = moments.iter().map(|one| one["requests"].as_u64().unwrap());
        let behind = 5 - moments.len() as u64;
        let missing = result["rounds"].as_u64().unwrap() - requests.sum::<u64>();
        assert!(missing <= behind, "{document:#}");
        let longest = moments
            .iter()
            .map(|one| one["longest_us"].as_f64().unwrap());
        if missing == 0 {
            let longest = longest.fold(0.0, f64::max);
            let of_all = result["distribution"]["longest_us"].as_f64().unwrap();
            assert!((longest - of_all).abs() < 0.1, "{document:#}");
        }
        for (number, moment) in (1..).zip(moments) {
            let field = |field: &str| moment[field].as_f64().unwrap();
            assert_eq!(field("seconds"), 0.25 * f64::from(number));
            assert!(field("mean_us") <= field("longest_us"));
        }
    }
    let text = fs::read_to_string(&csv).unwrap();
    assert_eq!(text.lines().count(), lines);
    assert!(text.contains("\nsqueeze,\"kernel, host spinning\",8,8,0.250,"));
    let drawing = fs::read_to_string(&svg).unwrap();
    assert_eq!(drawing.matches("time (s), largest picture").count(), 2);
}

#[test]
fn scores_are_no_picture() {
    let (small, larger) = (file("scored"), file("scored-larger"));
    files::write(&small, &picture()).unwrap();
    let [small, larger] = [&small, &larger].map(|path| path.to_str().unwrap());
    let all =
        format!("--network squeeze --picture {small} --larger {larger} --ways asleep --rounds 1");
    let output = run(SERVING, &all.split(' ').collect::<Vec<_>>());
    assert!(failure(&output).contains("a score of each class is no picture"));
}

#[test]
fn ctrl_c_shows_what_was_measured_so_far() {
    let arguments = ["--sides", "16", "--seconds", "600"];
    let rows = interrupted(SERVING, &arguments, "driven by  ");
    let measured = rows.iter().filter(|row| row.contains("16 × 16"));
    assert!(measured.count() <= 2, "{rows:?}");
}

/// A server in a process of its own, which ends with the test.
struct Server {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    path: String,
}

impl Server {
    fn start(name: &str, more: &[&str]) -> Self {
        let name = format!("warpbell-serving-{name}-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let path = path.to_str().unwrap().to_owned();
        let arguments = [&["--listen", &path], more].concat();
        let mut process = command(SERVING, &arguments).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut server = Self {
            process,
            lines,
            path,
        };
        server.says("Waiting for clients");
        server
    }

    /// The next line that begins so.
    #[track_caller]
    fn says(&mut self, beginning: &str) -> String {
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        let line = lines.find(|line| line.starts_with(beginning));
        line.unwrap_or_else(|| panic!("{beginning}"))
    }

    fn client(&self, more: &str) -> Command {
        let more: Vec<_> = more.split(' ').collect();
        command(SERVING, &[&["--connect", &self.path], &more[..]].concat())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_file(&self.path);
    }
}

#[test]
fn a_client_in_another_process_gets_its_picture_larger() {
    let mut server = Server::start("picture", &["--seed", "7", "--parts", "1", "--piece", "1K"]);
    let (small, larger) = (file("theirs"), file("theirs-larger"));
    let picture = picture();
    files::write(&small, &picture).unwrap();
    let [small, larger_name] = [&small, &larger].map(|path| path.to_str().unwrap());
    let counts = "--warm-up 1 --rounds 3 --seconds 100 --rate 1000000 --json";
    let all = format!("--picture {small} --larger {larger_name} {counts}");
    let document = document(&server.client(&all).output().unwrap());
    assert_verified(&document, 1);
    assert_eq!(
        (&document["rounds"], &document["wrong"]),
        (&3.into(), &0.into())
    );
    assert_eq!(document["distribution"]["events"], 3);
    // It takes longer than a microsecond.
    assert!(document["dropped"].as_u64().unwrap() > 0);
    assert_larger(
        &larger,
        &Model::new(Architecture::Superresolution, 7).answer(&picture),
    );
    assert_eq!(server.says("Client"), "Client 1 sends pictures of 20 × 9.");
    let line = server.says("Client 1: ");
    assert!(
        line.starts_with("Client 1: 4 answers, ") && line.ends_with(" % of a core asleep"),
        "{line}"
    );
    press_ctrl_c(&server.process);
    assert!(server.process.wait().unwrap().success());
    assert!(!Path::new(&server.path).exists());
}

#[test]
fn a_client_that_vanishes_is_named_and_the_next_one_is_served() {
    let mut server = Server::start("vanish", &[]);
    // An answer takes the server hundreds of times as long as the client looks at it.
    let mut client = server.client("--sides 128 --seconds 100").spawn().unwrap();
    server.says("Client 1 sends");
    std::thread::sleep(Duration::from_millis(300));
    client.kill().unwrap();
    client.wait().unwrap();
    let line = server.says("Client 1: ");
    assert!(line.contains("; it has vanished in mid-request"), "{line}");
    // Nor do those who do not ask for pictures, or for such that are not served.
    let mut stranger = UnixStream::connect(&server.path).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let line = server.says("Client 2: not served: ");
    assert!(line.contains("instead of \"WBEX\""), "{line}");
    // Nor one that is gone before it is taken.
    drop(UnixStream::connect(&server.path).unwrap());
    server.says("Client 3: not served: ");
    let refused = server.client("--sides 900").output().unwrap();
    assert!(
        error_line(&refused).contains("the server does not serve this picture: an answer's part")
    );
    assert!(
        server
            .says("Client 4: not served: ")
            .contains("work requests under one doorbell")
    );
    let served = server
        .client("--sides 16 --rounds 2 --warm-up 0 --json")
        .output();
    assert_verified(&document(&served.unwrap()), 1);
    assert!(
        server
            .says("Client 5: ")
            .starts_with("Client 5: 2 answers, ")
    );
}

#[test]
fn a_server_that_ends_or_is_not_there_is_named() {
    let mut server = Server::start("ends", &[]);
    // It sends at once what comes next, and would for longer than the test may take.
    let client = server.client("--sides 8 --seconds 1000").spawn().unwrap();
    server.says("Client 1 sends");
    std::thread::sleep(Duration::from_millis(300));
    press_ctrl_c(&server.process);
    let pressed = Instant::now();
    assert!(server.says("Client 1: ").ends_with("; ended by Ctrl-C"));
    // Far below the client's time.
    assert!(pressed.elapsed() < Duration::from_secs(500));
    assert!(server.process.wait().unwrap().success());
    let line = error_line(&client.wait_with_output().unwrap());
    assert!(
        line.contains("the server does not go on: it has ended"),
        "{line}"
    );
    let nobody = server.client("--timeout 1").output().unwrap();
    assert!(error_line(&nobody).contains("within 1s"));
    for role in ["--listen", "--connect"] {
        let alone = run(SERVING, &[role, &server.path, "--nic", "soft-gpu"]);
        assert!(error_line(&alone).contains("soft-gpu reaches no other process"));
        assert_eq!(alone.status.code(), Some(1));
    }
    let few = run(SERVING, &["--listen", &server.path, "--parts", "3"]);
    assert!(error_line(&few).contains("3 parts want as many blocks, and there are 2"));
    for wrong in [
        "--connect x --blocks 1",
        "--listen x --rate 5",
        "--listen x --connect x",
    ] {
        let wrong: Vec<_> = wrong.split(' ').collect();
        assert_eq!(run(SERVING, &wrong).status.code(), Some(2), "{wrong:?}");
    }
}
