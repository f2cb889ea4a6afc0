//! Where kernels run, and which NIC they use.

mod kernels;

#[cfg(feature = "soft")]
use std::sync::Arc;
use std::time::Duration;

use warpbell::Word64;
#[cfg(feature = "soft")]
use warpbell_soft_hca::shell::Driver;
#[cfg(feature = "soft")]
use warpbell_soft_hca_gpu::MemoryScope;

pub use kernels::Kernels;
#[cfg(feature = "soft")]
pub(crate) use kernels::run_on_cpu;

use crate::choice::Branches;
#[cfg(all(feature = "soft", feature = "cuda"))]
use crate::cuda::Built;
use crate::cuda::{DeviceRuntime, Module};
use crate::launch::Watch;
#[cfg(feature = "soft")]
use crate::soft::{Drive, SoftOptions, refused};
use crate::stream::Step;
use crate::{
    Device, Error, Gpu, Launch, Nic, Placement, ProtectionDomain, QueuePair, Shared, StopWord,
};

/// A place where kernels run, with the NIC that they use. The same program runs on CPU threads with a NIC of software,
/// and on a GPU with a card: only its node differs.
///
/// A node is cheap to clone, and opens its NIC only for [`domain`](Self::domain), [`ends`](Self::ends) and
/// [`domains`](Self::domains).
///
/// ```
/// use warpbell::wqe::{Local, Remote, Wqe};
/// use warpbell::{Deadline, Exclusive, SendQueueHandle};
/// use warpbell_host_init::{Access, Error, Grid, Launch, Node, QueuePairConfig, entry};
///
/// #[repr(C)]
/// #[derive(Clone, Copy)]
/// struct Hello<'a> {
///     queue: SendQueueHandle<'a>,
///     source: Local,
///     target: Remote,
/// }
///
/// #[warpbell::kernel]
/// fn hello(p: Hello<'_>) {
///     let limit = Deadline::after_ms(1000);
///     let mut queue = p.queue.open::<Exclusive>().expect("a good handle");
///     let write = Wqe::write(p.source, p.target).signalled();
///     let ticket = queue.post(write, limit).expect("a good request");
///     queue.wait(ticket, limit).expect("an answer");
/// }
///
/// fn main() -> Result<(), Error> {
///     let node = Node::cpu();
///     let [near, far] = node.ends()?;
///     let source = near.allocate(4096, Access::LOCAL_WRITE)?;
///     let target = far.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
///     source.write(0, b"hello")?;
///
///     let config = QueuePairConfig::granting(Access::REMOTE_WRITE);
///     let (ours, _theirs) = near.connected(&far, &config)?;
///     let parameters = Hello {
///         queue: ours.send_queue()?,
///         source: source.local(0, 5)?,
///         target: target.remote().at(0, 5)?,
///     };
///     node.run(&[Launch::new(entry!(hello), Grid::ONE_THREAD, parameters)], &[])?;
///
///     let mut arrived = [0; 5];
///     target.read(0, &mut arrived)?;
///     assert_eq!(&arrived, b"hello");
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Node {
    kernels: Kernels,
    nic: Nic,
    limit: Duration,
    asleep: bool,
    /// Whether queues and data stay in host memory, whatever the NIC reaches.
    in_host_memory: bool,
    /// What lets kernels on a GPU launch others, if it is loaded.
    runtime: Option<DeviceRuntime>,
}

/// How long kernels on a GPU may stand still. Their own waits end long before.
const LIMIT: Duration = Duration::from_secs(120);

impl Node {
    /// CPU threads, and a NIC of software on another thread.
    #[cfg(feature = "soft")]
    pub fn cpu() -> Self {
        Self::of(Kernels::default(), Nic::Soft(SoftOptions::default()))
    }

    /// GPU 0 with the kernels that the program's build script compiled for it, or CPU threads where it compiled none; and
    /// a NIC of software on a CPU thread.
    ///
    /// # Errors
    /// [`Error::Gpu`] if there are kernels for a GPU, and no GPU that runs them.
    #[cfg(all(feature = "soft", feature = "cuda"))]
    pub fn for_kernels(built: Built) -> Result<Self, Error> {
        match built.is_empty() {
            true => Ok(Self::cpu()),
            false => Self::new(
                built.load(Gpu::open(0)?)?,
                Nic::Soft(SoftOptions::default()),
            ),
        }
    }

    fn of(kernels: Kernels, nic: Nic) -> Self {
        Self {
            kernels,
            nic,
            limit: LIMIT,
            asleep: false,
            in_host_memory: false,
            runtime: None,
        }
    }

