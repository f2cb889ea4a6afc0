//! The step that flashes two machines, which are network namespaces with servers of ssh's, and two nodes of Slurm's.

mod bench;
mod slurm;

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{BUILD_DEADLINE, DEMO, Report, StepError, Steps, net};
use crate::DOCTOR;
use crate::built::{executable, without_json};
use crate::launch::LAUNCHER;
use crate::run::{Ending, Finished};
use bench::{Bench, eventually};

/// A program of the gallery.
const ALLREDUCE: &str = "allreduce";
/// The command with the bring-up.
const WARPBELL: &str = "warpbell";
const PROGRAMS: [&str; 5] = [LAUNCHER, DOCTOR, DEMO, ALLREDUCE, WARPBELL];
/// An option with the nodes.
const NODES: [&str; 2] = ["--nodes", "nodes.toml"];

/// A case: what happens, and how it is checked. They run in this order, and later ones use the copies of earlier ones.
type Case = (&'static str, fn(&Bench) -> Result<(), String>);

const CASES: [Case; 22] = [
    ("a host key that is not known", |bench| {
        bench.write("ssh/known_hosts", "").map_err(text)?;
        let found = fails_on(
            bench,
            2,
            &NODES,
            &[
                "10.79.0.1: its host key is not known",
                "10.79.0.2: its host key",
            ],
        );
        bench.know_all()?;
        found
    }),
    ("another host key", |bench| {
        bench.know(|_| "host-0".into())?;
        let found = fails_on(bench, 2, &NODES, &["10.79.0.2: it has another host key"]);
        bench.know_all()?;
        found
    }),
    ("a login that is refused", |bench| {
        bench.log_in_by("host-1").map_err(text)?;
        let found = fails_on(bench, 2, &NODES, &["no login without a password: "]);
        bench.log_in_by("user").map_err(text)?;
        found
    }),
    ("a node that cannot be reached", |bench| {
        let nodes = [&NODES[..], &["10.79.0.99"]].concat();
        fails_on(
            bench,
            2,
            &nodes,
            &["10.79.0.99: it cannot be reached: ssh: connect to host 10.79.0.99"],
        )
    }),
    ("programs for another machine", |bench| {
        bench
            .write_manifest("one", |one| one.target = "aarch64-unknown-linux-gnu".into())
            .map_err(text)?;
        let words = "10.79.0.1: it is Linux x86_64, and the programs are for Linux aarch64";
        let found = fails_on(bench, 2, &NODES, &[words]);
        bench.write_manifest("one", |_| {}).map_err(text)?;
        found
    }),
    ("programs for a newer glibc", |bench| {
        bench
            .write_manifest("one", |one| one.glibc = "9.1".into())
            .map_err(text)?;
        let found = fails_on(
            bench,
            2,
            &NODES,
            &[
                "10.79.0.2: its glibc is 2.",
                "and the programs need 9.1 or newer",
            ],
        );
        bench.write_manifest("one", |_| {}).map_err(text)?;
        found
    }),
    ("nothing was written so far", |bench| {
        let there = (0..2).any(|rank| bench.folder_of(rank).exists());
        if there {
            Err("a node has a folder".into())
        } else {
            Ok(())
        }
    }),
    ("a node that is full", full),
    ("a folder of somebody else's", foreign),
    ("a folder that two nodes share", |bench| {
        let nodes = bench.node(0, "") + &bench.node(1, "").replace("node-1", "node-0");
        bench.write("shared.toml", &nodes).map_err(text)?;
        let words = ["node-0 is also another node's, in a file system that they share"];
        fails_on(bench, 2, &["--nodes", "shared.toml"], &words)
    }),
    ("a card that the node does not have", doctor),
    ("the first copy, and ranks of a program", first),
    ("a second copy after a small change", second),
    ("a file that has changed on a node", tampered),
    ("a copy whose hashes are wrong", wrong),
    ("settings of a node", settings),
    ("the demo, as JSON", demo),
    ("a bring-up between the nodes", bring_up),
    ("two at once, and Ctrl-C", two_at_once),
    ("a flash that is killed, and connections that break", broken),
    ("a node without network", unplugged),
    ("--clean while programs run", clean),
];

impl Steps<'_> {
    pub(super) fn flash(&self, report: &mut Report) -> Result<(), StepError> {
        let by_ssh = CASES.iter().map(|(title, _)| *title);
        let titles = by_ssh.chain(slurm::CASES.iter().map(|(title, _)| *title));
        let titles = Vec::from_iter(titles.map(str::to_owned));
        if !net::can_be_made(report, &titles) {
            return Ok(());
        }
        let mut build = self.workspace_cargo("build");
        build.args(["--examples", "--message-format=json-render-diagnostics"]);
        build.args(
            [LAUNCHER, DOCTOR, DEMO, WARPBELL]
                .iter()
                .flat_map(|name| ["--bin", name]),
        );
        let built = self.capture(build, BUILD_DEADLINE)?;
        if !built.success() {
            report.fail("building the programs", without_json(&built.account()));
            return Ok(());
        }
        let mut programs = Vec::new();
        for name in PROGRAMS {
            let path = executable(&built.stdout, name).ok_or(StepError::Unbuilt(name))?;
            programs.push((name, path));
        }
        let folder = self.workspace.target.join("flash");
        let bench = match Bench::new(folder, &programs) {
            Ok(bench) => bench,
            Err(error) => {
                report.fail("two nodes", error);
                return Ok(());
            }
        };
        for (title, case) in CASES {
            self.spinner.set_message(title);
            // Nothing is left running, and nothing of a flash's own.
            let problem = case(&bench)
                .and_then(|()| bench.until_nothing_runs())
                .and_then(|()| bench.is_tidy());
            report.list(title, &Vec::from_iter(problem.err()));
        }
        self.flash_by_slurm(report, &bench);
        Ok(())
    }
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}

