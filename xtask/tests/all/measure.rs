//! `papers/measurements/measure.sh`, with programs that are scripts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../papers/measurements/measure.sh"
);
const PAGE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../papers/measurements/README.md"
);
const PROGRAMS: [&str; 8] = [
    "bench",
    "demo",
    "suite",
    "papers/report",
    "papers/serving",
    "papers/kv",
    "papers/matvec",
    "papers/allreduce",
];
/// What a GPU's driver says of two GPUs.
const TWO_GPUS: &str = r#"case "$*" in
    *=name*) echo "Fake GPU 7"; echo "Fake GPU 8" ;;
    *=compute_cap*) echo 9.0; echo 9.0 ;;
    *=clocks.max.sm*) echo "1234 MHz"; echo "1234 MHz" ;;
    *=driver_version*) echo 123.45; echo 123.45 ;;
    *) echo "| NVIDIA-SMI 123.45    Driver Version: 123.45    CUDA Version: 11.9 |" ;;
esac"#;

/// An unpacked distribution, whose programs print `Test OK`, and a folder for what is measured.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for program in PROGRAMS {
            place.program(program, "echo first; echo Test OK");
        }
        place.built_from("0123abc");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn program(&self, name: &str, text: &str) {
        self.script(&format!("bin/{name}"), text);
    }

    fn built_from(&self, commit: &str) {
        let text = format!("{{\n  \"version\": \"0.1.0\",\n  \"commit\": \"{commit}\",\n}}\n");
        fs::write(self.path("manifest.json"), text).unwrap();
    }

    fn command(&self, arguments: &[&str], limit: &str) -> Command {
        let tools = self.path("tools");
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
        let mut script = Command::new(SCRIPT);
        script.arg("--out").arg(self.path("out")).args(arguments);
        let folders = [
            ("PROGRAMS", self.path("bin")),
            ("RUST_CUDA_PTX", self.path("")),
        ];
        script
            .envs(folders)
            .env("PATH", path)
            .env("LIMIT", limit)
            .env_remove("SUITE_TIMES");
        script
    }

    fn measure(&self, arguments: &[&str], limit: &str) -> Output {
        self.command(arguments, limit).output().unwrap()
    }

    fn page(&self) -> String {
        fs::read_to_string(self.path("out/run.md")).unwrap()
    }

    /// The rows of the page: step, command, status and result.
    fn rows(&self) -> Vec<[String; 4]> {
        let page = self.page();
        let (_, rows) = page
            .split_once("|---|---|---|---|---|---|\n")
            .expect("the page has a table");
        let cells = |row: &str| Vec::from_iter(row.split(" | ").map(str::to_owned));
        let picked = rows.lines().map(|row| match cells(row).as_slice() {
            [step, _, command, status, _, result] => [
                step.trim_start_matches("| ").into(),
                command.clone(),
                status.clone(),
                result.trim_end_matches(" |").into(),
            ],
            _ => panic!("no row: {row}"),
        });
        picked.collect()
    }

    /// Status and result of a step's rows.
    fn ended(&self, step: &str) -> Vec<(String, String)> {
        let rows = self.rows().into_iter().filter(|[of, ..]| of == step);
        rows.map(|[.., status, result]| (status, result)).collect()
    }
}

