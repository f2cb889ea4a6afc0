//! The sum of several ranks' vectors, at each of them: by a ring and by recursive doubling, driven by hosts, by the kernel's
//! posts, by triggered operations, and by way of a proxy.

mod additions;
mod ranks;
mod reference;
mod series;

use std::time::Duration;

use clap::ValueEnum;
use ranks::Ranks;
use serde::Serialize;
use warpbell_bench::energy::{Energy, Meter};
use warpbell_bench::party::Party;
use warpbell_host_init::{Grid, Node};
use warpbell_paper_kernels::allreduce::Plan;

use crate::Error;
use crate::application::Measurement;
use crate::repetitions::{Repeated, Repetitions};
use crate::rig::Driver;

pub use reference::{Element, Reference};
pub use series::{APPLICATION, Results, Series};

/// Bytes of a word.
const WORD: u32 = 8;
/// The most blocks of all ranks, which are on the GPU together: one waits for another.
const MAX_BLOCKS: u32 = 128;

/// How a sum comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// Each rank adds to what the one before has summed, then sums go round
    Ring,
    /// Pairs exchange what they have summed; the ranks are a power of two
    Doubling,
}

/// Who drives the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// A host for each rank, between two kernels
    Host,
    /// The kernel's blocks, by posts
    Posted,
    /// The same, by operations that are registered ahead
    Triggered,
    /// The same posts, to a proxy
    Proxied,
}

impl Algorithm {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ring => "ring",
            Self::Doubling => "doubling",
        }
    }
}

impl Way {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "by hosts",
            Self::Posted => "posted within",
            Self::Triggered => "triggered within",
            Self::Proxied => "by proxy",
        }
    }

    fn driver(self) -> Driver {
        match self {
            Self::Host => Driver::Host,
            Self::Posted => Driver::Kernel,
            Self::Triggered => Driver::Triggered,
            Self::Proxied => Driver::Proxy,
        }
    }
}

/// A rank that dawdles.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Straggler {
    /// Which one.
    pub rank: u32,
    /// For how long, before it takes what has come in a step, in microseconds.
    pub delay_us: u64,
}

/// What is summed, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// How many ranks, from 2 on.
    pub ranks: u32,
    /// Blocks of each, and parts of a vector.
    pub blocks: u32,
    /// Threads of each, at least 2.
    pub threads: u32,
    /// Bytes of a vector.
    pub bytes: u64,
    /// What it is made of.
    pub element: Element,
    /// Maximum bytes of a message, a multiple of 8.
    pub slice: u32,
    /// Sums of a repetition, behind which all of them are compared.
    pub rounds: u32,
    /// The most repetitions.
    pub repetitions: u64,
    /// No repetition begins once they have taken so long, with all comparisons.
    pub limit: Duration,
    /// Depth of each queue in blocks of 64 bytes.
    pub depth: u32,
    /// A rank that is slow.
    pub straggler: Option<Straggler>,
    /// Seed of the vectors.
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// How sums came about.
    pub algorithm: Algorithm,
    /// Who drove the network.
    pub way: Way,
    /// How many ranks.
    pub ranks: u32,
    /// Bytes of a vector.
    pub bytes: u64,
    /// How often vectors were summed.
    pub rounds: u64,
    /// How long that took, from the first launch to the last kernel's end, or of hosts until all that they posted is done.
    pub seconds: f64,
    /// How long one took, in microseconds.
    pub us_per_sum: f64,
    /// Bytes of a vector over that, in 10⁹ a second.
    pub gb_per_s: f64,
    /// What all took, on the machine of the first rank here.
    #[serde(flatten)]
    pub energy: Energy,
    /// Every value of each sum was at each rank what it should be, the same bits at all, and nothing beside was touched.
    pub verified: bool,
}

/// The columns of [`Measurement::row`].
pub const HEADER: &str = "ranks  vector     algorithm  network                µs a sum        GB/s       sums  CPU (µJ a sum)  GPU (µJ a sum)";

