//! Exchanges whose members are in one process: every value against a reference, every refusal, who is masked.
#![cfg(all(feature = "host", not(loom)))]

mod counts;
mod exact;
mod masks;
pub mod model;
mod packed;
mod refusals;
pub mod rounds;

use warpbell::{Deadline, Word64};
use warpbell_host_init::{Grid, Launch, Node, Placement, QueuePairConfig, Shared, Timers};
use warpbell_patterns::experts::host::{ExpertsConfig, ExpertsMember, experts_of};
use warpbell_patterns::experts::{Error, Format, Mode};

/// What a member that is there is waited for.
const PATIENCE: Deadline = Deadline::after_ms(300_000);

/// So many members, in either mode.
fn in_both_modes(members: usize) -> [(usize, Mode); 2] {
    [(members, Mode::LowLatency), (members, Mode::Throughput)]
}

/// The same in either mode; in the throughput mode, tokens make two pieces.
pub fn config_of(mode: Mode) -> ExpertsConfig {
    match mode {
        Mode::LowLatency => config(),
        Mode::Throughput => ExpertsConfig {
            tokens: 40,
            capacity: 120,
            mode,
            ..config()
        },
    }
}

/// Queue pairs that take nobody for dead on a machine that has other work.
pub fn config() -> ExpertsConfig {
    ExpertsConfig {
        experts: 8,
        hidden: 256,
        top_k: 3,
        tokens: 20,
        capacity: 60,
        blocks: 2,
        queue_pair: QueuePairConfig {
            send_depth: 64,
            timers: Timers {
                acknowledge_timeout: 18,
                ..Timers::default()
            },
            ..QueuePairConfig::default()
        },
        ..ExpertsConfig::default()
    }
}

fn exchange(members: usize, config: &ExpertsConfig) -> Vec<ExpertsMember> {
    experts_of(&Node::cpu().domains(members).unwrap(), config).unwrap()
}

/// What each thread of a member's kernel leaves: 0, or its error's word, or that of [`wrong`].
fn results(grid: Grid) -> Shared<[Word64]> {
    let threads = grid.blocks * grid.threads_per_block;
    Shared::slice(Placement::Host, threads as usize, |_| Word64::new(u64::MAX)).unwrap()
}

/// A value that is not what it should be: no error has such a word.
fn wrong(what: u32, number: u64) -> u64 {
    u64::from(what) << 48 | 1 << 47 | number & ((1 << 47) - 1)
}

/// Runs a kernel for each member, and says what each thread left.
fn run(launches: &[Launch<'_>], results: &[Shared<[Word64]>]) -> Vec<Vec<u64>> {
    Node::cpu().run(launches, &[]).unwrap();
    let word = |word: &Word64| word.load(core::sync::atomic::Ordering::Relaxed);
    let member = |results: &Shared<[Word64]>| results.iter().map(word).collect();
    results.iter().map(member).collect()
}

/// Whether every thread of every member has succeeded.
#[track_caller]
pub fn all_succeed(results: Vec<Vec<u64>>) {
    for (rank, threads) in results.into_iter().enumerate() {
        for (thread, word) in threads.into_iter().enumerate() {
            let error = Error::from_bits(word);
            assert_eq!(
                word, 0,
                "thread {thread} of member {rank}: {word:#x}, {error:?}"
            );
        }
    }
}
