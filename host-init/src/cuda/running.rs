//! Kernels under way, watched until they end, and what became of them.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use super::driver::describe;
use super::gpu::Handle;
use super::graph::Repeating;
use super::sys::{self, CUevent, CUresult, CUstream};
use super::{GpuError, Module};
use crate::QueuePair;
use crate::launch::Watch;

/// Looks at the queues in one limit.
const LOOKS: u32 = 8;

/// Finds out whether queues stand still, from a number that changes with all that they do.
struct Vigil {
    limit: Duration,
    next_look: Duration,
    /// The last look that found something new.
    alive: Duration,
    mark: Option<u64>,
}

impl Vigil {
    fn new(limit: Duration) -> Self {
        Self {
            limit,
            next_look: limit / LOOKS,
            alive: Duration::ZERO,
            mark: None,
        }
    }

    /// Whether nothing has happened for too long, so long after the beginning.
    fn is_over(&mut self, waited: Duration, mark: impl FnOnce() -> Option<u64>) -> bool {
        if waited < self.next_look {
            return false;
        }
        self.next_look = waited + self.limit / LOOKS;
        let mark = mark();
        if mark != self.mark {
            (self.mark, self.alive) = (mark, waited);
        }
        waited - self.alive > self.limit
    }
}

/// How long a wait of the host yields before it sleeps.
const BRISK: Duration = Duration::from_millis(2);
/// How long it sleeps then at least.
const SHORTEST_NAP: Duration = Duration::from_micros(100);
/// And at most, beside kernels that run for long: so the host has hardly any of a core.
const LONGEST_NAP: Duration = Duration::from_millis(10);

/// A kernel under way. One that is dropped runs on, and nobody hears what becomes of it.
pub struct Running<'m> {
    module: &'m Module,
    name: &'static str,
    /// Comes behind the kernel in its stream; none once it has ended.
    ///
    /// Not the stream itself is asked: compute-sanitizer, when it hears that a stream is done, waits for everything
    /// that the GPU runs, a NIC of software among it.
    end: Option<Handle<CUevent>>,
    /// Given back at the end, for another kernel; none if it is somebody else's.
    stream: Option<Handle<CUstream>>,
    /// The graph whose last kernel it is, if that launches itself.
    pub(super) repeating: Option<Repeating>,
}

impl Module {
    /// What is in somebody's stream by now, a kernel of this name last.
    #[cfg(feature = "cust")]
    pub(super) fn running(
        &self,
        name: &'static str,
        stream: CUstream,
    ) -> Result<Running<'_>, GpuError> {
        self.gpu().enter()?;
        let end = self.gpu().take_event()?;
        self.up_to(end, name, Handle(stream))
    }

    /// What is in a stream by now, a kernel of this name last; `end` comes behind it. The GPU is lost if it cannot.
    pub(super) fn up_to(
        &self,
        end: Handle<CUevent>,
        name: &'static str,
        stream: Handle<CUstream>,
    ) -> Result<Running<'_>, GpuError> {
        // SAFETY: the event lives; the stream is its owner's, who has it until all in it has ended.
        match unsafe { sys::cuEventRecord(end.0, stream.0) } {
            CUresult::CUDA_SUCCESS => Ok(Running {
                module: self,
                name,
                end: Some(end),
                stream: None,
                repeating: None,
            }),
            error => Err(self.broke_off(name, error)),
        }
    }

    /// What has broken off a kernel. The GPU is lost to this process.
    fn broke_off(&self, name: &'static str, error: CUresult) -> GpuError {
        self.gpu().lose();
        let kernel = name.into();
        match self.panic_message() {
            Some(message) => GpuError::Panicked { kernel, message },
            None => GpuError::BrokeOff {
                kernel,
                why: describe(error),
            },
        }
    }
}

impl Running<'_> {
    /// The same, which gives the stream back at the end: nobody else has it.
    pub(super) const fn owning(mut self, stream: Handle<CUstream>) -> Self {
        self.stream = Some(stream);
        self
    }

    /// Whether it has ended.
    ///
    /// # Errors
    /// [`GpuError::Panicked`], [`GpuError::BrokeOff`]: the GPU is lost to this process. It is not with
    /// [`GpuError::NoRelaunch`], for a graph that the GPU did not launch again.
    pub fn has_ended(&mut self) -> Result<bool, GpuError> {
        let Some(end) = self.end else {
            return Ok(true);
        };
        let gpu = self.module.gpu();
        // SAFETY: the event lives until the process ends.
        match unsafe { sys::cuEventQuery(end.0) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            CUresult::CUDA_SUCCESS => {
                self.end = None;
                gpu.give_event(end);
                if let Some(stream) = self.stream.take() {
                    gpu.give_stream(stream);
                }
                let repeating = self.repeating.take();
                repeating.map_or(Ok(()), |repeating| repeating.end(gpu))?;
                Ok(true)
            }
            error => Err(self.module.broke_off(self.name, error)),
        }
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// As [`has_ended`](Self::has_ended), and [`GpuError::Hangs`] after the watch's limit.
    pub fn wait(self, watch: &Watch<'_>) -> Result<(), GpuError> {
        wait_for_all(&mut [self], watch)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(end) = self.end {
            self.module.gpu().leave_event(end);
        }
    }
}