fn steps() -> Vec<String> {
    let listed = Command::new(SCRIPT).arg("--list").output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    let text = String::from_utf8(listed.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn same(status: &str, result: &str, times: usize) -> Vec<(String, String)> {
    vec![(status.into(), result.into()); times]
}

#[test]
fn every_step_has_a_row_and_a_line_of_the_page() {
    let place = Place::new();
    let output = place.measure(&["--on", "cpu"], "60");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(place.page().contains("| commit | 0123abc |"));
    assert_eq!(place.ended("demo"), same("0 ok", "Test OK", 2));
    assert_eq!(
        place.ended("report"),
        same("0 ok", "[applications.json](applications.json)", 1)
    );
    for step in ["sanitizers", "two-gpus", "rust-cuda"] {
        assert_eq!(place.ended(step)[0].0, "**skipped**");
    }
    let said = fs::read_to_string(place.path("out/litmus.txt")).unwrap();
    assert_eq!(said, "first\nTest OK\n");
    let explained = fs::read_to_string(PAGE).unwrap();
    let mut rows = place.rows();
    rows.dedup_by_key(|[step, ..]| step.clone());
    let ran = Vec::from_iter(rows.into_iter().map(|[step, ..]| step));
    assert_eq!(ran, steps());
    for step in ran {
        let line = format!("| `{step}` |");
        assert!(explained.contains(&line), "the page has no {line}");
    }
}

#[test]
fn in_a_distribution_the_programs_are_beside_the_script() {
    let place = Place::new();
    fs::copy(SCRIPT, place.path("measure.sh")).unwrap();
    let mut sh = Command::new("sh");
    sh.args(["measure.sh", "--out", "out", "--on", "cpu", "demo"]);
    sh.current_dir(place.0.path()).env_remove("PROGRAMS");
    let output = sh.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(place.page().contains("| commit | 0123abc |"));
    assert_eq!(place.ended("demo"), same("0 ok", "Test OK", 2));
}

#[test]
fn in_a_checkout_cargo_builds_the_programs() {
    let place = Place::new();
    place.script("tools/cargo", "echo \"$@\" >\"$CARGO_TARGET_DIR/built\"");
    place.script("demo/demo", "echo Test OK");
    let head = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let head = String::from_utf8(head.unwrap().stdout).unwrap();
    let mut script = place.command(&["--on", "cpu", "demo", "kv"], "60");
    script.env_remove("PROGRAMS");
    script.env("CARGO_TARGET_DIR", place.0.path());
    // There is no `kv`: two rows fail.
    assert_eq!(script.output().unwrap().status.code(), Some(2));
    assert!(
        place
            .page()
            .contains(&format!("| commit | {}", head.trim()))
    );
    assert_eq!(place.ended("demo"), same("0 ok", "Test OK", 2));
    assert_eq!(place.ended("kv")[0].0, "127 **failed**");
    let built = fs::read_to_string(place.path("built")).unwrap();
    assert!(
        built.starts_with("build --profile demo --bins -p "),
        "{built}"
    );
    place.script("tools/cargo", "exit 101");
    let output = script.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let why = String::from_utf8(output.stderr).unwrap();
    assert_eq!(why, "error: the build failed\n");
}

#[test]
fn two_gpus_a_sanitizer_and_another_compilers_ptx_are_used() {
    let place = Place::new();
    place.script("tools/nvidia-smi", TWO_GPUS);
    place.script("tools/compute-sanitizer", "exit 1");
    for module in ["kernels", "soft_nic", "suite"] {
        fs::write(place.path(&format!("{module}.sm_90.ptx")), module).unwrap();
    }
    place.program("suite", "echo Test OK; cat *.ptx >&2; exit 0");
    let output = place.measure(&["sanitizers", "two-gpus", "rust-cuda"], "60");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let page = place.page();
    for line in [
        "| GPU | Fake GPU 7, number 0 of 2 |",
        "| compute capability | 9.0 |",
        "| SM clock, maximum | 1234 MHz |",
        "| driver | 123.45 |",
        "| CUDA of the driver | 11.9 |",
    ] {
        assert!(page.contains(line), "{line} is not in {page}");
    }
    assert!(page.contains(
        "`suite --under 'compute-sanitizer --error-exitcode 9 --tool racecheck' --tests"
    ));
    assert_eq!(place.ended("sanitizers").len(), 3);
    assert!(place.ended("two-gpus").len() > 1);
    assert!(page.contains("`demo --on gpu --nic soft-gpu --nic-gpu 1 --quick >demo-two-gpus.txt`"));
    assert!(page.contains("--ptx suite.sm_90.ptx >suite-rust-cuda-soft-gpu.txt`"));
    // The files were there while the programs ran, and only then.
    let read = fs::read_to_string(place.path("out/suite-rust-cuda-soft-gpu.log")).unwrap();
    assert_eq!(read, "kernelssoft_nicsuite");
    assert!(!place.path("out/suite.sm_90.ptx").exists());
}

#[test]
fn another_gpu_is_measured() {
    let place = Place::new();
    place.script("tools/nvidia-smi", TWO_GPUS);
    place.measure(&["--gpu", "1", "suite", "two-gpus"], "60");
    let page = place.page();
    assert!(
        page.contains("| GPU | Fake GPU 8, number 1 of 2 |"),
        "{page}"
    );
    let command = "`suite --times 1 -- --on gpu --gpu 1 --nic soft-gpu >suite-soft-gpu.txt`";
    assert!(page.contains(command), "{page}");
    let rows = place.rows();
    let apart = rows.iter().find(|[step, ..]| step == "two-gpus");
    assert_eq!(apart.unwrap()[2], "**skipped**");
}

#[test]
fn what_fails_hangs_or_is_missing_has_a_row_and_counts() {
    let place = Place::new();
    place.program(
        "bench",
        "echo half a table; echo 'error: | broken' >&2; exit 1",
    );
    place.program("demo", "echo begun; exec sleep 600");
    place.program("papers/kv", "echo wrong; exit 3");
    place.program("papers/serving", "echo 'Skipped: no such GPU'");
    fs::remove_file(place.path("bin/suite")).unwrap();
    fs::create_dir(place.path("out")).unwrap();
    fs::write(place.path("out/latency-soft.svg"), "of an earlier run").unwrap();
    let chosen = ["latency", "demo", "kv", "serving", "litmus", "report"];
    let arguments = [&["--on", "cpu"], &chosen[..]].concat();
    let output = place.measure(&arguments, "1");
    // Four of latency, two each of demo and kv, and that of litmus.
    assert_eq!(output.status.code(), Some(9), "{output:?}");
    assert_eq!(
        place.ended("latency"),
        same("1 **failed**", r"error: \| broken", 4)
    );
    assert_eq!(place.ended("demo"), same("124 **timed out**", "begun", 2));
    assert_eq!(place.ended("kv"), same("3 **failed**", "wrong", 2));
    assert_eq!(
        place.ended("serving"),
        same("0 **skipped**", "Skipped: no such GPU", 3)
    );
    let missing = place.ended("litmus");
    assert_eq!(missing[0].0, "127 **failed**", "{missing:?}");
    assert!(missing[0].1.contains("suite"), "{missing:?}");
    assert_eq!(place.ended("report")[0].0, "0 ok");
    assert!(!place.path("out/latency-soft.svg").exists());
    let last = String::from_utf8(output.stdout).unwrap();
    assert!(
        last.contains("\n10 commands ran, 9 failed; 3 were skipped: "),
        "{last}"
    );
}

#[test]
fn a_step_measured_again_replaces_its_rows_of_the_same_commit_alone() {
    let place = Place::new();
    let whole = ["--on", "cpu"];
    let again = ["--on", "cpu", "put", "litmus"];
    assert!(place.measure(&whole, "60").status.success());
    let count = place.rows().len();
    place.program("suite", "echo another line");
    assert!(place.measure(&again, "60").status.success());
    assert_eq!(place.rows().len(), count);
    assert_eq!(place.ended("litmus"), same("0 ok", "another line", 1));
    assert_eq!(place.ended("suite"), same("0 ok", "Test OK", 2));
    let page = place.page();
    place.built_from("4567def");
    let refused = place.measure(&again, "60");
    assert_eq!(refused.status.code(), Some(2));
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(why.contains("another commit or machine"), "{why}");
    assert_eq!(place.page(), page);
    assert!(place.measure(&whole, "60").status.success());
    assert!(place.page().contains("| commit | 4567def |"));
}

#[test]
fn bad_arguments_are_refused_before_anything_runs() {
    let place = Place::new();
    for (arguments, named) in [
        (&["put", "nonsense"][..], "no such step: nonsense"),
        (&["--nonsense"], "no such option: --nonsense"),
        (&["--on", "paper"], "not paper"),
        (&["--on"], "--on wants a value"),
        (&["--gpu", "one"], "not one"),
        (&["--on", "cpu", "--gpu", "1"], "--gpu wants --on gpu"),
    ] {
        let output = place.measure(arguments, "60");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let why = String::from_utf8(output.stderr).unwrap();
        assert!(why.starts_with("error: ") && why.contains(named), "{why}");
    }
    let mut absent = Command::new(SCRIPT);
    absent.env("PROGRAMS", place.path("absent")).arg("put");
    assert_eq!(absent.output().unwrap().status.code(), Some(2));
    assert!(!Path::new(&place.path("out")).exists());
}
