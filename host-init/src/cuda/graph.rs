//! Kernels that follow one another on a GPU again and again without the host: a graph that launches itself.

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use warpbell::{Stop, Word64};

use super::driver::check;
use super::gpu::Handle;
use super::module::{load_all, reserve_local_memory};
use super::run::{Prepared, begin_all, prepare_all};
use super::running::wait_for_all;
use super::sys::{
    self, CUDA_KERNEL_NODE_PARAMS, CUfunction, CUgraph, CUgraphExec, CUgraphNode, CUlinkState,
    CUstream,
};
use super::{Gpu, GpuError, Module, Running, Watch};
use crate::choice::Branches;
use crate::{Buffer, Error, Grid, Launch, Placement, Shared, StopWord};

/// A graph's last kernel, which launches the graph again.
const RELAUNCH: &str = include_str!("relaunch.ptx");
/// Its name there.
const ENTRY: &str = "warpbell_relaunch";
/// What has the function that it calls, among a CUDA toolkit's libraries.
const LIBRARY: &str = "libcudadevrt.a";
/// Where a CUDA toolkit lies, and where in it its libraries may.
const TOOLKIT: &str = "/usr/local/cuda";
const FOLDERS: [&str; 3] = ["lib64", "targets/x86_64-linux/lib", "lib"];

/// CUDA's device runtime, linked with a kernel that launches its graph again; loaded until the process ends.
///
/// ```no_run
/// use warpbell_host_init::cuda::{DeviceRuntime, Gpu, Module};
/// use warpbell_host_init::{Launch, Placement, StopWord};
///
/// # fn serve(module: &Module, steps: &[Launch<'static>]) -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = DeviceRuntime::load(module.gpu(), None)?;
/// // For as long as the kernels of the graph may look at it.
/// let stop: &'static StopWord = Box::leak(Box::new(StopWord::new(Placement::Pinned(module.gpu()))?));
/// let mut running = module.start_repeating(steps, stop, &runtime)?;
/// // The host has nothing to do with it until it wants an end.
/// stop.request();
/// # while !running.has_ended()? {}
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DeviceRuntime {
    gpu: Gpu,
    relaunch: Handle<CUfunction>,
}

impl DeviceRuntime {
    /// Links the kernel with the device runtime: the file given, or that of the CUDA toolkit in `CUDA_HOME` or
    /// `CUDA_PATH`, or in `/usr/local/cuda`.
    ///
    /// # Errors
    /// [`GpuError::NoDeviceRuntime`] if the file is not there, or is none that the driver can link.
    pub fn load(gpu: Gpu, library: Option<&Path>) -> Result<Self, GpuError> {
        let path = library.map_or_else(find, Path::to_owned);
        let refuse = |why: String| GpuError::NoDeviceRuntime {
            path: path.clone(),
            why,
        };
        let mut library = std::fs::read(&path).map_err(|error| refuse(error.to_string()))?;
        gpu.enter()?;
        let mut text = CString::new(RELAUNCH)
            .expect("a text of ours")
            .into_bytes_with_nul();
        let relaunch = link(&mut text, &mut library).map_err(|error| refuse(error.to_string()))?;
        Ok(Self { gpu, relaunch })
    }
}

/// Where the library lies, or would in the usual place.
fn find() -> PathBuf {
    let told = ["CUDA_HOME", "CUDA_PATH"].map(|name| std::env::var_os(name).map(PathBuf::from));
    let toolkits = told.into_iter().flatten().chain([PathBuf::from(TOOLKIT)]);
    let mut files = toolkits
        .flat_map(|toolkit| FOLDERS.map(|folder| toolkit.join(folder).join(LIBRARY)))
        .peekable();
    let first = files.peek().cloned();
    files
        .find(|file| file.is_file())
        .or(first)
        .expect("the list ends with the usual place")
}

/// Has the driver link PTX that ends with 0 and a library, loads the result on the current GPU, and gives its one
/// kernel.
fn link(text: &mut [u8], library: &mut [u8]) -> Result<Handle<CUfunction>, GpuError> {
    let mut state: CUlinkState = std::ptr::null_mut();
    let none = std::ptr::null_mut;
    // SAFETY: there are no options; the driver writes a handle.
    check("cuLinkCreate", unsafe {
        sys::cuLinkCreate_v2(0, none(), std::ptr::null_mut(), &raw mut state)
    })?;
    let linked = link_into(state, text, library);
    // SAFETY: the handle is from above and used no more; what it linked is loaded by now.
    let destroyed = check("cuLinkDestroy", unsafe { sys::cuLinkDestroy(state) });
    linked.and_then(|kernel| destroyed.map(|()| kernel))
}

