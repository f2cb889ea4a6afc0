//! Devices, and the seam behind which each kind of card lives.

use std::fmt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use warpbell::{DoorbellPage, FenceReach};
#[cfg(feature = "soft")]
use warpbell_soft_hca::shell::SoftHca;

#[cfg(doc)]
use crate::QueuePairConfig;
use crate::batching::Reader;
use crate::completion_queue::CommonAddresses;
use crate::config::{Checked, CheckedCompletions};
use crate::memory::Keys;
#[cfg(feature = "mlx5")]
use crate::mlx5::{CardCounters, CardEvent, Mlx5, Mlx5Options};
use crate::peer::Role;
use crate::placement::Area;
use crate::queue_memory::QueueAddresses;
#[cfg(feature = "soft")]
use crate::soft::{self, InProcess, Soft, SoftOptions};
#[cfg(feature = "soft")]
use crate::soft_gpu::{Resident, SoftGpuOptions};
use crate::state::{CardPort, Endpoint, Gid, NicError};
use crate::{Access, Error, Placement, ProtectionDomain, State};

/// Which NIC to open.
///
/// ```
/// use warpbell_host_init::mlx5::Mlx5Options;
/// use warpbell_host_init::soft::SoftOptions;
/// use warpbell_host_init::{Device, Nic};
///
/// let nic = match std::env::args().nth(1) {
///     Some(card) => Nic::Mlx5(Mlx5Options::new(card)),
///     None => Nic::Soft(SoftOptions::default()),
/// };
/// let device = Device::open(nic)?;
/// # Ok::<(), warpbell_host_init::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Nic {
    /// A software HCA in this process.
    #[cfg(feature = "soft")]
    Soft(SoftOptions),
    /// A software HCA whose engine is a kernel, on the GPU beside those that it serves or on another.
    #[cfg(feature = "soft")]
    SoftGpu(SoftGpuOptions),
    /// An mlx5 card, through libibverbs and libmlx5, which are loaded then.
    #[cfg(feature = "mlx5")]
    Mlx5(Mlx5Options),
}

/// What a device can do at most.
///
/// ```
/// use warpbell_host_init::Node;
///
/// let limits = Node::cpu().domain()?.device().limits();
/// assert!(limits.max_depth >= 1024);
/// # Ok::<(), warpbell_host_init::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Blocks of a send queue, receive WQEs of a receive queue.
    pub max_depth: u32,
    /// CQEs of a completion queue.
    pub max_completion_depth: u32,
    /// Scatter entries of a receive WQE.
    pub max_receive_segments: u32,
    /// Bytes of a message.
    pub max_message: u32,
    /// Queue pairs may be without a doorbell record ([`SendDoorbell::WithoutRecord`](warpbell::SendDoorbell)).
    pub without_record: bool,
    /// Send queues may wait for completion queues and start others ([`QueuePairConfig::cross_channel`],
    /// [`managed_send`](QueuePairConfig::managed_send)).
    pub cross_channel: bool,
}

/// An open device. A clone is the same device; it closes with the last clone and
/// the last object made from it.
///
/// ```
/// use warpbell_host_init::soft::SoftOptions;
/// use warpbell_host_init::{Device, Nic};
///
/// let device = Device::open(Nic::Soft(SoftOptions::default()))?;
/// let domain = device.protection_domain()?;
/// assert!(domain.device().is(&device));
/// # Ok::<(), warpbell_host_init::Error>(())
/// ```
#[derive(Clone)]
pub struct Device {
    provider: Arc<dyn Provider>,
    placement: Placement,
}

impl Device {
    /// Opens a NIC.
    ///
    /// # Errors
    /// [`Error::Soft`] if the system gives no thread for a software HCA, or its kernel does not
    /// start; [`Error::Gpu`] if the GPU refuses; [`Error::Mlx5`] if a library, the card or its port is not there, or
    /// not as it has to be.
    pub fn open(nic: Nic) -> Result<Self, Error> {
        let provider: Arc<dyn Provider> = match nic {
            #[cfg(feature = "soft")]
            Nic::Soft(options) => Arc::new(Soft::<InProcess>::open(options)?),
            #[cfg(feature = "soft")]
            Nic::SoftGpu(options) => Arc::new(Soft::<Resident>::open(options)?),
            #[cfg(feature = "mlx5")]
            Nic::Mlx5(options) => Arc::new(Mlx5::open(&options)?),
        };
        Ok(Self {
            provider,
            placement: Placement::Host,
        })
    }