impl Measurement for Measured {
    fn row(&self) -> String {
        let [cpu, gpu] = self.energy.of_each(self.rounds);
        format!(
            "{:<6} {:<10} {:<10} {:<17} {:>13.1} {:>11.3} {:>10} {cpu:>15} {gpu:>15}",
            self.ranks,
            warpbell_bench::run::screen::bytes(self.bytes),
            self.algorithm.name(),
            self.way.name(),
            self.us_per_sum,
            self.gb_per_s,
            self.rounds,
        )
    }

    fn verified(&self) -> bool {
        self.verified
    }
}

impl Case {
    /// Whether vectors divide, as many ranks can be summed that way, and all blocks have room.
    ///
    /// # Errors
    /// [`Error::Uneven`], [`Error::NotPowerOfTwo`], [`Error::Crowded`], [`Error::NoSuchRank`], [`Error::TooLarge`].
    pub fn check(&self, algorithm: Algorithm) -> Result<(), Error> {
        let (ranks, blocks) = (self.ranks, self.blocks);
        let chunks = match algorithm {
            Algorithm::Doubling if !ranks.is_power_of_two() => {
                return Err(Error::NotPowerOfTwo { ranks });
            }
            Algorithm::Doubling => blocks,
            Algorithm::Ring => blocks * ranks,
        };
        if ranks * blocks > MAX_BLOCKS {
            return Err(Error::Crowded {
                ranks,
                blocks,
                limit: MAX_BLOCKS,
            });
        }
        if let Some(Straggler { rank, .. }) = self.straggler.filter(|slow| slow.rank >= ranks) {
            return Err(Error::NoSuchRank { rank, ranks });
        }
        match self.bytes > 0 && self.bytes.is_multiple_of(u64::from(chunks * WORD)) {
            true => self.words(&self.plan(algorithm)).map(drop),
            false => Err(Error::Uneven {
                bytes: self.bytes,
                parts: chunks,
                what: "words",
                unit: WORD.into(),
            }),
        }
    }

    fn plan(&self, algorithm: Algorithm) -> Plan {
        Plan {
            doubling: algorithm == Algorithm::Doubling,
            floats: self.element == Element::F32,
            ranks: self.ranks,
            parts: self.blocks,
            words: (self.bytes / u64::from(WORD)) as u32,
            slice: self.slice / WORD,
            rounds: self.rounds,
        }
    }

    /// Words of a rank's memory, which a kernel counts in 32 bits.
    fn words(&self, plan: &Plan) -> Result<u32, Error> {
        let words = plan.memory();
        let bytes = u64::from(WORD) * words;
        u32::try_from(words).map_err(|_| Error::TooLarge { bytes })
    }

    /// Blocks of a rank, or of all.
    fn grid(&self, ranks: u32) -> Grid {
        Grid::new(ranks * self.blocks, self.threads)
    }

    fn delay_us(&self, rank: u32) -> u64 {
        match self.straggler {
            Some(slow) if slow.rank == rank => slow.delay_us,
            _ => 0,
        }
    }

    /// Whether each of so many GPUs has a rank of so many in this process.
    ///
    /// # Errors
    /// [`Error::IdleGpu`].
    fn check_places(ranks: u32, gpus: usize) -> Result<(), Error> {
        match gpus <= ranks as usize {
            true => Ok(()),
            false => Err(Error::IdleGpu { ranks, gpus }),
        }
    }

    /// Whether this process runs ranks of the case, and each of so many GPUs has one of them.
    ///
    /// # Errors
    /// Another number of ranks than a launcher has started; [`Error::IdleGpu`].
    pub fn check_party(&self, party: &Party, gpus: usize) -> Result<(), Error> {
        let own = party.own_ranks(self.ranks)?;
        Self::check_places(own.len() as u32, gpus)
    }

