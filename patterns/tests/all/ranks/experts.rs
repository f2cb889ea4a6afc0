//! A member of an exchange of experts dies, the others finish the round without it, and a new process takes its place.

use std::sync::Barrier;

use warpbell::{Word64, kernel, thread};
use warpbell_host_init::{Grid, Launch, entry};
use warpbell_patterns::experts::host::{ExpertsConfig, ExpertsMember};
use warpbell_patterns::experts::{Error, ExpertsHandle};

use super::*;
use crate::experts::model::Routing;
use crate::experts::rounds::Plan;
use crate::experts::{all_succeed, config as exchange};

/// The rank that dies, and how often.
const DIES: u32 = 1;
const TIMES: u32 = 2;
/// The numbers of the exchange are not those of the job.
const ALL: [u32; 3] = [2, 1, 0];
/// For how long the others wait for it.
const SHORT: Deadline = Deadline::after_ms(3_000);
const GRID: Grid = Grid::new(2, 32);

fn config() -> ExpertsConfig {
    ExpertsConfig {
        experts: 6,
        ..exchange()
    }
}

fn join(world: &mut World) -> ExpertsMember {
    let joined = ExpertsMember::join(world, &ALL, &config());
    joined.unwrap().expect("all are members")
}

/// Rounds to which all come, with every value compared.
fn rounds(member: &ExpertsMember, rounds: u64) {
    all_succeed(Plan::whole(Routing::Random, rounds).run(&[member], GRID));
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Without<'a> {
    experts: ExpertsHandle<'a>,
    /// How many are masked in the end, and 1 more, or an error.
    result: &'a Word64,
}

/// A round to which not all come, with the choices of the one before.
#[kernel]
fn without(p: Without<'_>) {
    let round = || -> Result<u32, Error> {
        let mut experts = p.experts.open()?;
        experts.dispatch(experts.shape().tokens, SHORT)?;
        experts.combine(SHORT)
    };
    let result = match round() {
        Ok(masked) => u64::from(masked) + 1,
        Err(error) => error.to_bits(),
    };
    if thread::first() {
        p.result.store(result, Ordering::Relaxed);
    }
}

fn one_is_masked(member: &ExpertsMember) {
    let node = Node::cpu();
    let result = node.shared(Word64::new(0)).unwrap();
    let parameters = Without {
        experts: member.handle(),
        result: &result,
    };
    let launch = Launch::new(entry!(without), GRID, parameters);
    node.run(&[launch], &[]).unwrap();
    assert_eq!(result.load(Ordering::Relaxed), 2);
    let gone = ALL.iter().position(|&rank| rank == DIES).unwrap() as u32;
    assert_eq!(member.team().masked().unwrap(), [gone]);
}

fn dies_and_comes_back(port: u16, wire: WireKind) {
    let entrance = Entrance::new(port, 3, wire);
    let (left, shrunk) = (Barrier::new(2), Barrier::new(3));
    entrance.all(|mut world| {
        let mut member = join(&mut world);
        for time in 0..TIMES {
            // One that came back has begun as many as the others.
            assert_eq!(member.round().unwrap(), u64::from(5 * time));
            rounds(&member, 3);
            if world.rank() == DIES {
                drop(member);
                drop(world);
                shrunk.wait();
                world = entrance.enter(DIES);
                member = join(&mut world);
            } else {
                left.wait();
                one_is_masked(&member);
                // Nobody waits for it any more.
                one_is_masked(&member);
                assert!(world.shrink(PATIENCE).unwrap().into_iter().eq([DIES]));
                shrunk.wait();
                world.take_in(DIES, PATIENCE).unwrap();
                member.rejoin(&mut world).unwrap();
            }
            assert!(member.team().masked().unwrap().is_empty());
        }
        rounds(&member, 3);
        world.barrier().unwrap();
    });
}

#[test]
fn a_member_dies_and_comes_back_over_shared_memory() {
    dies_and_comes_back(22_067, WireKind::SharedMemory);
}

#[test]
fn a_member_dies_and_comes_back_over_roce() {
    dies_and_comes_back(22_068, WireKind::RoceV2);
}

#[test]
fn a_member_that_rejoins_with_other_numbers_is_refused() {
    let errors = job(22_069, 2, WireKind::SharedMemory, |mut world| {
        let config = ExpertsConfig {
            experts: 4,
            ..config()
        };
        let joined = ExpertsMember::join(&mut world, &[0, 1], &config);
        let mut member = joined.unwrap().expect("both are members");
        let again = match world.rank() {
            0 => member.rejoin(&mut world).map(drop),
            _ => {
                let other = ExpertsConfig {
                    hidden: 512,
                    ..config
                };
                ExpertsMember::join(&mut world, &[0, 1], &other).map(drop)
            }
        };
        again.unwrap_err().to_string()
    });
    for (rank, error) in errors.into_iter().enumerate() {
        let other = 1 - rank;
        let wanted = format!("rank {other} was given another configuration: the values of a token");
        assert!(
            error.contains(&wanted) || error.contains("aborted"),
            "{error}"
        );
    }
}