    /// What the device can do at most.
    pub fn limits(&self) -> Limits {
        self.provider.limits()
    }

    /// The device's address.
    pub fn gid(&self) -> Gid {
        self.provider.gid()
    }

    /// The same device, whose queues and memory lie there unless their configuration says otherwise.
    pub(crate) fn placed(self, placement: Placement) -> Self {
        Self { placement, ..self }
    }

    /// Where its queues and memory lie unless their configuration says otherwise: in host memory, or where the
    /// [`Node`](crate::Node) that has opened it needs them.
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`Error::Soft`] if the device has no room for another.
    pub fn protection_domain(&self) -> Result<ProtectionDomain, Error> {
        ProtectionDomain::new(self.clone())
    }

    /// What the card has counted of the packets of this device's queue pairs; none of a software HCA, and of a card
    /// that has no counters left.
    ///
    /// # Errors
    /// [`Error::Mlx5`] if the card does not answer.
    #[cfg(feature = "mlx5")]
    pub fn counters(&self) -> Result<Option<CardCounters>, Error> {
        self.provider.counters()
    }

    /// What has befallen queues of this device since the last call, and no completion tells; without waiting. A
    /// software HCA reports none, and a card none where its system has no such channel.
    ///
    /// # Errors
    /// [`Error::Mlx5`] if the channel cannot be read.
    #[cfg(feature = "mlx5")]
    pub fn card_events(&self) -> Result<Vec<CardEvent>, Error> {
        self.provider.card_events()
    }

    /// The software HCA behind this device, if it is one: for tests that step it
    /// by hand, inject faults or kill it.
    #[cfg(feature = "soft")]
    pub fn soft_hca(&self) -> Option<&SoftHca> {
        self.provider.hca()
    }

    /// How far the fences of kernels must reach that share memory with it: for `Cells` of `warpbell-patterns`. Handles
    /// have it in them.
    pub fn fence_reach(&self) -> FenceReach {
        self.provider.fence_reach()
    }

    pub(crate) fn provider(&self) -> &dyn Provider {
        &*self.provider
    }

    /// Whether it is the same device.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.provider, &other.provider)
    }

    /// Whether it is a card, whose wire is none of ours.
    pub fn is_card(&self) -> bool {
        self.provider.card_port().is_some()
    }

    /// Refuses memory that the device does not reach.
    pub(crate) fn require_reach(
        &self,
        what: &'static str,
        placement: Placement,
    ) -> Result<(), Error> {
        match self.provider.reaches(placement) {
            true => Ok(()),
            false => Err(Error::OutOfReach { what, placement }),
        }
    }

    /// Makes a way between two devices of this process, if there is none.
    pub(crate) fn link(&self, other: &Self) -> Result<(), Error> {
        if self.is(other) {
            return Ok(());
        }
        // The wire of cards is there already.
        if self.is_card() && other.is_card() {
            return Ok(());
        }
        #[cfg(feature = "soft")]
        if let (Some(ours), Some(theirs)) = (self.provider.hca(), other.provider.hca()) {
            return ours.link(theirs).map_err(soft::refused("link two devices"));
        }
        Err(Error::Unreachable { gid: other.gid() })
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("gid", &self.gid())
            .finish_non_exhaustive()
    }
}

/// The NIC's objects behind one queue pair, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Queues {
    pub qpn: u32,
    pub send_cqn: u32,
    /// The send queue's completion queue is also that of others.
    pub common_sends: bool,
    /// Equal to `send_cqn` without a receive queue.
    pub receive_cqn: u32,
    /// Address of the register that kernels ring, and what its page is; none if it is that of the queues' memory.
    pub doorbell: Option<(u64, DoorbellPage)>,
}

/// A step of the state machine, with what it carries.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Init {
        access: Access,
    },
    ReadyToReceive {
        remote: Endpoint,
        config: Checked,
    },
    ReadyToSend {
        psn: u32,
        remote: Endpoint,
        config: Checked,
    },
    Error,
}