    /// Sums again and again, and compares with the reference of the same case. Ranks run in these places, which have one NIC:
    /// those of each are neighbours, and as many as in the others, or one more. A rank that is a process has one place.
    ///
    /// # Errors
    /// What [`check`](Self::check) and [`check_party`](Self::check_party) say; a kernel or a host failed; Ctrl-C before a
    /// repetition was over.
    pub fn measure(
        &self,
        (party, meter): (&Party, &Meter),
        nodes: &[Node],
        algorithm: Algorithm,
        way: Way,
        reference: &Reference,
    ) -> Result<Measured, Error> {
        self.check(algorithm)?;
        self.check_party(party, nodes.len())?;
        let ranks = Ranks::new(self, party, nodes, self.plan(algorithm), way)?;
        ranks.give(reference);
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
            || {
                ranks.clear();
                Ok(())
            },
            || ranks.run(),
            || {
                let digests = party.exchange(ranks.digest())?;
                let same = digests.iter().all(|digest| *digest == digests[0]);
                Ok(same && ranks.are_right(reference))
            },
        )?;
        let rounds = count * u64::from(self.rounds);
        let seconds = spent.as_secs_f64();
        Ok(Measured {
            algorithm,
            way,
            ranks: self.ranks,
            bytes: self.bytes,
            rounds,
            seconds,
            us_per_sum: 1e6 * seconds / rounds as f64,
            gb_per_s: self.bytes as f64 * rounds as f64 / seconds / 1e9,
            energy,
            verified,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_summed_is_named() {
        let case = Case {
            ranks: 3,
            blocks: 2,
            threads: 32,
            bytes: 48 * 5,
            element: Element::U32,
            slice: 64,
            rounds: 1,
            repetitions: 1,
            limit: Duration::from_secs(1),
            depth: 16,
            straggler: None,
            seed: 1,
        };
        let said = |case: Case, algorithm| case.check(algorithm).unwrap_err().to_string();
        case.check(Algorithm::Ring).unwrap();
        let four = Case { ranks: 4, ..case };
        four.check(Algorithm::Doubling).unwrap();
        assert_eq!(
            said(case, Algorithm::Doubling),
            "recursive doubling needs a number of ranks that is a power of two, not 3; choose --algorithms ring, or other --ranks"
        );
        assert_eq!(
            said(four, Algorithm::Ring),
            "240 bytes do not make 8 parts of whole words of 8 bytes; choose a multiple of 64"
        );
        let crowded = Case { blocks: 43, ..case };
        assert_eq!(
            said(crowded, Algorithm::Ring),
            "3 ranks of 43 blocks are more than the 128 blocks that are certain to run at the same time; choose fewer"
        );
        let straggler = Some(Straggler {
            rank: 3,
            delay_us: 1,
        });
        assert_eq!(
            said(Case { straggler, ..case }, Algorithm::Ring),
            "there is no rank 3 among 3, which are counted from 0"
        );
        // Rounds and vectors each of which is small enough, and 64 GiB together.
        let large = Case {
            ranks: 2,
            bytes: 64 << 20,
            rounds: 1024,
            ..case
        };
        for (algorithm, vectors) in [(Algorithm::Ring, 1026.5), (Algorithm::Doubling, 1029.0)] {
            let Err(Error::TooLarge { bytes }) = large.check(algorithm) else {
                panic!("{algorithm:?}");
            };
            assert_eq!(bytes as f64, vectors * large.bytes as f64);
            let enough = Case {
                rounds: 500,
                ..large
            };
            enough.check(algorithm).unwrap();
        }
        let idle = Case::check_places(3, 4).unwrap_err().to_string();
        assert_eq!(
            idle,
            "3 ranks leave some of 4 GPUs without any; choose more --ranks, or fewer --gpus"
        );
        Case::check_places(3, 3).unwrap();
        let none = Case { bytes: 0, ..case };
        assert!(matches!(
            none.check(Algorithm::Ring),
            Err(Error::Uneven { .. })
        ));
    }
}
