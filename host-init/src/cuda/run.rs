//! Kernels launched, watched until they end, and what became of them.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use super::driver::{check, describe};
use super::gpu::Handle;
use super::graph::{self, Repeating};
use super::l2;
use super::module::LoadedKernel;
use super::sys::{self, CUevent, CUlaunchConfig, CUresult, CUstream};
use super::{GpuError, Module};
use crate::launch::Watch;
use crate::{Grid, Launch, QueuePair};

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

/// Most threads of a block, on every GPU.
const MAX_THREADS_PER_BLOCK: u32 = 1024;

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
    repeating: Option<Repeating>,
}

/// A kernel that only needs to be started.
pub(super) struct Prepared<'l> {
    module: &'l Module,
    pub launch: &'l Launch<'l>,
    pub kernel: LoadedKernel,
}

impl Module {
    /// Runs kernels at the same time, each on a stream of its own, and returns when all have ended.
    ///
    /// # Errors
    /// [`GpuError::NoSuchKernel`], [`GpuError::OtherTypes`], [`GpuError::OtherParameters`],
    /// [`GpuError::BadGrid`], [`GpuError::TooManyThreads`]: nothing has run then.
    /// [`GpuError::Panicked`], [`GpuError::BrokeOff`], [`GpuError::Hangs`]: the GPU is lost to this process,
    /// and keeps all memory that it had.
    pub fn run(&self, launches: &[Launch<'_>], watch: &Watch<'_>) -> Result<(), GpuError> {
        run_each(launches.iter().map(|launch| (self, launch)), watch)
    }

    /// The same of kernels on several GPUs, each with its module there: one watch over all, and all GPUs are lost with one.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_each(launches: &[(&Self, Launch<'_>)], watch: &Watch<'_>) -> Result<(), GpuError> {
        let launches = launches.iter();
        run_each(launches.map(|(module, launch)| (*module, launch)), watch)
    }

    /// Starts a kernel that runs while the host does something else, until it ends by itself: one that is
    /// meant to run for long is given a word to poll, which tells it to stop.
    ///
    /// # Errors
    /// As [`run`](Self::run): a kernel that has broken off by now is named, too.
    pub fn start(&self, launch: &Launch<'static>) -> Result<Running<'_>, GpuError> {
        let prepared = self.prepare(launch)?;
        // SAFETY: the parameters borrow nothing that ends.
        unsafe { self.begin(prepared) }
    }

    /// Launches a graph, whose last kernel has this name; the GPU is current.
    pub(super) fn begin_repeating(
        &self,
        name: &'static str,
        repeating: Repeating,
    ) -> Result<Running<'_>, GpuError> {
        let launched = self.launch_repeating(&repeating);
        let (stream, end) = match launched {
            Ok(both) => both,
            Err(error) => {
                repeating.end(self.gpu())?;
                return Err(error);
            }
        };
        let mut running = self.up_to(end, name, stream)?;
        (running.stream, running.repeating) = (Some(stream), Some(repeating));
        Ok(running)
    }

    /// Launches it in a stream, and gives that, and an event to come behind.
    fn launch_repeating(
        &self,
        repeating: &Repeating,
    ) -> Result<(Handle<CUstream>, Handle<CUevent>), GpuError> {
        let gpu = self.gpu();
        let stream = gpu.take_stream()?;
        let end = gpu.take_event().inspect_err(|_| gpu.give_stream(stream))?;
        graph::launch(repeating, stream).inspect_err(|_| {
            gpu.give_stream(stream);
            gpu.give_event(end);
        })?;
        Ok((stream, end))
    }

    pub(super) fn prepare<'l>(&'l self, launch: &'l Launch<'l>) -> Result<Prepared<'l>, GpuError> {
        if self.gpu().is_lost() {
            return Err(GpuError::Lost);
        }
        check_grid(launch.grid())?;
        if let Some(window) = launch.window()
            && window.gpu() != self.gpu()
        {
            return Err(GpuError::NotOurMemory {
                address: window.start(),
                bytes: window.bytes(),
                gpu: self.gpu().name().into(),
            });
        }
        let kernel = self.kernel(launch)?;
        let threads = launch.grid().threads_per_block;
        if threads > kernel.threads_per_block {
            return Err(GpuError::TooManyThreads {
                name: launch.name(),
                threads,
                limit: kernel.threads_per_block,
            });
        }
        Ok(Prepared {
            module: self,
            launch,
            kernel,
        })
    }

    /// # Safety
    /// What the launch borrows stays as it is until the kernel has ended; if the GPU is lost before, for good.
    unsafe fn begin(&self, prepared: Prepared<'_>) -> Result<Running<'_>, GpuError> {
        let gpu = self.gpu();
        gpu.enter()?;
        let stream = gpu.take_stream()?;
        // SAFETY: the caller's promise.
        let started = unsafe { self.begin_on(prepared, stream) };
        let mut running = started.inspect_err(|_| gpu.give_stream(stream))?;
        running.own(stream);
        Ok(running)
    }

    /// Starts a kernel on somebody's stream, behind what is in it already.
    #[cfg(feature = "cust")]
    pub(super) fn start_behind<'m>(
        &'m self,
        launch: &Launch<'static>,
        stream: CUstream,
    ) -> Result<Running<'m>, GpuError> {
        let prepared = self.prepare(launch)?;
        self.gpu().enter()?;
        // SAFETY: the parameters borrow nothing that ends.
        unsafe { self.begin_on(prepared, Handle(stream)) }
    }

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

    /// Puts a kernel into a stream of its GPU, which is current.
    ///
    /// # Safety
    /// As for [`begin`](Self::begin).
    unsafe fn begin_on(
        &self,
        prepared: Prepared<'_>,
        stream: Handle<CUstream>,
    ) -> Result<Running<'_>, GpuError> {
        let name = prepared.launch.name();
        // Before the kernel: what fails behind it is an error of a kernel that runs.
        let end = self.gpu().take_event()?;
        // SAFETY: the caller's promise.
        unsafe { launch(prepared, stream) }.inspect_err(|_| self.gpu().give_event(end))?;
        self.up_to(end, name, stream)
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

