//! Where kernels run: on a grid of CPU threads, or on a GPU.

mod repeating;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Serialize, Serializer};
use warpbell::{Stop, Word64};
use warpbell_cpu_grid::{Dim, LaunchError, Options};
use warpbell_host_init::cuda::{DeviceRuntime, Module, Watch};
use warpbell_host_init::{
    self as host_init, Device, Drive, EngineOn, GidChoice, Gpu, GpuError, Launch, Mlx5Options,
    Placement, QueuePair, Shared, SoftGpuOptions, SoftOptions, entry,
};
use warpbell_kernels::outcome::Outcome;
use warpbell_ptx::{KERNELS, SOFT_NIC};
use warpbell_soft_hca::engine::Reach;
use warpbell_soft_hca::resident::TableSizes;
use warpbell_soft_hca::shell::{Driver, HcaOptions, LateStores, RequestWatch, WatchLimits};

use crate::ptx::OwnPtx;
use crate::{Error, interrupt};

/// What runs kernels, and what is the NIC.
#[derive(Clone, Debug, Args)]
pub struct Machine {
    /// Where kernels run
    #[arg(long, value_enum, default_value = "cpu")]
    on: On,
    /// Which NIC: soft, soft-host, soft-gpu, or the name of an mlx5 card, perhaps with a port (mlx5_0:2); by default
    /// the first that works with the kernels there
    #[arg(long, value_name = "NAME", value_parser = Nic::of_name)]
    nic: Option<Nic>,
    /// Index of the card's GID; by default one is chosen
    #[arg(long, value_name = "NUMBER")]
    gid_index: Option<u8>,
    /// Number of the GPU, counted from 0
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    gpu: u32,
    /// Number of the GPU that the engine of --nic soft-gpu runs on; by default that of --gpu
    #[arg(long, value_name = "NUMBER")]
    nic_gpu: Option<u32>,
    /// PTX in place of what is built in: the examples' kernels, the NIC's engine, or both; may be given twice
    #[arg(long, value_name = "PATH")]
    ptx: Vec<PathBuf>,
    /// Tell, line by line on stderr, of requests that a NIC would be slow with: READs that are long, addresses that take
    /// more PCIe packets than they need or crowd in a few KiB; of NICs on a CPU thread
    #[arg(long)]
    watch: bool,
}

/// What runs kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum On {
    /// CPU threads
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
    /// The mlx5 card of this name; queues and data lie where kernels reach them best
    Card(&'static str),
}

impl Nic {
    /// Those made of software.
    const SOFT: [Self; 3] = [Self::Soft, Self::SoftHost, Self::SoftGpu];

    /// Its name, as `--nic` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            Self::SoftHost => "soft-host",
            Self::SoftGpu => "soft-gpu",
            Self::Card(name) => name,
        }
    }

    /// The NIC of that name: one of software, or a card, which may not be there.
    fn of_name(name: &str) -> Result<Self, Infallible> {
        let soft = Self::SOFT.into_iter().find(|nic| nic.name() == name);
        // It is asked for once, and kept until the process ends.
        Ok(soft.unwrap_or_else(|| Self::Card(String::from(name).leak())))
    }

    fn is_card(self) -> bool {
        matches!(self, Self::Card(_))
    }
}

impl Serialize for Nic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

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

impl Machine {
    /// The NICs of software that work with the kernels, and what kernels there are called.
    fn able(&self) -> ([Nic; 2], &'static str) {
        match self.on {
            On::Cpu => ([Nic::Soft, Nic::SoftGpu], "cpu"),
            On::Gpu => ([Nic::SoftHost, Nic::SoftGpu], "gpu"),
        }
    }

    /// The same machine with the NIC that was named, or with each of software.
    pub fn with_each_nic(&self) -> Vec<Self> {
        let (able, _) = self.able();
        let nics = match self.nic {
            Some(nic) => vec![nic],
            None => able.to_vec(),
        };
        let with = |nic| Self {
            nic: Some(nic),
            ..self.clone()
        };
        nics.into_iter().map(with).collect()
    }

    /// Makes ready what was chosen.
    ///
    /// # Errors
    /// A NIC that does not work with kernels there; whatever is missing for a GPU.
    pub fn open(&self) -> Result<World, Error> {
        let worlds = self.open_on(&[self.gpu])?;
        Ok(worlds[0])
    }

