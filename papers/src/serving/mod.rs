//! Pictures that a network of layers answers, the server's network driven by its host or by its kernels.

mod alone;
mod asker;
mod client;
mod data;
pub mod files;
pub mod model;
mod plan;
mod series;
mod server;
mod service;

use std::time::Duration;

use asker::Asker;
use clap::ValueEnum;
use model::Picture;
use plan::Plan;
use serde::Serialize;
use server::Server;
use warpbell_bench::cause;
use warpbell_bench::party::Party;
use warpbell_bench::run::launch::LIMIT_US;
use warpbell_host_init::{Grid, Node};
use warpbell_paper_kernels::network::{COLUMNS, MAX_THREADS};
use warpbell_paper_kernels::serving::Message;

use crate::Error;
use crate::application::Measurement;
use crate::distribution::Distribution;
use crate::rig::{Alone, Driver, Ends};
use crate::together::together;

pub use client::{Answered, CLIENT_HEADER, Client};
pub use plan::{Architecture, PlanError, PlanFault};
pub use series::{APPLICATION, Possible, Results, Series};
pub use service::serve;

/// Pictures that are sent in turn, so that what is left of one answer is wrong in the next.
const PICTURES: u32 = 2;
/// Bytes of a value.
const VALUE: u32 = 4;

/// Who drives the server's network, and what its host does meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The host drives.
    Host,
    /// The kernel does, and the host sleeps until it ends or is interrupted.
    Asleep,
    /// The kernel does, and the host spins until it ends, as a synchronising call does.
    Spinning,
    /// A graph of kernels does, which wait, compute and send, and launches itself for each request; the host sleeps.
    Graph,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Host, Self::Asleep, Self::Spinning, Self::Graph];

    /// Those that are measured where none are named. On a CPU a graph is a kernel that a thread launches, which tells
    /// nothing.
    pub fn usual(node: &Node) -> Vec<Self> {
        let told = |way: &Self| node.gpu().is_some() || *way != Self::Graph;
        Self::ALL.into_iter().filter(told).collect()
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Asleep => "kernel, host asleep",
            Self::Spinning => "kernel, host spinning",
            Self::Graph => "graph, host asleep",
        }
    }

    fn driver(self) -> Driver {
        match self {
            Self::Host => Driver::Host,
            Self::Asleep | Self::Spinning | Self::Graph => Driver::Kernel,
        }
    }
}

/// What is served, and for how long.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Case {
    /// The network that answers.
    pub architecture: Architecture,
    /// Pixels of a row of a picture.
    pub width: u32,
    /// Its rows.
    pub height: u32,
    /// Blocks of the server.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
    /// Queues that a message goes through, a part each.
    pub parts: u32,
    /// Bytes of a work request at most.
    pub piece: u32,
    /// Requests before those that count.
    pub warm_up: u32,
    /// The most requests that count.
    pub rounds: u32,
    /// No request begins later than that.
    pub limit: Duration,
    /// Requests a second; none for each as soon as the one before is answered.
    pub rate: Option<f64>,
    /// The span of time of each [`Moment`], if those are wanted.
    pub every: Option<Duration>,
    /// Depth of each queue in blocks of 64 bytes.
    pub depth: u32,
    /// Seed of weights and pictures.
    pub seed: u64,
}

/// What was measured in a span of time. Requests count from the first one behind the warm-up on, in the span in which
/// they are answered; the thread's share of a core counts from the server's start on.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Moment {
    /// When it ended.
    pub seconds: f64,
    /// Requests answered.
    pub requests: u64,
    /// Microseconds from post to answer, the mean; 0 without a request.
    pub mean_us: f64,
    /// The longest.
    pub longest_us: f64,
    /// Hundredths of a core that the server's thread on the host had.
    pub core_percent: f64,
}

/// What was measured. Times are in microseconds, each for one request.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The network that answered.
    pub architecture: Architecture,
    /// Who drove the server's network.
    pub way: Way,
    /// Pixels of a row of a picture.
    pub width: u32,
    /// Its rows.
    pub height: u32,
    /// Bytes of a request.
    pub bytes: u64,
    /// Bytes of an answer.
    pub answer_bytes: u64,
    /// Requests answered.
    pub rounds: u64,
    /// Requests that were due and never sent, because the next one was due before they could be.
    pub dropped: u64,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Requests answered in a second.
    pub per_s: f64,
    /// From post to answer, the mean.
    pub total_us: f64,
    /// The same, of all of them.
    pub distribution: Distribution,
    /// Of the mean: what is no part of the others, which is both messages' way and their being noticed.
    pub wait_us: f64,
    /// From the memory that the NIC reaches to the GPU's.
    pub copy_in_us: f64,
    /// The network of layers; where the host or a graph launches it, with the launch and its end.
    pub compute_us: f64,
    /// Back.
    pub copy_out_us: f64,
    /// The answer's post; of its first part, where the kernel posts.
    pub send_us: f64,
    /// Hundredths of a core that the server's thread on the host had.
    pub core_percent: f64,
    /// The same, and latencies, over time, where that was asked for.
    pub over_time: Vec<Moment>,
    /// Values that were not what they should be, of all answers.
    pub wrong: u64,
    /// All values of all answers are what a loop on the host says, within a thousandth, nothing beside them was
    /// touched, and each request was answered once.
    pub verified: bool,
    /// What the server takes for a request without a NIC's part, where that was asked for.
    pub driver_alone: Option<Alone>,
}

