//! Barriers and one-sided requests.

use super::*;
use warpbell::{Block, Slice, Warp, kernel, thread};
use warpbell_host_init::entry;
use warpbell_patterns::team::{self, Extent, TeamHandle};

#[repr(C)]
#[derive(Clone, Copy)]
struct Basics<'a> {
    team: TeamHandle<'a>,
    /// A warp, a block, or a grid.
    extent: u32,
    rounds: u64,
    results: Slice<'a, Word64>,
}

#[kernel]
fn basics(p: Basics<'_>) {
    let warp = thread::index() / thread::warp_size();
    let result = match p.extent {
        0 => go::<Warp>(&p, warp, warp),
        1 => go::<Block>(&p, warpbell::block::index(), warpbell::block::index()),
        _ => go::<team::Grid>(&p, 0, warpbell::block::index()),
    };
    let word = result.err().map_or(0, Error::to_bits);
    p.results.store(thread::index().into(), word);
}

/// In words of 8 bytes for each unit: what it gets, what it sends, what comes, a signal, a counter.
const WORDS: u64 = 5;

fn go<X: Extent>(p: &Basics<'_>, channel: u32, unit: u32) -> Result<(), Error> {
    let at = |word: u64| 8 * (WORDS * u64::from(unit) + word);
    let own = p.team.words();
    let mut team = p.team.open::<X>(channel)?;
    let (rank, ranks) = (team.rank(), team.ranks());
    let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    let value = |rank: u32, round: u64| 1000 * (u64::from(rank) + 1) + round;
    let wrong = |what| Err(Error::Uneven { given: what });
    for round in 1..=p.rounds {
        own.store(at(1) / 8, value(rank, round));
        team.barrier(PATIENCE)?;
        if ranks > 1 {
            let mut peer = team.peer(next)?;
            peer.put_signal(at(1), at(2), 8, (at(3), round), PATIENCE)?;
            peer.add(at(4), round, PATIENCE)?;
            peer.get(at(1), at(0), 8, PATIENCE)?;
            peer.flush(PATIENCE)?;
            if own.load(at(0) / 8) != Some(value(next, round)) {
                return wrong(1);
            }
            peer.quiet(PATIENCE)?;
            drop(peer);
            let came = team.signal(at(3))?;
            if came.wait_together::<X::Unit>(round, PATIENCE) != Ok(round) {
                return wrong(2);
            }
            if own.load(at(2) / 8) != Some(value(before, round)) {
                return wrong(3);
            }
        }
        team.barrier(PATIENCE)?;
        let sum = if ranks > 1 {
            round * (round + 1) / 2
        } else {
            0
        };
        if own.load(at(4) / 8) != Some(sum) {
            return wrong(4);
        }
    }
    Ok(())
}

fn basics_of(
    members: &[TeamMember],
    extent: u32,
    grid: Grid,
    rounds: u64,
) -> Vec<Vec<Result<(), Error>>> {
    let threads = grid.blocks * grid.threads_per_block;
    let results: Vec<_> = members.iter().map(|_| results(threads)).collect();
    let launches: Vec<_> = members
        .iter()
        .zip(&results)
        .map(|(member, results)| {
            let parameters = Basics {
                team: member.handle(),
                extent,
                rounds,
                results: Slice::new(results),
            };
            Launch::new(entry!(basics), grid, parameters)
        })
        .collect();
    run(&launches, &results)
}

#[test]
fn every_extent_puts_adds_gets_and_waits() {
    for (extent, grid) in EXTENTS {
        for members in [1, 2, 5] {
            let members = team(members, &config(4, 20));
            all_succeed(basics_of(&members, extent, grid, 3));
            // The channels go on where they were: their counters alone begin anew.
            for member in &members {
                member.write(0, &[0; 160]).unwrap();
            }
            all_succeed(basics_of(&members, extent, grid, 2));
        }
    }
}

/// Which extent had a channel before does not matter, nor how many blocks.
#[test]
fn extents_take_turns() {
    let members = team(3, &config(4, 20));
    for (extent, grid) in [EXTENTS[2], EXTENTS[1], EXTENTS[2], EXTENTS[0], EXTENTS[2]] {
        for member in &members {
            member.write(0, &[0; 160]).unwrap();
        }
        all_succeed(basics_of(&members, extent, grid, 2));
    }
    for member in &members {
        assert_eq!(member.masked().unwrap(), [0; 0]);
        assert_eq!(member.first_error(), None);
    }
}
