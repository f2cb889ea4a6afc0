//! How long it takes until a task starts, and until its answer is there.

use crate::run::statistics::percentile;
use serde::Serialize;
use warpbell::{Slice, Word64};
use warpbell_host_init::{Buffer, Entry, Grid, Launch, Node, Shared, entry};
use warpbell_kernels::active::{
    ActiveAnswer, ActiveRoundTrip, active_answer, active_round_trip_arguments,
    active_round_trip_payload, active_round_trip_value,
};
use warpbell_kernels::outcome::Outcome;

use super::launching::Target;
use super::{Way, run};
use crate::Error;
use crate::gaspi::OneWay;
use crate::run::interrupt;
use crate::run::launch::LIMIT_US;
use crate::run::memory::{self, Memory};
use crate::samples::sorted;

/// A kernel in turn with what runs its tasks: a message, its task, which does nothing, and its answer.
#[derive(Clone, Copy, Debug)]
pub struct TaskStarts {
    /// Rounds that count; at least 1.
    pub rounds: u32,
    /// Rounds before them that do not.
    pub warm_up: u32,
    /// Bytes of a payload.
    pub bytes: u32,
}

/// The task saw what was sent, and answered: half a round trip.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Starts {
    /// A task with a value and nothing else.
    pub value: OneWay,
    /// One with two arguments beside it.
    pub arguments: OneWay,
    /// One behind a payload.
    pub payload: OneWay,
}

/// From the call that sends a task to its answer, in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RoundTrip {
    /// Half of the rounds took at most this.
    pub median_ns: u64,
    /// The fastest.
    pub min_ns: u64,
}

impl TaskStarts {
    /// How long a task of a kernel that stays takes to start, from its message's call to the target's, as half of a
    /// round trip.
    ///
    /// # Errors
    /// A kernel that failed.
    pub fn measure(&self, node: &Node) -> Result<Starts, Error> {
        let one_way = |kernel| {
            let samples = self.samples(node, Way::Resident, kernel)?;
            Ok::<_, Error>(OneWay::of(&samples, self.warm_up))
        };
        Ok(Starts {
            value: one_way(entry!(active_round_trip_value))?,
            arguments: one_way(entry!(active_round_trip_arguments))?,
            payload: one_way(entry!(active_round_trip_payload))?,
        })
    }

    /// How long a task with a value takes in a way, on a node for it ([`Way::on`]).
    ///
    /// # Errors
    /// A kernel that failed.
    pub fn round_trip(&self, node: &Node, way: Way) -> Result<RoundTrip, Error> {
        let samples = self.samples(node, way, entry!(active_round_trip_value))?;
        let sorted = sorted(samples.iter().skip(self.warm_up as usize));
        Ok(RoundTrip {
            median_ns: percentile(&sorted, 50),
            min_ns: sorted[0],
        })
    }

    fn samples(
        &self,
        node: &Node,
        way: Way,
        kernel: Entry<fn(ActiveRoundTrip<'_>)>,
    ) -> Result<Shared<[Word64]>, Error> {
        let bytes = self.bytes as usize;
        let (active, near) = way.lanes(node, 1, 8, bytes)?;
        let source = Memory::new(&near, node.nic_placement(), bytes)?;
        let all = self.warm_up + self.rounds;
        let samples = node.words(all as usize)?;
        let outcomes: [Shared<Outcome>; 2] =
            [node.shared(Outcome::new())?, node.shared(Outcome::new())?];
        let initiator = ActiveRoundTrip {
            initiator: active.initiator(),
            source: source.local(0, bytes),
            rounds: all,
            limit_us: LIMIT_US,
            samples: Slice::new(&samples),
            outcome: &outcomes[0],
        };
        let initiator = Launch::new(kernel, Grid::ONE_THREAD, initiator);
        let what = "round trips";
        if way == Way::Resident {
            let target = ActiveAnswer {
                target: active.target(),
                stop: interrupt::stop(node.placement())?,
                limit_us: LIMIT_US,
                outcome: &outcomes[1],
            };
            let target = Launch::new(entry!(active_answer), Grid::ONE_THREAD, target);
            let said_by = outcomes.each_ref().map(|outcome| &**outcome);
            run(node, what, [initiator, target], &active, said_by)?;
        } else {
            let nothing = Buffer::placed(node.placement().of_states(), 8)?;
            let target = Target {
                node,
                active: &active,
                grid: Grid::ONE_THREAD,
                // SAFETY: this memory outlives the launch; kernels alone use it meanwhile.
                sums: unsafe { memory::place(&nothing) },
                words: 1,
            };
            target.run(way, what, initiator, &outcomes[0])?;
        }
        Ok(samples)
    }
}
