//! Pictures that are made larger by a network of three layers, the server's network driven by its host or by its kernel.

mod client;
mod data;
pub mod files;
pub mod model;
mod series;
mod server;
mod service;

use std::sync::atomic::Ordering;
use std::time::Duration;
use warpbell::Slice;

use clap::ValueEnum;
use data::{Data, place};
use model::Picture;
use serde::Serialize;
use server::{Served, Server, Stays, spin_beside};
use warpbell_bench::cause;
use warpbell_bench::run::launch::LIMIT_US;
use warpbell_bench::run::{interrupt, memory};
use warpbell_host_init::{Grid, Launch, Node, entry};
use warpbell_kernels::outcome::Outcome;
use warpbell_paper_kernels::network::{COLUMNS, MAX_THREADS, SCALE};
use warpbell_paper_kernels::path::Path;
use warpbell_paper_kernels::serving::{Message, ServingClient, serving_client};

use crate::Error;
use crate::application::Measurement;
use crate::distribution::Distribution;
use crate::rig::{Driver, Rig};

pub use client::{Answered, CLIENT_HEADER, Client};
pub use series::{APPLICATION, Possible, Results, Series};
pub use service::serve;

/// Pictures that are sent in turn, so that what is left of one answer is wrong in the next.
const PICTURES: u32 = 2;
/// Bytes of a value.
const VALUE: u32 = 4;
/// Threads of a warp: one drives the client's queues.
const LANES: u32 = 32;

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
    /// A graph of the kernel does, which launches itself for each request, and the host sleeps.
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
    /// Depth of each queue in blocks of 64 bytes.
    pub depth: u32,
    /// Seed of weights and pictures.
    pub seed: u64,
}

/// What was measured. Times are in microseconds, each for one request.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
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
    /// The network of layers, a launch and its end included.
    pub compute_us: f64,
    /// Back.
    pub copy_out_us: f64,
    /// The answer's post; of its first part, where the kernel posts.
    pub send_us: f64,
    /// Hundredths of a core that the server's thread on the host had.
    pub core_percent: f64,
    /// Values that were not what they should be, of all answers.
    pub wrong: u64,
    /// All values of all answers are what a loop on the host says, within a thousandth, nothing beside them was touched, and
    /// each request was answered once.
    pub verified: bool,
}

/// Blocks on a CPU: each has a thread at least.
const MOST_ON_CPU: u32 = 64;

/// Blocks that run at the same time on a GPU for certain, beside a NIC's and the client's: one on each multiprocessor, where
/// any of them fits alone, and two left for those. A GPU spreads blocks over all that it has, and the client's block is too
/// large to lie beside others.
fn blocks_at_once(multiprocessors: u32) -> u32 {
    multiprocessors.saturating_sub(2)
}

/// A picture's size in words.
fn size(width: u32, height: u32) -> String {
    format!("{width} × {height}")
}

/// The columns of [`Measured::row`].
pub const HEADER: &str = "picture    driven by               total µs   wait  copy in  compute  copy out   send   \
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
            "{:<10} {:<22} {:>9.1} {:>6.1} {:>8.1} {:>8.1} {:>9.1} {:>6.1}{percentiles} {:>10.1} {:>12.2}{dropped}",
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
            depth: 64,
            seed: 1,
        }
    }
}

impl Case {
    fn request(&self) -> Message {
        Message {
            bytes: VALUE * self.width * self.height,
            piece: self.piece,
        }
    }

