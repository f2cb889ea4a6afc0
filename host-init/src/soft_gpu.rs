//! The provider `soft-gpu`: a software HCA whose engine is a kernel beside those that it serves.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use warpbell::FenceReach;
use warpbell_cpu_grid::Options;
use warpbell_soft_hca::engine::{Command, Reply, WireAddress};
use warpbell_soft_hca::shell::{HcaError, SoftHca};
use warpbell_soft_hca_gpu::MemoryScope;
use warpbell_soft_hca_gpu::resident::{
    ArgumentParts, Arguments, Client, ClientError, MAX_ENGINES, MAX_THREADS, Mailbox, RESIDENT_MTU,
    TableSizes, Team,
};

use crate::batching::Reader;
use crate::cuda::Running;
use crate::node::run_on_cpu;
use crate::soft::{Commands, Seat, Soft, refused};
use crate::{Buffer, Entry, Error, Grid, Kernels, Launch, Placement, Shared};

/// How a software HCA is opened whose engine is a kernel.
///
/// Its queue pairs are connected with each other: there is no wire to another HCA.
#[derive(Clone, Debug)]
pub struct SoftGpuOptions {
    /// The engine's kernel: `warpbell_kernels::soft_nic::soft_nic`. Of a GPU's module it must be loaded for blocks of
    /// [`ENGINE_THREADS`].
    pub kernel: Entry<fn(Arguments)>,
    /// What runs it: on a GPU, on a stream of its own, perhaps on another GPU than that of the kernels that it serves.
    pub on: Kernels,
    /// How many engines share the queue pairs, up to [`MAX_ENGINES`]. Both ends of a connection go to the same one.
    pub engines: u32,
    /// Which threads work for each engine. On a GPU it always has a crew; on a CPU's grid that is as it runs there, and
    /// an engine alone is quicker.
    pub lanes: EngineLanes,
    /// How many objects it has room for.
    pub tables: TableSizes,
    /// Who looks at the queues and the payloads. [`MemoryScope::Gpu`], the quicker one, allows memory of
    /// the GPU alone, and its kernels alone; [`MemoryScope::System`] pinned memory, too, and memory of another GPU that
    /// [`Gpu::enable_peer_access`](crate::Gpu::enable_peer_access) has opened. On a GPU the fences of those who use
    /// the queues reach as far.
    pub reach: MemoryScope,
    /// How long the kernel's start, and the answer to each command, may take.
    pub limit: Duration,
}

impl SoftGpuOptions {
    /// 8 engines on a GPU and one on a CPU, tables of the default sizes, memory of the GPU alone, and a limit of
    /// 10 s.
    pub fn new(kernel: Entry<fn(Arguments)>, on: Kernels) -> Self {
        Self {
            kernel,
            engines: match on {
                Kernels::Cpu(_) => 1,
                Kernels::Gpu(_) => MAX_ENGINES,
            },
            lanes: match on {
                Kernels::Cpu(_) => EngineLanes::One,
                Kernels::Gpu(_) => EngineLanes::Warp,
            },
            on,
            tables: TableSizes::default(),
            reach: MemoryScope::Gpu,
            limit: Duration::from_secs(10),
        }
    }
}

/// Which threads work for an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineLanes {
    /// A thread alone.
    One,
    /// A thread, and beside it the lanes of a warp, which execute plain writes together.
    Warp,
}

/// Threads in the block of the engines' kernel at most: for so many it is
/// [loaded](crate::cuda::Module::load_for_blocks).
pub const ENGINE_THREADS: u32 = MAX_THREADS;

/// Where the mailbox lies, so that host and engine reach it, and where the engine's tables.
fn placements(on: Kernels) -> (Placement, Placement) {
    match on {
        Kernels::Cpu(_) => (Placement::Host, Placement::Host),
        Kernels::Gpu(module) => (on.placement(), Placement::Gpu(module.gpu())),
    }
}

fn start(
    on: Kernels,
    kernel: Entry<fn(Arguments)>,
    arguments: Arguments,
) -> Result<EngineKernel, Error> {
    let threads = arguments.threads_per_engine() * arguments.parts().engines;
    let launch = move || Launch::new(kernel, Grid::new(1, threads), arguments);
    Ok(match on {
        Kernels::Cpu(options) => {
            // The host ends it.
            let options = Options {
                deadline: None,
                ..options
            };
            let body = move || run_on_cpu(options, &launch()).map_err(|error| error.to_string());
            let thread = thread::Builder::new()
                .name("soft-gpu engine".into())
                .spawn(body)
                .map_err(|error| refused("start its kernel")(HcaError::Thread(error)))?;
            EngineKernel::Thread(Some(thread))
        }
        Kernels::Gpu(module) => EngineKernel::Gpu(module.start(&launch())?),
    })
}

