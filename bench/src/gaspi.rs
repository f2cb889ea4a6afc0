//! GASPI programs whose ranks are kernels of this process.

use std::time::Duration;

use crate::run::interrupt;
use crate::run::launch::LIMIT_US;
use crate::run::statistics::percentile;
use serde::Serialize;
use warpbell::{Slice, Word64};
use warpbell_host_init::{Access, Entry, Grid, Launch, Node, QueuePairConfig, Shared, entry};
use warpbell_kernels::gaspi::{NotifyRoundTrip, gaspi_round_trip, gaspi_round_trip_behind};
use warpbell_kernels::outcome::Outcome;
use warpbell_patterns::gaspi::host::{Gaspi, GaspiConfig};

use crate::samples::sorted;
use crate::{Error, cause};

/// So many queues and notifications for a segment of each rank.
pub fn config(queue_pair: QueuePairConfig, queues: u32, notifications: u32) -> GaspiConfig {
    GaspiConfig {
        queues,
        segments: 1,
        notifications,
        block_limit: Duration::from_micros(LIMIT_US),
        queue_pair,
        ..GaspiConfig::default()
    }
}

/// Runs a kernel for each rank at the same time; they are meant to run for so long.
///
/// # Errors
/// Ctrl-C before that; as [`cause::ended`].
pub fn run(
    node: &Node,
    gaspi: &Gaspi,
    (what, meant): (&str, Duration),
    launches: &[Launch<'_>],
    outcomes: &[Shared<Outcome>],
) -> Result<(), Error> {
    interrupt::check()?;
    let mut queue_pairs = Vec::new();
    for rank in 0..gaspi.ranks() {
        queue_pairs.extend(gaspi.queue_pairs(rank)?);
    }
    let ran = node.run_for(launches, &queue_pairs, meant);
    cause::ended(
        ran.map_err(Error::from),
        outcomes.iter().map(|outcome| (what, &**outcome)),
    )
}

/// Room for what each rank's kernel says became of it.
///
/// # Errors
/// No memory for it.
pub fn outcomes(node: &Node, ranks: u32) -> Result<Vec<Shared<Outcome>>, Error> {
    let outcomes = (0..ranks).map(|_| node.shared(Outcome::new()));
    Ok(outcomes.collect::<Result<_, _>>()?)
}

/// Half a round trip in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OneWay {
    /// Half of the rounds took at most this.
    pub median_ns: u64,
    /// The fastest.
    pub min_ns: u64,
}

impl OneWay {
    /// Of the nanoseconds of round trips, without the first few.
    pub fn of(samples: &[Word64], warm_up: u32) -> Self {
        let rounds = samples.iter().skip(warm_up as usize);
        let sorted = sorted(rounds);
        Self {
            median_ns: percentile(&sorted, 50) / 2,
            min_ns: sorted[0] / 2,
        }
    }
}

/// Two kernels in turn.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrips {
    /// Rounds that count; at least 1.
    pub rounds: u32,
    /// Rounds before them that do not.
    pub warm_up: u32,
    /// Depth of the queues in blocks of 64 bytes.
    pub depth: u32,
}

impl RoundTrips {
    fn all(&self) -> u32 {
        self.warm_up + self.rounds
    }

    /// As a program gets them that asks for nothing but a depth.
    fn queues(&self) -> QueuePairConfig {
        QueuePairConfig {
            send_depth: self.depth,
            ..QueuePairConfig::granting(Access::REMOTE_WRITE)
        }
    }

    /// How long a notification takes, from `notify` to `notify_waitsome` and `notify_reset`.
    ///
    /// # Errors
    /// A kernel that failed.
    pub fn notifications(&self, node: &Node) -> Result<OneWay, Error> {
        self.ranks(node, 0, entry!(gaspi_round_trip))
    }

    /// The same where the first of both notifies behind so many bytes: `write_notify`. The other one's answer is a
    /// notification alone.
    ///
    /// # Errors
    /// A kernel that failed.
    pub fn notifications_behind(&self, node: &Node, bytes: u32) -> Result<OneWay, Error> {
        self.ranks(node, bytes, entry!(gaspi_round_trip_behind))
    }

    fn ranks(
        &self,
        node: &Node,
        bytes: u32,
        kernel: Entry<fn(NotifyRoundTrip<'_>)>,
    ) -> Result<OneWay, Error> {
        let mut gaspi = Gaspi::new(&node.domains(2)?, &config(self.queues(), 1, 1))?;
        gaspi.segment_create(0, bytes.max(8) as usize)?;
        let outcomes = outcomes(node, 2)?;
        let samples = [self.samples(node)?, self.samples(node)?];
        let launches = (0..2)
            .zip(&outcomes)
            .zip(&samples)
            .map(|((rank, outcome), samples)| {
                let parameters = NotifyRoundTrip {
                    gaspi: gaspi.handle(rank)?,
                    rounds: self.all(),
                    bytes,
                    samples: Slice::new(samples),
                    outcome,
                };
                Ok(Launch::new(kernel, Grid::ONE_THREAD, parameters))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let what = ("notifications", Duration::ZERO);
        run(node, &gaspi, what, &launches, &outcomes)?;
        Ok(OneWay::of(&samples[0], self.warm_up))
    }

    fn samples(&self, node: &Node) -> Result<Shared<[Word64]>, Error> {
        Ok(node.words(self.all() as usize)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell::{OpenError, WaitError};
    use warpbell_kernels::outcome::Failure;

    #[test]
    fn a_rank_that_failed_comes_before_one_that_waited_for_it() {
        let node = Node::cpu();
        let trips = RoundTrips {
            rounds: 1,
            warm_up: 0,
            depth: 16,
        };
        let domains = node.domains(2).unwrap();
        let gaspi = Gaspi::new(&domains, &config(trips.queues(), 1, 1)).unwrap();
        let outcomes = outcomes(&node, 2).unwrap();
        outcomes[0].record(|| Err(Failure::Wait(WaitError::Deadline)));
        outcomes[1].record(|| Err(Failure::Open(OpenError::InUse)));
        let error = run(&node, &gaspi, ("ranks", Duration::ZERO), &[], &outcomes).unwrap_err();
        let cause = Failure::Open(OpenError::InUse);
        assert_eq!(error.to_string(), format!("ranks: {cause}"));
    }
}