    /// Kernels here, and this NIC. A NIC whose engine is a kernel on another GPU than the kernels reaches the whole
    /// system ([`MemoryScope::System`](warpbell_soft_hca_gpu::MemoryScope)), whatever its options say.
    ///
    /// # Errors
    /// [`Error::Gpu`] for two GPUs that do not reach each other.
    pub fn new(kernels: Kernels, nic: Nic) -> Result<Self, Error> {
        #[cfg(feature = "soft")]
        let nic = reaching(kernels, nic)?;
        Ok(Self::of(kernels, nic))
    }

    /// What runs its kernels.
    pub fn kernels(&self) -> Kernels {
        self.kernels
    }

    /// The GPU that its kernels run on, if it is one.
    pub fn gpu(&self) -> Option<Gpu> {
        self.kernels.gpu()
    }

    /// Its NIC.
    pub fn nic(&self) -> &Nic {
        &self.nic
    }

    /// The NIC's name, as a command line takes it: `soft`, `soft-host` for kernels on a GPU,
    /// `soft-gpu`, or the card's name, with its port unless that is the first.
    pub fn nic_name(&self) -> String {
        match (&self.nic, self.kernels) {
            #[cfg(feature = "soft")]
            (Nic::Soft(_), Kernels::Cpu(_)) => "soft".into(),
            #[cfg(feature = "soft")]
            (Nic::Soft(_), Kernels::Gpu(_)) => "soft-host".into(),
            #[cfg(feature = "soft")]
            (Nic::SoftGpu(_), _) => "soft-gpu".into(),
            #[cfg(feature = "mlx5")]
            (Nic::Mlx5(options), _) if options.port == 1 => options.device.clone(),
            #[cfg(feature = "mlx5")]
            (Nic::Mlx5(options), _) => format!("{}:{}", options.device, options.port),
        }
    }

