//! Every collective call, from every extent, against plain loops.

use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell::{Block, Slice, Warp, Words, kernel, thread};
use warpbell_host_init::entry;
use warpbell_kernels::suite::{PlainTeam, TeamCall, TeamCalls, TeamVerb};
use warpbell_patterns::number::{Bf16, F16, Number};
use warpbell_patterns::team::{self, Algorithm, Extent, Team, TeamHandle};

/// A call, whole or as halves with other work between.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Order {
    call: TeamCall,
    halves: bool,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Orders<'a> {
    team: TeamHandle<'a>,
    /// A warp, a block, or a grid.
    extent: u32,
    orders: Slice<'a, Order>,
    results: Slice<'a, Word64>,
}

#[kernel]
fn orders(p: Orders<'_>) {
    let (warp, block) = (
        thread::index() / thread::warp_size(),
        warpbell::block::index(),
    );
    let result = match p.extent {
        0 => make::<Warp>(&p, warp),
        1 => make::<Block>(&p, block),
        _ => make::<team::Grid>(&p, 0),
    };
    let word = result.err().map_or(0, Error::to_bits);
    p.results.store(thread::index().into(), word);
}

fn make<X: Extent>(p: &Orders<'_>, unit: u32) -> Result<(), Error> {
    let mut team = p.team.open::<X>(unit)?;
    let base = u64::from(unit) * PART;
    let own = p.team.words();
    for order in p.orders.as_slice() {
        match order.call.kind {
            f32::KIND => call::<X, f32>(&mut team, own, order, base),
            F16::KIND => call::<X, F16>(&mut team, own, order, base),
            Bf16::KIND => call::<X, Bf16>(&mut team, own, order, base),
            i32::KIND => call::<X, i32>(&mut team, own, order, base),
            _ => call::<X, u64>(&mut team, own, order, base),
        }?;
    }
    Ok(())
}

/// Functions of their own for each call, whole or as halves: in one, all of them would not fit into a lane's stack.
macro_rules! calls {
    ($($name:ident($whole:ident, $begin:ident; $($argument:ident: $type:ty),+);)*) => {
        $(
            mod $name {
                use super::*;

                #[inline(never)]
                pub fn whole<X: Extent, T: Number>(
                    team: &mut Team<'_, X>,
                    $($argument: $type,)+
                ) -> Result<(), Error> {
                    team.$whole::<T>($($argument,)+ PATIENCE)
                }

                #[inline(never)]
                pub fn halves<X: Extent, T: Number>(
                    team: &mut Team<'_, X>,
                    $($argument: $type,)+
                ) -> Result<(), Error> {
                    let begun = team.$begin::<T>($($argument,)+ PATIENCE)?;
                    std::thread::yield_now();
                    begun.finish(PATIENCE)
                }
            }
        )*
    };
}

calls! {
    to_all(broadcast, begin_broadcast; root: u32, from: u64, to: u64, count: u64);
    gather(all_gather, begin_all_gather; from: u64, to: u64, count: u64);
    vary(all_to_all_v, begin_all_to_all_v; sends: u64, takes: u64);
    exchange(all_to_all, begin_all_to_all; from: u64, to: u64, count: u64);
    reduce(all_reduce, begin_all_reduce; how: Algorithm, from: u64, to: u64, count: u64);
    scatter(reduce_scatter, begin_reduce_scatter; how: Algorithm, from: u64, to: u64, count: u64);
}

