//! Where kernels run: on a grid of CPU threads, or on a GPU.

mod devices;
mod machine;
mod repeating;

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use warpbell::{Stop, Word64};
use warpbell_cpu_grid::{Dim, LaunchError, Options};
use warpbell_host_init::cuda::{DeviceRuntime, Module, Watch};
use warpbell_host_init::{
    self as host_init, Device, Drive, EngineOn, GidChoice, Gpu, GpuError, Launch, Mlx5Options,
    Placement, QueuePair, Shared, SoftGpuOptions, SoftOptions, entry,
};
use warpbell_kernels::outcome::Outcome;
use warpbell_soft_hca::engine::Reach;
use warpbell_soft_hca::resident::TableSizes;
use warpbell_soft_hca::shell::{Driver, HcaOptions};

pub use devices::Devices;
pub use machine::{Machine, Nic};

use crate::{Error, interrupt};

/// A place where kernels run, with the memory that they and the NIC share. A copy is the same place.
#[derive(Clone, Copy, Debug)]
pub struct World {
    kernels: Kernels,
    nic: Nic,
    /// Which of a card's GIDs.
    gid: GidChoice,
    /// The NIC's engine, if it is a kernel on a GPU.
    engine: Option<&'static Module>,
    /// Whether somebody looks at its requests.
    watch: bool,
    /// What lets kernels on a GPU launch others, if it is loaded.
    runtime: Option<DeviceRuntime>,
    /// Whether its host sleeps beside kernels on a GPU, from the start.
    asleep: bool,
    /// Ctrl-C.
    stop: Stop<'static>,
}

#[derive(Clone, Copy, Debug)]
enum Kernels {
    Cpu,
    Gpu(&'static Module),
}

impl Kernels {
    /// Where host and kernels reach memory.
    fn placement(self) -> Placement {
        match self {
            Self::Cpu => Placement::Host,
            Self::Gpu(module) => Placement::Pinned(module.gpu()),
        }
    }
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

impl World {
    /// CPU threads, and a software NIC on another.
    ///
    /// # Errors
    /// No memory for a word.
    pub fn cpu() -> Result<Self, Error> {
        Ok(Self {
            kernels: Kernels::Cpu,
            nic: Nic::Soft,
            gid: GidChoice::default(),
            engine: None,
            watch: false,
            runtime: None,
            asleep: false,
            stop: interrupt::stop(Placement::Host)?,
        })
    }

    /// The same place with another stop.
    #[cfg(test)]
    pub(crate) fn stopped_by(self, stop: Stop<'static>) -> Self {
        Self { stop, ..self }
    }

    /// Tells kernels that run for long of Ctrl-C.
    pub fn stop(&self) -> Stop<'static> {
        self.stop
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

    /// The GPU that kernels run on, if it is one.
    pub fn gpu(&self) -> Option<Gpu> {
        match self.kernels {
            Kernels::Cpu => None,
            Kernels::Gpu(module) => Some(module.gpu()),
        }
    }

    /// Where results lie, so that kernels and host reach them.
    pub fn placement(&self) -> Placement {
        self.kernels.placement()
    }

    /// Where queues and data lie, so that kernels and NIC reach them.
    pub fn nic_placement(&self) -> Placement {
        match (self.kernels, self.nic) {
            (Kernels::Gpu(module), Nic::SoftGpu | Nic::Card(_)) => Placement::Gpu(module.gpu()),
            _ => self.placement(),
        }
    }

    /// Whether the NIC is a thread of the host, which reaches the host's memory and not the kernels' own; one for kernels on
    /// the CPU stands for it.
    pub fn nic_is_on_host(&self) -> bool {
        matches!(self.nic, Nic::Soft | Nic::SoftHost)
    }

    /// Whether the NIC's engine is a kernel on another GPU than the other kernels.
    fn nic_is_apart(&self) -> bool {
        self.engine
            .is_some_and(|engine| Some(engine.gpu()) != self.gpu())
    }

    /// What opens the NIC; one on the kernels' GPU reaches that GPU's memory alone.
    ///
    /// # Errors
    /// The system gives no thread; a card that is not there or cannot be used.
    pub fn devices(&self) -> Result<Devices, Error> {
        self.devices_within(Reach::Gpu)
    }

    /// The same; within [`Reach::System`], a NIC on a GPU reaches pinned memory, too. One on another GPU than the
    /// kernels has no other reach.
    ///
    /// # Errors
    /// As [`devices`](Self::devices).
    pub fn devices_within(&self, reach: Reach) -> Result<Devices, Error> {
        self.devices_with(reach, TableSizes::default())
    }

    /// The same with room for so many queue pairs, where the NIC has tables of a fixed size.
    ///
    /// # Errors
    /// As [`devices`](Self::devices).
    pub fn devices_for(&self, reach: Reach, queue_pairs: u32) -> Result<Devices, Error> {
        let tables = TableSizes {
            queue_pairs,
            completion_queues: 2 * queue_pairs,
            ..TableSizes::default()
        };
        self.devices_with(reach, tables)
    }

    fn devices_with(&self, reach: Reach, tables: TableSizes) -> Result<Devices, Error> {
        match self.nic {
            Nic::Soft | Nic::SoftHost => Ok(Devices::Driven {
                driver: Arc::new(Driver::spawn()?),
                watch: self.watch,
            }),
            Nic::SoftGpu => self.engine_within(reach, tables),
            Nic::Card(name) => {
                let port = name.rsplit_once(':').and_then(|(device, port)| {
                    let port = port.parse().ok()?;
                    Some((device, port))
                });
                let (device, port) = port.unwrap_or((name, 1));
                let options = Mlx5Options {
                    port,
                    gid: self.gid,
                    ..Mlx5Options::new(device)
                };
                let card = Device::open(host_init::Nic::Mlx5(options));
                let card = card.map_err(|source| Error::NoCard {
                    name,
                    soft: Nic::SOFT.map(Nic::name),
                    source: source.into(),
                })?;
                Ok(Devices::One(card))
            }
        }
    }

