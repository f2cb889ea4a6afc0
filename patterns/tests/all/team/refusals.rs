//! What is refused, by a name and at once or at the deadline.

use super::*;
use warpbell::{Block, Slice, Warp, kernel, thread};
use warpbell_host_init::entry;
use warpbell_patterns::Error as SetUp;
use warpbell_patterns::team::host::TeamError;
use warpbell_patterns::team::{self, Extent, TeamHandle};

#[repr(C)]
#[derive(Clone, Copy)]
struct Trial<'a> {
    team: TeamHandle<'a>,
    which: u32,
    results: Slice<'a, Word64>,
}

#[kernel]
fn trial(p: Trial<'_>) {
    let result = match p.which {
        0 => open_twice(&p),
        1 => meets(&p, Deadline::after_ms(50)),
        2 => meets(&p, PATIENCE),
        3 => grids::<Warp>(&p, warpbell::block::index()),
        4 => grids::<team::Grid>(&p, 0),
        6 => too_long(&p),
        _ => bad_numbers(&p),
    };
    let word = result.err().map_or(0, Error::to_bits);
    p.results.store(thread::index().into(), word);
}

fn open_twice(p: &Trial<'_>) -> Result<(), Error> {
    let _first = p.team.open::<Warp>(0)?;
    p.team.open::<Warp>(0).map(drop)
}

/// Member 0 alone comes twice.
fn meets(p: &Trial<'_>, limit: Deadline) -> Result<(), Error> {
    let mut team = p.team.open::<Block>(0)?;
    team.barrier(limit)
}

/// A grid holds its channels until all its blocks have gone.
fn grids<X: Extent>(p: &Trial<'_>, channel: u32) -> Result<(), Error> {
    let mut team = p.team.open::<team::Grid>(0)?;
    team.barrier(PATIENCE)?;
    let again = p.team.open::<X>(channel).map(drop);
    team.barrier(PATIENCE)?;
    again
}

/// Queues take 64 bytes: a longer message is refused, and no signal says that it came.
fn too_long(p: &Trial<'_>) -> Result<(), Error> {
    let refused = |found: Result<(), Error>| match found {
        Err(Error::TooLong) => Ok(()),
        Err(other) => Err(other),
        Ok(()) => Err(Error::Blocks),
    };
    let mut team = p.team.open::<Warp>(0)?;
    let mut peer = team.peer(1 - team.rank())?;
    peer.put(0, 8, 64, PATIENCE)?;
    refused(peer.put(0, 8, 72, PATIENCE))?;
    refused(peer.put_signal(0, 8, 72, (152, 1), PATIENCE))?;
    peer.flush(PATIENCE)?;
    drop(peer);
    refused(team.all_gather::<u64>(0, 72, 9, Deadline::after_ms(50)))
}

fn bad_numbers(p: &Trial<'_>) -> Result<(), Error> {
    let refused = |found: Result<(), Error>, wanted| match found {
        found if found == Err(wanted) => Ok(()),
        Err(other) => Err(other),
        Ok(()) => Err(Error::Blocks),
    };
    refused(
        p.team.open::<Warp>(2).map(drop),
        Error::NoChannel { channel: 2 },
    )?;
    refused(
        p.team.open::<Warp>(u32::MAX).map(drop),
        Error::NoChannel { channel: u32::MAX },
    )?;
    let mut team = p.team.open::<Warp>(1)?;
    let own = team.rank();
    refused(team.peer(own).map(drop), Error::NoRank { rank: own })?;
    refused(team.peer(2).map(drop), Error::NoRank { rank: 2 })?;
    refused(team.signal(4).map(drop), Error::Uneven { given: 4 })?;
    refused(team.signal(160).map(drop), Error::Outside { offset: 160 })?;
    let far = Error::Outside { offset: u32::MAX };
    refused(team.signal(u64::MAX - 7).map(drop), far)?;
    let mut peer = team.peer(1 - own)?;
    refused(peer.put(0, 8, 9, PATIENCE), Error::Uneven { given: 9 })?;
    refused(
        peer.put(0, 152, 16, PATIENCE),
        Error::Outside { offset: 152 },
    )?;
    refused(
        peer.put(152, 0, 16, PATIENCE),
        Error::Outside { offset: 152 },
    )?;
    refused(peer.get(0, 8, 160, PATIENCE), Error::Outside { offset: 8 })?;
    refused(peer.add(160, 1, PATIENCE), Error::Outside { offset: 160 })?;
    refused(peer.put_value(1, 1, PATIENCE), Error::Uneven { given: 1 })?;
    let signal = peer.put_signal(0, 8, 8, (160, 1), PATIENCE);
    refused(signal, Error::Outside { offset: 160 })
}

