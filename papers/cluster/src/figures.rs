//! The figures of paper 003 with our parameters, and with the paper's where it gives them.

use std::fmt::Write as _;

use crate::chart;
use crate::driver::Driver;
use crate::generate::training::{self, Training};
use crate::generate::{self, Algorithm, Reduction};
use crate::goal::{self, MOST_RANKS, Schedule};
use crate::parameters::Parameters;
use crate::simulate::{self, Cluster, run};
use crate::topology::{self, Topology};

/// The rows and columns of Jacobi's cells.
const SIDE: u64 = 4096;

/// What a figure shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Figure {
    /// A put of 8 bytes to 64 KiB after an empty kernel.
    Put,
    /// Jacobi's relaxation of 4,096 × 4,096 cells, 10 steps.
    Jacobi,
    /// A ring reduces 64 MiB, a message in each step.
    AllReduce,
    /// A ring reduces 64 MiB in chunks of 64 KiB.
    Chunks,
    /// A step of training AlexNet.
    Training,
}

/// Why a figure fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A workload cannot be made.
    #[error(transparent)]
    Generate(#[from] generate::Error),
    /// A generated schedule is bad, which no generator's should be.
    #[error(transparent)]
    Schedule(#[from] goal::Error),
    /// More nodes than the workload can have.
    #[error("the figure {figure} with {nodes} nodes; it has 2 to {most}")]
    Nodes {
        /// The figure's name.
        figure: &'static str,
        /// How many nodes.
        nodes: u32,
        /// The most nodes.
        most: u32,
    },
    /// A topology cannot be made.
    #[error(transparent)]
    Topology(#[from] topology::Error),
    /// A simulation fails.
    #[error(transparent)]
    Simulate(#[from] simulate::Error),
}

/// The times of all drivers at one place of the horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Nodes, or bytes of a put.
    pub over: u64,
    /// The time of each driver (µs), in the order in which they were given.
    pub times: Vec<f64>,
}

impl Figure {
    /// All figures.
    pub const ALL: [Self; 5] = [
        Self::Put,
        Self::Jacobi,
        Self::AllReduce,
        Self::Chunks,
        Self::Training,
    ];

    /// The name of its files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Jacobi => "jacobi",
            Self::AllReduce => "all-reduce",
            Self::Chunks => "chunks",
            Self::Training => "training",
        }
    }

    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Put => "Latency of a put after an empty kernel",
            Self::Jacobi => "Jacobi, 4,096 × 4,096 cells, 10 steps",
            Self::AllReduce => "All-reduce of 64 MiB by a ring, a message in each step",
            Self::Chunks => "All-reduce of 64 MiB by a ring, chunks of 64 KiB",
            Self::Training => "A step of training AlexNet, batches of 32",
        }
    }

    /// The horizontal axis.
    pub fn over(self) -> &'static str {
        match self {
            Self::Put => "message size (bytes)",
            _ => "nodes",
        }
    }

    /// Where its points are, up to so many nodes.
    ///
    /// # Errors
    ///
    /// [`Error::Nodes`].
    pub fn places(self, nodes: u32) -> Result<Vec<u64>, Error> {
        let most = match self {
            // A put has 2 nodes, whatever the others have.
            Self::Put => return Ok(vec![8, 64, 512, 4096, 32_768, 65_536]),
            Self::Jacobi => SIDE as u32,
            _ => MOST_RANKS,
        };
        if !(2..=most).contains(&nodes) {
            let figure = self.name();
            return Err(Error::Nodes {
                figure,
                nodes,
                most,
            });
        }
        let powers = (1..=16).map(|power| 1 << power);
        Ok(powers
            .take_while(|count| *count <= u64::from(nodes))
            .collect())
    }

    /// The workload at one place.
    ///
    /// # Errors
    ///
    /// That of its generator.
    pub fn schedule(self, over: u64, parameters: &Parameters) -> Result<Schedule, generate::Error> {
        let ranks = over as u32;
        let memory = parameters.gpu_memory;
        let reduction = |chunk| Reduction {
            algorithm: Algorithm::Ring,
            bytes: 64 << 20,
            chunk,
            memory,
        };
        match self {
            Self::Put => generate::put(over),
            Self::Jacobi => generate::jacobi(ranks, SIDE, 10, memory),
            Self::AllReduce => generate::all_reduce(ranks, &reduction(64 << 20)),
            Self::Chunks => generate::all_reduce(ranks, &reduction(64 << 10)),
            Self::Training => {
                let training = Training {
                    layers: training::layers(training::ALEXNET)?,
                    batch: 32,
                    // Half of an H200's 67 TFLOP/s in single precision (data sheet), two operations each.
                    rate: 67e3 / 4.0,
                    bucket: 25 << 20,
                    reduction: reduction(4 << 20),
                };
                training::step(ranks, &training)
            }
        }
    }

    /// Simulates one place with these drivers, on a fat tree, or on the paper's star.
    ///
    /// # Errors
    ///
    /// Whatever fails.
    pub fn point(
        self,
        over: u64,
        parameters: &Parameters,
        drivers: &[Driver],
        star: bool,
        seed: u64,
    ) -> Result<Point, Error> {
        let schedule = self.schedule(over, parameters)?;
        let times = times(schedule, parameters, drivers, star, seed)?;
        Ok(Point { over, times })
    }
}

/// The time (µs) of a schedule with each of these drivers, on a fat tree, or on the paper's star.
///
/// # Errors
///
/// A bad schedule, or an error of the topology or the simulation.
pub fn times(
    schedule: Schedule,
    parameters: &Parameters,
    drivers: &[Driver],
    star: bool,
    seed: u64,
) -> Result<Vec<f64>, Error> {
    let program = schedule.check()?;
    let hosts = program.ranks.len();
    let topology = match star {
        true => Topology::star(hosts),
        false => Topology::fat_tree(hosts)?,
    };
    let mut times = Vec::new();
    for driver in drivers {
        let cluster = Cluster {
            topology: topology.clone(),
            parameters: parameters.clone(),
            driver: *driver,
            seed,
        };
        times.push(run(&cluster, program.clone())?.end().microseconds());
    }
    Ok(times)
}

/// A figure's points as CSV.
pub fn csv(figure: Figure, drivers: &[Driver], points: &[Point]) -> String {
    let mut csv = figure.over().to_owned();
    // A String takes everything.
    for driver in drivers {
        let _ = write!(csv, ",{} (µs)", driver.name());
    }
    csv.push('\n');
    for point in points {
        let _ = write!(csv, "{}", point.over);
        for time in &point.times {
            let _ = write!(csv, ",{time:.3}");
        }
        csv.push('\n');
    }
    csv
}

/// A figure's points as a drawing.
pub fn svg(figure: Figure, drivers: &[Driver], points: &[Point], subtitle: &str) -> String {
    let curves = drivers.iter().enumerate().map(|(number, driver)| {
        let points = points
            .iter()
            .map(|point| (point.over as f64, point.times[number]));
        (driver.name(), points.collect())
    });
    let curves: Vec<_> = curves.collect();
    chart::drawing(
        figure.title(),
        subtitle,
        "time (µs)",
        figure.over(),
        &curves,
    )
}
