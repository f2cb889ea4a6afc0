//! The bare round trip: a word from a kernel to a CPU thread and one back, with no queue and no NIC. No
//! software NIC on a CPU thread can bring a write across in less.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::run::interrupt;
use crate::run::launch::{Job, LIMIT_US, run};
use crate::run::setup::End;
use crate::run::statistics::percentile;
use serde::Serialize;
use warpbell::{Slice, Word64};
use warpbell_host_init::entry;
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::pingpong::{Bare, bare_round_trip};

use crate::Error;
use crate::samples::sorted;

/// Store → CPU thread → store → load, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RoundTrip {
    /// Rounds measured.
    pub rounds: u64,
    /// The fastest.
    pub min_ns: u64,
    /// The average.
    pub average_ns: u64,
    /// Half of them took at most this.
    pub median_ns: u64,
}

/// Words apart from each other, so that each has a cache line of its own.
const APART: usize = 32;

/// Measures, from where an end's kernels run.
///
/// # Errors
/// The kernel failed; Ctrl-C came before a round that counts.
pub fn measure(end: &End, warm_up: u64, rounds: u64) -> Result<RoundTrip, Error> {
    let words = end.node.words(2 * APART)?;
    let (question, answer) = (&words[0], &words[APART]);
    let samples = end.node.words((warm_up + rounds) as usize)?;
    let played = end.node.words(1)?;
    let outcome = end.node.shared(Outcome::new())?;
    let bare = Bare {
        question,
        answer,
        rounds: warm_up + rounds,
        stop: interrupt::stop(end.node.placement())?,
        limit_us: LIMIT_US,
        samples: Slice::new(&samples),
        played: Slice::new(&played),
        outcome: &outcome,
    };
    let job = Job::new(entry!(bare_round_trip), bare, &outcome);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| echo(question, answer, &done));
        let result = run("the bare round trip", job, end);
        done.store(true, Ordering::Relaxed);
        result
    })?;
    let played = played[0].load(Ordering::Relaxed) as usize;
    let measured = samples[..played].iter().skip(warm_up as usize);
    let sorted = sorted(measured);
    if sorted.is_empty() {
        return Err(crate::run::Error::Interrupted.into());
    }
    Ok(RoundTrip {
        rounds: sorted.len() as u64,
        min_ns: sorted[0],
        average_ns: sorted.iter().sum::<u64>() / sorted.len() as u64,
        median_ns: percentile(&sorted, 50),
    })
}

/// Looks in vain before a thread lets another one have its core.
const LOOKS: u32 = 10_000;

/// Answers each new word with the same, until it is done.
fn echo(question: &Word64, answer: &Word64, done: &AtomicBool) {
    let (mut last, mut looks) = (0, 0);
    while !done.load(Ordering::Relaxed) {
        let found = question.load(Ordering::Relaxed);
        if found != last {
            answer.store(found, Ordering::Relaxed);
            (last, looks) = (found, 0);
            continue;
        }
        looks += 1;
        match looks < LOOKS {
            true => std::hint::spin_loop(),
            false => std::thread::yield_now(),
        }
    }
}
