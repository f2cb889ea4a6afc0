//! How long a thread had a core.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// From a moment on, of the thread that made it.
#[derive(Debug)]
pub struct CpuTime {
    began: Instant,
    before: Duration,
}

impl CpuTime {
    /// From now on.
    pub fn begin() -> Self {
        Self {
            began: Instant::now(),
            before: had(),
        }
    }

    /// Hundredths of one core that this thread had since; to be asked by the same thread.
    pub fn percent(&self) -> f64 {
        let had = had().saturating_sub(self.before);
        100.0 * had.as_secs_f64() / self.began.elapsed().as_secs_f64().max(1e-9)
    }
}

fn had() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // The clock of a thread that runs is neither negative nor over.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_sleeps_has_less_of_a_core_than_one_that_computes() {
        const SPAN: Duration = Duration::from_millis(100);
        let asleep = CpuTime::begin();
        std::thread::sleep(SPAN);
        let asleep = asleep.percent();
        let awake = CpuTime::begin();
        let before = had();
        // Until it has had so much, whoever else wants the core.
        while had() - before < SPAN {
            std::hint::spin_loop();
        }
        let awake = awake.percent();
        assert!(asleep < awake / 2.0, "{asleep} and {awake}");
    }
}
