//! Where kernels run, and what is the NIC: what a test's options say.

use std::convert::Infallible;
use std::fmt;
use std::path::PathBuf;
use std::slice;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use warpbell_cpu_grid::{Dim, LaneOrder, Options};
use warpbell_host_init::cuda::{ComputeCapability, Module, Ptx, Watch};
use warpbell_host_init::{
    self as host_init, Device, ENGINE_THREADS, EngineOn, Error, Gpu, GpuError, Grid, Launch,
    Mlx5Error, Mlx5Options, Placement, QueuePair, Shared,
};
use warpbell_kernels::suite::Kernel;
use warpbell_ptx::{Capability, PtxError};
use warpbell_soft_hca::engine::Reach;

/// Where a test runs.
#[derive(Clone, Debug, Default, Args)]
pub struct Machine {
    /// Where kernels run
    #[arg(long, value_enum, default_value_t)]
    on: On,
    /// Which NIC: soft, soft-host, soft-gpu, or the name of an mlx5 card; by default the first that works with the
    /// kernels there
    #[arg(long, value_name = "NAME", value_parser = Nic::of_name)]
    nic: Option<Nic>,
    /// Number of the GPU, counted from 0
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    gpu: u32,
    /// Number of the GPU that the engine of --nic soft-gpu runs on; by default that of --gpu
    #[arg(long, value_name = "NUMBER")]
    nic_gpu: Option<u32>,
    /// Kernels to take instead of the embedded ones, as PTX (may be repeated)
    #[arg(long, value_name = "PATH")]
    ptx: Vec<PathBuf>,
    /// How many times as long everything may take, as under a sanitizer
    #[arg(long, value_name = "TIMES", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    slower: u32,
}

/// What runs kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// CPU threads
    #[default]
    Cpu,
    /// An NVIDIA GPU
    Gpu,
}

/// A NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nic {
    /// A CPU thread, for kernels on the CPU
    Soft,
    /// A CPU thread, for kernels on a GPU: queues and data lie in pinned host memory
    SoftHost,
    /// A kernel beside the others: queues and data lie in the GPU's memory
    SoftGpu,
    /// The mlx5 card of this name
    Card(&'static str),
}

impl Nic {
    /// The NIC of that name: one of software, or a card, which may not be there.
    fn of_name(name: &str) -> Result<Self, Infallible> {
        Ok(match name {
            "soft" => Self::Soft,
            "soft-host" => Self::SoftHost,
            "soft-gpu" => Self::SoftGpu,
            // It is asked for once, and kept until the process ends.
            card => Self::Card(String::from(card).leak()),
        })
    }

    /// Whether it is a software HCA that a CPU thread drives, to which tests give orders and which they ask.
    pub fn takes_orders(self) -> bool {
        matches!(self, Self::Soft | Self::SoftHost)
    }
}

/// Where kernels run, and how.
#[derive(Clone, Copy)]
pub enum World {
    /// On the CPU, a warp's lanes in this order.
    Cpu(LaneOrder),
    /// On a GPU.
    Gpu(&'static Module),
}

/// What the options chose.
struct Here {
    world: World,
    nic: Nic,
    /// Where the engine of [`Nic::SoftGpu`] runs.
    engine: EngineOn,
    slower: u32,
}

static HERE: OnceLock<Here> = OnceLock::new();

/// On CPU threads, with a NIC on another: what a benchmark runs on.
fn here() -> &'static Here {
    HERE.get_or_init(|| Here {
        world: World::Cpu(LaneOrder::Ascending),
        nic: Nic::Soft,
        engine: EngineOn::Cpu(engine_on_cpu),
        slower: 1,
    })
}

/// How long a kernel on a GPU may take; its own waits end before.
const WATCHED: Duration = Duration::from_secs(60);

/// Threads of the largest block that a test of the suite launches.
const LARGEST_BLOCK: u32 = 1024;