/// An engine's kernel under way.
enum EngineKernel {
    /// None once it has been joined.
    Thread(Option<JoinHandle<Result<(), String>>>),
    Gpu(Running<'static>),
}

impl EngineKernel {
    /// Whether it has ended, or why it broke off.
    fn has_ended(&mut self) -> Result<bool, String> {
        match self {
            Self::Gpu(running) => running.has_ended().map_err(|error| error.to_string()),
            Self::Thread(thread) => match thread.take_if(|thread| thread.is_finished()) {
                None => Ok(thread.is_none()),
                Some(ended) => {
                    let panicked = |_| Err("the thread that ran it panicked".into());
                    ended.join().unwrap_or_else(panicked).map(|()| true)
                }
            },
        }
    }

    /// Waits for the end, of which the mailbox has told already.
    fn wait(&mut self, limit: Duration) -> Result<(), String> {
        /// Between two looks.
        const NAP: Duration = Duration::from_micros(100);
        let begin = Instant::now();
        while !self.has_ended()? {
            if begin.elapsed() > limit {
                return Err(format!("its kernel did not return within {limit:?}"));
            }
            thread::sleep(NAP);
        }
        Ok(())
    }
}

/// One of several mailboxes.
struct MailboxOf {
    all: Arc<Shared<[Mailbox]>>,
    index: usize,
}

impl Deref for MailboxOf {
    type Target = Mailbox;

    fn deref(&self) -> &Mailbox {
        &self.all[self.index]
    }
}

/// The host's end of the engines.
struct Station {
    team: Team<MailboxOf>,
    kernel: EngineKernel,
    /// Why the kernel has ended, unless the host asked for it. It uses nothing any more.
    broken: Option<String>,
    /// The engine's tables.
    tables: Buffer,
}

/// An engine in a kernel, and the way to it.
pub(crate) struct Resident {
    station: ManuallyDrop<Mutex<Station>>,
    address: WireAddress,
    on: Kernels,
    reach: MemoryScope,
    limit: Duration,
}

impl Soft<Resident> {
    pub fn open(options: SoftGpuOptions) -> Result<Self, Error> {
        let (mailboxes, tables) = placements(options.on);
        let engines = options.engines.clamp(1, MAX_ENGINES);
        let tables = Buffer::placed(tables, options.tables.bytes(engines) as usize)?;
        let mailboxes = Shared::slice(mailboxes, engines as usize, |_| Mailbox::default())?;
        let address = SoftHca::fresh_address();
        let parts = ArgumentParts {
            mailboxes: mailboxes.as_ptr(),
            tables: tables.as_ptr(),
            sizes: options.tables,
            engines,
            crew: match (&options.on, options.lanes) {
                (Kernels::Cpu(_), EngineLanes::One) => 0,
                (Kernels::Gpu(_), _) | (_, EngineLanes::Warp) => warpbell::thread::warp_size(),
            },
            address: address.0,
            system_wide: u32::from(options.reach == MemoryScope::System),
            key_seed: SoftHca::random(),
        };
        // SAFETY: both kinds of memory have room for so many engines, and go after the kernel; the device alone gives
        // commands, for memory that is kept until it is taken back. `start` launches
        // one kernel with them, on the grid that they ask for.
        let arguments = unsafe { Arguments::new(parts) };
        // The mailboxes before the kernel, which looks at them first.
        let all = Arc::new(mailboxes);
        let client = |index| {
            let all = all.clone();
            Client::open(MailboxOf { all, index }, options.limit)
        };
        let team = Team::new((0..engines as usize).map(client).collect());
        let kernel = start(options.on, options.kernel, arguments)?;
        // From here on the kernel's end is waited for before its memory goes.
        let resident = Resident {
            station: ManuallyDrop::new(Mutex::new(Station {
                team,
                kernel,
                broken: None,
                tables,
            })),
            address,
            on: options.on,
            reach: options.reach,
            limit: options.limit,
        };
        resident
            .station()
            .talk(|team| team.wait_for_start())
            .map_err(refused("start its kernel"))?;
        Ok(Self::new(resident))
    }
}

impl Resident {
    fn station(&self) -> MutexGuard<'_, Station> {
        self.station.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of an HCA whose engine is a kernel.
fn hca_error(error: ClientError) -> HcaError {
    match error {
        ClientError::Command(error) => HcaError::Command(error),
        ClientError::Ended => HcaError::Stopped,
        error => HcaError::Resident(error.into()),
    }
}

impl Station {
    /// Talks with the engine; a kernel that broke off is why there is no answer.
    fn talk<R>(
        &mut self,
        talk: impl FnOnce(&mut Team<MailboxOf>) -> Result<R, ClientError>,
    ) -> Result<R, HcaError> {
        if let Some(broken) = &self.broken {
            return Err(HcaError::Panicked(broken.clone()));
        }
        talk(&mut self.team).map_err(|error| {
            if !matches!(error, ClientError::Deadline { .. }) {
                return hca_error(error);
            }
            let broken = match self.kernel.has_ended() {
                Ok(false) => return hca_error(error),
                Ok(true) => "it returned without a word".into(),
                Err(failure) => failure,
            };
            HcaError::Panicked(self.broken.insert(broken).clone())
        })
    }