impl Step {
    pub fn target(&self) -> State {
        match self {
            Self::Init { .. } => State::Init,
            Self::ReadyToReceive { .. } => State::ReadyToReceive,
            Self::ReadyToSend { .. } => State::ReadyToSend,
            Self::Error => State::Error,
        }
    }
}

/// What every kind of card does. All of it is start-up: nothing here is called
/// while kernels post and poll.
pub(crate) trait Provider: Send + Sync {
    fn limits(&self) -> Limits;
    fn gid(&self) -> Gid;
    /// What the other end needs to know of the port, if this is a card.
    fn card_port(&self) -> Option<CardPort> {
        None
    }
    /// What it has counted, if this is a card.
    #[cfg(feature = "mlx5")]
    fn counters(&self) -> Result<Option<CardCounters>, Error> {
        Ok(None)
    }
    /// What has befallen its queues since the last call, if this is a card.
    #[cfg(feature = "mlx5")]
    fn card_events(&self) -> Result<Vec<CardEvent>, Error> {
        Ok(Vec::new())
    }
    /// Whether the device reads and writes memory that lies there.
    fn reaches(&self, placement: Placement) -> bool;
    /// How far the fences of those who use its queues must reach.
    fn fence_reach(&self) -> FenceReach;
    /// Who reads the rings.
    fn reader(&self) -> Reader;
    /// Where the doorbell registers of queues lie that lie there.
    fn registers(&self, queues: Placement) -> Placement;

    fn allocate_domain(&self) -> Result<u32, Error>;
    fn free_domain(&self, domain: u32);

    /// # Safety
    /// The area stays valid, for what `access` allows, until `deregister` succeeded.
    unsafe fn register(&self, domain: u32, area: Area, access: Access) -> Result<Keys, Error>;
    /// When this succeeds, the device uses the memory no longer.
    fn deregister(&self, keys: Keys) -> Result<(), Error>;

    /// Makes a completion queue for many send queues; gives its number.
    ///
    /// # Safety
    /// The memory is as a fresh queue needs it, and stays valid until `destroy_completion_queue` succeeded.
    unsafe fn create_completion_queue(
        &self,
        completions: CheckedCompletions,
        at: &CommonAddresses,
    ) -> Result<u32, Error>;
    /// When this succeeds, the device uses the memory no longer. Its queue pairs are gone.
    fn destroy_completion_queue(&self, cqn: u32) -> Result<(), Error>;

    /// Makes the completion queues and the queue pair, in `Reset`.
    ///
    /// # Safety
    /// The memory at `addresses` is as a fresh queue needs it, and stays valid
    /// until `destroy` or `renew` succeeded.
    unsafe fn create(
        &self,
        domain: u32,
        config: &Checked,
        addresses: &QueueAddresses,
    ) -> Result<Queues, Error>;
    /// Destroys them, lets `clear` make the memory fresh, and makes them again.
    ///
    /// # Safety
    /// As for `create`, once `clear` has run.
    unsafe fn renew(
        &self,
        queues: Queues,
        domain: u32,
        config: &Checked,
        addresses: &QueueAddresses,
        clear: &mut dyn FnMut(),
    ) -> Result<Queues, Error>;
    /// When this succeeds, the device uses the memory no longer.
    fn destroy(&self, queues: Queues) -> Result<(), Error>;

    fn modify(&self, queues: Queues, step: &Step) -> Result<(), Error>;
    fn state(&self, queues: Queues) -> Result<State, Error>;
    fn first_error(&self, queues: Queues) -> Result<Option<NicError>, Error>;
    /// Where it counts what the queue pair does, as `live::NicCounters`, if other processes can read it there.
    fn counters_address(&self, _: Queues) -> Option<u64> {
        None
    }

    /// Makes a way to a device of another process, which is at the other end of this socket.
    fn link_over(&self, _: &UnixStream, theirs: Gid, _: Role, _: Duration) -> Result<(), Error> {
        match self.card_port() {
            // What kind of device the other one is, endpoints tell.
            Some(_) => Ok(()),
            None => Err(Error::Unreachable { gid: theirs }),
        }
    }

    /// The software HCA of this process, if it is one.
    #[cfg(feature = "soft")]
    fn hca(&self) -> Option<&SoftHca>;
}
