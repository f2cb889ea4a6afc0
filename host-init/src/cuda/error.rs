//! What can go wrong with a GPU, in one line each.

use std::path::PathBuf;
use std::time::Duration;

use super::ComputeCapability;

/// Why a GPU did not do what it was asked to.
///
/// ```
/// use warpbell_host_init::{Gpu, GpuError};
///
/// match Gpu::open(0) {
///     Ok(gpu) => println!("kernels can run on {}", gpu.name()),
///     Err(GpuError::NoDriver) => println!("kernels run on the CPU"),
///     Err(other) => println!("{other}"),
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// The driver's library is not there.
    #[error("no NVIDIA driver (libcuda.so.1) on this machine; install one, or run on the CPU")]
    NoDriver,
    /// A program without kernels for a GPU.
    #[error(
        "this program has no kernels for a GPU; build it with `--features gpu`, and follow the build's warnings"
    )]
    NotBuilt,
    /// The driver's library lacks a function.
    #[error(
        "the NVIDIA driver is too old: it has no {function}; install one for CUDA 12.8 or later"
    )]
    OldDriver {
        /// The function that is missing.
        function: &'static str,
    },
    /// The driver finds no GPU.
    #[error(
        "the NVIDIA driver is installed, but finds no GPU ({why}); look at nvidia-smi and CUDA_VISIBLE_DEVICES"
    )]
    NoGpu {
        /// What the driver says.
        why: String,
    },
    /// There are fewer GPUs than that.
    #[error("there is no GPU {ordinal}; this machine has {count}, counted from 0")]
    NoSuchGpu {
        /// The number asked for.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// No PTX of the module is for a GPU as old as this one.
    #[error(
        "{gpu} has compute capability {has}, the kernels need {oldest}; use a newer GPU, or build the PTX for this one"
    )]
    TooOld {
        /// The GPU's name.
        gpu: String,
        /// What it has.
        has: ComputeCapability,
        /// The least that the module was built for.
        oldest: ComputeCapability,
    },
    /// The driver's compiler refused the PTX.
    #[error("the driver refuses the kernels' PTX ({why}): {log}")]
    BadPtx {
        /// The driver's error.
        why: String,
        /// The first line of its compiler's log.
        log: String,
    },
    /// A module's variable that the host writes is not as long as the host knows it.
    #[error(
        "the module's variable {name} has {found} bytes, not {expected}: its kernels are of another version; build them with the host's"
    )]
    OtherVariable {
        /// The variable.
        name: &'static str,
        /// How long it is.
        found: usize,
        /// How long it should be.
        expected: usize,
    },
    /// Kernels do not reach a card's registers.
    #[error(
        "the GPU cannot reach the card's doorbells ({why}); run as root, or load the NVIDIA driver with NVreg_RegistryDwords=\"PeerMappingOverride=1;\""
    )]
    NoRegisters {
        /// The driver's error.
        why: String,
    },
    /// A kernel that is not in the module.
    #[error("there is no kernel {name} in the module; build the PTX again (cargo xtask ptx)")]
    NoSuchKernel {
        /// Its path, or the name asked for.
        name: String,
    },
    /// A kernel that was built with other types of parameters than the host's.
    #[error(
        "the module has the kernel {name} with other types of parameters than the host; build the PTX again (cargo xtask ptx)"
    )]
    OtherTypes {
        /// The kernel's path.
        name: String,
    },
    /// A kernel whose parameters have another size than the host's.
    #[error(
        "the kernel {name} takes {wanted} bytes of parameters, the host has {given}; build the PTX again (cargo xtask ptx)"
    )]
    OtherParameters {
        /// The kernel.
        name: &'static str,
        /// What its entry takes.
        wanted: usize,
        /// What the host's source says.
        given: usize,
    },
    /// A grid that no GPU runs.
    #[error(
        "a grid of {blocks} blocks of {threads_per_block} threads is not possible; choose 1 or more blocks, and 1 to 1024 threads"
    )]
    BadGrid {
        /// Blocks asked for.
        blocks: u32,
        /// Threads of each.
        threads_per_block: u32,
    },
    /// A block with more threads than there are registers for.
    #[error(
        "the kernel {name} takes so many registers that a block has at most {limit} threads, not {threads}; choose fewer, or load it for such blocks (Module::load_for_blocks)"
    )]
    TooManyThreads {
        /// The kernel.
        name: &'static str,
        /// Threads of a block asked for.
        threads: u32,
        /// How many there may be.
        limit: u32,
    },
    /// The system gives no more memory that stays where it is.
    #[error(
        "no {bytes} bytes of pinned host memory; use smaller or fewer buffers and rings, or raise the limit (ulimit -l)"
    )]
    NoPinnedMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The GPU's memory is full.
    #[error("no {bytes} bytes of memory on the GPU; use smaller or fewer buffers and rings")]
    NoGpuMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// Memory that is not, or not all, this GPU's.
    #[error(
        "the {bytes} bytes at {address:#x} are not memory of {gpu}; allocate them on this GPU (Placement::Gpu)"
    )]
    NotOurMemory {
        /// Their address.
        address: u64,
        /// How many.
        bytes: usize,
        /// The GPU's name.
        gpu: String,
    },
    /// Kernels of one GPU do not get at the memory of another.
    #[error(
        "GPU {from} does not reach the memory of GPU {to}; choose two that are connected (nvidia-smi topo -p2p r), or one for both"
    )]
    NoPeerAccess {
        /// The number of the GPU whose kernels would.
        from: u32,
        /// The number of the GPU whose memory it is.
        to: u32,
    },
    /// They get at it, but an atomic of theirs is none there.
    #[error(
        "GPU {from} has no atomics on the memory of GPU {to}; choose two that NVLink connects (nvidia-smi topo -p2p a), or one for both"
    )]
    NoPeerAtomics {
        /// The number of the GPU whose kernels would.
        from: u32,
        /// The number of the GPU whose memory it is.
        to: u32,
    },
    /// A GPU whose streams do not publish and await WQEs.
    #[error(
        "the streams of {gpu} do not write and await words of 64 bits; let the host or a kernel post, or use a GPU of compute capability 7.0 or later"
    )]
    NoStreamWords {
        /// The GPU's name.
        gpu: String,
    },
    /// A GPU that sets nothing of its L2 cache aside.
    #[error(
        "{gpu} sets nothing of its L2 cache aside, so that no memory stays there; use a GPU of compute capability 8.0 or later that is not divided (MIG), or keep nothing there"
    )]
    NoPersistingCache {
        /// The GPU's name.
        gpu: String,
    },
    /// More memory than a launch keeps in the L2 cache.
    #[error("a launch keeps at most {limit} bytes in the L2 cache, not {bytes}; choose fewer")]
    LargeWindow {
        /// Bytes asked for.
        bytes: usize,
        /// The most.
        limit: usize,
    },
    /// CUDA's device runtime, which a graph needs to launch itself.
    #[error(
        "a graph that launches itself needs libcudadevrt.a of a CUDA toolkit, and {} cannot be linked ({why}); install one, or set CUDA_HOME", path.display()
    )]
    NoDeviceRuntime {
        /// Where it should be.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A graph that cannot be.
    #[error("a graph cannot launch itself with {why}")]
    BadGraph {
        /// What it is made of.
        why: &'static str,
    },
    /// The GPU did not launch a graph again.
    #[error("the GPU refused to launch the graph again: error {error} of CUDA's device runtime")]
    NoRelaunch {
        /// The device runtime's number for it (`cudaError_t`).
        error: u32,
    },
    /// Kernels that make no graph which the GPU could launch.
    #[error("the kernels of branch {branch} make no graph that the GPU launches: {why}")]
    BadBranch {
        /// The branch's number.
        branch: u32,
        /// What the driver says.
        why: String,
    },
    /// A branch that a round of kernels has chosen, and that is none.
    #[error(
        "the kernels chose branch {branch}, which has no kernels; give it some, or choose another one"
    )]
    NoBranch {
        /// Its number.
        branch: u32,
    },
    /// The GPU did not launch a branch.
    #[error("the GPU refused to launch branch {branch}: error {error} of CUDA's device runtime")]
    NoLaunch {
        /// The branch's number.
        branch: u32,
        /// The device runtime's number for it (`cudaError_t`).
        error: u32,
    },
    /// A kernel panicked.
    #[error("the kernel {kernel} panicked on the GPU: {message}")]
    Panicked {
        /// The kernel, or one that ran beside it.
        kernel: String,
        /// Which thread, where, and what it said.
        message: String,
    },
    /// A kernel did something that the GPU does not allow.
    #[error("the kernel {kernel} broke off: {why}; compute-sanitizer shows where")]
    BrokeOff {
        /// The kernel, or one that ran beside it.
        kernel: String,
        /// The driver's error.
        why: String,
    },
    /// A kernel that does not end.
    #[error("{kernels} did not end, and did nothing for {limit:?}; {hanging}")]
    Hangs {
        /// The kernels that still run.
        kernels: String,
        /// How long nothing was posted or completed.
        limit: Duration,
        /// Which queues and WQEs are not done.
        hanging: String,
    },
    /// An earlier kernel broke off or hangs, so that nothing more can be run.
    #[error("the GPU is lost to this process since a kernel broke off or hung; start it again")]
    Lost,
    /// Any other error of the driver.
    #[error("the NVIDIA driver refused {call}: {why}")]
    Driver {
        /// The call.
        call: &'static str,
        /// The driver's name for the error, and its description.
        why: String,
    },
}
