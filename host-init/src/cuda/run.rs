//! Kernels launched.

use super::driver::check;
use super::gpu::Handle;
use super::graph::{self, Repeating};
use super::l2;
use super::module::LoadedKernel;
use super::running::{Running, wait_for_all};
use super::sys::{self, CUevent, CUlaunchConfig, CUstream};
use super::{GpuError, Module};
use crate::launch::Watch;
use crate::{Grid, Launch};

/// Most threads of a block, on every GPU.
const MAX_THREADS_PER_BLOCK: u32 = 1024;

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
        let (stream, end) = match self.launch_repeating(&repeating) {
            Ok(both) => both,
            Err(error) => {
                repeating.end(self.gpu())?;
                return Err(error);
            }
        };
        let mut running = self.up_to(end, name, stream)?.owning(stream);
        running.repeating = Some(repeating);
        Ok(running)
    }

    /// Launches it in a stream; gives that, and the event that has to come behind it.
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

    /// Starts a kernel on a stream of its own.
    ///
    /// # Safety
    /// What the launch borrows stays as it is until the kernel has ended; if the GPU is lost before, for good.
    unsafe fn begin(&self, prepared: Prepared<'_>) -> Result<Running<'_>, GpuError> {
        let gpu = self.gpu();
        gpu.enter()?;
        let stream = gpu.take_stream()?;
        // SAFETY: the caller's promise.
        let begun = unsafe { self.begin_on(prepared, stream) };
        let running = begun.inspect_err(|_| gpu.give_stream(stream))?;
        Ok(running.owning(stream))
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

    /// Starts a kernel on a stream of its GPU, which is current.
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
/// As for [`Module::begin`].
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_grids_are_refused() {
        for (blocks, threads_per_block, good) in [
            (1, 1, true),
            (1 << 20, 1024, true),
            (0, 32, false),
            (1, 0, false),
            (1, 1025, false),
        ] {
            let grid = Grid::new(blocks, threads_per_block);
            assert_eq!(check_grid(grid).is_ok(), good, "{grid:?}");
        }
    }
}
