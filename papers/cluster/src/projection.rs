//! How much faster training runs with each driver: paper 003's projection, from simulated reductions and from the share
//! of the time that an application is blocked on the network.

use std::fmt::Write as _;

use crate::chart;
use crate::driver::Driver;
use crate::figures::{self, Error, Point};
use crate::generate::{self, Algorithm, Reduction};
use crate::parameters::Parameters;

/// A training workload of paper 003 (results of XTQ and of ComP-Net, table).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// Its name there.
    pub name: &'static str,
    /// The part of its time that it is blocked on data of the network.
    pub blocked: f64,
}

/// The table. Its numbers of reductions do not enter the projection.
pub const WORKLOADS: [Workload; 6] = [
    workload("AlexNet", 0.14),
    workload("AN4 LSTM", 0.50),
    workload("CIFAR", 0.04),
    workload("Large Synth", 0.28),
    workload("MNIST Conv", 0.12),
    workload("MNIST Hidden", 0.29),
];

const fn workload(name: &'static str, blocked: f64) -> Workload {
    Workload { name, blocked }
}

impl Workload {
    /// How many times as fast it runs where reductions are `ratio` times as fast.
    pub fn speedup(&self, ratio: f64) -> f64 {
        1.0 / (1.0 - self.blocked + self.blocked / ratio)
    }

    /// The same where reductions take no time.
    pub fn bound(&self) -> f64 {
        self.speedup(f64::INFINITY)
    }
}

/// The time of one reduction by recursive doubling, with 2, 4, 8 ... nodes.
///
/// # Errors
///
/// Those of the schedule, the topology and the simulation.
pub fn points(
    nodes: u32,
    bytes: u64,
    parameters: &Parameters,
    star: bool,
    seed: u64,
) -> Result<Vec<Point>, Error> {
    let reduction = Reduction {
        algorithm: Algorithm::Doubling,
        bytes,
        chunk: bytes,
        memory: parameters.gpu_memory,
    };
    let counts = (1..=16).map(|power| 1_u32 << power);
    let counts = counts.take_while(|count| *count <= nodes);
    let point = |count| {
        let schedule = generate::all_reduce(count, &reduction)?;
        Ok(Point {
            over: count.into(),
            times: figures::times(schedule, parameters, &Driver::FIGURES, star, seed)?,
        })
    };
    counts.map(point).collect()
}

/// How many times as fast as with the host's driver a workload runs, in the order of [`Driver::FIGURES`].
fn speedups<'p>(workload: &'p Workload, point: &'p Point) -> impl Iterator<Item = f64> + 'p {
    let host = Driver::FIGURES
        .iter()
        .position(|driver| *driver == Driver::Host);
    let host = host.map_or(f64::NAN, |host| point.times[host]);
    point
        .times
        .iter()
        .map(move |time| workload.speedup(host / time))
}

/// A line for each workload and number of nodes.
pub fn csv(points: &[Point]) -> String {
    let mut csv = "workload,nodes,bound (ratio)".to_owned();
    // A String takes everything.
    for driver in Driver::FIGURES {
        let _ = write!(csv, ",{} (ratio)", driver.name());
    }
    csv.push('\n');
    for workload in &WORKLOADS {
        for point in points {
            let _ = write!(
                csv,
                "{},{},{:.4}",
                workload.name,
                point.over,
                workload.bound()
            );
            for speedup in speedups(workload, point) {
                let _ = write!(csv, ",{speedup:.4}");
            }
            csv.push('\n');
        }
    }
    csv
}

/// A drawing of the workload that is blocked longest.
pub fn svg(points: &[Point]) -> String {
    let workload = &WORKLOADS[1];
    let curves = Driver::FIGURES.iter().enumerate().map(|(number, driver)| {
        let speedup = |point| speedups(workload, point).nth(number).unwrap_or(f64::NAN);
        let curve = points
            .iter()
            .map(|point| (point.over as f64, speedup(point)));
        (driver.name(), curve.collect())
    });
    let curves: Vec<_> = curves.collect();
    chart::drawing(
        "Training AN4 LSTM, projected",
        "From simulated reductions and paper 003's blocked time",
        "speed-up over the host's driver (ratio)",
        "nodes",
        &curves,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's text: the blocked time bounds speed-ups. Half of the time leaves at most 2. Reductions twice as fast
    /// then save a quarter of the time.
    #[test]
    fn blocked_time_bounds_the_speedup() {
        let lstm = WORKLOADS
            .iter()
            .find(|workload| workload.blocked == 0.5)
            .unwrap();
        assert_eq!(lstm.bound(), 2.0);
        assert_eq!(lstm.speedup(2.0), 4.0 / 3.0);
        assert_eq!(lstm.speedup(1.0), 1.0);
        assert!(WORKLOADS.iter().all(|other| other.bound() <= lstm.bound()));
        assert_eq!(WORKLOADS[1], *lstm, "the drawing shows it");
    }
}