impl fmt::Debug for Running<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Running").field(&self.name).finish()
    }
}

/// Waits until all have ended. On an error that leaves some running, a GPU at least is lost; whoever runs them on several loses
/// all.
pub(super) fn wait_for_all(running: &mut [Running<'_>], watch: &Watch<'_>) -> Result<(), GpuError> {
    let begin = Instant::now();
    let mut vigil = Vigil::new(watch.limit);
    let mut ended = Ok(());
    loop {
        // The clock first: kernels that end late still get a look after it.
        let waited = begin.elapsed();
        let mut left = Vec::new();
        for kernel in running.iter_mut() {
            let gpu = kernel.module.gpu();
            match kernel.has_ended() {
                Ok(true) => {}
                Ok(false) => left.push(kernel.name),
                Err(error) if gpu.is_lost() => return Err(error),
                // The others go on, and reach what their caller has lent them.
                Err(error) => ended = ended.and(Err(error)),
            }
        }
        if left.is_empty() {
            return ended;
        }
        if vigil.is_over(waited, || mark(watch.queue_pairs)) {
            running.iter().for_each(|kernel| kernel.module.gpu().lose());
            return Err(GpuError::Hangs {
                kernels: left.join(", "),
                limit: watch.limit,
                hanging: hanging(watch.queue_pairs),
            });
        }
        match nap(waited, watch.asleep) {
            None => thread::yield_now(),
            Some(nap) => thread::sleep(nap),
        }
    }
}

/// How long a wait sleeps until its next look, after so long; not at all at first. A hundredth, so that an end is noticed late
/// by no more than that or the shortest nap, and hardly anything of a core is wanted.
fn nap(waited: Duration, asleep: bool) -> Option<Duration> {
    match asleep {
        true => Some(LONGEST_NAP),
        false if waited < BRISK => None,
        false => Some((waited / 100).clamp(SHORTEST_NAP, LONGEST_NAP)),
    }
}

/// A number that changes with all that queue pairs do; none without queue pairs.
fn mark(queue_pairs: &[&QueuePair]) -> Option<u64> {
    let marks = queue_pairs.iter().map(|pair| pair.mark());
    marks.reduce(|one, other| Some(one?.rotate_left(1) ^ other?))?
}

/// What queue pairs wait for, in words.
fn hanging(queue_pairs: &[&QueuePair]) -> String {
    let sends = queue_pairs.iter().filter_map(|pair| pair.outstanding());
    let receives = queue_pairs.iter().filter_map(|pair| pair.awaited_receive());
    let mut words: Vec<_> = sends.map(|request| request.to_string()).collect();
    words.extend(receives.map(|receive| receive.to_string()));
    match words.is_empty() {
        true => "no work request is outstanding, so it waits for something else".into(),
        false => words.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_that_do_nothing_for_too_long_are_found() {
        let at = Duration::from_millis;
        let mut vigil = Vigil::new(at(80));
        let mut found = |millis, mark| vigil.is_over(at(millis), || mark);
        // Every look finds something new.
        for millis in (10..=400).step_by(10) {
            assert!(!found(millis, Some(millis)), "after {millis} ms");
        }
        assert!(!found(480, Some(400)));
        assert!(found(490, Some(400)));
    }

    #[test]
    fn without_queues_the_time_counts_from_the_beginning() {
        let at = Duration::from_millis;
        let mut vigil = Vigil::new(at(80));
        assert!(!vigil.is_over(at(80), || None));
        assert!(vigil.is_over(at(91), || None));
    }

    #[test]
    fn queues_are_looked_at_now_and_then() {
        let mut vigil = Vigil::new(Duration::from_millis(80));
        let mut looks = 0;
        for micros in 0..80_000 {
            let look = || {
                looks += 1;
                None
            };
            assert!(!vigil.is_over(Duration::from_micros(micros), look));
        }
        assert!(looks <= LOOKS, "{looks} looks");
    }

    #[test]
    fn the_longer_a_wait_the_longer_its_naps() {
        for (waited, expected) in [
            (2, 100),
            (10, 100),
            (100, 1000),
            (500, 5000),
            (5000, 10_000),
            (60_000, 10_000),
        ] {
            let found = nap(Duration::from_millis(waited), false);
            let expected = Duration::from_micros(expected);
            assert_eq!(found, Some(expected), "after {waited} ms");
        }
        assert_eq!(nap(Duration::from_millis(1), false), None);
        assert_eq!(nap(Duration::ZERO, true), Some(Duration::from_millis(10)));
    }
}
