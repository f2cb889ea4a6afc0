//! Kernels with what became of them, none of which starts after Ctrl-C.

use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_stage::launch;
pub use warpbell_stage::launch::{Job, LIMIT_US};

use crate::run::Error;
use crate::run::interrupt;
use crate::run::setup::End;

/// Runs one kernel, where an end's kernels run, and gives what it says.
///
/// # Errors
/// Only a grid that did not end well, or the user's Ctrl-C; the kernel's own failure is in the value.
pub fn try_run(job: Job<'_>, end: &End) -> Result<Result<(), Failure>, Error> {
    interrupt::check()?;
    Ok(launch::try_run(job, end)?)
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
    interrupt::check()?;
    Ok(launch::run_together(what, jobs, ends)?)
}

/// What a kernel says of itself.
///
/// # Errors
/// Its failure, which `what` introduces.
pub fn said(what: &str, outcome: &Outcome) -> Result<(), Error> {
    Ok(launch::said(what, outcome)?)
}
