//! The step in which ranks fail: four of them, on four machines that are network namespaces.

mod job;

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::Signal;

use super::net::{self, Net};
use super::{BUILD_DEADLINE, Report, StepError, Steps};
use crate::built::{executable, without_json};
use job::{Bench, Job};

/// The program of most ranks, an example of host-init.
const PROGRAM: &str = "rounds";
/// One of the gallery.
const MOE: &str = "moe";
const RANKS: u32 = 4;
/// The rank that fails, if not another one is named, and those that are left.
const FAILS: u32 = 3;
const LEFT: [u32; 3] = [0, 1, 2];
const ALL: [u32; 4] = [0, 1, 2, 3];

/// Shorter than the time for which queue pairs try again, which is 8.6 s.
const SHORT: Duration = Duration::from_secs(2);
/// Between the starts of two ranks.
const APART: Duration = Duration::from_secs(10);

/// A case: what happens, and how it is checked. Each has a port of its own for rank 0.
type Case = (&'static str, fn(&Bench<'_>, u16) -> Result<(), String>);

const CASES: [Case; 15] = [
    ("ranks that start 10 s apart", apart),
    ("a rank killed at its start", |bench, port| {
        killed_at_its_start(bench, port, None)
    }),
    ("a rank killed while it connects", |bench, port| {
        killed_at_its_start(bench, port, Some("starts"))
    }),
    (
        "a rank killed in its first rounds, which comes back",
        |bench, port| killed(bench, port, Duration::ZERO),
    ),
    ("a rank killed later, which comes back", |bench, port| {
        killed(bench, port, Duration::from_millis(1370))
    }),
    ("two ranks killed, which come back", two_killed),
    ("rank 0 killed", rank_0_killed),
    ("a machine unplugged for 2 s", unplugged_shortly),
    (
        "a machine unplugged for longer, and its rank back",
        unplugged,
    ),
    ("a rank that stands still for 2 s", stops_shortly),
    ("a rank that stands still for longer", stops),
    ("loss in one direction", one_way),
    ("experts over links that lose packets", experts),
    ("an MTU that shrinks", shrunk_mtu),
    (
        "a rank number twice, and a rank of another version",
        strangers,
    ),
];

impl Steps<'_> {
    pub(super) fn faults(&self, report: &mut Report) -> Result<(), StepError> {
        if !net::can_be_made(report, &CASES.map(|(title, _)| title.to_owned())) {
            return Ok(());
        }
        let mut build = self.workspace_cargo("build");
        build.args(["--examples", "--message-format=json-render-diagnostics"]);
        let built = self.capture(build, BUILD_DEADLINE)?;
        if !built.success() {
            report.fail("building the ranks", without_json(&built.account()));
            return Ok(());
        }
        let program = |name| executable(&built.stdout, name).ok_or(StepError::Unbuilt(name));
        let (rounds, moe) = (program(PROGRAM)?, program(MOE)?);
        cases(&rounds, &moe, &self.workspace.target, report);
        Ok(())
    }
}

fn cases(rounds: &Path, moe: &Path, folder: &Path, report: &mut Report) {
    let net = match Net::new(RANKS) {
        Ok(net) => net,
        Err(error) => return report.fail("four network namespaces", error),
    };
    let bench = Bench {
        net: &net,
        rounds,
        moe,
        stop: folder.join("faults-stop"),
    };
    for (port, (title, case)) in (26_000..).zip(CASES) {
        let problem = case(&bench, port).err();
        report.list(title, &Vec::from_iter(problem));
    }
}

fn apart(bench: &Bench<'_>, port: u16) -> Result<(), String> {
    let mut job = Job::new(bench, RANKS, port);
    for rank in [1, 0, 2, 3] {
        job.start(rank)?;
        if rank != 3 {
            sleep(APART);
        }
    }
    job.all_say(ALL, "round")?;
    job.finish(&ALL)
}

