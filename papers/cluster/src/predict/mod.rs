//! The time of an all-reduce on one machine with a software NIC, predicted from benchmarks of its parts.
//!
//! [`Benchmarks`] reads what programs of the laboratory measured without any all-reduce, and gives [`Parts`]. A [`Case`]
//! with these parts becomes a schedule, which the simulation runs on a machine that all ranks share. No value is fitted to
//! the times that are predicted.

mod benchmarks;

pub use benchmarks::{Benchmarks, Error, Measured, Source};

use std::fmt::Write as _;

use serde::Deserialize;

use crate::driver::Driver;
use crate::goal::{Operation, Schedule};
use crate::parameters::Parameters;
use crate::simulate::{self, Cluster, run};
use crate::topology::Topology;

/// How an all-reduce goes; as in the program `allreduce`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Parts go round, first summed and then copied.
    Ring,
    /// In each step pairs exchange everything.
    Doubling,
}

impl Algorithm {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Doubling => "doubling",
        }
    }
}

/// An all-reduce that blocks of a kernel drive by posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// How it goes.
    pub algorithm: Algorithm,
    /// How many ranks.
    pub ranks: u32,
    /// Blocks of each rank, each of which reduces a part of the vector.
    pub blocks: u32,
    /// Threads of each block.
    pub threads: u32,
    /// Bytes of a vector.
    pub bytes: u64,
    /// The most bytes of a message.
    pub slice: u64,
    /// How often vectors are summed behind one launch.
    pub rounds: u32,
}

/// What the parts of an all-reduce cost on one machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parts {
    /// Engines of the NIC.
    pub engines: u32,
    /// Cores that engines and blocks share; 0, if each has its own.
    pub cores: u32,
    /// An engine carries a message without a byte, and the signal behind it (ns).
    pub gap: f64,
    /// Bytes that an engine copies in a nanosecond.
    pub rate: f64,
    /// From a doorbell until a message and its signal are seen, without what occupies the engine (ns).
    pub latency: f64,
    /// A block posts a message and its signal (ns).
    pub post: f64,
    /// A block sees that a message is there (ns).
    pub wait: f64,
    /// A block adds a byte of a message, and stores the sum where no cache has it (ns).
    pub add: f64,
    /// A block adds a byte of a message to what came (ns).
    pub add_in_place: f64,
    /// A kernel's launch and end (ns).
    pub launch: f64,
}

impl Parts {
    /// The same as parameters of a simulation. What a software NIC does not have costs nothing: a bus, packets, links.
    ///
    /// # Errors
    ///
    /// A part out of the range of its parameter.
    pub fn parameters(&self) -> Result<Parameters, simulate::Error> {
        let mut parameters = Parameters::default();
        for (name, value) in [
            ("gpu_launch", self.launch),
            ("gpu_teardown", 0.0),
            ("gpu_post", 0.0),
            ("gpu_gap", 0.0),
            ("gpu_poll", 0.0),
            ("pcie_latency", 0.0),
            ("pcie_rate", 1e5),
            ("nic_latency", 0.0),
            ("nic_gap", 0.0),
            ("link_rate", 1e5),
            ("link_latency", 0.001),
            ("link_header", 0.0),
            ("switch_latency", self.latency),
            ("engines", self.engines.into()),
            ("engine_gap", self.gap),
            ("engine_rate", 8.0 * self.rate),
            ("cores", self.cores.into()),
        ] {
            parameters.set(name, value)?;
        }
        Ok(parameters)
    }
}

impl Case {
    /// Messages that a block sends one after the other to sum a vector, in slices each.
    fn steps(&self) -> u32 {
        match self.algorithm {
            Algorithm::Ring => 2 * (self.ranks - 1),
            Algorithm::Doubling => self.ranks.ilog2(),
        }
    }

    /// Bytes of a message before it is cut into slices.
    fn chunk(&self) -> u64 {
        let parts = match self.algorithm {
            Algorithm::Ring => self.ranks * self.blocks,
            Algorithm::Doubling => self.blocks,
        };
        self.bytes / u64::from(parts.max(1))
    }

    /// Whether the program `allreduce` could measure it.
    fn check(&self) -> Result<(), Error> {
        let ranks = match self.algorithm {
            Algorithm::Ring => self.ranks >= 2,
            Algorithm::Doubling => self.ranks >= 2 && self.ranks.is_power_of_two(),
        };
        let sizes =
            self.slice > 0 && self.chunk() > 0 && self.chunk() <= crate::goal::LONGEST_MESSAGE;
        match ranks && sizes && self.blocks > 0 && self.rounds > 0 {
            true => Ok(()),
            false => Err(Error::Case(*self)),
        }
    }

