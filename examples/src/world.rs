//! Where kernels run: on a grid of CPU threads, or on a GPU.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::Serialize;
use warpbell::Word64;
use warpbell_cpu_grid::{Dim, Options};
use warpbell_host_init::cuda::{Module, Ptx, Watch};
use warpbell_host_init::{Gpu, GpuError, Launch, Placement, QueuePair, Shared};
use warpbell_kernels::outcome::Outcome;

use crate::Error;

/// What runs kernels, and what is the NIC.
#[derive(Clone, Debug, Args)]
pub struct Machine {
    /// Where kernels run
    #[arg(long, value_enum, default_value = "cpu")]
    on: On,
    /// Which NIC; by default the first that works with the kernels there
    #[arg(long, value_enum)]
    nic: Option<Nic>,
    /// Number of the GPU, counted from 0
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    gpu: u32,
    /// The kernels for a GPU, as PTX
    #[arg(long, value_name = "PATH")]
    ptx: Option<PathBuf>,
}

/// What runs kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum On {
    /// CPU threads
    Cpu,
    /// An NVIDIA GPU
    Gpu,
}

/// A NIC made of software.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Nic {
    /// A CPU thread, for kernels on the CPU
    Soft,
    /// A CPU thread, for kernels on a GPU: queues and data lie in pinned host memory
    SoftHost,
}

impl Nic {
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().into())
    }
}

/// A place where kernels run, with the memory that they and the NIC share. A copy is the same place.
#[derive(Clone, Copy, Debug)]
pub struct World {
    kernels: Kernels,
    nic: Nic,
}

#[derive(Clone, Copy, Debug)]
enum Kernels {
    Cpu,
    Gpu(&'static Module),
}

/// Where kernels ran, for a document.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "on", rename_all = "kebab-case")]
pub enum Ran {
    /// On CPU threads.
    Cpu,
    /// On a GPU.
    Gpu {
        /// Its name.
        name: &'static str,
        /// Its compute capability.
        compute_capability: String,
        /// The newest CUDA version that its driver knows.
        cuda: String,
    },
}

/// How long kernels on a GPU may run; their waits end long before.
const WATCHED: Duration = Duration::from_secs(120);

impl Machine {
    /// Makes ready what was chosen.
    ///
    /// # Errors
    /// A NIC that does not work with kernels there; whatever is missing for a GPU.
    pub fn open(&self) -> Result<World, Error> {
        let (able, needed) = match self.on {
            On::Cpu => (Nic::Soft, "cpu"),
            On::Gpu => (Nic::SoftHost, "gpu"),
        };
        let nic = self.nic.unwrap_or(able);
        if nic != able {
            let wanted = nic.name();
            let able = able.name();
            return Err(Error::WrongNic {
                wanted,
                needed,
                able,
            });
        }
        let kernels = match self.on {
            On::Cpu => Kernels::Cpu,
            On::Gpu => {
                let gpu = Gpu::open(self.gpu)?;
                let path = self.ptx.as_deref().ok_or(Error::NoPtx)?;
                let text =
                    std::fs::read_to_string(path).map_err(|source| Error::UnreadablePtx {
                        path: path.into(),
                        source,
                    })?;
                let module = Module::load(gpu, &[Ptx::from_text(&text)?])?;
                // Kernels stay loaded until the process ends.
                Kernels::Gpu(Box::leak(Box::new(module)))
            }
        };
        Ok(World { kernels, nic })
    }
}

impl World {
    /// CPU threads, and a software NIC.
    pub fn cpu() -> Self {
        Self {
            kernels: Kernels::Cpu,
            nic: Nic::Soft,
        }
    }

    /// The NIC.
    pub fn nic(&self) -> Nic {
        self.nic
    }

    /// Where kernels run, for a document.
    pub fn ran(&self) -> Ran {
        match self.kernels {
            Kernels::Cpu => Ran::Cpu,
            Kernels::Gpu(module) => Ran::Gpu {
                name: module.gpu().name(),
                compute_capability: module.gpu().compute_capability().to_string(),
                cuda: module.gpu().driver(),
            },
        }
    }

    /// The same in words: "CPU threads", or the GPU's name.
    pub fn words(&self) -> String {
        match self.ran() {
            Ran::Cpu => "CPU threads".into(),
            Ran::Gpu { name, cuda, .. } => format!("an {name} (CUDA {cuda})"),
        }
    }

    /// Where queues, data and results lie, so that kernels, NIC and host reach them.
    pub fn placement(&self) -> Placement {
        match self.kernels {
            Kernels::Cpu => Placement::Host,
            Kernels::Gpu(module) => Placement::Pinned(module.gpu()),
        }
    }

    /// A place for what becomes of a kernel.
    ///
    /// # Errors
    /// No memory for it.
    pub fn outcome(&self) -> Result<Shared<Outcome>, Error> {
        Ok(Shared::new(self.placement(), Outcome::new())?)
    }

    /// Words for a kernel's numbers, all 0.
    ///
    /// # Errors
    /// No memory for them.
    pub fn numbers(&self, count: usize) -> Result<Shared<[Word64]>, Error> {
        Ok(Shared::slice(self.placement(), count, |_| Word64::new(0))?)
    }

    /// Runs kernels at the same time until all have ended. The queue pairs are those that a watchdog looks at.
    ///
    /// # Errors
    /// A grid that did not end well.
    pub fn run(&self, launches: &[Launch<'_>], queue_pairs: &[&QueuePair]) -> Result<(), Error> {
        match self.kernels {
            Kernels::Cpu => run_on_cpu(launches),
            Kernels::Gpu(module) => {
                let watch = Watch {
                    limit: WATCHED,
                    queue_pairs,
                };
                Ok(module.run(launches, &watch)?)
            }
        }
    }
}

fn run_on_cpu(launches: &[Launch<'_>]) -> Result<(), Error> {
    let run = |launch: &Launch<'_>| {
        let dim = Dim {
            blocks: launch.grid().blocks,
            threads_per_block: launch.grid().threads_per_block,
        };
        warpbell_cpu_grid::launch(dim, Options::default(), || launch.run_thread())
    };
    if let [launch] = launches {
        return Ok(run(launch)?);
    }
    std::thread::scope(|scope| {
        let start = |launch| scope.spawn(move || run(launch));
        let started: Vec<_> = launches.iter().map(start).collect();
        let ended = started.into_iter().map(|thread| thread.join());
        let results: Vec<_> = ended
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        results.into_iter().collect::<Result<Vec<()>, _>>()
    })?;
    Ok(())
}

impl From<GpuError> for Error {
    fn from(error: GpuError) -> Self {
        Self::Setup(error.into())
    }
}