fn link_into(
    state: CUlinkState,
    text: &mut [u8],
    library: &mut [u8],
) -> Result<Handle<CUfunction>, GpuError> {
    let parts = [
        (sys::CU_JIT_INPUT_PTX, text, c"relaunch"),
        (sys::CU_JIT_INPUT_LIBRARY, library, c"cudadevrt"),
    ];
    for (kind, bytes, name) in parts {
        let (start, len) = (bytes.as_mut_ptr().cast::<c_void>(), bytes.len());
        let (options, values) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the state is being linked; the driver reads `len` bytes during the call; there are no options.
        check("cuLinkAddData", unsafe {
            sys::cuLinkAddData_v2(state, kind, start, len, name.as_ptr(), 0, options, values)
        })?;
    }
    let (mut image, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the driver writes an address and a length, of memory that is the state's.
    check("cuLinkComplete", unsafe {
        sys::cuLinkComplete(state, &raw mut image, &raw mut bytes)
    })?;
    let mut module = std::ptr::null_mut();
    // SAFETY: the image is from above, and the state that owns it lives; there are no options.
    check("cuModuleLoadDataEx", unsafe {
        sys::cuModuleLoadDataEx(
            &raw mut module,
            image,
            0,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    })?;
    let kernels = load_all(module)?;
    reserve_local_memory(&kernels)?;
    let relaunch = kernels
        .get(ENTRY)
        .ok_or_else(|| GpuError::NoSuchKernel { name: ENTRY.into() })?;
    Ok(relaunch.entry)
}

/// A graph that launches itself, while it does, with those that it may launch besides.
pub(super) struct Repeating {
    graph: Handle<CUgraphExec>,
    branches: Vec<Handle<CUgraphExec>>,
    /// There until it has ended.
    memory: Option<Memory>,
}

/// What the relaunching kernel reads and writes.
struct Memory {
    /// What the device runtime has against a launch.
    refusal: Shared<Word64>,
    /// The graphs of the branches, by number.
    table: Buffer,
}

impl Repeating {
    /// Gives back what a graph of this GPU had that has ended.
    pub(super) fn end(mut self, gpu: Gpu) -> Result<(), GpuError> {
        gpu.give_graph(self.graph);
        for &branch in &self.branches {
            gpu.give_graph(branch);
        }
        let memory = self.memory.take();
        match memory.map_or(0, |memory| memory.refusal.load(Ordering::Relaxed)) {
            0 => Ok(()),
            refusal => Err(refused(refusal)),
        }
    }
}

impl Drop for Repeating {
    fn drop(&mut self) {
        // The graph goes on, and may write there.
        std::mem::forget(self.memory.take());
    }
}

/// What the relaunching kernel has against a launch, in its word.
fn refused(refusal: u64) -> GpuError {
    let error = refusal as u32;
    match ((refusal >> 32) as u32).checked_sub(1) {
        None => GpuError::NoRelaunch { error },
        Some(branch) if error == 0 => GpuError::NoBranch { branch },
        Some(branch) => GpuError::NoLaunch { branch, error },
    }
}

/// What the relaunching kernel takes, in this order.
struct Words<'w> {
    stop: Stop<'w>,
    refusal: &'w Word64,
    /// Of the word, or 0 where rounds choose nothing.
    choice: u64,
    table: u64,
    count: u64,
}

impl Words<'_> {
    fn parameters(&self) -> Vec<*mut c_void> {
        let words: [*const c_void; 5] = [
            (&raw const self.stop).cast(),
            (&raw const self.refusal).cast(),
            (&raw const self.choice).cast(),
            (&raw const self.table).cast(),
            (&raw const self.count).cast(),
        ];
        words.map(<*const c_void>::cast_mut).into()
    }
}

/// A kernel of a graph, its grid, and where its parameters are.
type Part = (Handle<CUfunction>, Grid, Vec<*mut c_void>);

