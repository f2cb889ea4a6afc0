//! Collectives of a team.

use warpbell::Block;
use warpbell_patterns::team::host::{TeamConfig, TeamMember};
use warpbell_patterns::team::{Algorithm, Team};

use super::*;

/// Numbers of a member, and how many a member has of them in a scatter.
const COUNT: u64 = 1200;
const SHARE: u64 = COUNT / RANKS as u64;
const RANKS: u32 = 4;
/// Where results lie, behind a member's own numbers.
const TO: u64 = 8 * COUNT;
/// Where the tables of `all_to_all_v` lie, behind the results.
const SENDS: u64 = TO + RANKS as u64 * 8 * COUNT;
const TAKES: u64 = SENDS + RANKS as u64 * 16;

/// Number `at` of a member in a call: no two are alike.
fn number(call: u64, rank: u32, at: u64) -> u64 {
    let mixed = (call << 32 | u64::from(rank) << 24 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 31
}

/// How many numbers a member sends to another one, or to itself, in an `all_to_all_v`: in a fourth of all cases none.
fn count(call: u64, from: u32, to: u32) -> u64 {
    let mixed = number(call, from, to.into()) >> 40;
    match mixed % 4 {
        0 => 0,
        _ => mixed / 4 % (SHARE + 1),
    }
}

/// So many rounds of every call, over each wire.
pub fn rounds(port: u16, rounds: u64) {
    let config = TeamConfig {
        bytes: (TAKES + u64::from(RANKS) * 16) as usize,
        queue_pair: queues(),
        ..TeamConfig::default()
    };
    for (port, wire) in (port..).zip(WIRES) {
        under_loss(port, RANKS, wire, |mut world| {
            let all: Vec<u32> = world.ranks().collect();
            let member = TeamMember::join(&mut world, &all, &config).unwrap();
            let member = member.expect("all are members");
            for round in 0..rounds {
                every_call(&member, round);
            }
            world.barrier().unwrap();
        });
    }
}

fn every_call(member: &TeamMember, round: u64) {
    let own = member.rank();
    let mut team = member.handle().open::<Block>(0).unwrap();
    // What a call makes of the members' numbers: so many words, each by its place.
    let mut check = |number_of: u64,
                     call: &mut dyn FnMut(&mut Team<'_, Block>),
                     words: u64,
                     wanted: &dyn Fn(u64) -> u64| {
        let ours: Vec<u8> = (0..COUNT)
            .flat_map(|at| number(number_of, own, at).to_le_bytes())
            .collect();
        member.write(0, &ours).unwrap();
        call(&mut team);
        let mut found = vec![0; 8 * words as usize];
        member.read(TO as usize, &mut found).unwrap();
        let wanted: Vec<u8> = (0..words).flat_map(|at| wanted(at).to_le_bytes()).collect();
        assert!(found == wanted, "call {number_of} at {own}");
    };
    let first = 16 * round;
    let sum = |call: u64, at: u64| {
        (0..RANKS).fold(0, |sum: u64, rank| sum.wrapping_add(number(call, rank, at)))
    };
    let root = (round % u64::from(RANKS)) as u32;
    check(
        first,
        &mut |team| team.broadcast::<u64>(root, 0, TO, COUNT, LIMIT).unwrap(),
        COUNT,
        &|at| number(first, root, at),
    );
    check(
        first + 1,
        &mut |team| team.all_gather::<u64>(0, TO, COUNT, LIMIT).unwrap(),
        COUNT * u64::from(RANKS),
        &|at| number(first + 1, (at / COUNT) as u32, at % COUNT),
    );
    check(
        first + 2,
        &mut |team| team.all_to_all::<u64>(0, TO, SHARE, LIMIT).unwrap(),
        COUNT,
        &|at| {
            number(
                first + 2,
                (at / SHARE) as u32,
                u64::from(own) * SHARE + at % SHARE,
            )
        },
    );
    let algorithms = [Algorithm::Ring, Algorithm::Doubling, Algorithm::Direct];
    for (call, algorithm) in (first + 3..).zip(algorithms) {
        check(
            call,
            &mut |team| {
                team.all_reduce::<u64>(algorithm, 0, TO, COUNT, LIMIT)
                    .unwrap();
            },
            COUNT,
            &|at| sum(call, at),
        );
    }
    for (call, algorithm) in (first + 6..).zip([Algorithm::Ring, Algorithm::Direct]) {
        check(
            call,
            &mut |team| {
                team.reduce_scatter::<u64>(algorithm, 0, TO, COUNT, LIMIT)
                    .unwrap();
            },
            SHARE,
            &|at| sum(call, u64::from(own) * SHARE + at),
        );
    }
    let varying = first + 8;
    let sent = (0..RANKS).map(|to| [8 * SHARE * u64::from(to), count(varying, own, to)]);
    let taken: Vec<u64> = (0..RANKS).map(|from| count(varying, from, own)).collect();
    // What comes lies one behind the other.
    let places = taken.iter().scan(TO, |next, &count| {
        let place = [*next, count];
        *next += 8 * count;
        Some(place)
    });
    let tables: Vec<u8> = (sent.chain(places).flatten())
        .flat_map(u64::to_le_bytes)
        .collect();
    let comes: Vec<u64> = (0..)
        .zip(&taken)
        .flat_map(|(from, &count)| (0..count).map(move |at| (from, at)))
        .map(|(from, at)| number(varying, from, u64::from(own) * SHARE + at))
        .collect();
    check(
        varying,
        &mut |team| {
            member.write(SENDS as usize, &tables).unwrap();
            team.all_to_all_v::<u64>(SENDS, TAKES, LIMIT).unwrap();
        },
        comes.len() as u64,
        &|at| comes[at as usize],
    );
    team.barrier(LIMIT).unwrap();
}

#[test]
fn every_value_is_exact() {
    rounds(22_074, 2);
}
