//! Cores of the CPU, counted from 0 as Linux does, for threads that stay on one.

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Why a thread does not stay on a core.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoreError {
    /// A core that does not exist, or that the thread may not use.
    #[error(
        "core {core} is none of the {count} cores that this thread may use; taskset -cp shows them"
    )]
    NotAllowed {
        /// Which core.
        core: usize,
        /// How many the thread may use.
        count: usize,
    },
    /// The system does not say which cores a thread may use, or does not keep it on one.
    #[error("the system keeps no thread on a core: {0}")]
    System(#[from] std::io::Error),
}

/// The cores that the calling thread may use, in their order. Threads that it starts inherit them.
///
/// # Errors
/// [`CoreError::System`].
pub fn allowed() -> Result<Vec<usize>, CoreError> {
    let set = sched_getaffinity(None).map_err(system)?;
    let all = 0..CpuSet::MAX_CPU;
    Ok(all.filter(|&core| set.is_set(core)).collect())
}

/// Has the calling thread stay on a core that it may use.
///
/// # Errors
/// [`CoreError::NotAllowed`], [`CoreError::System`].
pub fn stay_on(core: usize) -> Result<(), CoreError> {
    let allowed = allowed()?;
    if !allowed.contains(&core) {
        let count = allowed.len();
        return Err(CoreError::NotAllowed { core, count });
    }
    let mut alone = CpuSet::new();
    alone.set(core);
    sched_setaffinity(None, &alone).map_err(system)
}

fn system(error: Errno) -> CoreError {
    CoreError::System(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_on_its_core_and_may_use_no_other_one_then() {
        let before = allowed().unwrap();
        let core = *before.last().unwrap();
        let stay = move || {
            stay_on(core).unwrap();
            assert_eq!(allowed().unwrap(), [core]);
            for other in [core + 1, CpuSet::MAX_CPU, usize::MAX] {
                let refused = stay_on(other);
                assert_matches!(
                    refused => Err(CoreError::NotAllowed { core: of, count: 1 }) if of == other
                );
            }
            // One that its starter may still use.
            if core > 0 {
                assert_matches!(stay_on(core - 1) => Err(CoreError::NotAllowed { .. }));
            }
        };
        std::thread::spawn(stay).join().unwrap();
        assert_eq!(allowed().unwrap(), before, "for that thread alone");
    }
}