    /// The ranks that a rank sends to and receives from in a step.
    fn peers(&self, rank: u32, step: u32) -> (u32, u32) {
        match self.algorithm {
            Algorithm::Ring => (
                (rank + 1) % self.ranks,
                (rank + self.ranks - 1) % self.ranks,
            ),
            Algorithm::Doubling => (rank ^ 1 << step, rank ^ 1 << step),
        }
    }

    /// What each block does, in the order of the kernel (`papers/kernels/src/allreduce`). A block is a node, because
    /// blocks of one rank have nothing to do with each other.
    ///
    /// # Errors
    ///
    /// [`Error::Case`].
    pub fn schedule(&self, parts: &Parts) -> Result<Schedule, Error> {
        self.check()?;
        let node = |rank: u32, block: u32| rank * self.blocks + block;
        let mut schedule = Schedule::new(node(self.ranks, 0) as usize);
        let steps = self.steps();
        let blocks =
            (0..self.ranks).flat_map(|rank| (0..self.blocks).map(move |block| (rank, block)));
        for (rank, block) in blocks {
            let here = schedule.rank(node(rank, block) as usize);
            // A block does one thing after the other, and does not wait for what it has sent.
            let mut before = Vec::new();
            for step in (0..self.rounds).flat_map(|_| 0..=steps) {
                for bytes in self.slices() {
                    let mut next = |operation| before = vec![here.add(operation, &before)];
                    if step > 0 {
                        let (_, from) = self.peers(rank, step - 1);
                        let from = node(from, block);
                        next(Operation::Receive {
                            bytes,
                            from,
                            tag: 0,
                        });
                        let add = self.addition(step - 1, parts);
                        next(calc(parts.wait + add * bytes as f64));
                    }
                    if step < steps {
                        next(calc(parts.post));
                        let (to, _) = self.peers(rank, step);
                        let to = node(to, block);
                        here.add(Operation::Send { bytes, to, tag: 0 }, &before);
                    }
                }
            }
        }
        Ok(schedule)
    }

    /// The sizes of a message's slices.
    fn slices(&self) -> impl Iterator<Item = u64> + use<> {
        let (chunk, slice) = (self.chunk(), self.slice);
        (0..chunk.div_ceil(slice)).map(move |number| slice.min(chunk - number * slice))
    }

    /// What a byte that comes in a step costs: it is added in place, added to a new one, or only passed on.
    fn addition(&self, step: u32, parts: &Parts) -> f64 {
        match self.algorithm {
            Algorithm::Ring if step < self.ranks - 1 => parts.add,
            Algorithm::Ring => 0.0,
            Algorithm::Doubling if step + 1 < self.steps() => parts.add_in_place,
            Algorithm::Doubling => parts.add,
        }
    }

    /// The time of a sum (µs).
    ///
    /// # Errors
    ///
    /// [`Error::Case`], or an error of the simulation.
    pub fn predict(&self, parts: &Parts) -> Result<f64, Error> {
        let program = self.schedule(parts)?.check()?;
        let cluster = Cluster {
            topology: Topology::star(program.ranks.len()),
            parameters: parts.parameters()?,
            driver: Driver::Kernel,
            seed: 1,
        };
        let finish = run(&cluster, program)?.finish();
        Ok(finish.microseconds() / f64::from(self.rounds))
    }
}

fn calc(nanoseconds: f64) -> Operation {
    Operation::Calc {
        nanoseconds: nanoseconds.round() as u64,
        stream: 0,
    }
}

/// Which parts were measured where, and what all-reduces take: predicted, measured, and how far apart both are.
///
/// # Errors
///
/// What [`Benchmarks::parts`] and [`Case::predict`] say.
pub fn table(benchmarks: &Benchmarks, cores: u32) -> Result<String, Error> {
    let mut table = String::from(
        "algorithm,ranks,vector (bytes),predicted (µs),measured (µs),predicted / measured\n",
    );
    let mut sources = String::from("ranks,part,unit,value,from\n");
    let mut known = Vec::new();
    for Measured { case, us } in benchmarks.measured() {
        let (parts, from) = benchmarks.parts(&case, cores)?;
        if !known.contains(&case.ranks) {
            known.push(case.ranks);
            for Source {
                part,
                unit,
                value,
                from,
            } in from
            {
                // A String takes everything.
                let _ = writeln!(sources, "{},{part},{unit},{value:.4},{from}", case.ranks);
            }
        }
        let predicted = case.predict(&parts)?;
        let _ = writeln!(
            table,
            "{},{},{},{predicted:.2},{us:.2},{:.3}",
            case.algorithm.name(),
            case.ranks,
            case.bytes,
            predicted / us
        );
    }
    Ok(format!("{sources}\n{table}"))
}
