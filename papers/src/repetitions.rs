//! Repetitions of a run, each compared with a reference.

use std::time::{Duration, Instant};

use warpbell_bench::energy::{Energy, Meter};
use warpbell_bench::party::Party;
use warpbell_bench::run::interrupt;

use crate::Error;
use crate::together::together;

/// How often something is run.
#[derive(Clone, Copy, Debug)]
pub struct Repetitions {
    /// The most times.
    pub most: u64,
    /// None begins once they have taken so long, with all comparisons.
    pub limit: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Repeated {
    /// How often it ran to its end, once at least.
    pub count: u64,
    /// How long these runs took together.
    pub spent: Duration,
    /// What they took on this rank's machine, from just before each run to just behind it.
    pub energy: Energy,
    /// Whether all were right.
    pub verified: bool,
}

impl Repetitions {
    /// Prepares, runs and compares again and again. Ranks that are processes do so together, and come to the same: a run takes
    /// as long as for the slowest rank.
    ///
    /// # Errors
    /// Those of the parts; another rank failed; Ctrl-C before a run was over.
    pub fn run(
        &self,
        party: &Party,
        meter: &Meter,
        begin: impl Fn() -> Result<(), Error>,
        run: impl Fn() -> Result<Duration, Error>,
        is_right: impl Fn() -> Result<bool, Error>,
    ) -> Result<Repeated, Error> {
        let (began, mut spent, mut count) = (Instant::now(), Duration::ZERO, 0);
        let (mut verified, mut energy) = (true, Energy::default());
        let goes_on = |count| {
            let in_time = count == 0 || began.elapsed() < self.limit;
            count < self.most && in_time && !interrupt::requested()
        };
        while party.all(goes_on(count))? {
            begin()?;
            // Nothing comes from another rank before that.
            party.all(true)?;
            let (mut took, mut taken) = (Duration::ZERO, Energy::default());
            let mut measured = || {
                let before = meter.read()?;
                took = run()?;
                taken = meter.since(&before)?;
                Ok(())
            };
            let early = interrupt::ended_early(measured());
            // One that is not over does not count.
            if together(party, early)?.contains(&true) {
                break;
            }
            count += 1;
            spent += party.longest(took)?;
            energy += taken;
            verified &= party.all(is_right()?)?;
        }
        match count {
            0 => {
                // So that all know, whichever rank it came to.
                party.check()?;
                Err(warpbell_bench::run::Error::Interrupted.into())
            }
            _ => Ok(Repeated {
                count,
                spent,
                energy,
                verified,
            }),
        }
    }
}