/// The rank dies before it joins, or once it has said this. All others end with an error that names it, or all go on
/// without it and take it in again.
fn killed_at_its_start(bench: &Bench<'_>, port: u16, words: Option<&str>) -> Result<(), String> {
    let mut job = Job::new(bench, RANKS, port);
    for rank in ALL {
        job.start(rank)?;
    }
    match words {
        None => sleep(Duration::from_millis(30)),
        Some(words) => job.all_say([FAILS], words)?,
    }
    job.kill(FAILS)?;
    job.until("an error or a round without rank 3", 0, |said| {
        LEFT.iter().all(|rank| {
            let mut own = said.iter().filter(|(of, _)| of == rank);
            own.any(|(_, line)| {
                line.contains("goes on without {3}")
                    || line.starts_with("ends:") && line.contains("rank 3")
            })
        })
    })?;
    if job.nobody_says("goes on without").is_err() {
        return comes_back(&mut job);
    }
    for rank in LEFT {
        if job.ended(rank)? {
            return Err(format!("rank {rank} succeeded"));
        }
    }
    Ok(())
}

/// Those that are left go on; a new process takes part again.
fn killed(bench: &Bench<'_>, port: u16, moment: Duration) -> Result<(), String> {
    let mut job = Job::started(bench, RANKS, port)?;
    sleep(moment);
    job.kill(FAILS)?;
    job.all_say(LEFT, "rank 3")?;
    job.all_say(LEFT, "goes on without {3}")?;
    comes_back(&mut job)
}

fn comes_back(job: &mut Job<'_>) -> Result<(), String> {
    let from = job.now();
    job.start(FAILS)?;
    job.all_say_after(from, LEFT, "took 3 in")?;
    let from = job.now();
    job.all_say_after(from, ALL, "round")?;
    job.finish(&ALL)
}

/// Both are taken in, and know it of each other.
fn two_killed(bench: &Bench<'_>, port: u16) -> Result<(), String> {
    let mut job = Job::started(bench, RANKS, port)?;
    job.kill(2)?;
    job.kill(3)?;
    let from = job.now();
    job.start(3)?;
    job.start(2)?;
    for words in ["took 2 in", "took 3 in"] {
        job.all_say_after(from, [0, 1], words)?;
    }
    let from = job.now();
    job.all_say_after(from, ALL, "round")?;
    job.finish(&ALL)
}

fn rank_0_killed(bench: &Bench<'_>, port: u16) -> Result<(), String> {
    let mut job = Job::started(bench, RANKS, port)?;
    job.kill(0)?;
    let over = "rank 0 is gone, and served all others: the job ends";
    job.all_say([1, 2, 3], over)?;
    for rank in [1, 2, 3] {
        job.ended(rank)?;
    }
    Ok(())
}

fn unplugged_shortly(bench: &Bench<'_>, port: u16) -> Result<(), String> {
    let mut job = Job::started(bench, RANKS, port)?;
    bench.net.set_link(FAILS, "down")?;
    sleep(SHORT);
    bench.net.set_link(FAILS, "up")?;
    nothing_is_lost(&mut job)
}

fn nothing_is_lost(job: &mut Job<'_>) -> Result<(), String> {
    let from = job.now();
    job.all_say_after(from, ALL, "round")?;
    job.finish(&ALL)?;
    job.nobody_says("error")
}

fn unplugged(bench: &Bench<'_>, port: u16) -> Result<(), String> {
    let mut job = Job::started(bench, RANKS, port)?;
    bench.net.set_port(FAILS, "down")?;
    let result = without_it(&mut job);
    bench.net.set_port(FAILS, "up")?;
    result?;
    // It had an error as well.
    if job.ended(FAILS)? {
        return Err("the rank that was unplugged succeeded".into());
    }
    comes_back(&mut job)
}

/// The others name it, and go on.
fn without_it(job: &mut Job<'_>) -> Result<(), String> {
    job.until("the queue pair to rank 3", 0, |said| {
        let words = "error: the queue pair to rank 3";
        said.iter().any(|(_, line)| line.contains(words))
    })?;
    job.all_say(LEFT, "goes on without {3}")
}

