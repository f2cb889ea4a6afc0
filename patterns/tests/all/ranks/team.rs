//! Teams of some of a job's ranks.

use warpbell::Block;
use warpbell_patterns::team::host::{TeamConfig, TeamMember};

use super::*;

fn config(bytes: usize) -> TeamConfig {
    TeamConfig {
        bytes,
        scratch_bytes: 0,
        queue_pair: patient(),
        ..TeamConfig::default()
    }
}

/// Ranks 2 and 0 are a team, in that order; rank 1 is none of them.
#[test]
fn some_ranks_are_a_team() {
    for (port, wire) in (22_060..).zip(WIRES) {
        job(port, 3, wire, |mut world| {
            let own = world.rank();
            let member = TeamMember::join(&mut world, &[2, 0], &config(64)).unwrap();
            if let Some(member) = &member {
                assert_eq!((member.rank(), member.ranks()), (u32::from(own == 0), 2));
                member.write(0, &[own as u8 + 1; 8]).unwrap();
                let mut team = member.handle().open::<Block>(0).unwrap();
                let mut peer = team.peer(1 - member.rank()).unwrap();
                peer.put(0, 8, 8, LIMIT).unwrap();
                drop(peer);
                team.barrier(LIMIT).unwrap();
                let mut found = [0; 8];
                member.read(8, &mut found).unwrap();
                assert_eq!(found, [if own == 0 { 3 } else { 1 }; 8]);
            }
            assert_eq!(member.is_none(), own == 1);
            world.barrier().unwrap();
        });
    }
}

#[test]
fn ranks_that_disagree_learn_of_it_at_set_up() {
    let errors = job(22_062, 3, WireKind::SharedMemory, |mut world| {
        let bytes = if world.rank() == 1 { 128 } else { 64 };
        let joined = TeamMember::join(&mut world, &[0, 1, 2], &config(bytes));
        joined.unwrap_err().to_string()
    });
    for (rank, error) in errors.into_iter().enumerate() {
        let other = if rank == 1 { 0 } else { 1 };
        let wanted = format!("rank {other} was given another configuration: the bytes differ");
        assert!(
            error.contains(&wanted) || error.contains("aborted"),
            "{error}"
        );
    }
}

#[test]
fn ranks_that_are_not_there_are_no_members() {
    let errors = job(22_063, 2, WireKind::SharedMemory, |mut world| {
        let members: &[u32] = if world.rank() == 0 { &[0, 2] } else { &[0, 0] };
        let joined = TeamMember::join(&mut world, members, &config(64));
        joined.unwrap_err().to_string()
    });
    assert_eq!(
        errors
            .iter()
            .filter(|error| error.contains("is not there, or named twice"))
            .count(),
        2
    );
}