/// Spans of time at most, with the one behind the end.
const MOST_SPANS: usize = 100_001;
/// Blocks on a CPU: each has a thread at least.
const MOST_ON_CPU: u32 = 64;

/// Blocks that run at the same time on a GPU for certain, beside a NIC's and the client's: one on each multiprocessor,
/// where any of them fits alone, and two left for those. A GPU spreads blocks over all that it has, and the client's
/// block is too large to lie beside others.
fn blocks_at_once(multiprocessors: u32) -> u32 {
    multiprocessors.saturating_sub(2)
}

/// A picture's size in words.
fn size(width: u32, height: u32) -> String {
    format!("{width} × {height}")
}

/// The columns of [`Measured::row`].
pub const HEADER: &str = "network         picture    driven by               total µs   wait  copy in  compute  copy out   send   \
    median      90 %      99 %    99.9 %   longest   a second   a core's %";

impl Measurement for Measured {
    fn row(&self) -> String {
        let dropped = match self.dropped {
            0 => String::new(),
            dropped => format!("  {dropped} dropped"),
        };
        let percentiles = self.distribution.percentiles();
        let percentiles: String = percentiles.map(|us| format!(" {us:>9.1}")).concat();
        format!(
            "{:<15} {:<10} {:<22} {:>9.1} {:>6.1} {:>8.1} {:>8.1} {:>9.1} {:>6.1}{percentiles} {:>10.1} {:>12.2}{dropped}{}",
            self.architecture.name(),
            size(self.width, self.height),
            self.way.name(),
            self.total_us,
            self.wait_us,
            self.copy_in_us,
            self.compute_us,
            self.copy_out_us,
            self.send_us,
            self.per_s,
            self.core_percent,
            Alone::words(self.driver_alone.as_ref()),
        )
    }

    fn verified(&self) -> bool {
        self.verified
    }
}

#[cfg(test)]
impl Case {
    /// One request of a size, for tests.
    fn small(width: u32, height: u32) -> Self {
        Self {
            architecture: Architecture::Superresolution,
            width,
            height,
            blocks: 1,
            threads: 16,
            parts: 1,
            piece: 4096,
            warm_up: 0,
            rounds: 1,
            limit: Duration::from_secs(1),
            rate: None,
            every: None,
            depth: 64,
            seed: 1,
        }
    }
}

impl Case {
    /// Pixels of a row, and rows, of an answer.
    fn answer_size(&self) -> [u32; 2] {
        self.architecture.answer([self.width, self.height])
    }

    /// The network for pictures of this size.
    fn plan(&self) -> Result<Plan, PlanError> {
        Plan::new(self.architecture.layers(), [self.width, self.height])
    }

    /// The span of each moment; without moments the whole time is one.
    fn span(&self) -> Duration {
        self.every.unwrap_or(self.limit)
    }

    /// How many spans there are, with one for requests that are answered behind the end.
    fn spans(&self) -> usize {
        let nanoseconds = self
            .limit
            .as_nanos()
            .div_ceil(self.span().as_nanos().max(1));
        nanoseconds as usize + 1
    }

    fn request(&self) -> Message {
        Message {
            bytes: VALUE * self.width * self.height,
            piece: self.piece,
        }
    }

    fn answer(&self) -> Message {
        Message {
            bytes: VALUE * self.answer_size().iter().product::<u32>(),
            piece: self.piece,
        }
    }

    /// Whether blocks, threads and queues suffice, and all blocks run at the same time, because they meet.
    ///
    /// # Errors
    /// [`Error::Unfit`] where they do not.
    pub fn check(&self, node: &Node) -> Result<(), Error> {
        let pieces = self.answer().pieces(self.parts);
        let room = (self.depth / 2).min(self.threads + 1);
        let unfit = |what| Err(Error::Unfit { what });
        self.plan()?;
        let most = self.answer().bytes / 8;
        match () {
            () if self.parts > most => unfit(format!(
                "an answer has words for {most} parts, not for {}; choose fewer (--parts)",
                self.parts
            )),
            () if self.every.is_some() && self.spans() > MOST_SPANS => unfit(format!(
                "more than {MOST_SPANS} spans of time; choose longer ones (--every), or fewer --seconds"
            )),
            () if self.parts > self.blocks => unfit(format!(
                "{} parts want as many blocks, and there are {}; choose fewer (--parts), or more blocks (--blocks)",
                self.parts, self.blocks
            )),
            () if !self.threads.is_multiple_of(COLUMNS) || self.threads > MAX_THREADS => {
                unfit(format!(
                    "{} threads make no tiles of {COLUMNS} columns; choose a multiple of {COLUMNS}, up to {MAX_THREADS} (--threads)",
                    self.threads
                ))
            }
            () if self.blocks > self.at_once(node) => unfit(format!(
                "{} blocks of {} threads may not all run at the same time, {} do; choose fewer (--blocks)",
                self.blocks,
                self.threads,
                self.at_once(node)
            )),
            () if pieces >= room => unfit(format!(
                "an answer's part takes {} work requests under one doorbell, and {room} are possible; choose larger pieces (--piece), \
                 more parts (--parts), threads (--threads) or depth (--depth)",
                pieces + 1
            )),
            () => Ok(()),
        }
    }

