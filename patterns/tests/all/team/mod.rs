//! Teams whose members are in one process: what threads of every extent put, add and get, and every refusal.
#![cfg(all(feature = "host", not(loom)))]

mod basics;
mod calls_refused;
mod collectives;
mod counts;
mod refusals;

use warpbell::{Deadline, Word64};
use warpbell_host_init::{Grid, Launch, Node, Placement, QueuePairConfig, Shared, Timers};
use warpbell_patterns::team::Error;
use warpbell_patterns::team::host::{TeamConfig, TeamMember, team_of};

/// What a member that is there is waited for.
const PATIENCE: Deadline = Deadline::after_ms(300_000);

/// Queue pairs that take nobody for dead on a machine that has other work.
fn config(channels: u32, words: usize) -> TeamConfig {
    TeamConfig {
        channels,
        bytes: 8 * words,
        scratch_bytes: 0,
        queue_pair: QueuePairConfig {
            send_depth: 16,
            timers: Timers {
                acknowledge_timeout: 18,
                ..Timers::default()
            },
            ..QueuePairConfig::default()
        },
    }
}

fn team(members: usize, config: &TeamConfig) -> Vec<TeamMember> {
    team_of(&Node::cpu().domains(members).unwrap(), config).unwrap()
}

/// What each thread of a member's kernel leaves: 0, or its error's word.
fn results(threads: u32) -> Shared<[Word64]> {
    Shared::slice(Placement::Host, threads as usize, |_| Word64::new(u64::MAX)).unwrap()
}

/// Runs a kernel for each member, and says what became of each thread.
fn run(launches: &[Launch<'_>], results: &[Shared<[Word64]>]) -> Vec<Vec<Result<(), Error>>> {
    Node::cpu().run(launches, &[]).unwrap();
    let word = |word: &Word64| match word.load(core::sync::atomic::Ordering::Relaxed) {
        0 => Ok(()),
        bits => Err(Error::from_bits(bits).expect("the thread has ended")),
    };
    let member = |results: &Shared<[Word64]>| results.iter().map(word).collect();
    results.iter().map(member).collect()
}

/// Whether every thread of every member has succeeded.
#[track_caller]
fn all_succeed(results: Vec<Vec<Result<(), Error>>>) {
    for (rank, threads) in results.into_iter().enumerate() {
        for (thread, result) in threads.into_iter().enumerate() {
            assert_eq!(result, Ok(()), "thread {thread} of member {rank}");
        }
    }
}

/// The grids of each extent.
const EXTENTS: [(u32, Grid); 3] = [
    (0, Grid::new(2, 64)),
    (1, Grid::new(2, 5)),
    (2, Grid::new(3, 4)),
];
