//! Kernels that run one behind the other again and again, without their host.

use std::thread;
use std::time::Duration;

use warpbell_host_init::cuda::DeviceRuntime;
use warpbell_host_init::{Launch, QueuePair, StopWord};

use super::{Kernels, World, run_on_cpu};
use crate::Error;

impl World {
    /// The same place, where kernels can be launched again and again: a GPU wants CUDA's device runtime, which is loaded while
    /// nothing runs yet.
    ///
    /// # Errors
    /// A device runtime that is not there.
    pub fn able_to_repeat(&self) -> Result<Self, Error> {
        let runtime = match self.kernels {
            Kernels::Cpu => None,
            Kernels::Gpu(module) => Some(DeviceRuntime::load(module.gpu(), None)?),
        };
        Ok(Self { runtime, ..*self })
    }

    /// Runs kernels one behind the other, and again from the first until `stop` says that it is enough, and others beside
    /// them, as [`run_for`](Self::run_for) does. On a GPU they are a graph that launches itself; on a CPU the thread that
    /// stands for the GPU launches them again.
    ///
    /// # Errors
    /// As [`run_for`](Self::run_for), and on a GPU as [`able_to_repeat`](Self::able_to_repeat), where that was not called before.
    pub fn run_repeating(
        &self,
        repeated: &[Launch<'_>],
        stop: &StopWord,
        beside: &[Launch<'_>],
        queue_pairs: &[&QueuePair],
        meant: Duration,
    ) -> Result<(), Error> {
        let Kernels::Gpu(module) = self.kernels else {
            return repeat_on_cpu(repeated, stop, beside, meant);
        };
        let runtime = match self.runtime {
            Some(runtime) => runtime,
            None => DeviceRuntime::load(module.gpu(), None)?,
        };
        let watch = self.watched(queue_pairs);
        Ok(module.run_repeating(repeated, stop, &runtime, beside, &watch)?)
    }
}

fn repeat_on_cpu(
    repeated: &[Launch<'_>],
    stop: &StopWord,
    beside: &[Launch<'_>],
    meant: Duration,
) -> Result<(), Error> {
    let again = || {
        while !stop.stop().requested() {
            repeated
                .iter()
                .try_for_each(|launch| run_on_cpu(std::slice::from_ref(launch), meant))?;
        }
        Ok(())
    };
    // Whoever calls this sleeps meanwhile, as beside a GPU.
    thread::scope(|scope| {
        let again = scope.spawn(again);
        let beside = scope.spawn(|| run_on_cpu(beside, meant)).join();
        if !matches!(beside, Ok(Ok(()))) {
            // Nobody is left who would say so.
            stop.request();
        }
        let ended = [again.join(), beside]
            .map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.into_iter().collect()
    })
}

#[cfg(test)]
mod tests {
    use warpbell_host_init::{Grid, Placement, entry};

    use super::*;

    #[test]
    fn kernels_are_not_repeated_for_others_that_have_failed() {
        #[warpbell::kernel]
        fn nothing(_: u64) {}
        let none = Grid {
            blocks: 0,
            ..Grid::ONE_THREAD
        };
        let stop = StopWord::new(Placement::Host).unwrap();
        let ended = repeat_on_cpu(
            &[],
            &stop,
            &[Launch::new(entry!(nothing), none, 0)],
            Duration::ZERO,
        );
        assert!(matches!(ended, Err(Error::Launch(_))), "{ended:?}");
        assert!(stop.stop().requested());
    }
}
