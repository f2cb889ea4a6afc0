//! A member of an exchange of experts is a process of its own, and is killed in the middle of a round. The others end
//! the round without it, and go on with the process that takes its place.

use std::process::{Child, Command, Stdio};
use std::sync::{Barrier, Mutex};

use warpbell_host_init::Grid;
use warpbell_patterns::experts::Mode;
use warpbell_patterns::experts::host::{ExpertsConfig, ExpertsMember};

use super::*;
use crate::experts::model::Routing;
use crate::experts::rounds::{Plan, WHOLE};
use crate::experts::{all_succeed, config_of};

/// The rank that is killed, and the others.
const KILLED: u32 = 1;
const OTHERS: [u32; 2] = [0, 2];
/// The numbers of the exchange are not those of the job.
const ALL: [u32; 3] = [2, 0, 1];
/// The number of the killed one there.
const GONE: u32 = 2;
/// For how long the others wait for it, in milliseconds.
const SHORT: u64 = 5_000;
const GRID: Grid = Grid::new(2, 32);

/// Says which mode the process of [`another_process`] has.
const MODE: &str = "WARPBELL_TEST_MODE";
const THROUGHPUT: &str = "throughput";

fn join(world: &mut World, mode: Mode) -> ExpertsMember {
    let config = ExpertsConfig {
        experts: 6,
        ..config_of(mode)
    };
    let joined = ExpertsMember::join(world, &ALL, &config);
    joined.unwrap().expect("all are members")
}

const fn rounds(rounds: u64) -> Plan {
    Plan::whole(Routing::Random, rounds)
}

/// It is no test of its own: without its variable it does nothing.
#[test]
fn another_process() {
    let Some(mode) = std::env::var_os(MODE) else {
        return;
    };
    let mode = match mode == THROUGHPUT {
        true => Mode::Throughput,
        false => Mode::LowLatency,
    };
    let mut world = World::from_env(&Node::cpu(), PATIENCE).unwrap();
    let has_returned = world.has_returned();
    let member = join(&mut world, mode);
    all_succeed(rounds(3).run(&[&member], GRID));
    if has_returned {
        return world.barrier().unwrap();
    }
    let begins = Plan {
        half: 0,
        ..rounds(1)
    };
    all_succeed(begins.run(&[&member], GRID));
    // Its NIC goes on until the kill comes from the other side.
    thread::sleep(PATIENCE);
    panic!("nobody killed this process");
}

/// That process; killed when the test ends, however it ends.
struct Process(Child);

impl Process {
    fn start(entrance: &Entrance, mode: Mode) -> Self {
        let wire = match entrance.wire == WireKind::SharedMemory {
            true => "shm",
            false => "roce",
        };
        let mode = match mode {
            Mode::Throughput => THROUGHPUT,
            Mode::LowLatency => "",
        };
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "ranks::killed::another_process", "--nocapture"])
            .env(MODE, mode)
            .env("WARPBELL_LAUNCHER", "hand")
            .env("WARPBELL_RANK", KILLED.to_string())
            .env("WARPBELL_SIZE", entrance.size.to_string())
            .env("WARPBELL_ROOT", entrance.root().to_string())
            .env("WARPBELL_WIRE", wire)
            .stdout(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_killed_and_replaced(port: u16, wire: WireKind, mode: Mode) {
    let entrance = Entrance::new(port, 3, wire);
    let process = Mutex::new(Process::start(&entrance, mode));
    let met = Barrier::new(OTHERS.len());
    entrance.these(OTHERS, |mut world| {
        let mut member = join(&mut world, mode);
        let run = |plan: Plan| all_succeed(plan.run(&[&member], GRID));
        run(rounds(3));
        // Its tokens come, and are compared; nothing comes back from its experts.
        for half in 0..2 {
            run(Plan { half, ..rounds(1) });
        }
        if met.wait().is_leader() {
            process.lock().unwrap().kill();
        }
        met.wait();
        let without = Plan {
            masked: GONE,
            ..rounds(1)
        };
        for half in 2..WHOLE {
            run(Plan {
                half,
                limit_ms: SHORT,
                ..without
            });
            met.wait();
        }
        assert_eq!(member.team().masked().unwrap(), [GONE]);
        // Nobody waits for it any more.
        run(Plan {
            rounds: 2,
            ..without
        });
        let error = world.barrier().unwrap_err().to_string();
        assert!(error.contains("rank 1"), "{error}");
        assert!(world.shrink(PATIENCE).unwrap().into_iter().eq([KILLED]));

        if met.wait().is_leader() {
            *process.lock().unwrap() = Process::start(&entrance, mode);
        }
        world.take_in(KILLED, PATIENCE).unwrap();
        member.rejoin(&mut world).unwrap();
        all_succeed(rounds(3).run(&[&member], GRID));
        world.barrier().unwrap();
        // Of three, one, two and three.
        assert_eq!(member.round().unwrap(), 9);
    });
    let status = process.into_inner().unwrap().0.wait().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn over_shared_memory() {
    is_killed_and_replaced(22_084, WireKind::SharedMemory, Mode::LowLatency);
}

#[test]
fn over_roce() {
    is_killed_and_replaced(22_085, WireKind::RoceV2, Mode::Throughput);
}
