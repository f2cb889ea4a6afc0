//! What runs kernels.

use std::fmt;
use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use warpbell_cpu_grid::{LaunchError, Options, launch};

use crate::choice::Branches;
use crate::cuda::Module;
#[cfg(feature = "cuda")]
use crate::cuda::Ptx;
use crate::{Error, Gpu, Launch, Placement, StopWord};

/// What runs kernels. A copy is the same place.
///
/// ```
/// use warpbell_cpu_grid::Options;
/// use warpbell_host_init::soft::SoftOptions;
/// use warpbell_host_init::{Kernels, Nic, Node};
///
/// let options = Options { deadline: None, ..Options::default() };
/// let node = Node::new(Kernels::Cpu(options), Nic::Soft(SoftOptions::default()))?;
/// assert!(node.gpu().is_none());
/// # Ok::<(), warpbell_host_init::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Kernels {
    /// A grid of CPU threads, with these options.
    Cpu(Options),
    /// A GPU. The module has the kernels.
    Gpu(&'static Module),
}

impl Default for Kernels {
    /// CPU threads.
    fn default() -> Self {
        Self::Cpu(Options::default())
    }
}

impl fmt::Display for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(options) => write!(f, "CPU threads, lanes {:?}", options.order),
            Self::Gpu(module) => f.write_str(module.gpu().name()),
        }
    }
}

impl Kernels {
    /// Loads kernels on a GPU from the newest PTX of them that it can run. They stay loaded until the process ends.
    ///
    /// # Errors
    /// As [`Module::load`].
    #[cfg(feature = "cuda")]
    pub fn load(gpu: Gpu, variants: &[Ptx<'_>]) -> Result<Self, Error> {
        let module = Module::load(gpu, variants)?;
        Ok(Self::Gpu(Box::leak(Box::new(module))))
    }

    /// The GPU, if it is one.
    pub fn gpu(self) -> Option<Gpu> {
        match self {
            Self::Cpu(_) => None,
            Self::Gpu(module) => Some(module.gpu()),
        }
    }

    /// Where host and kernels reach memory.
    pub fn placement(self) -> Placement {
        match self {
            Self::Cpu(_) => Placement::Host,
            Self::Gpu(module) => Placement::Pinned(module.gpu()),
        }
    }
}

/// Runs one kernel on CPU threads.
pub(crate) fn run_on_cpu(options: Options, kernel: &Launch<'_>) -> Result<(), LaunchError> {
    launch(kernel.grid(), options, || kernel.run_thread())
}

/// Runs kernels on CPU threads at the same time, until all have ended.
pub(super) fn run_all_on_cpu(options: Options, kernels: &[&Launch<'_>]) -> Result<(), LaunchError> {
    if let [kernel] = kernels {
        return run_on_cpu(options, kernel);
    }
    thread::scope(|scope| {
        let start = |&kernel| scope.spawn(move || run_on_cpu(options, kernel));
        let started: Vec<_> = kernels.iter().map(start).collect();
        let results: Vec<_> = started.into_iter().map(joined).collect();
        results.into_iter().collect()
    })
}

/// Runs kernels one behind the other, and the branch that they choose, and again until `stop` asks for the end, and
/// others beside them.
pub(super) fn repeat_on_cpu(
    options: Options,
    (repeated, branches): (&[Launch<'_>], Option<&Branches<'_>>),
    stop: &StopWord,
    beside: &[&Launch<'_>],
) -> Result<(), Error> {
    let run_each = |kernels: &[Launch<'_>]| {
        let mut each = kernels.iter();
        each.try_for_each(|kernel| run_on_cpu(options, kernel))
    };
    let again = || {
        while !stop.stop().requested() {
            run_each(repeated)?;
            if let Some(branches) = branches {
                run_each(branches.take()?)?;
            }
        }
        Ok::<_, Error>(())
    };
    thread::scope(|scope| {
        let again = scope.spawn(again);
        let beside = scope.spawn(|| run_all_on_cpu(options, beside)).join();
        if !matches!(beside, Ok(Ok(()))) {
            // The kernels beside them are the ones that would have asked for the end.
            stop.request();
        }
        let beside = beside.unwrap_or_else(|panic| resume_unwind(panic));
        joined(again).and(beside.map_err(Error::from))
    })
}

/// The same options for kernels that are meant to run for so long: they may take as much longer.
pub(super) fn meant_for(options: Options, meant: Duration) -> Options {
    Options {
        deadline: options.deadline.map(|usual| usual.saturating_add(meant)),
        ..options
    }
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Grid, entry};

    #[test]
    fn kernels_are_not_repeated_for_others_that_have_failed() {
        #[warpbell::kernel]
        fn nothing(_: u64) {}
        let none = Grid::new(0, 1);
        let stop = StopWord::new(Placement::Host).unwrap();
        let beside = Launch::new(entry!(nothing), none, 0);
        let ended = repeat_on_cpu(Options::default(), (&[], None), &stop, &[&beside]);
        assert_matches!(ended => Err(Error::Launch(LaunchError::Dimensions { .. })));
        assert!(stop.stop().requested());
    }
}
