//! Kernels with what became of them.

use warpbell_host_init::{Entry, Grid, Launch};
use warpbell_kernels::outcome::{Failure, Outcome};

use crate::Error;
use crate::setup::End;

/// The longest that any wait of a kernel may take, in microseconds.
pub const LIMIT_US: u64 = 5_000_000;

/// A kernel on a grid, and where it says what became of it.
#[derive(Debug)]
pub struct Job<'j> {
    launch: Launch<'j>,
    outcome: &'j Outcome,
}

impl<'j> Job<'j> {
    /// A kernel on one thread; `outcome` is the one in its parameters.
    pub fn new<P>(entry: Entry<fn(P)>, parameters: P, outcome: &'j Outcome) -> Self
    where
        P: Copy + Sync + 'j,
    {
        Self::on_grid(entry, Grid::ONE_THREAD, parameters, outcome)
    }

    /// The same on a grid.
    pub fn on_grid<P>(entry: Entry<fn(P)>, grid: Grid, parameters: P, outcome: &'j Outcome) -> Self
    where
        P: Copy + Sync + 'j,
    {
        Self {
            launch: Launch::new(entry, grid, parameters),
            outcome,
        }
    }
}

/// Runs one kernel, where an end's kernels run, and gives what it says.
///
/// # Errors
/// Only a grid that did not end well; the kernel's own failure is in the value.
pub fn try_run(job: Job<'_>, end: &End) -> Result<Result<(), Failure>, Error> {
    let mut results = run_all(vec![job], &[end])?;
    Ok(results.pop().unwrap_or(Ok(())))
}

/// Runs one kernel.
///
/// # Errors
/// As [`try_run`], and the kernel's failure, which `what` introduces.
pub fn run(what: &str, job: Job<'_>, end: &End) -> Result<(), Error> {
    run_together(what, vec![job], &[end])
}

/// Runs several kernels of these ends at the same time.
///
/// # Errors
/// As [`run`], of the first kernel in the list that has one.
pub fn run_together(what: &str, jobs: Vec<Job<'_>>, ends: &[&End]) -> Result<(), Error> {
    for result in run_all(jobs, ends)? {
        named(what, result)?;
    }
    Ok(())
}

/// What a kernel says of itself.
///
/// # Errors
/// Its failure, which `what` introduces.
pub fn said(what: &str, outcome: &Outcome) -> Result<(), Error> {
    named(what, outcome.result())
}

fn named(what: &str, result: Result<(), Failure>) -> Result<(), Error> {
    result.map_err(|failure| Error::Kernel {
        what: what.into(),
        failure,
    })
}

fn run_all(jobs: Vec<Job<'_>>, ends: &[&End]) -> Result<Vec<Result<(), Failure>>, Error> {
    let (launches, outcomes): (Vec<_>, Vec<_>) = jobs
        .into_iter()
        .map(|job| (job.launch, job.outcome))
        .unzip();
    let queue_pairs: Vec<_> = ends.iter().map(|end| &end.pair).collect();
    if let Some(end) = ends.first() {
        end.node.run(&launches, &queue_pairs)?;
    }
    Ok(outcomes.into_iter().map(Outcome::result).collect())
}
