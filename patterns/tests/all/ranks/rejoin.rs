//! A member of a team dies, the others go on without it, and a new process takes its place.

use std::sync::Barrier;

use warpbell::Block;
use warpbell_patterns::team::Error;
use warpbell_patterns::team::host::{TeamConfig, TeamMember};

use super::*;

/// The rank that dies, how often, and those that are left.
const DIES: u32 = 1;
const TIMES: u64 = 2;
const LEFT: [u32; 2] = [2, 0];
/// The numbers of the team are not those of the job.
const ALL: [u32; 3] = [2, 1, 0];
/// For how long the others wait for it.
const SHORT: Deadline = Deadline::after_ms(3_000);

fn config() -> TeamConfig {
    TeamConfig {
        channels: 2,
        bytes: 8 * 8,
        scratch_bytes: 16,
        queue_pair: patient(),
    }
}

fn word(member: &TeamMember, number: u32) -> u64 {
    let mut word = [0; 8];
    member.read(8 * number as usize, &mut word).unwrap();
    u64::from_le_bytes(word)
}

fn callers(member: &TeamMember) -> Vec<u64> {
    (0..8).map(|number| word(member, number)).collect()
}

/// Each member that is not masked puts a number into its word at all others, by each channel. Word 7 is the next number.
fn exchange(member: &TeamMember, number: u64) {
    let (own, masked) = (member.rank(), member.masked().unwrap());
    let others: Vec<u32> = (0..member.ranks())
        .filter(|rank| *rank != own && !masked.contains(rank))
        .collect();
    for channel in [0, 1] {
        let value = |rank: u32| 1000 * (number + 1) + u64::from(10 * rank + channel);
        member.write(8 * 7, &value(own).to_le_bytes()).unwrap();
        let mut team = member.handle().open::<Block>(channel).unwrap();
        for &rank in &others {
            let mut peer = team.peer(rank).unwrap();
            peer.put(8 * 7, 8 * u64::from(own), 8, LIMIT).unwrap();
        }
        team.barrier(LIMIT).unwrap();
        for &rank in &others {
            assert_eq!(word(member, rank), value(rank), "of {rank} at {own}");
        }
        // Nobody puts the next number before all have seen this one.
        team.barrier(LIMIT).unwrap();
    }
}

/// Those that are left find out, and go on without the one that died, in the same team and in one of their own.
fn without_it(world: &mut World, member: &TeamMember, left: &Barrier, number: u64) {
    let gone = ALL.iter().position(|&rank| rank == DIES).unwrap() as u32;
    left.wait();
    let mut team = member.handle().open::<Block>(0).unwrap();
    let error = team.barrier(SHORT).unwrap_err();
    drop(team);
    assert!(
        error == Error::Late { rank: gone } || matches!(error, Error::Failed(_)),
        "{error}"
    );
    assert_eq!(member.masked().unwrap(), [gone]);
    exchange(member, number);

    assert!(world.shrink(PATIENCE).unwrap().into_iter().eq([DIES]));
    let refused = TeamMember::join(world, &ALL, &config())
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("rank 1 is not there") || refused.contains("aborted"),
        "{refused}"
    );
    // One rank's error is the others' as well; all are left after it.
    assert!(world.shrink(PATIENCE).unwrap().is_empty());
    let two = TeamMember::join(world, &LEFT, &config()).unwrap().unwrap();
    exchange(&two, number + 1);
    world.barrier().unwrap();
    exchange(member, number + 2);
}

fn dies_and_comes_back(port: u16, wire: WireKind) {
    let entrance = Entrance::new(port, 3, wire);
    let (left, shrunk) = (Barrier::new(2), Barrier::new(3));
    entrance.all(|mut world| {
        let own = world.rank();
        let mut member = TeamMember::join(&mut world, &ALL, &config())
            .unwrap()
            .unwrap();
        for time in 0..TIMES {
            exchange(&member, 10 * time);
            // A member that ends at once may not have told the others that it has come.
            world.barrier().unwrap();
            if own == DIES {
                drop(member);
                drop(world);
                shrunk.wait();
                world = entrance.enter(DIES);
                assert!(world.has_returned());
                member = TeamMember::join(&mut world, &ALL, &config())
                    .unwrap()
                    .unwrap();
                assert_eq!(callers(&member), [0; 8]);
            } else {
                without_it(&mut world, &member, &left, 10 * time + 1);
                shrunk.wait();
                world.take_in(DIES, PATIENCE).unwrap();
                let before = callers(&member);
                member.rejoin(&mut world).unwrap();
                assert_eq!(callers(&member), before);
            }
            // Nobody puts before all have looked.
            world.barrier().unwrap();
            assert!(member.masked().unwrap().is_empty());
        }
        exchange(&member, 10 * TIMES);
        world.barrier().unwrap();
    });
}

#[test]
fn a_member_dies_and_comes_back_over_shared_memory() {
    dies_and_comes_back(22_064, WireKind::SharedMemory);
}

#[test]
fn a_member_dies_and_comes_back_over_roce() {
    dies_and_comes_back(22_065, WireKind::RoceV2);
}

/// Without queues until then.
#[test]
fn a_member_whose_rejoining_failed_may_rejoin() {
    job(22_078, 2, WireKind::SharedMemory, |mut world| {
        let joined = TeamMember::join(&mut world, &[0, 1], &config());
        let mut member = joined.unwrap().expect("both are members");
        exchange(&member, 0);
        world.barrier().unwrap();
        let before = callers(&member);
        if world.rank() == 0 {
            member.rejoin(&mut world).unwrap_err();
            let mut team = member.handle().open::<Block>(0).unwrap();
            assert_eq!(team.peer(1).err(), Some(Error::Handle));
        } else {
            world.abort("not yet");
        }
        assert!(world.shrink(PATIENCE).unwrap().is_empty());
        member.rejoin(&mut world).unwrap();
        assert_eq!(callers(&member), before);
        world.barrier().unwrap();
        exchange(&member, 1);
        world.barrier().unwrap();
    });
}

#[test]
fn a_member_is_refused_where_it_does_not_belong() {
    job(22_066, 2, WireKind::SharedMemory, |mut world| {
        let domains = [world.domain().clone()];
        let mut alone = warpbell_patterns::team::host::team_of(&domains, &config()).unwrap();
        let other = Node::cpu().domains(1).unwrap();
        let mut elsewhere = warpbell_patterns::team::host::team_of(&other, &config()).unwrap();
        if world.rank() == 0 {
            let error = elsewhere[0].rejoin(&mut world).unwrap_err().to_string();
            assert!(
                error.contains("the member is none of this job's"),
                "{error}"
            );
        } else {
            let error = world.barrier().unwrap_err().to_string();
            assert!(error.contains("none of this job's"), "{error}");
        }
        world.shrink(PATIENCE).unwrap();
        // The world's domain, and yet no team of its ranks.
        let error = alone[0].rejoin(&mut world).unwrap_err().to_string();
        assert!(
            error.contains("the member is none of this job's") || error.contains("aborted"),
            "{error}"
        );
    });
}