/// A flash with the folder ends with this status, and says all of this.
fn says(
    bench: &Bench,
    status: i32,
    arguments: &[&str],
    words: &[&str],
) -> Result<Finished, String> {
    check(bench.flash(arguments)?, status, words)
}

fn fails_on(bench: &Bench, status: i32, arguments: &[&str], words: &[&str]) -> Result<(), String> {
    says(bench, status, arguments, words).map(drop)
}

fn check(finished: Finished, status: i32, words: &[&str]) -> Result<Finished, String> {
    let code = match finished.ending {
        Ending::Exited(status) => status.code(),
        Ending::TimedOut(_) => None,
    };
    let missing = words
        .iter()
        .find(|words| !finished.output.contains(**words));
    match missing {
        _ if code != Some(status) => Err(format!("not status {status}:\n{}", finished.account())),
        Some(words) => Err(format!("it does not say: {words}\n{}", finished.account())),
        None => Ok(finished),
    }
}

/// With the last arguments a program.
fn program<'a>(program: &[&'a str]) -> Vec<&'a str> {
    [&NODES[..], &["--"], program].concat()
}

fn full(bench: &Bench) -> Result<(), String> {
    let folder = bench.small().join("copy").display().to_string();
    let node = format!("[[node]]\nhost = \"10.79.0.1\"\nfolder = \"{folder}\"\n");
    bench
        .write("small.toml", &(node + &bench.node(1, "")))
        .map_err(text)?;
    let words = ["10.79.0.1: it has ", " KiB free, and the copy needs "];
    fails_on(bench, 2, &["--nodes", "small.toml"], &words)?;
    // The other node had room.
    match bench.folder_of(1).join("current").exists() {
        true => Err("something was copied".into()),
        false => Ok(()),
    }
}

/// It is neither written to nor removed.
fn foreign(bench: &Bench) -> Result<(), String> {
    let path = bench.foreign().map_err(text)?;
    let node = format!(
        "[[node]]\nhost = \"10.79.0.1\"\nfolder = \"{}\"\n",
        path.display()
    );
    bench.write("foreign.toml", &node).map_err(text)?;
    let nodes = ["--nodes", "foreign.toml"];
    let words = ["foreign is not a copy of `cargo xtask flash`; it is left alone"];
    fails_on(bench, 2, &nodes, &words)?;
    check(bench.run(&[&["--clean"], &nodes[..]].concat())?, 2, &words)?;
    match fs::read_dir(&path).map_err(text)?.count() {
        2 => Ok(()),
        count => Err(format!("it has {count} files now")),
    }
}

fn doctor(bench: &Bench) -> Result<(), String> {
    let nodes = bench.node(0, "nic = \"mlx5_77\"") + &bench.node(1, "");
    bench.write("card.toml", &nodes).map_err(text)?;
    let nodes = ["--nodes", "card.toml"];
    let words = [
        "10.79.0.1: it lacks what its GPU or NIC needs:\n    ",
        "rdma-modules: ",
    ];
    let finished = says(bench, 2, &nodes, &words)?;
    if finished.output.contains("10.79.0.2: it lacks") {
        return Err(finished.account());
    }
    let ignored = [&nodes[..], &["--ignore-doctor"]].concat();
    fails_on(bench, 0, &ignored, &["2 nodes have 0.1.0 (one) after "])
}

