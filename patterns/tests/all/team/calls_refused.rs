//! Collective calls that do not succeed: bad numbers, members that disagree, that stay away, or that are masked.

use super::*;
use warpbell::{Block, Slice, kernel, thread};
use warpbell_host_init::entry;
use warpbell_patterns::number::F16;
use warpbell_patterns::team::{Algorithm, Team, TeamHandle};

#[repr(C)]
#[derive(Clone, Copy)]
struct Trial<'a> {
    team: TeamHandle<'a>,
    what: What,
    limit_ms: u64,
    results: Slice<'a, Word64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u32)]
enum What {
    /// Every call with numbers that are refused.
    BadNumbers,
    /// 16 numbers of each member, from byte 0 to byte 256.
    Gather,
    /// The same of 18 numbers.
    LongerGather,
    /// The same numbers as halves of floats of 16 bits.
    OtherGather,
    /// From member 2, as [`What::Gather`].
    Broadcast,
    /// Sums of 16 numbers.
    Ring,
    Direct,
    /// A word for each member, and the same from it.
    Vary,
    /// The same, but two words from member 0.
    VaryMore,
}

#[kernel]
fn calls_refused(p: Trial<'_>) {
    let word = go(&p).err().map_or(0, Error::to_bits);
    p.results.store(thread::index().into(), word);
}

/// Words of the callers' part of a window.
const USER: usize = 128;

fn go(p: &Trial<'_>) -> Result<(), Error> {
    let limit = Deadline::after_ms(p.limit_ms);
    let mut team = p.team.open::<Block>(0)?;
    match p.what {
        What::BadNumbers => bad_numbers(&mut team),
        What::Gather => team.all_gather::<f32>(0, 256, 16, limit),
        What::LongerGather => team.all_gather::<f32>(0, 256, 18, limit),
        What::OtherGather => team.all_gather::<F16>(0, 256, 32, limit),
        What::Broadcast => team.broadcast::<f32>(2, 0, 256, 16, limit),
        What::Ring => team.all_reduce::<f32>(Algorithm::Ring, 0, 256, 16, limit),
        What::Direct => team.all_reduce::<f32>(Algorithm::Direct, 0, 256, 16, limit),
        What::Vary | What::VaryMore => vary(p, &mut team, limit),
    }
}

/// A word to each member from its number on, to word 64 and what follows.
fn vary(p: &Trial<'_>, team: &mut Team<'_, Block>, limit: Deadline) -> Result<(), Error> {
    let own = p.team.words();
    let more = |from: u32, to: u32| u64::from(p.what == What::VaryMore && (from, to) == (0, 1));
    for rank in 0..team.ranks() {
        let place = u64::from(rank);
        let sends = 1 + more(team.rank(), rank);
        own.store(16 + 2 * place, 8 * place);
        own.store(16 + 2 * place + 1, sends);
        own.store(32 + 2 * place, 512 + 8 * place);
        own.store(32 + 2 * place + 1, 1);
    }
    team.all_to_all_v::<u64>(128, 256, limit)
}

fn refused(found: Result<(), Error>, wanted: Error) -> Result<(), Error> {
    match found {
        found if found == Err(wanted) => Ok(()),
        Err(other) => Err(other),
        Ok(()) => Err(Error::Blocks),
    }
}

/// Of a team of 3 members, with 128 words each and a scratch of 4.
fn bad_numbers(team: &mut Team<'_, Block>) -> Result<(), Error> {
    use Algorithm::{Direct, Doubling, Ring};
    let t = team;
    let (far, p) = (Error::Outside { offset: 1024 }, PATIENCE);
    let uneven = |given| Error::Uneven { given };
    refused(t.broadcast::<f32>(3, 0, 0, 2, p), Error::NoRank { rank: 3 })?;
    refused(t.broadcast::<f32>(0, 4, 0, 2, p), uneven(4))?;
    refused(t.broadcast::<f32>(0, 0, 0, 3, p), uneven(3))?;
    refused(t.broadcast::<F16>(0, 0, 0, 6, p), uneven(6))?;
    refused(t.broadcast::<u64>(0, 0, 1024, 1, p), far)?;
    refused(t.broadcast::<u64>(0, 0, 8, 2, p), Error::Overlap)?;
    let most = Error::Outside { offset: 0 };
    refused(t.broadcast::<u64>(0, 0, 0, u64::MAX, p), most)?;
    refused(t.all_gather::<u64>(0, 256, u64::MAX / 2, p), most)?;
    refused(
        t.all_gather::<u64>(0, 256, 40, p),
        Error::Outside { offset: 256 },
    )?;
    refused(t.all_gather::<u64>(256, 264, 2, p), Error::Overlap)?;
    refused(t.all_to_all::<u64>(0, 0, 1, p), Error::Overlap)?;
    refused(t.all_to_all::<u64>(1024, 0, 1, p), far)?;
    refused(t.all_reduce::<f32>(Ring, 0, 0, 5, p), uneven(5))?;
    refused(t.all_reduce::<f32>(Ring, 0, 8, 4, p), Error::Overlap)?;
    refused(
        t.all_reduce::<u64>(Direct, 0, 0, 2, p),
        Error::Scratch { words: 6 },
    )?;
    refused(
        t.all_reduce::<u64>(Doubling, 0, 0, 1, p),
        Error::Ranks { ranks: 3 },
    )?;
    refused(
        t.reduce_scatter::<u64>(Doubling, 0, 0, 3, p),
        Error::Algorithm,
    )?;
    refused(t.reduce_scatter::<u64>(Ring, 0, 512, 4, p), uneven(4))?;
    refused(
        t.reduce_scatter::<u64>(Direct, 0, 512, 6, p),
        Error::Scratch { words: 6 },
    )?;
    refused(t.reduce_scatter::<u64>(Ring, 0, 16, 9, p), Error::Overlap)
}