impl Module {
    /// Starts kernels that run one behind the other, each once the one before has ended, and then again from
    /// the first, as a graph that launches itself on the GPU (tail launch): the host has nothing to do in
    /// between. After each round it looks at `stop`, which the host may set, or a kernel of the graph
    /// (`stop.stop()` in its parameters is the same word).
    ///
    /// What a round has stored is visible to the next one, as between kernels of a stream. Kernels of such a
    /// graph launch nothing themselves.
    ///
    /// When it has ended, and no kernel is under way on the GPU that this crate has started, the driver destroys it, and
    /// waits in that call until the GPU runs nothing at all. Kernels that others have started there, as cust's `launch!`
    /// does, must not wait for the host meanwhile.
    ///
    /// # Errors
    /// As [`start`](Self::start), and [`GpuError::BadGraph`] without kernels or with a runtime of another GPU.
    /// [`Running::has_ended`] and [`Running::wait`] tell [`GpuError::NoRelaunch`] if the GPU refuses a launch.
    pub fn start_repeating(
        &self,
        launches: &[Launch<'static>],
        stop: &'static StopWord,
        runtime: &DeviceRuntime,
    ) -> Result<Running<'_>, Error> {
        // SAFETY: the parameters and the word borrow nothing that ends.
        unsafe { self.repeat(launches, None, stop, runtime) }
    }