/// Four ranks, two on each node, over RoCE v2. What the nodes had from the cases before is all removed.
fn first(bench: &Bench) -> Result<(), String> {
    let removed = ["10.79.0.1: ", "node-0 is removed", "node-1 is removed"];
    check(
        bench.run(&[&["--clean"], &NODES[..]].concat())?,
        0,
        &removed,
    )?;
    let files = format!("10.79.0.2: {} files copied (", PROGRAMS.len() + 4);
    let words = [
        &*files,
        "10.79.0.1 [0] ",
        "10.79.0.1 [1] rank 1 ",
        "10.79.0.2 [3] rank 3 ",
        "Test OK",
    ];
    let arguments = [&["-n", "4"], &*program(&[ALLREDUCE])].concat();
    fails_on(bench, 0, &arguments, &words)
}

fn second(bench: &Bench) -> Result<(), String> {
    fails_on(
        bench,
        0,
        &NODES,
        &["10.79.0.1: 0 files copied", "10.79.0.2: 0 files copied"],
    )?;
    bench.write("dist/note", "two").map_err(text)?;
    bench.write_manifest("two", |_| {}).map_err(text)?;
    let words = [
        "10.79.0.1: 1 file copied (0.0 MB), in place of version 0.1.0 (one)",
        "10.79.0.2: 1 file copied (0.0 MB), in place of version 0.1.0 (one)",
        "2 nodes have 0.1.0 (two) after ",
    ];
    fails_on(bench, 0, &NODES, &words)?;
    let found = fs::read_to_string(bench.folder_of(1).join("current/note"));
    match found.as_deref() {
        Ok("two") => Ok(()),
        _ => Err(format!("the node has {found:?}")),
    }
}

/// By hand or by a disk: the hashes are of what is there, not of what was copied.
fn tampered(bench: &Bench) -> Result<(), String> {
    fs::write(bench.folder_of(0).join("current/note"), "2w0").map_err(text)?;
    fails_on(
        bench,
        0,
        &NODES,
        &["10.79.0.1: 1 file copied", "10.79.0.2: 0 files copied"],
    )
}

/// The copy that is there stays, and nothing beside it.
fn wrong(bench: &Bench) -> Result<(), String> {
    bench.write("dist/note", "six").map_err(text)?;
    bench
        .write_manifest("three", |three| {
            let note = three.files.iter_mut().find(|file| file.path == "note");
            note.expect("the bench wrote it").sha256 = "0".repeat(64);
        })
        .map_err(text)?;
    let found = fails_on(
        bench,
        2,
        &NODES,
        &[
            "10.79.0.1: it says: ",
            "note: FAILED",
            "10.79.0.2: it says: ",
        ],
    );
    bench.write("dist/note", "two").map_err(text)?;
    bench.write_manifest("two", |_| {}).map_err(text)?;
    found?;
    if bench.folder_of(0).join("next").exists() {
        return Err("a part of a copy is left".into());
    }
    fails_on(
        bench,
        0,
        &NODES,
        &["10.79.0.1: 0 files copied", "10.79.0.2: 0 files copied"],
    )
}

fn settings(bench: &Bench) -> Result<(), String> {
    let more = "nic = \"soft-host\"\nenvironment = { SETTING = \"it's one\" }";
    let nodes = bench.node(0, more) + &bench.node(1, "");
    bench.write("settings.toml", &nodes).map_err(text)?;
    let folder = bench.folder_of(0).join("work");
    let one = format!(
        "10.79.0.1 [0] it's one a  b --nic soft-host in {}\n",
        folder.display()
    );
    let words = [&*one, "10.79.0.2 [1]  a  b in "];
    let nodes = ["--nodes", "settings.toml"];
    fails_on(
        bench,
        0,
        &[&nodes[..], &["--", "shows", "a  b"]].concat(),
        &words,
    )?;
    fails_on(
        bench,
        7,
        &[&nodes[..], &["--", "fails"]].concat(),
        &["warpbell-launch: 10.79.0."],
    )?;
    fails_on(
        bench,
        2,
        &[&nodes[..], &["--", "none"]].concat(),
        &["has no program none; it has allreduce, demo, "],
    )
}

fn demo(bench: &Bench) -> Result<(), String> {
    let arguments = program(&[DEMO, "--quick", "--size=999", "--seed=5", "--json"]);
    let finished = says(bench, 0, &[&["--json"], &*arguments].concat(), &[])?;
    let document: Value = serde_json::from_str(&finished.stdout)
        .map_err(|error| format!("{error}:\n{}", finished.account()))?;
    let nodes = ["10.79.0.1", "10.79.0.2"];
    let of_rank = |rank: usize| &document["ranks"][rank];
    let right = document["status"] == 0
        && document["nodes"][1]["missing"] == json!([])
        && (0..2).all(|rank| of_rank(rank)["node"] == nodes[rank])
        && of_rank(0)["output"]["options"]["size"] == 999;
    if right {
        Ok(())
    } else {
        Err(finished.account())
    }
}

