//! Members that do not come: who is masked, what the others' results are, and how one comes back.

use std::thread;
use std::time::Duration;

use super::model::Routing;
use super::rounds::{Plan, WHOLE};
use super::*;

const GRID: Grid = Grid::new(2, 32);
const GONE: u32 = 2;

/// Until all that these members sent has come, so that no short wait is too short for it.
fn counts_have_come(members: &[&ExpertsMember], round: u64) {
    for member in members {
        let shape = member.layout().shape();
        for source in members.iter().map(|source| source.team().rank()) {
            for local in 0..shape.local {
                let place = member.layout().count(round, local, source);
                let mut word = [0; 8];
                while u64::from_le_bytes(word) >> 24 != round {
                    thread::sleep(Duration::from_millis(1));
                    member.team().read(8 * place as usize, &mut word).unwrap();
                }
            }
        }
    }
}

#[test]
fn one_that_stays_away_is_masked_and_comes_back() {
    let members = exchange(4, &config());
    let all: Vec<_> = members.iter().collect();
    let others: Vec<_> = (all.iter().copied())
        .filter(|member| member.team().rank() != GONE)
        .collect();
    let whole = Plan::whole(Routing::Random, 1);
    all_succeed(whole.run(&all, GRID));
    // It does not come to the next round, and the others do without it.
    all_succeed(Plan { half: 0, ..whole }.run(&others, GRID));
    counts_have_come(&others, 2);
    let late = Plan {
        half: 1,
        masked: GONE,
        limit_ms: 50,
        ..whole
    };
    all_succeed(late.run(&others, GRID));
    for half in 2..WHOLE {
        all_succeed(
            Plan {
                half,
                limit_ms: whole.limit_ms,
                ..late
            }
            .run(&others, GRID),
        );
    }
    // Nobody waits for it any more, and nothing is sent to it.
    let window = || {
        let gone = &members[GONE as usize];
        let mut bytes = vec![0; 8 * gone.layout().words() as usize];
        gone.team().read(0, &mut bytes).unwrap();
        bytes
    };
    let before = window();
    let without = Plan {
        masked: GONE,
        rounds: 2,
        ..whole
    };
    all_succeed(without.run(&others, GRID));
    assert!(window() == before);
    for member in &others {
        assert_eq!(member.team().masked().unwrap(), [GONE]);
        assert_eq!(member.team().first_error(), None);
        member.team().set_mask(GONE, false).unwrap();
    }
    // It comes back to the round that the others are at.
    members[GONE as usize]
        .set_round(others[0].round().unwrap())
        .unwrap();
    all_succeed(Plan { rounds: 3, ..whole }.run(&all, GRID));
    for member in &members {
        assert_eq!(member.team().masked().unwrap(), [0; 0]);
        assert_eq!(member.round().unwrap(), 7);
    }
}

/// It has dispatched, and does not send anything back.
#[test]
fn outputs_of_one_that_is_gone_are_left_out() {
    let members = exchange(4, &config());
    let all: Vec<_> = members.iter().collect();
    let others: Vec<_> = (all.iter().copied())
        .filter(|member| member.team().rank() != GONE)
        .collect();
    let whole = Plan::whole(Routing::Random, 1);
    for half in 0..2 {
        all_succeed(Plan { half, ..whole }.run(&all, GRID));
    }
    for member in &others {
        member.team().set_mask(GONE, true).unwrap();
    }
    let without = Plan {
        masked: GONE,
        ..whole
    };
    for half in 2..WHOLE {
        all_succeed(Plan { half, ..without }.run(&others, GRID));
    }
    // Late, and for itself: it harms nobody's next round.
    for member in &others {
        members[GONE as usize]
            .team()
            .set_mask(member.team().rank(), false)
            .unwrap();
    }
    all_succeed(Plan { half: 0, ..without }.run(&others, GRID));
    let late = Plan { half: 2, ..whole }.run(&[all[GONE as usize]], GRID);
    all_succeed(late);
    for half in 1..WHOLE {
        all_succeed(Plan { half, ..without }.run(&others, GRID));
    }
}
