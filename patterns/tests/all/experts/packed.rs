//! How many requests the throughput mode takes, and what it refuses.

use super::*;
use warpbell::{Slice, kernel, thread};
use warpbell_host_init::entry;
use warpbell_patterns::experts::host::ExpertsError;
use warpbell_patterns::experts::{Choice, ExpertsHandle};

#[repr(C)]
#[derive(Clone, Copy)]
struct Once<'a> {
    experts: ExpertsHandle<'a>,
    /// None to combine.
    tokens: u32,
    mode: Mode,
    results: Slice<'a, Word64>,
}

/// Dispatches, or after that combines, whatever the experts have made.
#[kernel]
fn once_packed(p: Once<'_>) {
    let done = match (p.mode, p.tokens) {
        (Mode::LowLatency, _) => p.experts.open().map(|_| 0),
        (Mode::Throughput, 0) => {
            (p.experts.open_packed()).and_then(|mut open| open.combine(PATIENCE))
        }
        (Mode::Throughput, tokens) => {
            (p.experts.open_packed()).and_then(|mut open| open.dispatch(tokens, PATIENCE))
        }
    };
    let word = done.err().map_or(0, Error::to_bits);
    p.results.store(thread::index().into(), word);
}

fn run_once(members: &[ExpertsMember], mode: Mode, tokens: u32) -> Vec<Vec<u64>> {
    let grid = Grid::new(1, 128);
    let results: Vec<_> = members.iter().map(|_| results(grid)).collect();
    let launches: Vec<_> = (members.iter().zip(&results))
        .map(|(member, results)| {
            let parameters = Once {
                experts: member.handle(),
                tokens,
                mode,
                results: Slice::new(results),
            };
            Launch::new(entry!(once_packed), grid, parameters)
        })
        .collect();
    run(&launches, &results)
}

/// Requests that a member has published so far.
fn published(member: &ExpertsMember) -> u64 {
    let pairs = member.team().queue_pairs();
    pairs.map(|pair| pair.send_progress().published).sum()
}

/// 8 members, 8 experts; each of 40 tokens goes to 3 of them, one after the other.
#[test]
fn a_piece_takes_two_requests() {
    const MEMBERS: u64 = 8;
    const PIECES: u64 = 2;
    let members = exchange(MEMBERS as usize, &config_of(Mode::Throughput));
    for member in &members {
        for token in 0..40 {
            let choices = [0, 1, 2].map(|k| Choice::new((token + k) % 8, 1.0));
            member.choose(token, &choices).unwrap();
        }
    }
    all_succeed(run_once(&members, Mode::Throughput, 40));
    let dispatched: Vec<_> = members.iter().map(published).collect();
    // For each other member the counts, and of each piece its records and its word.
    let dispatch = (MEMBERS - 1) * (1 + 2 * PIECES);
    assert_eq!(dispatched, [dispatch; MEMBERS as usize]);
    all_succeed(run_once(&members, Mode::Throughput, 0));
    let combined: Vec<_> = members.iter().map(published).collect();
    // Of each piece its sums and its word.
    let combine = (MEMBERS - 1) * 2 * PIECES;
    assert_eq!(combined, [dispatch + combine; MEMBERS as usize]);
}

#[test]
fn the_other_mode_is_refused() {
    for (made, opened) in [
        (Mode::LowLatency, Mode::Throughput),
        (Mode::Throughput, Mode::LowLatency),
    ] {
        let members = exchange(2, &config_of(made));
        for threads in run_once(&members, opened, 1) {
            assert_eq!(threads, vec![Error::Mode.to_bits(); threads.len()]);
        }
    }
}

#[test]
fn a_piece_that_no_message_holds_is_refused() {
    let of = |max_message| {
        let mut config = config_of(Mode::Throughput);
        config.queue_pair.max_message = max_message;
        config.layout(2)
    };
    // 32 rows of 256 values in bf16, and 4 words of each record: 1 for itself and 3 for its choices.
    let bytes = 32 * (2 * 256 + 4 * 8);
    assert!(of(bytes).is_ok());
    let refused = ExpertsError::TooLong {
        what: "32 packed tokens",
        bytes: bytes.into(),
        limit: bytes - 1,
    };
    assert_eq!(of(bytes - 1), Err(refused));
}
