//! How many requests, doorbells and bytes a round takes, beside DeepEP's.

use super::*;
use warpbell::{Slice, kernel, thread};
use warpbell_host_init::entry;
use warpbell_patterns::experts::{Choice, ExpertsHandle};

#[repr(C)]
#[derive(Clone, Copy)]
struct Once<'a> {
    experts: ExpertsHandle<'a>,
    tokens: u32,
    results: Slice<'a, Word64>,
}

/// Dispatches, or after that combines, whatever the experts have made.
#[kernel]
fn once(p: Once<'_>) {
    let done = match p.experts.open() {
        Ok(mut experts) => match p.tokens {
            0 => experts.combine(PATIENCE),
            tokens => experts.dispatch(tokens, PATIENCE),
        },
        Err(error) => Err(error),
    };
    let word = done.err().map_or(0, Error::to_bits);
    p.results.store(thread::index().into(), word);
}

/// Requests that a member has published so far.
fn published(member: &ExpertsMember) -> u64 {
    let pairs = member.team().queue_pairs();
    pairs.map(|pair| pair.send_progress().published).sum()
}

fn run_once(members: &[ExpertsMember], tokens: u32) {
    let grid = Grid::new(1, 128);
    let results: Vec<_> = members.iter().map(|_| results(grid)).collect();
    let launches: Vec<_> = (members.iter().zip(&results))
        .map(|(member, results)| {
            let parameters = Once {
                experts: member.handle(),
                tokens,
                results: Slice::new(results),
            };
            Launch::new(entry!(once), grid, parameters)
        })
        .collect();
    all_succeed(run(&launches, &results));
}

/// 8 members, 32 experts; each of 32 tokens goes to 8 experts, all evenly: 8 tokens for each expert from each member.
#[test]
fn a_round_takes_no_more_requests_than_deepep() {
    const MEMBERS: u64 = 8;
    const EXPERTS: u64 = 32;
    const TOKENS: u32 = 32;
    let config = ExpertsConfig {
        experts: EXPERTS as u32,
        top_k: 8,
        tokens: TOKENS,
        capacity: 32,
        blocks: 1,
        ..config()
    };
    let members = exchange(MEMBERS as usize, &config);
    for member in &members {
        for token in 0..TOKENS {
            let expert = |k| (token * 8 + k) % EXPERTS as u32;
            let choices: Vec<_> = (0..8).map(|k| Choice::new(expert(k), 1.0)).collect();
            member.choose(token, &choices).unwrap();
        }
    }
    let remote = EXPERTS - EXPERTS / MEMBERS;
    let of_expert = u64::from(TOKENS) * 8 / EXPERTS;
    run_once(&members, TOKENS);
    let dispatched: Vec<_> = members.iter().map(published).collect();
    // A row for each token of an expert, and their count: as DeepEP.
    assert_eq!(dispatched, [remote * (of_expert + 1); MEMBERS as usize]);
    run_once(&members, 0);
    let combined: Vec<_> = members.iter().map(published).collect();
    // All rows of an expert in one request, and a flag; DeepEP has one for each row.
    let combine = remote * 2;
    assert_eq!(
        combined,
        [remote * (of_expert + 1) + combine; MEMBERS as usize]
    );
    assert!(combine <= remote * (of_expert + 1));
    // In front of a row are no more than 16 bytes.
    let layout = members[0].layout();
    let row = 8 * u64::from(layout.shape().row_words());
    let message = 8 * (layout.received(0, 0, 0, 1) - layout.received(0, 0, 0, 0));
    assert_eq!(message - row, 16);
}
