//! Stencils whose cells are divided among ranks, which exchange the cells at their edges in every step: by their hosts between
//! kernels, or within kernels.

mod arguments;
mod pair;
mod series;

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use warpbell_bench::energy::{Energy, Meter};
use warpbell_bench::party::Party;

use crate::Error;
use crate::application::Measurement;
use crate::repetitions::{Repeated, Repetitions};
use crate::rig::Driver;

pub use arguments::Arguments;
pub use pair::{Pair, start};
pub use series::{Results, Series};

/// Who exchanges the edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// The host, between two kernels
    Host,
    /// The kernel's blocks, by notifications behind their data
    Notified,
    /// The same, by operations that are registered ahead of each step
    Triggered,
    /// The kernel's blocks, by posts to a proxy
    Proxied,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Host, Self::Notified, Self::Triggered, Self::Proxied];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "between kernels",
            Self::Notified => "notified within",
            Self::Triggered => "triggered within",
            Self::Proxied => "by proxy",
        }
    }

    /// Who drives the network for that.
    pub fn driver(self) -> Driver {
        match self {
            Self::Host => Driver::Host,
            Self::Notified => Driver::Kernel,
            Self::Triggered => Driver::Triggered,
            Self::Proxied => Driver::Proxy,
        }
    }
}

/// What is computed, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Cells in each dimension: of a rank, or of a block; the stencil says which.
    pub size: u32,
    /// How many ranks.
    pub ranks: u32,
    /// Blocks of each rank.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
    /// Steps from the cells' start to their comparison.
    pub steps: u32,
    /// The most repetitions of that.
    pub repetitions: u64,
    /// No repetition begins once they have taken so long, with all comparisons.
    pub limit: Duration,
    /// Depth of each queue in blocks of 64 bytes.
    pub depth: u32,
    /// Seed of the cells.
    pub seed: u64,
}

/// The cells of all ranks in their order, at their start and after all steps of a loop: the same for all ways of a size.
pub struct Reference {
    /// The bytes of the cells at their start.
    pub start: Vec<u8>,
    /// After all steps.
    pub expected: Vec<u8>,
}

/// A stencil.
pub trait Stencil {
    /// What a size is.
    const SIZE: &'static str;
    /// Where the cells lie whose bytes its plot is over.
    const WHOSE: &'static str;

    /// How many bytes these are.
    fn bytes(size: u32) -> u64;

    /// Whether that can be computed in these ways.
    ///
    /// # Errors
    /// What stands against it, and what would do.
    fn check(case: &Case, ways: &[Way]) -> Result<(), Error>;

    /// The cells by a loop on the host.
    ///
    /// # Errors
    /// Ctrl-C before a step.
    fn reference(case: &Case) -> Result<Reference, Error>;

    /// Makes the ranks ready for a way that this process runs: all, or one of several processes.
    ///
    /// # Errors
    /// A NIC that has no room, a depth that is none, no memory; another rank failed.
    fn ranks(case: &Case, party: &Party, way: Way) -> Result<Box<dyn Ranks>, Error>;
}

/// Ranks of this process that are ready for a way.
pub trait Ranks {
    /// Sets all back to the start.
    ///
    /// # Errors
    /// Memory that cannot be reached.
    fn begin(&self, start: &[u8]) -> Result<(), Error>;

    /// Computes all steps, and gives how long that took, from the first launch to the last kernel's end, or of hosts
    /// until all that they posted is done.
    ///
    /// # Errors
    /// A kernel or the host failed.
    fn run(&self) -> Result<Duration, Error>;

    /// Whether the cells of these ranks are as expected of all ranks, and nothing beside their memory was touched, which that
    /// of a GASPI segment does not tell.
    ///
    /// # Errors
    /// Memory that cannot be reached.
    fn are_right(&self, expected: &[u8]) -> Result<bool, Error>;
}

/// What was measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// Who exchanged the edges.
    pub way: Way,
    /// The case's.
    pub size: u32,
    /// Steps, of all repetitions.
    pub steps: u64,
    /// How long they took, from the first launch to the last kernel's end, or of hosts until all that they posted is done.
    pub seconds: f64,
    /// How long one took, in microseconds.
    pub us_per_step: f64,
    /// What they took, on the machine of the first rank here.
    #[serde(flatten)]
    pub energy: Energy,
    /// Every cell was what a loop on the host says, after each repetition, and, but for GASPI's segments, nothing beside was
    /// touched.
    pub verified: bool,
}

