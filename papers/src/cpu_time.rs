//! How long a thread had a core.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::Error;

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

/// Does some work on this thread, and gives the hundredths of a core that this thread had in each span of time until
/// then; the last span is as long as what was left.
///
/// # Errors
/// A system that does not tell another thread's time.
pub fn shares<R>(span: Duration, work: impl FnOnce() -> R) -> Result<(R, Vec<f64>), Error> {
    // Relative to the directory of the processes: "PID/task/TID".
    let path = fs::read_link("/proc/thread-self").map(|own| Path::new("/proc").join(own));
    let told = path.and_then(|path| had_by(&path).map(|before| (path, before)));
    let (path, before) = told.map_err(|error| Error::Unfit {
        what: format!("the system does not tell a thread's time on a core: {error}"),
    })?;
    let (ended, end) = channel::<()>();
    thread::scope(|scope| {
        let sampler = scope.spawn(move || {
            let (began, mut last, mut before) = (Instant::now(), Duration::ZERO, before);
            let mut shares = Vec::new();
            for number in 1.. {
                let left = span.saturating_mul(number).saturating_sub(began.elapsed());
                let over = end.recv_timeout(left) != Err(RecvTimeoutError::Timeout);
                let now = began.elapsed();
                // The thread waits for this one, so that its file is there.
                let had = had_by(&path).unwrap_or(before);
                let took = (now - last).as_secs_f64().max(1e-9);
                shares.push(100.0 * had.saturating_sub(before).as_secs_f64() / took);
                (last, before) = (now, had);
                if over {
                    break;
                }
            }
            shares
        });
        let done = work();
        // The sampler ends by that alone.
        drop(ended);
        let shares = sampler.join();
        Ok((
            done,
            shares.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        ))
    })
}

/// How long a thread has had a core: from the scheduler, or where that does not say, from the system's clock ticks of
/// 10 ms.
fn had_by(thread: &Path) -> std::io::Result<Duration> {
    let number = |text: Option<&str>| text.and_then(|text| text.parse().ok()).unwrap_or(0);
    if let Ok(text) = fs::read_to_string(thread.join("schedstat")) {
        return Ok(Duration::from_nanos(number(text.split(' ').next())));
    }
    let text = fs::read_to_string(thread.join("stat"))?;
    // Behind the name, which may have blanks: fields 14 and 15 of proc(5), the first of these being the third.
    let fields = text.rsplit(')').next().unwrap_or_default();
    let mut fields = fields.split_whitespace().skip(11);
    let ticks = number(fields.next()) + number(fields.next());
    Ok(Duration::from_millis(10 * ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_in_which_a_thread_sleeps_is_told_from_one_in_which_it_computes() {
        const SPAN: Duration = Duration::from_millis(200);
        let work = || {
            thread::sleep(2 * SPAN);
            let before = had();
            // Until it has had so much, whoever else wants the core.
            while had() - before < 2 * SPAN {
                std::hint::spin_loop();
            }
            7
        };
        let (done, shares) = shares(SPAN, work).unwrap();
        assert_eq!(done, 7);
        assert!(shares.len() >= 4, "{shares:?}");
        let most = shares.iter().copied().fold(0.0, f64::max);
        assert!(shares[0] < most / 2.0, "{shares:?}");
        // Two spans, and at most one more for the last one, which is shorter: no time counts in two spans.
        assert!(shares.iter().sum::<f64>() < 400.0, "{shares:?}");
    }

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