/// By ssh from one node to the other, and over RoCE v2. A node that is not there fails the step. Then each node on its own.
fn bring_up(bench: &Bench) -> Result<(), String> {
    let options = ["bring-up", "--quick", "--nic=soft", "--json"];
    let document = |finished: &Finished| -> Result<Value, String> {
        serde_json::from_str(&finished.stdout)
            .map_err(|error| format!("{error}:\n{}", finished.account()))
    };
    let between = [
        "--names",
        "--steps=cpu,two-nodes",
        "--address",
        "10.79.0.1",
        "--node",
    ];
    for (node, status, verdict, words) in [
        ("10.79.0.2", 0, "passed", "every byte verified"),
        ("10.79.0.99", 1, "failed", "ssh: connect to host 10.79.0.99"),
    ] {
        let arguments = [&options[..], &between, &[node]].concat();
        let finished = check(bench.run_on_node(WARPBELL, &arguments)?, status, &[words])?;
        let steps = &document(&finished)?["steps"];
        if [0, 1].map(|step| &steps[step]["verdict"]) != ["passed", verdict] {
            return Err(finished.account());
        }
    }
    let arguments = program(&[&[WARPBELL], &options[..], &["--steps=cpu"]].concat());
    let finished = says(bench, 0, &[&["--json"], &*arguments].concat(), &[])?;
    let ranks = &document(&finished)?["ranks"];
    match [0, 1].map(|rank| &ranks[rank]["output"]["answer"]) {
        [Value::String(_), Value::String(_)] => Ok(()),
        _ => Err(finished.account()),
    }
}

fn two_at_once(bench: &Bench) -> Result<(), String> {
    let mut running = bench.start(&[])?;
    let busy = "10.79.0.1: another flash is at work in its folder: process ";
    let found = fails_on(bench, 2, &NODES, &[busy]);
    running.signal(Signal::INT)?;
    let (status, said) = running.end()?;
    running.until_ranks_end()?;
    found?;
    match status {
        Some(130) => Ok(()),
        _ => Err(format!("status {status:?} after Ctrl-C:\n{said}")),
    }
}

fn broken(bench: &Bench) -> Result<(), String> {
    let mut running = bench.start(&[])?;
    bench.break_connections()?;
    let (status, said) = running.end()?;
    running.until_ranks_end()?;
    if status != Some(255) || !said.contains("warpbell-launch: 10.79.0.") {
        return Err(format!(
            "status {status:?} after a broken connection:\n{said}"
        ));
    }
    let mut running = bench.start(&[])?;
    running.signal(Signal::KILL)?;
    running.end()?;
    running.until_ranks_end()?;
    // One that was killed cannot remove it.
    for left in fs::read_dir(bench.folder.join("tmp")).map_err(text)? {
        fs::remove_dir_all(left.map_err(text)?.path()).map_err(text)?;
    }
    Ok(())
}

/// The node ends its ranks, and the flash names the node. Later ones find the folder free.
fn unplugged(bench: &Bench) -> Result<(), String> {
    let mut running = bench.start(&["--silence", "10"])?;
    bench.set_port(1, "down")?;
    let ended = running.end();
    let ranks_end = running.until_ranks_end();
    bench.set_port(1, "up")?;
    let (status, said) = ended?;
    ranks_end?;
    if status != Some(255) || !said.contains("10.79.0.2: lost the connection") {
        return Err(format!("status {status:?} without network:\n{said}"));
    }
    let mut last = Err(String::new());
    eventually("the lock of the node", || {
        last = fails_on(bench, 0, &NODES, &["10.79.0.2: 0 files copied"]);
        last.is_ok()
    })
    .map_err(|what| format!("{what}: {last:?}"))
}

fn clean(bench: &Bench) -> Result<(), String> {
    let mut running = bench.start(&[])?;
    let removed = [
        "10.79.0.1: ",
        "node-0 is removed",
        "10.79.0.2: ",
        "node-1 is removed",
    ];
    let arguments = [&["--clean"], &NODES[..]].concat();
    check(bench.run(&arguments)?, 0, &removed)?;
    running.until_ranks_end()?;
    let (status, said) = running.end()?;
    if status == Some(0) {
        return Err(format!("a flash whose ranks were ended succeeds:\n{said}"));
    }
    if let Some(rank) = (0..2).find(|rank| bench.folder_of(*rank).exists()) {
        return Err(format!("node {rank} still has a folder"));
    }
    check(
        bench.run(&arguments)?,
        0,
        &["10.79.0.1: there is no ", "10.79.0.2: there is no "],
    )
    .map(drop)
}