/// The columns of [`Measurement::row`].
pub const HEADER: &str =
    "size    edges              µs a step      steps  CPU (µJ a step)  GPU (µJ a step)";

impl Measurement for Measured {
    fn row(&self) -> String {
        let [cpu, gpu] = self.energy.of_each(self.steps);
        format!(
            "{:<7} {:<17} {:>10.2} {:>10} {cpu:>16} {gpu:>16}",
            self.size,
            self.way.name(),
            self.us_per_step,
            self.steps,
        )
    }

    fn verified(&self) -> bool {
        self.verified
    }
}

impl Case {
    /// Computes all steps again and again, and compares with the reference of the same case.
    ///
    /// # Errors
    /// As [`Stencil::ranks`]; a kernel or the host failed; Ctrl-C before a repetition was over.
    pub fn measure<S: Stencil>(
        &self,
        party: &Party,
        meter: &Meter,
        way: Way,
        reference: &Reference,
    ) -> Result<Measured, Error> {
        let ranks = S::ranks(self, party, way)?;
        let repetitions = Repetitions {
            most: self.repetitions,
            limit: self.limit,
        };
        let Repeated {
            count,
            spent,
            energy,
            verified,
        } = repetitions.run(
            party,
            meter,
            || ranks.begin(&reference.start),
            || ranks.run(),
            || ranks.are_right(&reference.expected),
        )?;
        let steps = count * u64::from(self.steps);
        let seconds = spent.as_secs_f64();
        Ok(Measured {
            way,
            size: self.size,
            steps,
            seconds,
            us_per_step: 1e6 * seconds / steps as f64,
            energy,
            verified,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use warpbell_host_init::Node;

    /// Whose cells a test knows.
    struct Known;

    struct Counting {
        repetition: Cell<u8>,
    }

    impl Ranks for Counting {
        fn begin(&self, start: &[u8]) -> Result<(), Error> {
            assert_eq!(start, [7]);
            self.repetition.update(|number| number + 1);
            Ok(())
        }

        fn run(&self) -> Result<Duration, Error> {
            match self.repetition.get() {
                // Ctrl-C within.
                5 => Err(warpbell_bench::run::Error::Interrupted.into()),
                number => Ok(Duration::from_millis(number.into())),
            }
        }

        fn are_right(&self, expected: &[u8]) -> Result<bool, Error> {
            // In one repetition something beside the cells was touched.
            Ok(self.repetition.get() != 3 && expected == [1])
        }
    }

    impl Stencil for Known {
        const SIZE: &'static str = "";
        const WHOSE: &'static str = "";

        fn bytes(size: u32) -> u64 {
            size.into()
        }

        fn check(_: &Case, _: &[Way]) -> Result<(), Error> {
            Ok(())
        }

        fn reference(_: &Case) -> Result<Reference, Error> {
            unreachable!("a test has its own")
        }

        fn ranks(_: &Case, _: &Party, _: Way) -> Result<Box<dyn Ranks>, Error> {
            Ok(Box::new(Counting {
                repetition: Cell::new(0),
            }))
        }
    }

    /// So many repetitions of 5 steps, which should give that cell.
    fn measured(repetitions: u64, expected: u8) -> Measured {
        let case = Case {
            size: 1,
            ranks: 2,
            blocks: 1,
            threads: 1,
            steps: 5,
            repetitions,
            limit: Duration::MAX,
            depth: 16,
            seed: 1,
        };
        let reference = Reference {
            start: vec![7],
            expected: vec![expected],
        };
        let party = Party::alone(&Node::cpu());
        let meter = Meter::of(&[Node::cpu()]);
        case.measure::<Known>(&party, &meter, Way::Host, &reference)
            .unwrap()
    }

    #[test]
    fn a_repetition_that_is_wrong_or_touches_more_is_seen_behind_all_others() {
        let right = measured(2, 1);
        assert!(right.verified);
        assert_eq!((right.steps, right.us_per_step), (10, 300.0));
        assert!(!measured(2, 2).verified, "other cells");
        assert!(!measured(4, 1).verified, "more than the cells");
    }

    #[test]
    fn repetitions_before_one_that_ctrl_c_ended_count() {
        let four = measured(6, 1);
        assert_eq!((four.steps, four.us_per_step), (20, 500.0));
    }
}