fn call<X: Extent, T: Number>(
    team: &mut Team<'_, X>,
    own: Words<'_>,
    order: &Order,
    base: u64,
) -> Result<(), Error> {
    let (call, halves) = (&order.call, order.halves);
    let (how, root, count) = (call.algorithm, call.root, call.count);
    let (ranks, rank) = (team.ranks(), team.rank());
    let (from, to) = (
        8 * (base + call.reads(ranks, rank)),
        8 * (base + call.writes(ranks, rank)),
    );
    match (call.verb, halves) {
        (TeamVerb::Broadcast, false) => to_all::whole::<X, T>(team, root, from, to, count),
        (TeamVerb::Broadcast, true) => to_all::halves::<X, T>(team, root, from, to, count),
        (TeamVerb::AllGather, false) => gather::whole::<X, T>(team, from, to, count),
        (TeamVerb::AllGather, true) => gather::halves::<X, T>(team, from, to, count),
        (TeamVerb::AllToAll, false) => exchange::whole::<X, T>(team, from, to, count),
        (TeamVerb::AllToAll, true) => exchange::halves::<X, T>(team, from, to, count),
        (TeamVerb::AllToAllV, halves) => {
            let tables = base + 2 * HALF;
            call.tell_counts(own, tables, base, (ranks, rank));
            let (sends, takes) = (8 * tables, 8 * (tables + 2 * u64::from(ranks)));
            match halves {
                false => vary::whole::<X, T>(team, sends, takes),
                true => vary::halves::<X, T>(team, sends, takes),
            }
        }
        (TeamVerb::AllReduce, false) => reduce::whole::<X, T>(team, how, from, to, count),
        (TeamVerb::AllReduce, true) => reduce::halves::<X, T>(team, how, from, to, count),
        (TeamVerb::ReduceScatter, false) => scatter::whole::<X, T>(team, how, from, to, count),
        (TeamVerb::ReduceScatter, true) => scatter::halves::<X, T>(team, how, from, to, count),
    }
}

/// An extent, its grid, its channels, and the blocks of its grid that make a call together.
const UNITS: [(u32, Grid, u32, usize); 3] = [
    // The second warp has few lanes.
    (0, Grid::new(1, 37), 2, 1),
    (1, Grid::new(2, 5), 2, 1),
    (2, Grid::new(3, 4), 3, 3),
];

/// Words of each unit's part of the window: the first half is read, and what is in place, the second written.
const HALF: u64 = 160;

/// Words of each unit's part, with the tables of as many members as there may be.
const PART: u64 = 2 * HALF + TeamCalls::TABLES * 8;

const KINDS: [u32; 5] = [f32::KIND, F16::KIND, Bf16::KIND, i32::KIND, u64::KIND];

/// Words in which most sums of floats depend on their order, and few are no numbers.
fn value(random: &mut SmallRng) -> u64 {
    let mut half = || {
        let mut bits: u32 = random.random();
        // Exponents that are near each other, in either half.
        for half in [0x7f80_0000_u32, 0x7c00_u32] {
            let lowest = half & half.wrapping_neg();
            let number = half / lowest / 2 + random.random_range(0..6);
            bits = (bits & !half) | (number * lowest);
        }
        bits
    };
    u64::from(half()) << 32 | u64::from(half())
}

/// Makes the calls at all members, and compares all words of all windows.
fn compare(team: &PlainTeam, units: usize, orders_made: &[Order], seed: u64) {
    let (extent, grid, channels, blocks) = UNITS[units];
    let parts = channels as usize / blocks;
    let members = super::team(
        team.ranks as usize,
        &TeamConfig {
            scratch_bytes: 8 * team.scratch as usize,
            ..config(channels, parts * PART as usize)
        },
    );
    let random = &mut SmallRng::seed_from_u64(seed);
    let mut windows: Vec<Vec<Vec<u64>>> = (0..parts)
        .map(|_| {
            let mut window = || (0..2 * HALF).map(|_| value(random)).collect();
            members.iter().map(|_| window()).collect()
        })
        .collect();
    for (part, windows) in windows.iter().enumerate() {
        for (member, window) in members.iter().zip(windows) {
            let bytes: Vec<u8> = window.iter().flat_map(|word| word.to_le_bytes()).collect();
            member.write(part * 8 * PART as usize, &bytes).unwrap();
        }
    }
    all_succeed(run_orders(&members, extent, grid, orders_made));
    for (part, windows) in windows.iter_mut().enumerate() {
        for order in orders_made {
            apply(team, &order.call, windows);
        }
        for (member, window) in members.iter().zip(windows) {
            let mut bytes = vec![0; 16 * HALF as usize];
            member.read(part * 8 * PART as usize, &mut bytes).unwrap();
            let found = bytes
                .chunks(8)
                .map(|word| u64::from_le_bytes(word.try_into().unwrap()));
            let differ: Vec<_> = found
                .zip(&*window)
                .enumerate()
                .filter(|(_, (found, wanted))| found != *wanted)
                .collect();
            assert!(
                differ.is_empty(),
                "member {} of {team:?}, part {part} of extent {extent}: {:x?} after {orders_made:?}",
                member.rank(),
                &differ[..differ.len().min(9)]
            );
        }
    }
    for member in &members {
        assert_eq!(member.masked().unwrap(), [0; 0]);
    }
}