/// Why a test does not run.
#[derive(Debug, thiserror::Error)]
pub enum Unable {
    /// The hardware is not there, which is no fault.
    #[error("{0}")]
    Missing(String),
    /// An option is wrong, or what it names.
    #[error("{0}")]
    Wrong(String),
}

impl From<GpuError> for Unable {
    fn from(error: GpuError) -> Self {
        let line = error.to_string();
        match error {
            GpuError::NoDriver
            | GpuError::NoGpu { .. }
            | GpuError::NoSuchGpu { .. }
            | GpuError::NoPeerAccess { .. }
            | GpuError::NoPeerAtomics { .. }
            | GpuError::TooOld { .. } => Self::Missing(line),
            _ => Self::Wrong(line),
        }
    }
}

impl From<Error> for Unable {
    fn from(error: Error) -> Self {
        match error {
            Error::Gpu(error) => error.into(),
            Error::Mlx5(error)
                if matches!(
                    *error,
                    Mlx5Error::NoLibrary { .. } | Mlx5Error::NoDevice { .. }
                ) =>
            {
                Self::Missing(error.to_string())
            }
            other => Self::Wrong(other.to_string()),
        }
    }
}

impl Machine {
    /// Whether kernels and NIC are threads of this process.
    pub fn is_cpu(&self) -> bool {
        self.on == On::Cpu && self.nic.is_none_or(Nic::takes_orders)
    }

    /// With this NIC, if the command line names none.
    pub fn or_nic(self, nic: Nic) -> Self {
        Self {
            nic: self.nic.or(Some(nic)),
            ..self
        }
    }

    /// Makes it what this process runs on, with the kernels of the suite.
    ///
    /// # Errors
    /// What is missing, or wrong.
    pub fn open(&self) -> Result<(), Unable> {
        self.open_with(&warpbell_ptx::SUITE)
    }