    fn engine_within(&self, reach: Reach, tables: TableSizes) -> Result<Devices, Error> {
        let on = match self.engine {
            None => EngineOn::Cpu(engine_on_cpu),
            Some(module) => EngineOn::Gpu(module),
        };
        let options = SoftGpuOptions {
            tables,
            reach: match self.nic_is_apart() {
                true => Reach::System,
                false => reach,
            },
            ..SoftGpuOptions::new(entry!(warpbell_kernels::soft_nic::soft_nic), on)
        };
        Ok(Devices::One(Device::open(host_init::Nic::SoftGpu(
            options,
        ))?))
    }

    /// A device that other processes reach, and that reaches theirs.
    ///
    /// # Errors
    /// A NIC that has no such way; the system gives no thread or socket; as [`devices`](Self::devices).
    pub fn reachable(&self) -> Result<Device, Error> {
        match self.nic {
            Nic::SoftGpu => Err(Error::Alone),
            Nic::Card(_) => self.devices()?.open(),
            Nic::Soft | Nic::SoftHost => {
                // Programs of others spin on their completions.
                let driver = Driver::spawn_beside_spinners()?;
                let options = SoftOptions {
                    drive: Drive::Shared(Arc::new(driver)),
                    hca: HcaOptions {
                        watch: self.watch.then(devices::watch),
                        ..HcaOptions::default()
                    },
                    reachable: true,
                };
                Ok(Device::open(host_init::Nic::Soft(options))?)
            }
        }
    }

    /// The NIC in words, as the subject of a sentence in the plural.
    pub fn nic_words(&self) -> String {
        match self.nic {
            Nic::Soft | Nic::SoftHost => "two software HCAs in this process".into(),
            Nic::SoftGpu if self.nic_is_apart() => {
                "both ends of a software HCA, whose engine is a kernel on another GPU,".into()
            }
            Nic::SoftGpu => {
                "both ends of a software HCA, whose engine is a kernel beside them,".into()
            }
            Nic::Card(name) => format!("two queue pairs of {name}"),
        }
    }

    /// Runs kernels at the same time until all have ended, each in a place of its own, which have one NIC.
    ///
    /// # Errors
    /// As [`run_for`](Self::run_for).
    pub fn run_each(
        launches: Vec<(Self, Launch<'_>)>,
        queue_pairs: &[&QueuePair],
        meant: Duration,
    ) -> Result<(), Error> {
        let (worlds, launches): (Vec<_>, Vec<_>) = launches.into_iter().unzip();
        let Some(first) = worlds.first() else {
            return Ok(());
        };
        let module = |world: &Self| match world.kernels {
            Kernels::Cpu => None,
            Kernels::Gpu(module) => Some(module),
        };
        match worlds.iter().map(module).collect::<Option<Vec<_>>>() {
            None => run_on_cpu(&launches, meant),
            Some(modules) => {
                let sleeper = worlds.iter().find(|world| world.asleep);
                let watch = sleeper.unwrap_or(first).watched(queue_pairs);
                let launches: Vec<_> = modules.into_iter().zip(launches).collect();
                Ok(Module::run_each(&launches, &watch)?)
            }
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

    /// The same place, whose host sleeps beside kernels that stay: on a GPU it sees their end late by up to 10 ms.
    pub fn asleep(&self) -> Self {
        Self {
            asleep: true,
            ..*self
        }
    }

    /// Runs kernels at the same time until all have ended. The queue pairs are those that a watchdog looks at.
    ///
    /// # Errors
    /// A grid that did not end well.
    pub fn run(&self, launches: &[Launch<'_>], queue_pairs: &[&QueuePair]) -> Result<(), Error> {
        self.run_for(launches, queue_pairs, Duration::ZERO)
    }

    /// The same with kernels that are meant to run for so long; those on a GPU may run as long as their queues do
    /// something anyway.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_for(
        &self,
        launches: &[Launch<'_>],
        queue_pairs: &[&QueuePair],
        meant: Duration,
    ) -> Result<(), Error> {
        match self.kernels {
            Kernels::Cpu => run_on_cpu(launches, meant),
            Kernels::Gpu(module) => Ok(module.run(launches, &self.watched(queue_pairs))?),
        }
    }

    /// How kernels on a GPU are watched that use these queue pairs.
    fn watched<'w>(&self, queue_pairs: &'w [&'w QueuePair]) -> Watch<'w> {
        Watch {
            limit: WATCHED,
            asleep: self.asleep,
            queue_pairs,
        }
    }
}

/// Runs a NIC's engine on a grid of its own, until the NIC is closed.
fn engine_on_cpu(launch: &Launch<'_>) -> Result<(), String> {
    let options = Options {
        deadline: None,
        ..Options::default()
    };
    run_one_on_cpu(launch, options).map_err(|error| error.to_string())
}

fn run_one_on_cpu(launch: &Launch<'_>, options: Options) -> Result<(), LaunchError> {
    let dim = Dim {
        blocks: launch.grid().blocks,
        threads_per_block: launch.grid().threads_per_block,
    };
    warpbell_cpu_grid::launch(dim, options, || launch.run_thread())
}

/// Runs kernels that are meant to run for so long, and may for as much longer as others may at all.
fn run_on_cpu(launches: &[Launch<'_>], meant: Duration) -> Result<(), Error> {
    let mut options = Options::default();
    options.deadline = options.deadline.map(|usual| usual.saturating_add(meant));
    let run = |launch: &Launch<'_>| run_one_on_cpu(launch, options);
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