    /// Runs kernels as [`start_repeating`](Self::start_repeating) starts them, and others beside them as
    /// [`run`](Self::run) does, and returns when all have ended.
    ///
    /// After a round that has chosen a branch, the GPU launches that branch's kernels as a graph of their own, ahead of the
    /// next round, and even if `stop` asks for the end by then. What the round has stored is visible to them, and what
    /// they store to the next round.
    ///
    /// # Errors
    /// As there, where nothing runs if one of the others cannot be prepared. The graph is asked to end if one of the
    /// others cannot be started. [`GpuError::BadBranch`] if the driver makes no graph of a branch;
    /// [`GpuError::NoBranch`] and [`GpuError::NoLaunch`] for a choice that the GPU does not launch, behind which there is
    /// no further round.
    pub fn run_repeating(
        &self,
        launches: &[Launch<'_>],
        branches: Option<&Branches<'_>>,
        stop: &StopWord,
        runtime: &DeviceRuntime,
        beside: &[Launch<'_>],
        watch: &Watch<'_>,
    ) -> Result<(), Error> {
        let prepared = prepare_all(beside.iter().map(|launch| (self, launch)))?;
        // SAFETY: what the launches borrow, and the words, outlive this call, which returns only when the graph
        // has ended, or the GPU is lost and keeps all memory that it reaches.
        let mut running = vec![unsafe { self.repeat(launches, branches, stop, runtime)? }];
        // SAFETY: as above.
        let begun = unsafe { begin_all(prepared, &mut running) };
        if begun.is_err() {
            stop.request();
        }
        let ended = wait_for_all(&mut running, watch);
        Ok(begun.and(ended)?)
    }

    /// # Safety
    /// What the launches borrow, and the words, stay as they are until the graph has ended; if the GPU is lost before,
    /// for good.
    unsafe fn repeat(
        &self,
        launches: &[Launch<'_>],
        branches: Option<&Branches<'_>>,
        stop: &StopWord,
        runtime: &DeviceRuntime,
    ) -> Result<Running<'_>, Error> {
        let Some(last) = launches.last() else {
            return Err(GpuError::BadGraph { why: "no kernel" }.into());
        };
        let gpu = self.gpu();
        if runtime.gpu != gpu {
            let why = "a device runtime loaded on another GPU";
            return Err(GpuError::BadGraph { why }.into());
        }
        let kernels = branches.map_or(&[][..], |branches| branches.launches);
        let mut memory = Memory {
            refusal: Shared::new(Placement::Pinned(gpu), Word64::new(0))?,
            table: Buffer::placed(Placement::Gpu(gpu), size_of::<u64>() * kernels.len().max(1))?,
        };
        gpu.enter()?;
        let mut graphs = Vec::new();
        let made = self.instantiate_branches(kernels, &mut graphs, &mut memory.table);
        let made = made.and_then(|()| {
            let words = Words {
                stop: stop.stop(),
                refusal: &memory.refusal,
                choice: branches.map_or(0, |branches| branches.word.address()),
                table: memory.table.as_ptr().addr() as u64,
                count: kernels.len() as u64,
            };
            let mut parts = self.parts(launches)?;
            parts.push((runtime.relaunch, Grid::ONE_THREAD, words.parameters()));
            Ok(instantiate(parts)?)
        });
        let graph = made.inspect_err(|_| graphs.iter().for_each(|&graph| gpu.give_graph(graph)))?;
        let repeating = Repeating {
            graph,
            branches: graphs,
            memory: Some(memory),
        };
        Ok(self.begin_repeating(last.name(), repeating)?)
    }

    /// A graph of each branch that has kernels, and all of them in the table.
    fn instantiate_branches(
        &self,
        branches: &[Vec<Launch<'_>>],
        graphs: &mut Vec<Handle<CUgraphExec>>,
        table: &mut Buffer,
    ) -> Result<(), Error> {
        for (branch, launches) in (0..).zip(branches) {
            if launches.is_empty() {
                continue;
            }
            let graph = instantiate(self.parts(launches)?);
            let graph = graph.map_err(|error| GpuError::BadBranch {
                branch,
                why: error.to_string(),
            })?;
            graphs.push(graph);
            let place = size_of::<u64>() * branch as usize;
            table.write(place, &(graph.0.addr() as u64).to_ne_bytes())?;
        }
        Ok(())
    }

    /// Kernels as parts of a graph.
    fn parts(&self, launches: &[Launch<'_>]) -> Result<Vec<Part>, GpuError> {
        let part = |launch| {
            let Prepared { launch, kernel, .. } = self.prepare(launch)?;
            if launch.window().is_some() {
                let why = "memory that stays in the L2 cache";
                return Err(GpuError::BadGraph { why });
            }
            let parameter = launch.parameters().0.cast_mut();
            Ok((kernel.entry, launch.grid(), vec![parameter]))
        };
        launches.iter().map(part).collect()
    }
}

/// A graph of kernels, ready to be launched, from the GPU too.
fn instantiate(parts: Vec<Part>) -> Result<Handle<CUgraphExec>, GpuError> {
    let mut graph = std::ptr::null_mut();
    // SAFETY: the driver writes a handle; there are no flags.
    check("cuGraphCreate", unsafe {
        sys::cuGraphCreate(&raw mut graph, 0)
    })?;
    let made = chain(graph, parts).and_then(|()| {
        let flags = sys::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
        let mut ready = std::ptr::null_mut();
        // SAFETY: the graph is whole; the driver writes a handle.
        check("cuGraphInstantiate", unsafe {
            sys::cuGraphInstantiateWithFlags(&raw mut ready, graph, flags)
        })?;
        Ok(Handle(ready))
    });
    // SAFETY: the graph is from above, and what was made of it does without it.
    let destroyed = check("cuGraphDestroy", unsafe { sys::cuGraphDestroy(graph) });
    made.and_then(|ready| destroyed.map(|()| ready))
}

/// Puts kernels into a graph, each behind the one before it.
fn chain(graph: CUgraph, parts: Vec<Part>) -> Result<(), GpuError> {
    let mut before: Option<CUgraphNode> = None;
    for (kernel, grid, mut parameters) in parts {
        let node = CUDA_KERNEL_NODE_PARAMS {
            func: kernel.0,
            gridDimX: grid.blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: grid.threads_per_block,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: parameters.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        let (dependencies, count) = match &before {
            Some(node) => (std::ptr::from_ref(node), 1),
            None => (std::ptr::null(), 0),
        };
        let mut made = std::ptr::null_mut();
        // SAFETY: the driver copies the parameters, of the sizes that `prepare` has checked (the relaunching
        // kernel's are words of 64 bits, as many as its PTX says), and writes a handle; the dependency is of this graph.
        check("cuGraphAddKernelNode", unsafe {
            sys::cuGraphAddKernelNode_v2(&raw mut made, graph, dependencies, count, &raw const node)
        })?;
        before = Some(made);
    }
    Ok(())
}

/// Launches a graph in a stream of its GPU, which is current.
pub(super) fn launch(repeating: &Repeating, stream: Handle<CUstream>) -> Result<(), GpuError> {
    // Graphs that the GPU launches are put there first.
    for graph in repeating.branches.iter().chain([&repeating.graph]) {
        // SAFETY: both live.
        check("cuGraphUpload", unsafe {
            sys::cuGraphUpload(graph.0, stream.0)
        })?;
    }
    // SAFETY: as above; what its kernels borrow lives until it has ended, as `Module::repeat` is promised.
    check("cuGraphLaunch", unsafe {
        sys::cuGraphLaunch(repeating.graph.0, stream.0)
    })
}