    fn execute(&mut self, command: Command) -> Result<Reply, HcaError> {
        // SAFETY: who gives a command that names memory vouches for it.
        self.talk(|team| unsafe { team.execute(command) })
    }

    /// Ends the engine; its memory may be freed after this.
    fn stop(&mut self, limit: Duration) -> Result<(), String> {
        match self.talk(Team::stop) {
            Ok(()) => self.kernel.wait(limit),
            Err(HcaError::Panicked(_)) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Seat for Resident {
    fn address(&self) -> WireAddress {
        self.address
    }

    fn path_mtu(&self, peer: WireAddress) -> Result<Option<u32>, HcaError> {
        Ok((peer == self.address).then_some(RESIDENT_MTU))
    }

    fn reaches(&self, placement: Placement) -> bool {
        match (&self.on, placement) {
            (Kernels::Cpu(_), placement) => placement.is_host(),
            (Kernels::Gpu(_), Placement::Host) => false,
            (Kernels::Gpu(_), Placement::Pinned(_)) => self.reach == MemoryScope::System,
            (Kernels::Gpu(module), Placement::Gpu(gpu)) if module.gpu() == gpu => true,
            // Only with system-wide fences do both GPUs see the same.
            (Kernels::Gpu(module), Placement::Gpu(gpu)) => {
                self.reach == MemoryScope::System && module.gpu().reaches(gpu)
            }
        }
    }

    fn reader(&self) -> Reader {
        match &self.on {
            Kernels::Cpu(_) => Reader::Host,
            Kernels::Gpu(_) => Reader::Gpu,
        }
    }

    /// In its own GPU's memory for queues in another's, as a card has them: a kernel's doorbell is a store that
    /// nobody waits for, the engine's look at it a load that it does wait for.
    fn registers(&self, queues: Placement) -> Placement {
        match (&self.on, queues) {
            (Kernels::Gpu(module), Placement::Gpu(_)) => Placement::Gpu(module.gpu()),
            _ => queues,
        }
    }

    fn fence_reach(&self) -> FenceReach {
        match (&self.on, self.reach) {
            // The engine itself orders for its GPU's threads only, and `reaches` keeps everything in its memory.
            (Kernels::Gpu(_), MemoryScope::Gpu) => FenceReach::Gpu,
            (Kernels::Cpu(_), _) | (_, MemoryScope::System) => FenceReach::System,
        }
    }

    fn with_engine<R>(
        &self,
        work: impl FnOnce(&mut Commands<'_>) -> Result<R, HcaError>,
    ) -> Result<R, HcaError> {
        let mut station = self.station();
        work(&mut Commands::new(&mut |command| station.execute(command)))
    }

    fn hca(&self) -> Option<&SoftHca> {
        None
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let station = unsafe { ManuallyDrop::take(&mut self.station) };
        let mut station = station.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = station.stop(self.limit) {
            tracing::error!(%error, "the engine of a soft-gpu NIC did not end, its memory is leaked");
            std::mem::forget((station.team, station.tables));
        }
    }
}