/// Runs a trial at each member that takes part, with 3 threads.
fn trials(members: &[TeamMember], which: &[What], limit_ms: u64) -> Vec<Result<(), Error>> {
    let results: Vec<_> = which.iter().map(|_| results(3)).collect();
    let launches: Vec<_> = (members.iter().zip(which))
        .zip(&results)
        .map(|((member, &what), results)| {
            let parameters = Trial {
                team: member.handle(),
                what,
                limit_ms,
                results: Slice::new(results),
            };
            Launch::new(entry!(calls_refused), Grid::new(1, 3), parameters)
        })
        .collect();
    let found = run(&launches, &results);
    found
        .into_iter()
        .map(|threads| {
            assert_eq!(threads, [threads[0]; 3], "all threads get the same");
            threads[0]
        })
        .collect()
}

/// Long enough for whoever is there.
const LONG: u64 = 300_000;

fn config_of(scratch: usize) -> TeamConfig {
    TeamConfig {
        scratch_bytes: 8 * scratch,
        ..config(1, USER)
    }
}

fn three(scratch: usize) -> Vec<TeamMember> {
    team(3, &config_of(scratch))
}

#[test]
fn bad_numbers_of_calls_are_refused_and_nothing_is_sent() {
    let members = three(4);
    assert_eq!(trials(&members, &[What::BadNumbers; 3], LONG), [Ok(()); 3]);
    for pair in members.iter().flat_map(TeamMember::queue_pairs) {
        assert_eq!(pair.send_progress().published, 0);
    }
}

/// Who disagrees with the others is found by all of them at once, and nothing is masked.
#[test]
fn members_that_disagree_learn_of_it() {
    for other in [
        What::LongerGather,
        What::OtherGather,
        What::Ring,
        What::Broadcast,
    ] {
        let members = three(64);
        let found = trials(&members, &[other, What::Gather, What::Gather], LONG);
        assert!(
            matches!(found[0], Err(Error::Disagrees { rank: 1 | 2 })),
            "{other:?}: {found:?}"
        );
        assert_eq!(
            found[1..],
            [Err(Error::Disagrees { rank: 0 }); 2],
            "{other:?}"
        );
        for member in &members {
            assert_eq!(member.masked().unwrap(), [0; 0]);
        }
        // The channel goes on.
        assert_eq!(trials(&members, &[What::Gather; 3], LONG), [Ok(()); 3]);
    }
}

/// The two whose counts differ learn of it; the third gets what it wants.
#[test]
fn counts_that_differ_are_found() {
    let members = three(0);
    assert_eq!(trials(&members, &[What::Vary; 3], LONG), [Ok(()); 3]);
    let found = trials(&members, &[What::VaryMore, What::Vary, What::Vary], LONG);
    let wanted = [
        Err(Error::Disagrees { rank: 1 }),
        Err(Error::Disagrees { rank: 0 }),
        Ok(()),
    ];
    assert_eq!(found, wanted);
}

fn fill(members: &[TeamMember]) {
    for member in members {
        let value = [member.rank() as u8 + 1; 8 * USER];
        member.write(0, &value).unwrap();
    }
}

/// What is in each member's place of a gathered window.
fn gathered(member: &TeamMember) -> [u8; 3] {
    let mut bytes = [0; 192];
    member.read(256, &mut bytes).unwrap();
    [0, 64, 128].map(|at| {
        assert_eq!(bytes[at..at + 64], [bytes[at]; 64]);
        bytes[at]
    })
}

/// A member that stays away is masked. Calls that can do without it leave it out from then on.
#[test]
fn who_stays_away_is_left_out() {
    for what in [What::Gather, What::Ring, What::Direct] {
        let members = team(2, &config_of(64));
        let late = trials(&members, &[what], 50);
        assert_eq!(late, [Err(Error::Late { rank: 1 })], "{what:?}");
        assert_eq!(members[0].masked().unwrap(), [1], "{what:?}");
        assert_eq!(trials(&members, &[What::Gather], LONG), [Ok(())]);
    }
}

/// What needs a masked member says so at once; what does not goes on without it.
#[test]
fn calls_that_need_a_masked_member_say_so() {
    let members = three(64);
    fill(&members);
    for member in &members[..2] {
        member.set_mask(2, true).unwrap();
    }
    for what in [What::Broadcast, What::Ring, What::Direct] {
        let found = trials(&members, &[what; 2], LONG);
        assert_eq!(found, [Err(Error::Masked { rank: 2 }); 2], "{what:?}");
    }
    fill(&members);
    assert_eq!(trials(&members, &[What::Gather; 2], LONG), [Ok(()); 2]);
    // The place of the one that is left out is as it was.
    assert_eq!(gathered(&members[0]), [1, 2, 1]);
    assert_eq!(gathered(&members[1]), [1, 2, 2]);
}
