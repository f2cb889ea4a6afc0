//! Rounds of an exchange with experts between ranks of this process, driven by their kernels, and by their hosts between
//! kernels: dispatch and combine of the same tokens, by the same requests to the same places.

mod by_host;
mod by_kernel;
mod model;

use clap::ValueEnum;
use serde::Serialize;
use warpbell_host_init::{Grid, Node, QueuePairConfig, Timers};
use warpbell_patterns::experts::Format;
use warpbell_patterns::experts::host::ExpertsConfig;

use crate::Error;
use crate::run::interrupt;
use crate::samples::Samples;

pub use model::Model;

/// How tokens travel to the experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Values {
    /// In 2 bytes
    Bf16,
    /// In 1 byte, with a scale for each 128
    Fp8,
}

impl Values {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Bf16, Self::Fp8];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
        }
    }

    const fn format(self) -> Format {
        match self {
            Self::Bf16 => Format::Bf16,
            Self::Fp8 => Format::Fp8,
        }
    }
}

/// Who drives the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// A kernel of each rank, which makes all rounds.
    Kernel,
    /// A thread of the host for each rank, between kernels that route, copy and sum up.
    Host,
}

impl Way {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Kernel, Self::Host];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "in the kernel",
            Self::Host => "from the host",
        }
    }

    /// The parts of a round, in order, and how many of them are the dispatch's.
    const fn phases(self) -> (&'static [&'static str], usize) {
        match self {
            Self::Kernel => (
                &["route and send", "wait", "send back", "wait and sum up"],
                2,
            ),
            Self::Host => (
                &[
                    "route",
                    "send",
                    "wait",
                    "send back",
                    "wait for outputs",
                    "sum up",
                ],
                3,
            ),
        }
    }
}

/// What is exchanged.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Case {
    /// Ranks, from 2 on.
    pub ranks: u32,
    /// Experts of all ranks, a multiple of the ranks.
    pub experts: u32,
    /// Tokens of each rank in each round.
    pub tokens: u32,
    /// Experts of a token, all different.
    pub top_k: u32,
    /// Values of a token, a multiple of 256.
    pub hidden: u32,
    /// Blocks of each rank's kernels. In the kernel each has a queue to each other rank; the host has one.
    pub blocks: u32,
    /// Threads of each, a multiple of 32.
    pub threads: u32,
    /// Depth of each queue in blocks of 64 bytes.
    pub depth: u32,
    /// Rounds that count; at least 1.
    pub rounds: u32,
    /// Rounds before them that do not.
    pub warm_up: u32,
}

/// A part of a round.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Phase {
    /// What happens.
    pub name: &'static str,
    /// The median of all ranks' rounds, in microseconds.
    pub median_us: f64,
    /// The share of all time that counts, 1 for all of it.
    pub share: f64,
}

/// What was measured in one way.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Who drove the network.
    pub way: Way,
    /// How tokens travelled.
    pub values: Values,
    /// The median of all ranks' dispatches, in microseconds: from its call until all tokens are there.
    pub dispatch_us: f64,
    /// The same of combines: from the first output's way back until all results are there.
    pub combine_us: f64,
    /// The same of both together.
    pub round_us: f64,
    /// The parts of a round.
    pub phases: Vec<Phase>,
    /// The results of all ranks are what a loop on the host says, bit by bit.
    pub verified: bool,
}

/// What ranks leave: nanoseconds for each part of each round that counts, and rows of results.
struct Ran {
    times: Vec<Vec<u64>>,
    results: Vec<Vec<u8>>,
}

impl Case {
    /// All rounds: those that warm up, those that count, and one in which the experts work, whose results are compared.
    const fn all(&self) -> u32 {
        self.warm_up + self.rounds + 1
    }

    /// Whether a round's times count.
    const fn counts(&self, round: u32) -> bool {
        round >= self.warm_up && round < self.warm_up + self.rounds
    }

    const fn grid(&self) -> Grid {
        Grid::new(self.blocks, self.threads)
    }

    /// Each expert has a slot for each token, so that none is left out.
    fn config(&self, values: Values, queue_pair: QueuePairConfig) -> ExpertsConfig {
        ExpertsConfig {
            experts: self.experts,
            hidden: self.hidden,
            top_k: self.top_k,
            tokens: self.tokens,
            capacity: self.tokens,
            format: values.format(),
            blocks: self.blocks,
            queue_pair,
            ..ExpertsConfig::default()
        }
    }

    /// Queues that outwait a NIC with all ranks' tokens before it: nothing is lost on the way, and nothing is gained by
    /// sending it again.
    fn queues(&self) -> QueuePairConfig {
        QueuePairConfig {
            send_depth: self.depth,
            receive_depth: 0,
            timers: Timers {
                // 8.6 s.
                acknowledge_timeout: 21,
                ..Timers::default()
            },
            ..QueuePairConfig::default()
        }
    }

    /// Exchanges in one way, and compares the results with the model's.
    ///
    /// # Errors
    /// Numbers that are refused; a kernel or a host that failed.
    pub fn measure(
        &self,
        node: &Node,
        way: Way,
        values: Values,
        model: &Model,
    ) -> Result<Measured, Error> {
        interrupt::check()?;
        let Ran { times, results } = match way {
            Way::Kernel => by_kernel::run(self, node, values, model)?,
            Way::Host => by_host::run(self, node, values, model)?,
        };
        let (names, dispatch) = way.phases();
        let all: u64 = times.iter().flatten().sum();
        let phases = (names.iter().enumerate()).map(|(phase, name)| {
            let spent: u64 = times.iter().map(|round| round[phase]).sum();
            Phase {
                name,
                median_us: median_us(times.iter().map(|round| round[phase])),
                share: spent as f64 / all.max(1) as f64,
            }
        });
        let sum = |round: &[u64]| round.iter().sum::<u64>();
        Ok(Measured {
            way,
            values,
            dispatch_us: median_us(times.iter().map(|round| sum(&round[..dispatch]))),
            combine_us: median_us(times.iter().map(|round| sum(&round[dispatch..]))),
            round_us: median_us(times.iter().map(|round| sum(round))),
            phases: phases.collect(),
            verified: results == model.results(values),
        })
    }
}

fn median_us(nanoseconds: impl Iterator<Item = u64>) -> f64 {
    let mut samples = Samples::default();
    nanoseconds.for_each(|time| samples.push(time as f64 / 1e3));
    samples.median()
}

/// The parts between times.
fn parts(times: &[u64]) -> Vec<u64> {
    let part = |pair: &[u64]| pair[1].saturating_sub(pair[0]);
    times.windows(2).map(part).collect()
}