fn stops_shortly(bench: &Bench<'_>, port: u16) -> Result<(), String> {
    let mut job = Job::started(bench, RANKS, port)?;
    job.signal(FAILS, Signal::STOP)?;
    sleep(SHORT);
    job.signal(FAILS, Signal::CONT)?;
    nothing_is_lost(&mut job)
}

fn stops(bench: &Bench<'_>, port: u16) -> Result<(), String> {
    let mut job = Job::started(bench, RANKS, port)?;
    job.signal(FAILS, Signal::STOP)?;
    without_it(&mut job)?;
    job.signal(FAILS, Signal::CONT)?;
    job.all_say([FAILS], "ends: rank 3 was left out")?;
    comes_back(&mut job)
}

/// The two ranks cannot talk, and all others can. Nobody is left out.
fn one_way(bench: &Bench<'_>, port: u16) -> Result<(), String> {
    let mut job = Job::started(bench, RANKS, port)?;
    bench.net.lose(2, FAILS, true)?;
    let named = job.until("an error with the number of the other one", 0, |said| {
        let to = |rank: u32| format!("error: the queue pair to rank {rank}");
        let says = |rank, words: &str| {
            said.iter()
                .any(|(of, line)| *of == rank && line.contains(words))
        };
        says(2, &to(3)) || says(3, &to(2))
    });
    bench.net.lose(2, FAILS, false)?;
    named?;
    job.all_say(ALL, "goes on without {}")?;
    let from = job.now();
    job.all_say_after(from, ALL, "round")?;
    job.finish(&ALL)
}

/// Every value is exact all the same.
fn experts(bench: &Bench<'_>, port: u16) -> Result<(), String> {
    for rank in ALL {
        bench.net.narrow(rank, true)?;
    }
    let result = experts_lose(bench, port);
    for rank in ALL {
        bench.net.narrow(rank, false)?;
    }
    result
}

fn experts_lose(bench: &Bench<'_>, port: u16) -> Result<(), String> {
    let mut job = Job::of(bench, bench.moe, RANKS, port);
    for rank in ALL {
        job.start(rank)?;
    }
    for rank in ALL {
        if !job.ended(rank)? {
            return Err(job.account("a rank failed"));
        }
        if bench.net.lost(rank)? == 0 {
            return Err(format!("rank {rank} has lost no packet"));
        }
    }
    job.all_say([0], "Test OK")
}

/// The packets of the path MTU that the ranks agreed on pass no more: ranks get an error with a number, and go on once
/// they pass again.
fn shrunk_mtu(bench: &Bench<'_>, port: u16) -> Result<(), String> {
    let mut job = Job::started(bench, RANKS, port)?;
    bench.net.set_mtu(FAILS, Some(1400))?;
    let from = job.now();
    let answered = job.until("an error with a number", from, |said| {
        let words = "error: the queue pair to rank";
        said.iter().any(|(_, line)| line.contains(words))
    });
    bench.net.set_mtu(FAILS, None)?;
    answered?;
    let from = job.now();
    job.all_say_after(from, ALL, "round")?;
    job.finish(&ALL)
}

/// Both are refused, and disturb nobody.
fn strangers(bench: &Bench<'_>, port: u16) -> Result<(), String> {
    let mut job = Job::started(bench, RANKS, port)?;
    job.start(2)?;
    job.all_say([2], "another process has joined as rank 2")?;
    if job.ended(2)? {
        return Err("the second rank 2 succeeded".into());
    }
    job.forget_newest();
    // A hello of version 1, as `ranks/src/wire.rs` has it; the answer says which version this is.
    let hello =
        r#"exec 3<>/dev/tcp/$0/$1; printf 'WBRK\1\0\0\0\4\0\0\0\2\0\0\0%32s' >&3; head -c 5 <&3"#;
    let mut command = bench.net.command(1, Path::new("bash"));
    command.args(["-c", hello, &Net::address(0), &port.to_string()]);
    let answer = command.output().map_err(|error| error.to_string())?;
    if answer.stdout != b"WBRK\x02" {
        return Err(format!("another version is answered with {answer:?}"));
    }
    job.finish(&ALL)?;
    job.nobody_says("error")
}