fn trials(members: &[TeamMember], which: &[u32], grid: Grid) -> Vec<Vec<Result<(), Error>>> {
    let threads = grid.blocks * grid.threads_per_block;
    let results: Vec<_> = which.iter().map(|_| results(threads)).collect();
    let launches: Vec<_> = (members.iter().zip(which))
        .zip(&results)
        .map(|((member, &which), results)| {
            let results = Slice::new(results);
            let team = member.handle();
            Launch::new(
                entry!(trial),
                grid,
                Trial {
                    team,
                    which,
                    results,
                },
            )
        })
        .collect();
    run(&launches, &results)
}

#[test]
fn bad_numbers_are_refused_and_nothing_is_sent() {
    let members = team(2, &config(2, 20));
    all_succeed(trials(&members, &[5, 5], Grid::new(1, 32)));
    for pair in members.iter().flat_map(TeamMember::queue_pairs) {
        assert_eq!(pair.send_progress().published, 0);
    }
}

#[test]
fn a_message_that_is_too_long_is_refused() {
    let config = config(2, 28);
    let queue_pair = QueuePairConfig {
        max_message: 64,
        ..config.queue_pair
    };
    let members = team(
        2,
        &TeamConfig {
            queue_pair,
            ..config
        },
    );
    all_succeed(trials(&members, &[6, 6], Grid::new(1, 32)));
    for member in &members {
        let mut signal = [0; 8];
        member.read(152, &mut signal).unwrap();
        assert_eq!(signal, [0; 8]);
    }
}

#[test]
fn a_channel_is_one_units_or_one_grids() {
    let members = team(2, &config(2, 20));
    let in_use = |results: Vec<Vec<_>>| {
        let mut results = results.into_iter().flatten();
        assert!(results.all(|result| result == Err(Error::InUse)));
    };
    in_use(trials(&members, &[0, 0], Grid::new(1, 32)));
    in_use(trials(&members, &[3, 3], Grid::new(2, 32)));
    in_use(trials(&members, &[4, 4], Grid::new(2, 32)));
    in_use(trials(&members, &[4, 4], Grid::new(1, 32)));
    // All have closed it.
    all_succeed(trials(&members, &[2, 2], Grid::new(1, 3)));
}

/// Member 1 does not come: member 0 masks it, and goes on alone.
#[test]
fn a_member_that_stays_away_is_masked() {
    let members = team(2, &config(1, 20));
    let late = trials(&members, &[1], Grid::new(1, 3));
    assert_eq!(late, [[Err(Error::Late { rank: 1 }); 3]]);
    assert_eq!(members[0].masked().unwrap(), [1]);
    all_succeed(trials(&members, &[2], Grid::new(1, 3)));
    members[0].set_mask(1, false).unwrap();
    assert_eq!(members[0].masked().unwrap(), [0; 0]);
    // It has been to no call, and is waited for again.
    let late = trials(&members, &[1], Grid::new(1, 3));
    assert_eq!(late, [[Err(Error::Late { rank: 1 }); 3]]);
}

#[test]
fn teams_that_cannot_be_are_refused() {
    let refused = |members: usize, config: &TeamConfig| match team_of(
        &Node::cpu().domains(members).unwrap(),
        config,
    ) {
        Err(SetUp::Team(error)) => error,
        other => panic!("{other:?}"),
    };
    let good = config(1, 20);
    for (config, error) in [
        (
            TeamConfig {
                channels: 0,
                ..good
            },
            TeamError::Number {
                what: "channels of a member",
                value: 0,
                limit: 4096,
            },
        ),
        (
            TeamConfig { bytes: 12, ..good },
            TeamError::Uneven {
                what: "window",
                bytes: 12,
            },
        ),
        (
            TeamConfig {
                scratch_bytes: 1,
                ..good
            },
            TeamError::Uneven {
                what: "scratch",
                bytes: 1,
            },
        ),
        (
            TeamConfig {
                bytes: usize::MAX - 7,
                ..good
            },
            TeamError::TooLarge,
        ),
    ] {
        assert_eq!(refused(2, &config), error);
    }
    let shallow = TeamConfig {
        queue_pair: QueuePairConfig {
            send_depth: 2,
            ..good.queue_pair
        },
        ..good
    };
    assert_eq!(refused(2, &shallow), TeamError::TooShallow { depth: 2 });
    let none = team_of(&[], &good).unwrap_err().to_string();
    assert_eq!(none, "members of a team: 0; choose 1 to 1024");
}
