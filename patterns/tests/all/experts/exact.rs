//! Every value of every round, against the model; and what there is no room for.

use std::collections::BTreeSet;

use super::model::{Model, Routing};
use super::rounds::{Plan, WHOLE};
use super::*;
use warpbell_patterns::experts::Overflow;

const GRID: Grid = Grid::new(2, 32);

#[test]
fn every_value_is_exact() {
    for (members, mode) in [1, 2, 4, 8].into_iter().flat_map(in_both_modes) {
        let members = exchange(members, &config_of(mode));
        let all: Vec<_> = members.iter().collect();
        for routing in Routing::ALL {
            all_succeed(Plan::whole(routing, 3).run(&all, GRID));
        }
        for member in &members {
            assert_eq!(member.round().unwrap(), 12);
            assert_eq!(member.team().first_error(), None);
        }
    }
}

#[test]
fn every_value_in_fp8_is_that_of_its_block() {
    for (members, mode) in [1, 4].into_iter().flat_map(in_both_modes) {
        let config = ExpertsConfig {
            format: Format::Fp8,
            hidden: 512,
            tokens: 5,
            capacity: 15,
            mode,
            ..config()
        };
        let members = exchange(members, &config);
        let all: Vec<_> = members.iter().collect();
        all_succeed(Plan::whole(Routing::Random, 3).run(&all, GRID));
    }
}

/// Other grids go on with a round, of other sizes, too.
#[test]
fn every_half_may_be_a_grid_of_its_own() {
    for (members, mode) in in_both_modes(2) {
        let members = exchange(members, &config_of(mode));
        let all: Vec<_> = members.iter().collect();
        for round in 0..3 {
            for half in 0..WHOLE {
                let grid = Grid::new(1 + (round + half) % 2, 32);
                let plan = Plan {
                    half,
                    ..Plan::whole(Routing::Random, 1)
                };
                all_succeed(plan.run(&all, grid));
            }
        }
    }
}

/// All tokens want one expert, which has room for some: the others are counted, and left out of the sums.
#[test]
fn what_has_no_room_is_dropped_and_counted() {
    let config = ExpertsConfig {
        capacity: 7,
        overflow: Overflow::Drop,
        ..config()
    };
    let (top_k, local) = (config.top_k, config.experts / 2);
    let members = exchange(2, &config);
    let all: Vec<_> = members.iter().collect();
    let mut all_dropped = 0;
    for round in 1..=4 {
        all_succeed(Plan::whole(Routing::One, 1).run(&all, GRID));
        let model = Model {
            routing: Routing::One,
            experts: config.experts,
            tokens: config.tokens,
            round,
            format: config.format,
        };
        let expert = round as u32 % config.experts;
        for (rank, member) in (0..).zip(&members) {
            let owner = &members[(expert / local) as usize];
            let wanted = model.wanted(rank, expert, top_k);
            all_dropped += wanted.saturating_sub(config.capacity);
            let arrived: BTreeSet<_> = (0..wanted.min(config.capacity))
                .map(|slot| {
                    let place = owner.layout().received(round, expert % local, rank, slot);
                    let mut word = [0; 8];
                    owner.team().read(8 * place as usize, &mut word).unwrap();
                    u64::from_le_bytes(word)
                })
                .collect();
            assert_eq!(arrived.len() as u32, wanted.min(config.capacity));
            for token in 0..model.sends(rank) {
                let counts = |_, k: u32| arrived.contains(&(u64::from(k) << 32 | u64::from(token)));
                let sum = |word| model.sum((rank, token, word), top_k, counts).to_le_bytes();
                let wanted: Vec<u8> = (0..64).flat_map(sum).collect();
                let mut found = vec![0; wanted.len()];
                member.read_result(token, &mut found).unwrap();
                assert_eq!(found, wanted, "token {token} of member {rank}");
            }
        }
    }
    assert_ne!(all_dropped, 0);
}