    /// The same kernels with another NIC.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_nic(&self, nic: Nic) -> Result<Self, Error> {
        let Self { kernels, nic, .. } = Self::new(self.kernels, nic)?;
        Ok(Self {
            kernels,
            nic,
            ..self.clone()
        })
    }

    /// The same NIC with kernels elsewhere.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_kernels(&self, kernels: Kernels) -> Result<Self, Error> {
        let Self { kernels, nic, .. } = Self::new(kernels, self.nic.clone())?;
        Ok(Self {
            kernels,
            nic,
            ..self.clone()
        })
    }

    /// The same node, where kernels on a GPU may stand still for so long before they count as hung: 120 s unless said
    /// otherwise. For CPU threads, see [`Kernels::Cpu`].
    pub fn with_limit(&self, limit: Duration) -> Self {
        Self {
            limit,
            ..self.clone()
        }
    }

    /// The same node, whose host sleeps beside kernels that run for long. On a GPU it notices their end late by up to
    /// 10 ms.
    pub fn asleep(&self) -> Self {
        Self {
            asleep: true,
            ..self.clone()
        }
    }

    /// The same node with queues and data in pinned host memory, even if its NIC reaches the GPU's. A card then needs no
    /// GPUDirect RDMA, but the GPU still rings its doorbell. A NIC whose engine is a kernel must reach the whole system.
    pub fn in_host_memory(&self) -> Self {
        Self {
            in_host_memory: true,
            ..self.clone()
        }
    }

    /// The same node, where kernels can be [repeated](Self::run_repeating): a GPU needs CUDA's device runtime, which is
    /// loaded while nothing runs yet.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the device runtime is not there.
    pub fn able_to_repeat(&self) -> Result<Self, Error> {
        let runtime = match self.gpu() {
            None => None,
            Some(gpu) => Some(DeviceRuntime::load(gpu, None)?),
        };
        Ok(Self {
            runtime,
            ..self.clone()
        })
    }

    /// Where host and kernels reach memory: results lie there.
    pub fn placement(&self) -> Placement {
        self.kernels.placement()
    }

    /// Where kernels and the NIC reach memory: queues and data lie there. In the GPU's own memory where the NIC reaches
    /// that, unless they stay [in host memory](Self::in_host_memory).
    pub fn nic_placement(&self) -> Placement {
        let reaches_gpu = match self.nic {
            #[cfg(feature = "soft")]
            Nic::Soft(_) => false,
            _ => true,
        };
        match self.gpu() {
            Some(gpu) if reaches_gpu && !self.in_host_memory => Placement::Gpu(gpu),
            _ => self.placement(),
        }
    }

    /// Opens the NIC, and makes a protection domain for memory and queues.
    ///
    /// # Errors
    /// As [`Device::open`] and [`Device::protection_domain`].
    pub fn domain(&self) -> Result<ProtectionDomain, Error> {
        self.domains(1).map(|mut one| one.remove(0))
    }

    /// Opens the NIC for both ends of connections within this process: two devices of software, which one thread drives,
    /// or two domains of one card.
    ///
    /// # Errors
    /// As [`domain`](Self::domain).
    pub fn ends(&self) -> Result<[ProtectionDomain; 2], Error> {
        let ends = self.domains(2)?;
        Ok(ends.try_into().expect("two were asked for"))
    }

    /// The same for so many ends.
    ///
    /// # Errors
    /// As [`domain`](Self::domain).
    pub fn domains(&self, count: usize) -> Result<Vec<ProtectionDomain>, Error> {
        let open: Box<dyn Fn() -> Result<Device, Error>> = match &self.nic {
            #[cfg(feature = "soft")]
            Nic::Soft(options) => {
                let drive = match &options.drive {
                    Drive::Thread => {
                        let driver = Driver::spawn().map_err(refused("start its thread"))?;
                        Drive::Shared(Arc::new(driver))
                    }
                    other => other.clone(),
                };
                let options = SoftOptions {
                    drive,
                    ..options.clone()
                };
                Box::new(move || Device::open(Nic::Soft(options.clone())))
            }
            nic => {
                let device = Device::open(nic.clone())?;
                Box::new(move || Ok(device.clone()))
            }
        };
        let domain = |_| open()?.placed(self.nic_placement()).protection_domain();
        (0..count).map(domain).collect()
    }

    /// A value that host and kernels share.
    ///
    /// # Errors
    /// As [`Shared::new`].
    pub fn shared<T>(&self, value: T) -> Result<Shared<T>, Error> {
        Shared::new(self.placement(), value)
    }

    /// Values that host and kernels share, each made from its index.
    ///
    /// # Errors
    /// As [`Shared::slice`].
    pub fn shared_slice<T>(
        &self,
        len: usize,
        value: impl FnMut(usize) -> T,
    ) -> Result<Shared<[T]>, Error> {
        Shared::slice(self.placement(), len, value)
    }

    /// Words that host and kernels share, all 0.
    ///
    /// # Errors
    /// As [`Shared::slice`].
    pub fn words(&self, count: usize) -> Result<Shared<[Word64]>, Error> {
        self.shared_slice(count, |_| Word64::new(0))
    }

    /// Runs kernels at the same time, and returns once all have ended. Of these queue pairs a watchdog names outstanding
    /// work requests, if kernels on a GPU hang.
    ///
    /// # Errors
    /// [`Error::Launch`] or [`Error::Gpu`] for kernels that could not start, or did not end well.
    pub fn run(&self, launches: &[Launch<'_>], queue_pairs: &[&QueuePair]) -> Result<(), Error> {
        self.run_for(launches, queue_pairs, Duration::ZERO)
    }

    /// The same with kernels that are meant to run for so long. Kernels on a GPU may run as long as their queues do
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
            Kernels::Cpu(options) => {
                let launches: Vec<_> = launches.iter().collect();
                let options = kernels::meant_for(options, meant);
                Ok(kernels::run_all_on_cpu(options, &launches)?)
            }
            Kernels::Gpu(module) => Ok(module.run(launches, &self.watch(queue_pairs))?),
        }
    }

    /// The same with kernels on several nodes: each runs on its own, all have one NIC, and there is one watch over all.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_each(
        launches: Vec<(&Self, Launch<'_>)>,
        queue_pairs: &[&QueuePair],
        meant: Duration,
    ) -> Result<(), Error> {
        let Some(&(first, _)) = launches.first() else {
            return Ok(());
        };
        let module = |node: &Self| match node.kernels {
            Kernels::Cpu(_) => None,
            Kernels::Gpu(module) => Some(module),
        };
        let modules: Option<Vec<_>> = launches.iter().map(|(node, _)| module(node)).collect();
        match (first.kernels, modules) {
            (Kernels::Cpu(options), _) => {
                let launches: Vec<_> = launches.iter().map(|(_, launch)| launch).collect();
                let options = kernels::meant_for(options, meant);
                Ok(kernels::run_all_on_cpu(options, &launches)?)
            }
            (_, None) => Err(Error::MixedNodes),
            (_, Some(modules)) => {
                let asleep = launches.iter().any(|(node, _)| node.asleep);
                let launches = launches.into_iter().map(|(_, launch)| launch);
                let launches: Vec<(&Module, _)> = modules.into_iter().zip(launches).collect();
                let watch = Watch {
                    asleep,
                    ..first.watch(queue_pairs)
                };
                Ok(Module::run_each(&launches, &watch)?)
            }
        }
    }

    /// Runs kernels one behind the other, and again from the first until `stop` asks for the end, and others beside
    /// them, as [`run_for`](Self::run_for) does. On a GPU they are a graph that launches itself, without the host.
    ///
    /// # Errors
    /// As [`run_for`](Self::run_for), and as [`able_to_repeat`](Self::able_to_repeat) where that was not called before.
    pub fn run_repeating(
        &self,
        repeated: &[Launch<'_>],
        stop: &StopWord,
        beside: &[Launch<'_>],
        queue_pairs: &[&QueuePair],
        meant: Duration,
    ) -> Result<(), Error> {
        self.repeat((repeated, None), stop, beside, queue_pairs, meant)
    }

    /// The same, where a round may choose one of these branches: its kernels run ahead of the next round, and even if `stop`
    /// asks for the end by then. On a GPU each branch is a graph, which the GPU launches by itself.
    ///
    /// ```
    /// use std::time::Duration;
    /// use warpbell::{Choice, Stop};
    /// use warpbell_host_init::choice::{Branches, ChoiceWord};
    /// use warpbell_host_init::{Error, Grid, Launch, Node, StopWord, entry};
    ///
    /// #[warpbell::kernel]
    /// fn round(choice: Choice<'_>) {
    ///     choice.choose(1);
    /// }
    ///
    /// #[warpbell::kernel]
    /// fn end(stop: Stop<'_>) {
    ///     stop.request();
    /// }
    ///
    /// fn main() -> Result<(), Error> {
    ///     let node = Node::cpu();
    ///     let word = ChoiceWord::new(node.placement().of_states())?;
    ///     let stop = StopWord::new(node.placement())?;
    ///     let round = Launch::new(entry!(round), Grid::ONE_THREAD, word.choice());
    ///     let end = Launch::new(entry!(end), Grid::ONE_THREAD, stop.stop());
    ///     let branches = Branches { word: &word, launches: &[vec![], vec![end]] };
    ///     node.run_choosing(&[round], &branches, &stop, &[], &[], Duration::ZERO)
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`run_repeating`](Self::run_repeating); [`Error::NoBranch`], on a GPU
    /// [`GpuError::NoBranch`](crate::GpuError), for a choice that is none, behind which there is no further round.
    pub fn run_choosing(
        &self,
        repeated: &[Launch<'_>],
        branches: &Branches<'_>,
        stop: &StopWord,
        beside: &[Launch<'_>],
        queue_pairs: &[&QueuePair],
        meant: Duration,
    ) -> Result<(), Error> {
        self.repeat((repeated, Some(branches)), stop, beside, queue_pairs, meant)
    }

    fn repeat(
        &self,
        (repeated, branches): (&[Launch<'_>], Option<&Branches<'_>>),
        stop: &StopWord,
        beside: &[Launch<'_>],
        queue_pairs: &[&QueuePair],
        meant: Duration,
    ) -> Result<(), Error> {
        match self.kernels {
            Kernels::Cpu(options) => {
                let beside: Vec<_> = beside.iter().collect();
                let options = kernels::meant_for(options, meant);
                kernels::repeat_on_cpu(options, (repeated, branches), stop, &beside)
            }
            Kernels::Gpu(module) => {
                let runtime = match self.runtime {
                    Some(runtime) => runtime,
                    None => DeviceRuntime::load(module.gpu(), None)?,
                };
                let watch = self.watch(queue_pairs);
                module.run_repeating(repeated, branches, stop, &runtime, beside, &watch)
            }
        }
    }

    /// Runs steps in one stream of the GPU, each behind the one before, and returns once all have ended. The host has no
    /// part in them once they have begun: kernels run, WQEs that lie in their ring are published, completions are awaited.
    ///
    /// # Errors
    /// [`Error::NoStream`] on a CPU; otherwise as [`run`](Self::run).
    pub fn run_in_order(
        &self,
        steps: &[Step<'_>],
        queue_pairs: &[&QueuePair],
    ) -> Result<(), Error> {
        match self.kernels {
            Kernels::Cpu(_) => Err(Error::NoStream),
            Kernels::Gpu(module) => Ok(module.run_in_order(steps, &self.watch(queue_pairs))?),
        }
    }

    /// How kernels on a GPU are watched that use these queue pairs.
    fn watch<'w>(&self, queue_pairs: &'w [&'w QueuePair]) -> Watch<'w> {
        Watch {
            limit: self.limit,
            asleep: self.asleep,
            queue_pairs,
        }
    }
}

/// The NIC, which reaches the whole system if its engine is a kernel on another GPU than the kernels.
#[cfg(feature = "soft")]
fn reaching(kernels: Kernels, mut nic: Nic) -> Result<Nic, Error> {
    if let (Some(gpu), Nic::SoftGpu(options)) = (kernels.gpu(), &mut nic)
        && let Some(engine) = options.on.gpu()
        && engine != gpu
    {
        gpu.enable_peer_access(engine)?;
        options.reach = MemoryScope::System;
    }
    Ok(nic)
}