    /// The same with the kernels of a module.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(&self, kernels: &warpbell_ptx::Module) -> Result<(), Unable> {
        let able = match self.on {
            On::Cpu => [Nic::Soft, Nic::SoftGpu],
            On::Gpu => [Nic::SoftHost, Nic::SoftGpu],
        };
        let nic = self.nic.unwrap_or(able[0]);
        if !able.contains(&nic) && !matches!(nic, Nic::Card(_)) {
            let line = format!(
                "the NIC {nic:?} does not work with kernels on the {:?}",
                self.on
            );
            return Err(Unable::Wrong(line));
        }
        if self.nic_gpu.is_some() && (self.on, nic) != (On::Gpu, Nic::SoftGpu) {
            let line =
                "--nic-gpu names the GPU of --on gpu --nic soft-gpu; choose those, or leave it out";
            return Err(Unable::Wrong(line.into()));
        }
        if let Nic::Card(name) = nic {
            Device::open(host_init::Nic::Mlx5(Mlx5Options::new(name)))?;
        }
        let (world, engine) = match self.on {
            On::Cpu => (
                World::Cpu(LaneOrder::Ascending),
                EngineOn::Cpu(engine_on_cpu),
            ),
            On::Gpu => {
                let gpu = Gpu::open(self.gpu)?;
                let nic_gpu = Gpu::open(self.nic_gpu.unwrap_or(self.gpu))?;
                gpu.enable_peer_access(nic_gpu)?;
                let kernels = self.load(gpu, kernels)?;
                let engine = match nic {
                    Nic::SoftGpu => self.load(nic_gpu, &warpbell_ptx::SOFT_NIC)?,
                    _ => kernels,
                };
                (World::Gpu(kernels), EngineOn::Gpu(engine))
            }
        };
        let here = Here {
            world,
            nic,
            engine,
            slower: self.slower,
        };
        HERE.set(here)
            .map_err(|_| Unable::Wrong("two machines".into()))
    }

    /// Loads a module, from the file that has a kernel of it if one is given.
    fn load(&self, gpu: Gpu, embedded: &warpbell_ptx::Module) -> Result<&'static Module, Unable> {
        let text = match self.given(embedded)? {
            Some(text) => text,
            None => {
                let ComputeCapability { major, minor } = gpu.compute_capability();
                let text = embedded.text_for(Capability { major, minor });
                text.map_err(|error| match error {
                    PtxError::TooOld { .. } => Unable::Missing(error.to_string()),
                    PtxError::Damaged { .. } => Unable::Wrong(error.to_string()),
                })?
            }
        };
        // SAFETY: what is embedded was compiled from the sources of the kernels that are launched from it, and whoever
        // gives a file vouches for the same.
        let ptx = [unsafe { Ptx::from_text(&text)? }];
        let is = |module| std::ptr::eq(embedded, module);
        let module = if is(&warpbell_ptx::SUITE) {
            Module::load_for_blocks(gpu, &ptx, LARGEST_BLOCK)?
        } else if is(&warpbell_ptx::SOFT_NIC) {
            Module::load_for_blocks(gpu, &ptx, ENGINE_THREADS)?
        } else {
            Module::load(gpu, &ptx)?
        };
        // Kernels stay loaded until the process ends.
        Ok(Box::leak(Box::new(module)))
    }

    /// The PTX from the command line that has a kernel of this module.
    fn given(&self, module: &warpbell_ptx::Module) -> Result<Option<String>, Unable> {
        for path in &self.ptx {
            let text = std::fs::read_to_string(path)
                .map_err(|error| Unable::Wrong(format!("{}: {error}", path.display())))?;
            if module.is_in(&text) {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }
}

/// Runs the kernel of a NIC on a CPU's grid, to its end.
fn engine_on_cpu(launch: &Launch<'_>) -> Result<(), String> {
    let options = Options {
        // The host ends it.
        deadline: None,
        ..Options::default()
    };
    let dim = grid(launch.grid().blocks, launch.grid().threads_per_block);
    let ran = warpbell_cpu_grid::launch(dim, options, || launch.run_thread());
    ran.map_err(|error| error.to_string())
}

/// The NIC.
pub fn nic() -> Nic {
    here().nic
}

/// Where the engine of a NIC runs that is a kernel.
pub fn engine() -> EngineOn {
    here().engine.clone()
}

/// How far a NIC whose engine is a kernel must reach: beyond its GPU where the other kernels are on another one.
pub fn reach() -> Reach {
    match (&here().world, &here().engine) {
        (World::Gpu(kernels), EngineOn::Gpu(engine)) if kernels.gpu() != engine.gpu() => {
            Reach::System
        }
        _ => Reach::Gpu,
    }
}

/// A time limit, as many times as long as the options say.
pub fn patient(limit: Duration) -> Duration {
    limit * here().slower
}

impl World {
    /// Where kernels run in this process; on a CPU, lanes run from the lowest to the highest.
    pub fn here() -> Self {
        here().world
    }

    /// The same in all lane orders that can be chosen.
    pub fn all() -> Vec<Self> {
        match Self::here() {
            Self::Cpu(_) => vec![
                Self::Cpu(LaneOrder::Ascending),
                Self::Cpu(LaneOrder::Descending),
                Self::Cpu(LaneOrder::Random(0x5eed)),
            ],
            gpu => vec![gpu],
        }
    }

    /// Where results lie, so that kernels and host reach them.
    pub fn placement(self) -> Placement {
        match self {
            Self::Cpu(_) => Placement::Host,
            Self::Gpu(module) => Placement::Pinned(module.gpu()),
        }
    }

    /// Where queues and data lie, so that kernels and NIC reach them.
    pub fn nic_placement(self) -> Placement {
        match (self, nic()) {
            (Self::Gpu(module), Nic::SoftGpu | Nic::Card(_)) => Placement::Gpu(module.gpu()),
            _ => self.placement(),
        }
    }

    /// The same value so many times, where kernels reach it; none is one, because nothing has no address.
    pub fn values<T: Copy>(self, count: usize, value: T) -> Shared<[T]> {
        Shared::slice(self.placement(), count.max(1), |_| value).expect("memory")
    }

    /// Runs a kernel to its end; one that panics, diverges or hangs ends the test.
    pub fn launch<K: Kernel>(self, grid: Dim, kernel: &K) {
        let result = match self {
            Self::Cpu(order) => {
                let options = Options {
                    order,
                    ..Options::default()
                };
                warpbell_cpu_grid::launch(grid, options, || kernel.run())
                    .map_err(|error| error.to_string())
            }
            Self::Gpu(module) => on_gpu(module, &[launch(grid, kernel)]),
        };
        if let Err(error) = result {
            panic!("{}: {error}", K::ENTRY.symbol().name());
        }
    }

    /// Runs a kernel that is none of the suite's to its end.
    ///
    /// # Errors
    /// A kernel that panics, diverges or hangs.
    pub fn run(self, launch: &Launch<'_>) -> Result<(), String> {
        match self {
            Self::Cpu(order) => {
                let options = Options {
                    order,
                    ..Options::default()
                };
                let dim = grid(launch.grid().blocks, launch.grid().threads_per_block);
                warpbell_cpu_grid::launch(dim, options, || launch.run_thread())
                    .map_err(|error| error.to_string())
            }
            Self::Gpu(module) => on_gpu(module, slice::from_ref(launch)),
        }
    }

    /// Runs two kernels at the same time, as on two streams.
    pub fn launch_both<K: Kernel, L: Kernel>(self, one: (Dim, &K), other: (Dim, &L)) {
        match self {
            Self::Cpu(_) => thread::scope(|scope| {
                scope.spawn(|| self.launch(one.0, one.1));
                self.launch(other.0, other.1);
            }),
            Self::Gpu(module) => {
                let launches = [launch(one.0, one.1), launch(other.0, other.1)];
                if let Err(error) = on_gpu(module, &launches) {
                    let (one, other) = (K::ENTRY.symbol(), L::ENTRY.symbol());
                    panic!("{} and {}: {error}", one.name(), other.name());
                }
            }
        }
    }
}

/// A kernel of the suite as the GPU takes it: its arguments by value.
fn launch<'k, K: Kernel>(grid: Dim, kernel: &'k K) -> Launch<'k> {
    let grid = Grid {
        blocks: grid.blocks,
        threads_per_block: grid.threads_per_block,
    };
    Launch::new(K::ENTRY, grid, *kernel)
}

fn on_gpu(module: &Module, launches: &[Launch<'_>]) -> Result<(), String> {
    let watch = Watch {
        limit: patient(WATCHED),
        asleep: false,
        queue_pairs: &[],
    };
    module
        .run(launches, &watch)
        .map_err(|error| error.to_string())
}

/// Runs a kernel on this process's GPU, under a watch of one's own.
///
/// # Errors
/// What the watch has found.
pub fn launch_watched<K: Kernel>(
    grid: Dim,
    kernel: &K,
    limit: Duration,
    queue_pairs: &[&QueuePair],
) -> Result<(), GpuError> {
    let World::Gpu(module) = World::here() else {
        panic!("no GPU in this test");
    };
    module.run(
        &[launch(grid, kernel)],
        &Watch {
            limit,
            asleep: false,
            queue_pairs,
        },
    )
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu(order) => f.debug_tuple("Cpu").field(order).finish(),
            Self::Gpu(module) => f.write_str(module.gpu().name()),
        }
    }
}

/// A grid of one dimension.
pub const fn grid(blocks: u32, threads_per_block: u32) -> Dim {
    Dim {
        blocks,
        threads_per_block,
    }
}

/// The grid of one thread.
pub const ONE_THREAD: Dim = grid(1, 1);