/// Makes a call on the windows of all members.
fn apply(team: &PlainTeam, call: &TeamCall, windows: &mut [Vec<u64>]) {
    let before = windows.to_vec();
    let read = |rank: u32, word: u64| before[rank as usize][word as usize];
    for (own, window) in (0..).zip(windows) {
        for (word, value) in (0..).zip(window) {
            *value = team.after(call, own, word, read).unwrap_or(*value);
        }
    }
}

fn run_orders(
    members: &[TeamMember],
    extent: u32,
    grid: Grid,
    orders_made: &[Order],
) -> Vec<Vec<Result<(), Error>>> {
    let each = Shared::slice(Placement::Host, orders_made.len(), |at| orders_made[at]).unwrap();
    let threads = grid.blocks * grid.threads_per_block;
    let results: Vec<_> = members.iter().map(|_| results(threads)).collect();
    let launches: Vec<_> = (members.iter().zip(&results))
        .map(|(member, results)| {
            let parameters = Orders {
                team: member.handle(),
                extent,
                orders: Slice::new(&each),
                results: Slice::new(results),
            };
            Launch::new(entry!(orders), grid, parameters)
        })
        .collect();
    run(&launches, &results)
}

/// Members whose units make calls with so many words of scratch.
fn plain(ranks: u32, units: usize, scratch: u64) -> PlainTeam {
    PlainTeam {
        ranks,
        units: UNITS[units].3 as u32,
        scratch,
    }
}

/// Scratch for the direct sums of so many members.
fn enough(ranks: u32) -> u64 {
    u64::from(ranks.max(3)) * HALF
}

fn random_order(team: &PlainTeam, verb: (TeamVerb, Algorithm), random: &mut SmallRng) -> Order {
    let kind = KINDS[random.random_range(0..KINDS.len())];
    Order {
        halves: random.random(),
        call: team.random_call(verb, kind, HALF, |end| random.random_range(0..end)),
    }
}

#[test]
fn every_call_of_every_extent_does_what_it_says() {
    let random = &mut SmallRng::seed_from_u64(27);
    for ranks in [1, 2, 3, 5, 8] {
        for units in 0..UNITS.len() {
            let team = plain(ranks, units, enough(ranks));
            let mut orders = Vec::new();
            for verb in team.verbs() {
                // The type makes a difference for sums alone.
                let sums = matches!(verb.0, TeamVerb::AllReduce | TeamVerb::ReduceScatter);
                for kind in KINDS.into_iter().take(if sums { KINDS.len() } else { 1 }) {
                    for in_place in [false, true] {
                        let halves = random.random();
                        let below = |end| random.random_range(0..end);
                        let call = team.random_call(verb, kind, HALF, below);
                        let call = TeamCall { in_place, ..call };
                        orders.push(Order { call, halves });
                    }
                }
            }
            compare(&team, units, &orders, ranks.into());
        }
    }
}

/// Rings with so little scratch that each call takes many rounds.
#[test]
fn rings_go_in_rounds() {
    let random = &mut SmallRng::seed_from_u64(28);
    for (ranks, scratch) in [(2, 1), (3, 2), (5, 9), (8, 20)] {
        for units in 0..UNITS.len() {
            let team = plain(ranks, units, scratch);
            let verbs = [
                TeamVerb::AllReduce,
                TeamVerb::ReduceScatter,
                TeamVerb::AllGather,
            ];
            let orders: Vec<_> = (0..6)
                .map(|number| random_order(&team, (verbs[number % 3], Algorithm::Ring), random))
                .collect();
            compare(&team, units, &orders, 5);
        }
    }
}

#[test]
fn calls_in_any_order_do_what_they_say() {
    let random = &mut SmallRng::seed_from_u64(29);
    for round in 0..12 {
        let ranks = random.random_range(2..=6);
        let units = random.random_range(0..UNITS.len());
        let team = plain(ranks, units, enough(ranks));
        let verbs: Vec<_> = team.verbs().collect();
        let orders: Vec<_> = (0..30)
            .map(|_| random_order(&team, verbs[random.random_range(0..verbs.len())], random))
            .collect();
        compare(&team, units, &orders, round);
    }
}