    fn answer(&self) -> Message {
        Message {
            bytes: SCALE * SCALE * self.request().bytes,
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
        match () {
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

    /// How long the kernels may be meant to run: the client's time begins behind the warm-up, and each of its requests may
    /// take as long as a wait.
    fn meant(&self) -> Duration {
        let request = Duration::from_micros(self.limit_us());
        self.limit
            .saturating_add(request.saturating_mul(self.warm_up))
    }

    fn grid(&self) -> Grid {
        Grid {
            blocks: self.blocks,
            threads_per_block: self.threads,
        }
    }

    /// Serves picture after picture: some from the seed in turn, the first of which may be given. Gives the
    /// first one's last answer, too.
    ///
    /// # Errors
    /// As [`check`](Self::check); a kernel or the host failed; Ctrl-C before a request counted.
    pub fn measure(
        &self,
        node: &Node,
        way: Way,
        picture: Option<&Picture>,
    ) -> Result<(Measured, Picture), Error> {
        interrupt::check()?;
        self.check(node)?;
        let driver = way.driver();
        let rig = Rig::new(node, [Driver::Kernel, driver], self.parts, self.depth)?;
        let data = Data::new(self, node, &rig, driver, picture)?;
        let handles = [rig.handles(&rig.near)?, rig.handles(&rig.far)?];
        let [request, answer] = [self.request(), self.answer()];
        let there = (&data.requests, &data.arrived);
        let back = (&data.answer, &data.returned);
        let limit_us = self.limit_us();
        let there = rig
            .near
            .path(&rig.far, &handles[0], there, request.part(self.parts));
        let back = rig
            .far
            .path(&rig.near, &handles[1], back, answer.part(self.parts));
        let (there, back) = (Path { limit_us, ..there }, Path { limit_us, ..back });

        let comparing = if node.gpu().is_some() {
            8 * LANES
        } else {
            LANES
        };
        let numbers = node.words(ServingClient::WRONG as usize + comparing as usize)?;
        let outcomes = [node.shared(Outcome::new())?, node.shared(Outcome::new())?];
        let client = ServingClient {
            path: there,
            request,
            pictures: PICTURES,
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            answer: unsafe { data.returned.place() },
            expected: place(&data.expected),
            kept: place(&data.kept),
            values: answer.bytes / VALUE,
            warm_up: self.warm_up,
            rounds: self.rounds,
            nanoseconds: self.limit.as_nanos().try_into().unwrap_or(u64::MAX),
            interval: self.rate.map_or(0, |rate| (1e9 / rate) as u64),
            stop: interrupt::stop(node.placement())?,
            numbers: Slice::new(&numbers),
            histogram: place(&data.histogram),
            outcome: &outcomes[0],
        };
        let grid = Grid {
            blocks: 1,
            threads_per_block: LANES + comparing,
        };
        let client = Launch::new(entry!(serving_client), grid, client);
        let server = Server {
            case: self,
            node,
            rig: &rig,
            data: &data,
            path: back,
            outcome: &outcomes[1],
        };
        let ran = match way {
            Way::Host => server.by_host(client),
            Way::Asleep => server.by_kernel(client, Stays::Always, |run| run()),
            Way::Spinning => server.by_kernel(client, Stays::Always, spin_beside),
            Way::Graph => server.by_kernel(client, Stays::ForOne, |run| run()),
        };
        let (ran, served) = match ran {
            Ok(served) => (Ok(()), served),
            Err(error) => (Err(error), Served::default()),
        };
        let kernels = [("the client", &*outcomes[0]), ("the server", &*outcomes[1])];
        cause::ended(ran, kernels)?;
        let number = |index: u64| numbers[index as usize].load(Ordering::Relaxed);
        let rounds = number(ServingClient::ROUNDS);
        let longest = number(ServingClient::LONGEST);
        let counts = memory::words(&data.histogram)?;
        let Some(distribution) = Distribution::new(&counts, longest) else {
            return Err(warpbell_bench::run::Error::Interrupted.into());
        };
        let wrong = (0..u64::from(comparing)).map(|thread| number(ServingClient::WRONG + thread));
        let wrong = wrong.sum();
        let us = |nanoseconds: u64| nanoseconds as f64 / 1e3;
        let each = |all: Duration| 1e6 * all.as_secs_f64() / served.count.max(1) as f64;
        let total_us = us(number(ServingClient::TOTAL)) / rounds as f64;
        let known = served.copied_in + served.computed + served.copied_out + served.sent;
        let seconds = number(ServingClient::NANOSECONDS) as f64 / 1e9;
        let all = rounds + u64::from(self.warm_up);
        let measured = Measured {
            way,
            width: self.width,
            height: self.height,
            bytes: request.bytes.into(),
            answer_bytes: answer.bytes.into(),
            rounds,
            dropped: number(ServingClient::DROPPED),
            seconds,
            per_s: rounds as f64 / seconds,
            total_us,
            distribution,
            wait_us: (total_us - each(known)).max(0.0),
            copy_in_us: each(served.copied_in),
            compute_us: each(served.computed),
            copy_out_us: each(served.copied_out),
            send_us: each(served.sent),
            core_percent: served.core_percent,
            wrong,
            verified: wrong == 0
                && (counts.iter().sum::<u64>(), served.count) == (rounds, all)
                && data.guarded(),
        };
        Ok((measured, data.last_answer(self)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_meant_to_run_for_the_warm_up_too() {
        let case = Case {
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