/// Runs kernels, each of a module, and returns when all have ended.
fn run_each<'l>(
    launches: impl Iterator<Item = (&'l Module, &'l Launch<'l>)>,
    watch: &Watch<'_>,
) -> Result<(), GpuError> {
    let prepared = prepare_all(launches)?;
    let mut running = Vec::new();
    let gpus: Vec<_> = prepared.iter().map(|kernel| kernel.module.gpu()).collect();
    // SAFETY: what the launches borrow outlives this call, which returns only when all kernels have
    // ended, or the GPUs of all launches are lost and keep all memory that they reach.
    let begun = unsafe { begin_all(prepared, &mut running) };
    // Those before one that did not start may wait for it, so that they end by their deadlines.
    let ended = wait_for_all(&mut running, watch);
    let ran = begun.and(ended);
    // What goes on may reach what was lent to any of them, to one whose own kernel did not start, too.
    if ran.is_err() && gpus.iter().any(|gpu| gpu.is_lost()) {
        gpus.iter().for_each(|gpu| gpu.lose());
    }
    ran
}

/// All before the first launch: the driver may hold up a call while a kernel runs that waits for another one.
pub(super) fn prepare_all<'l>(
    launches: impl Iterator<Item = (&'l Module, &'l Launch<'l>)>,
) -> Result<Vec<Prepared<'l>>, GpuError> {
    launches
        .map(|(module, launch)| module.prepare(launch))
        .collect()
}

/// Starts kernels until one cannot be started.
///
/// # Safety
/// As for [`Module::begin`], of each that is running then.
pub(super) unsafe fn begin_all<'m>(
    prepared: Vec<Prepared<'m>>,
    running: &mut Vec<Running<'m>>,
) -> Result<(), GpuError> {
    for kernel in prepared {
        // SAFETY: the caller's promise.
        running.push(unsafe { kernel.module.begin(kernel)? });
    }
    Ok(())
}

/// # Safety
/// As for [`Module::begin_on`].
pub(super) unsafe fn launch(
    prepared: Prepared<'_>,
    stream: Handle<CUstream>,
) -> Result<(), GpuError> {
    let Prepared { launch, kernel, .. } = prepared;
    let grid = launch.grid();
    let mut parameters = [launch.parameters().0.cast_mut()];
    if let Some(window) = launch.window() {
        let attribute = l2::attribute(window);
        let config = CUlaunchConfig {
            gridDimX: grid.blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: grid.threads_per_block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: stream.0,
            attrs: &raw const attribute,
            numAttrs: 1,
        };
        let extra = std::ptr::null_mut();
        // SAFETY: as below; the driver reads the configuration and its one attribute.
        let result = unsafe {
            let parameters = parameters.as_mut_ptr();
            sys::cuLaunchKernelEx(&raw const config, kernel.entry.0, parameters, extra)
        };
        return check("cuLaunchKernelEx", result);
    }
    // SAFETY: the driver reads one parameter of the size that `prepare` has checked, and copies it; the
    // kernel is what `Entry` and `Ptx` vouch for.
    let result = unsafe {
        sys::cuLaunchKernel(
            kernel.entry.0,
            grid.blocks,
            1,
            1,
            grid.threads_per_block,
            1,
            1,
            0,
            stream.0,
            parameters.as_mut_ptr(),
            std::ptr::null_mut(),
        )
    };
    check("cuLaunchKernel", result)
}

impl Running<'_> {
    /// Gives the stream back at the end, which nobody else has.
    pub(super) fn own(&mut self, stream: Handle<CUstream>) {
        self.stream = Some(stream);
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

fn check_grid(grid: Grid) -> Result<(), GpuError> {
    let Grid {
        blocks,
        threads_per_block,
    } = grid;
    match (1..=MAX_THREADS_PER_BLOCK).contains(&threads_per_block) && blocks > 0 {
        true => Ok(()),
        false => Err(GpuError::BadGrid {
            blocks,
            threads_per_block,
        }),
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

    #[test]
    fn impossible_grids_are_refused() {
        for (blocks, threads_per_block, good) in [
            (1, 1, true),
            (1 << 20, 1024, true),
            (0, 32, false),
            (1, 0, false),
            (1, 1025, false),
        ] {
            let grid = Grid {
                blocks,
                threads_per_block,
            };
            assert_eq!(check_grid(grid).is_ok(), good, "{grid:?}");
        }
    }
}