    /// The same with kernels on each of several GPUs: a place for each, all with one NIC. Without any named there is the one
    /// place of [`open`](Self::open).
    ///
    /// # Errors
    /// As [`open`](Self::open); several GPUs of a CPU, or one twice; those out of the NIC's reach.
    pub fn open_each(&self, gpus: &[u32]) -> Result<Vec<World>, Error> {
        if gpus.is_empty() {
            return self.open_on(&[self.gpu]);
        }
        if self.on == On::Cpu {
            return Err(Error::NoGpus);
        }
        for (index, &gpu) in gpus.iter().enumerate() {
            if gpus[..index].contains(&gpu) {
                return Err(Error::GpuTwice { gpu });
            }
        }
        self.open_on(gpus)
    }

    /// A place on each of these GPUs, of which there is one at least; a CPU is one place.
    fn open_on(&self, gpus: &[u32]) -> Result<Vec<World>, Error> {
        let (able, needed) = self.able();
        let nic = self.nic.unwrap_or(able[0]);
        if !able.contains(&nic) && !nic.is_card() {
            return Err(Error::WrongNic {
                wanted: nic.name(),
                needed,
                able: able.map(Nic::name),
            });
        }
        if self.nic_gpu.is_some() && (self.on, nic) != (On::Gpu, Nic::SoftGpu) {
            return Err(Error::NoNicGpu);
        }
        if self.watch && !matches!(nic, Nic::Soft | Nic::SoftHost) {
            return Err(Error::NoWatch);
        }
        let own = OwnPtx::read(&self.ptx)?;
        let (places, engine) = match self.on {
            On::Cpu => (vec![Kernels::Cpu], None),
            On::Gpu => {
                let opened = gpus.iter().map(|&gpu| Gpu::open(gpu));
                let opened = opened.collect::<Result<Vec<_>, _>>()?;
                let engine = match nic {
                    Nic::SoftGpu => {
                        let nic_gpu = self.nic_gpu.map_or(Ok(opened[0]), Gpu::open)?;
                        // Before any kernel is loaded: what is out of reach is said at once.
                        let mut each = opened.iter();
                        each.try_for_each(|gpu| gpu.enable_peer_access(nic_gpu))?;
                        Some(own.load(nic_gpu, &SOFT_NIC)?)
                    }
                    Nic::Soft | Nic::SoftHost | Nic::Card(_) => None,
                };
                let load = |&gpu| own.load(gpu, &KERNELS).map(Kernels::Gpu);
                let places = opened.iter().map(load).collect::<Result<Vec<_>, _>>()?;
                (places, engine)
            }
        };
        let world = |kernels: Kernels| {
            Ok(World {
                kernels,
                nic,
                gid: GidChoice {
                    index: self.gid_index,
                    ..GidChoice::default()
                },
                engine,
                watch: self.watch,
                runtime: None,
                asleep: false,
                stop: interrupt::stop(kernels.placement())?,
            })
        };
        places.into_iter().map(world).collect()
    }
}

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
                        watch: self.watch.then(watch),
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

/// What opens the devices of both ends of a connection.
#[derive(Clone, Debug)]
pub enum Devices {
    /// Each end has one of its own. One thread drives all, which leaves a core to the kernels where there
    /// are only two.
    Driven {
        /// That thread.
        driver: Arc<Driver>,
        /// Whether somebody looks at their requests.
        watch: bool,
    },
    /// Both ends have the same.
    One(Device),
}

impl Devices {
    /// The device of the next end.
    ///
    /// # Errors
    /// What [`Device::open`] refuses.
    pub fn open(&self) -> Result<Device, Error> {
        self.open_with(None)
    }

    /// The same with a fault: what comes to its memory shows late.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`Error::NoLateStores`] for a NIC that has no such fault.
    pub fn open_with(&self, late_stores: Option<LateStores>) -> Result<Device, Error> {
        match self {
            Self::One(_) if late_stores.is_some() => Err(Error::NoLateStores),
            Self::One(device) => Ok(device.clone()),
            Self::Driven {
                driver,
                watch: watched,
            } => {
                let options = SoftOptions {
                    drive: Drive::Shared(driver.clone()),
                    hca: HcaOptions {
                        late_stores,
                        watch: watched.then(watch),
                        ..HcaOptions::default()
                    },
                    ..SoftOptions::default()
                };
                Ok(Device::open(host_init::Nic::Soft(options))?)
            }
        }
    }
}

/// A watch over the requests of an HCA, which tells of them on stderr.
fn watch() -> RequestWatch {
    RequestWatch::telling(WatchLimits::default(), |advice| eprintln!("{advice}"))
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
