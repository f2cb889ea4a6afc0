//! Kernels on a CPU grid, with what became of them.

use warpbell_cpu_grid::{Dim, LaunchError, Options, launch};
use warpbell_kernels::outcome::{Failure, Outcome};

use crate::Error;

/// The longest that any wait of a kernel may take, in microseconds.
pub const LIMIT_US: u64 = 5_000_000;

/// One thread.
pub const ONE_THREAD: Dim = Dim {
    blocks: 1,
    threads_per_block: 1,
};

/// A kernel with its parameters, all but the place for its outcome.
pub type Kernel<'k> = &'k (dyn Fn(&Outcome) + Sync);

/// Runs one kernel on a grid, and gives what it says.
///
/// # Errors
/// Only a grid that did not end well; the kernel's own failure is in the value.
pub fn run_grid(dim: Dim, kernel: Kernel<'_>) -> Result<Result<(), Failure>, LaunchError> {
    let outcome = Outcome::new();
    launch(dim, Options::default(), || kernel(&outcome))?;
    Ok(outcome.result())
}

/// Runs one kernel on one thread, and gives what it says.
///
/// # Errors
/// As [`run_grid`].
pub fn try_run(kernel: Kernel<'_>) -> Result<Result<(), Failure>, LaunchError> {
    run_grid(ONE_THREAD, kernel)
}

/// Runs one kernel on one thread.
///
/// # Errors
/// A grid that did not end well, or the kernel's failure, which `what` introduces.
pub fn run(what: &str, kernel: Kernel<'_>) -> Result<(), Error> {
    try_run(kernel)?.map_err(|failure| failed(what, failure))
}

/// Runs several kernels at the same time, each on one thread.
///
/// # Errors
/// As [`run`], of the first kernel in the list that has one.
pub fn run_together(what: &str, kernels: &[Kernel<'_>]) -> Result<(), Error> {
    let results: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = kernels
            .iter()
            .map(|kernel| scope.spawn(|| try_run(kernel)))
            .collect();
        let ended = started.into_iter().map(|thread| thread.join());
        ended
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    for result in results {
        result?.map_err(|failure| failed(what, failure))?;
    }
    Ok(())
}

fn failed(what: &str, failure: Failure) -> Error {
    let what = what.into();
    Error::Kernel { what, failure }
}