    /// Blocks that run at the same time for certain.
    fn at_once(&self, node: &Node) -> u32 {
        let gpu = node.gpu();
        gpu.map_or(MOST_ON_CPU, |gpu| blocks_at_once(gpu.multiprocessors()))
    }

    /// Microseconds that a wait may take: layers on a few CPU threads take their time.
    fn limit_us(&self) -> u64 {
        LIMIT_US + 100 * u64::from(self.width * self.height)
    }

    /// How long the kernels may be meant to run: the client's time begins behind the warm-up, and each of its requests
    /// may take as long as a wait.
    fn meant(&self) -> Duration {
        let request = Duration::from_micros(self.limit_us());
        self.limit
            .saturating_add(request.saturating_mul(self.warm_up))
    }

    fn grid(&self) -> Grid {
        Grid::new(self.blocks, self.threads)
    }

    /// Serves picture after picture: some from the seed in turn, the first of which may be given. Of two ranks the
    /// first one has the client, and what was measured, with the first picture's last answer.
    ///
    /// # Errors
    /// As [`check`](Self::check); a kernel or the host failed, here or at another rank; Ctrl-C before a request
    /// counted.
    pub fn measure(
        &self,
        party: &Party,
        node: &Node,
        way: Way,
        picture: Option<&Picture>,
    ) -> Result<Option<(Measured, Picture)>, Error> {
        self.check(node)?;
        let drivers = [Driver::Kernel, way.driver()];
        let ends = Ends::new(party, node, drivers, [self.parts, 1], self.depth)?;
        let [near, far] = &ends.ends;
        let asker = near.as_ref();
        let asker = asker.map(|end| Asker::new(self, node, end, picture));
        let asker = asker.transpose()?;
        let server = far.as_ref();
        let server = server.map(|end| Server::new(self, node, end, way.driver()));
        let server = server.transpose()?;
        let returned = asker.as_ref().map(|asker| &asker.data.returned);
        let arrived = server.as_ref().map(|server| &server.data.arrived);
        let targets = [
            (returned, self.answer().bytes),
            (arrived, self.request().bytes),
        ];
        let [back, there] = ends.begin(party, targets)?;
        let client = asker.as_ref().map(|asker| asker.launch(there));
        let client = client.transpose()?;
        let pairs = ends.pairs();
        // No picture comes before that.
        let ready = || party.all(true).map(drop).map_err(Error::from);
        let ran = match (&server, client) {
            (Some(server), client) => server.serve(way, back, client, &pairs, ready).map(Some),
            (None, client) => ready().and_then(|()| {
                node.run_for(client.as_slice(), &pairs, self.meant())?;
                Ok(None)
            }),
        };
        let (ran, served) = match ran {
            Ok(served) => (Ok(()), served),
            Err(error) => (Err(error), None),
        };
        let asked = asker.as_ref().map(|asker| ("the client", &*asker.outcome));
        let answered = server.as_ref().map(|of| ("the server", &*of.outcome));
        let ran = cause::ended(ran, asked.into_iter().chain(answered));
        let served = together(party, ran.map(|()| served))?;
        let served = served.into_iter().flatten().next();
        let served = served.ok_or_else(Error::other_program)?;
        let measured = match &asker {
            Some(asker) => asker.measured(way, &served)?,
            None => None,
        };
        party.go_on(asker.is_none() || measured.is_some())?;
        let last = asker.map(|asker| asker.data.last_answer(self));
        Ok(measured.zip(last.transpose()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_meant_to_run_for_the_warm_up_too() {
        let case = Case {
            architecture: Architecture::Superresolution,
            width: 16,
            height: 8,
            blocks: 2,
            threads: 32,
            parts: 2,
            piece: 4096,
            warm_up: 1_000_000,
            rounds: 1,
            limit: Duration::from_secs(1),
            rate: None,
            every: None,
            depth: 64,
            seed: 1,
        };
        // An answer of 128 pixels may take 5 s and 12.8 ms.
        assert_eq!(case.meant(), Duration::from_secs(5_012_801));
        let endless = Case {
            limit: Duration::MAX,
            ..case
        };
        assert_eq!(endless.meant(), Duration::MAX);
    }

    #[test]
    fn two_multiprocessors_are_left_for_nic_and_client() {
        assert_eq!([132, 3, 2, 1].map(blocks_at_once), [130, 1, 0, 0]);
    }
}
