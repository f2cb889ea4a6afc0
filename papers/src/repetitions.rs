//! Repetitions of a run, each compared with a reference.

use std::time::{Duration, Instant};

use warpbell_bench::cause::Vain;
use warpbell_bench::party::Party;
use warpbell_bench::run::interrupt;

use crate::Error;

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
        begin: impl Fn() -> Result<(), Error>,
        run: impl Fn() -> Result<Duration, Error>,
        is_right: impl Fn() -> Result<bool, Error>,
    ) -> Result<Repeated, Error> {
        let (began, mut spent, mut count) = (Instant::now(), Duration::ZERO, 0);
        let mut verified = true;
        let goes_on = |count| {
            let in_time = count == 0 || began.elapsed() < self.limit;
            count < self.most && in_time && !interrupt::requested()
        };
        while party.all(goes_on(count))? {
            begin()?;
            // Nothing comes from another rank before that.
            party.all(true)?;
            let mut took = Duration::ZERO;
            let early = match interrupt::ended_early(run().map(|time| took = time)) {
                // A rank that waited in vain asks the others, and so learns which one is gone.
                Err(error) if error.is_vain() => Err(error),
                early => Ok(early?),
            };
            let over = early.as_ref().ok().map(|early| !early);
            let all = party.exchange(over)?;
            early?;
            if all.contains(&None) {
                // That rank ends, and says why.
                party.all(true)?;
            }
            // One that is not over does not count.
            if all.contains(&Some(false)) {
                break;
            }
            count += 1;
            spent += party.longest(took)?;
            verified &= party.all(is_right()?)?;
        }
        match count {
            0 => Err(warpbell_bench::run::Error::Interrupted.into()),
            _ => Ok(Repeated {
                count,
                spent,
                verified,
            }),
        }
    }
}
