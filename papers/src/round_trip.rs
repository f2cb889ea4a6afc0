//! How long a write takes to be seen, to compare notifications with.

use warpbell::{Signal, Slice};
use warpbell_bench::gaspi::{OneWay, RoundTrips, outcomes};
use warpbell_bench::run::launch::{Job, LIMIT_US, run_together};
use warpbell_bench::run::setup::Ends;
use warpbell_host_init::{Access, Node, QueuePairConfig, entry};
use warpbell_paper_kernels::round_trip::{WriteRoundTrip, write_round_trip};

use crate::Error;

/// Half a round trip of a write of 8 bytes, as often as those of notifications.
///
/// # Errors
/// A kernel that failed.
pub fn writes(trips: &RoundTrips, node: &Node) -> Result<OneWay, Error> {
    let config = QueuePairConfig {
        send_depth: trips.depth,
        receive_depth: 0,
        ..QueuePairConfig::granting(Access::REMOTE_WRITE)
    };
    let ends = Ends::new(node, &config)?;
    let sides = [&ends.one, &ends.other];
    let memory = [sides[0].memory(8)?, sides[1].memory(8)?];
    let outcomes = outcomes(node, 2)?;
    let rounds = trips.warm_up + trips.rounds;
    let samples = [node.words(rounds as usize)?, node.words(rounds as usize)?];
    let mut jobs = Vec::new();
    for (side, end) in sides.into_iter().enumerate() {
        let parameters = WriteRoundTrip {
            queue: end.pair.send_queue()?,
            // SAFETY: the memory outlives the kernels, and only the NIC writes it.
            signal: unsafe { Signal::new(memory[side].word(0)) },
            answer: memory[1 - side].remote(0),
            begins: u32::from(side == 0),
            rounds,
            limit_us: LIMIT_US,
            samples: Slice::new(&samples[side]),
            outcome: &outcomes[side],
        };
        let outcome = &outcomes[side];
        jobs.push(Job::new(entry!(write_round_trip), parameters, outcome));
    }
    run_together("writes", jobs, &sides)?;
    Ok(OneWay::of(&samples[0], trips.warm_up))
}
