//! Active messages between two kernels of this process: a reduction, and how long it takes until a task starts. A task
//! runs in a kernel that stays, or launches one, as XTQ's do; who launches it is a graph of the GPU, or the host.

mod launching;
mod reduce;
mod starts;

use clap::ValueEnum;
use serde::Serialize;
use warpbell_host_init::{Launch, Node, Placement, ProtectionDomain, QueuePair, QueuePairConfig};
use warpbell_kernels::active::{ACCUMULATE, ARGUMENTS, VECTORS};
use warpbell_kernels::outcome::Outcome;
use warpbell_patterns::active::host::{ActiveConfig, ActiveMessages};
use warpbell_soft_hca_gpu::MemoryScope;

use crate::run::interrupt;
use crate::run::launch::said;
use crate::{Error, nodes};

pub use reduce::{ReduceCase, ReduceResult};
pub use starts::{RoundTrip, Starts, TaskStarts};

/// The function that the reduction's vectors name, for the reader.
pub const REDUCES: u32 = ACCUMULATE;

/// What a task that has come does at the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// A thread of the host sees it, launches a kernel, and answers once that has ended
    Host,
    /// A graph of the GPU sees it, launches a kernel, and answers once that has ended
    Launched,
    /// A kernel that runs all the time sees it, runs it and answers
    Resident,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Host, Self::Launched, Self::Resident];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Launched => "launched",
            Self::Resident => "resident",
        }
    }

    /// The node, where tasks can be run in this way.
    ///
    /// # Errors
    /// A GPU without CUDA's device runtime, for tasks that a graph launches.
    pub fn on(self, node: &Node) -> Result<Node, Error> {
        match self {
            // The target's queues lie in pinned memory, beyond the GPU's own.
            Self::Host => nodes::reaching(node, MemoryScope::System),
            Self::Launched => Ok(node.able_to_repeat()?),
            Self::Resident => Ok(node.clone()),
        }
    }

    /// Lanes on such a node, with the functions of the kernels registered, and the initiator's domain.
    fn lanes(
        self,
        node: &Node,
        lanes: u32,
        slots: u32,
        bytes: usize,
    ) -> Result<(ActiveMessages, ProtectionDomain), Error> {
        let [near, far] = node.ends()?;
        let config = ActiveConfig {
            lanes,
            slots,
            functions: 8,
            buffers: 1,
            queue_pair: QueuePairConfig {
                send_depth: (8 * slots).clamp(16, 1024),
                ..QueuePairConfig::default()
            },
            ..ActiveConfig::default()
        };
        let target = match self {
            Self::Host => QueuePairConfig {
                placement: Some(node.placement()),
                state_placement: Some(Placement::Host),
                ..config.queue_pair
            },
            Self::Launched | Self::Resident => config.queue_pair,
        };
        let mut active = ActiveMessages::with_target(&near, &far, &config, target)?;
        for (function, arguments) in (0..).zip(ARGUMENTS) {
            active.register(function, arguments)?;
        }
        active.register_buffer(VECTORS, bytes)?;
        Ok((active, near))
    }
}

/// Runs the kernels of both ends until they have ended.
fn run(
    node: &Node,
    what: &str,
    launches: [Launch<'_>; 2],
    active: &ActiveMessages,
    outcomes: [&Outcome; 2],
) -> Result<(), Error> {
    interrupt::check()?;
    let pairs: Vec<&QueuePair> = active.queue_pairs().collect();
    node.run(&launches, &pairs)?;
    for outcome in outcomes {
        said(what, outcome)?;
    }
    Ok(())
}
