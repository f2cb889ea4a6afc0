//! The provider `mlx5`: a card, driven through libibverbs and libmlx5, which are loaded when one is opened.
//!
//! | file | its one job |
//! |---|---|
//! | `bindings` | the libraries' structures and functions |
//! | `context` | the open card, and objects that commands make |
//! | `counters` | what the card counts |
//! | `error` | what can go wrong, and what to do |
//! | `gid` | which address a queue pair uses |
//! | `port` | the port, and the way from it to another |
//! | `resources` | domains, registered memory, UARs |
//! | `queues` | completion queues and queue pairs, by commands to the card (DEVX) |
//!
//! Nothing of it has run on a card yet; it is tested on the software HCA, behind unmodified libmlx5.
//!
//! ```no_run
//! use warpbell_host_init::mlx5::Mlx5Options;
//! use warpbell_host_init::{Device, Nic};
//!
//! let options = Mlx5Options { port: 2, ..Mlx5Options::new("mlx5_0") };
//! let card = Device::open(Nic::Mlx5(options))?;
//! println!("{}: {:?}", card.gid(), card.limits());
//! # Ok::<(), warpbell_host_init::Error>(())
//! ```

mod bindings;
mod context;
mod counters;
mod error;
mod events;
mod gid;
mod port;
mod queues;
mod resources;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlx5_wqe::prm::{
    AtomicCapabilities, HcaCapabilities, HcaCapabilities2, QpState, TimestampFormat,
    TimestampFormats,
};
use warpbell::FenceReach;
#[cfg(feature = "soft")]
use warpbell_soft_hca::shell::SoftHca;

use crate::batching::Reader;
use crate::completion_queue::CommonAddresses;
use crate::config::{Checked, CheckedCompletions};
use crate::device::{Provider, Queues, Step};
use crate::domain::fresh_number;
use crate::memory::Keys;
use crate::placement::Area;
use crate::queue_memory::QueueAddresses;
use crate::state::{CardPort, Gid, NicError};
use crate::{Access, Error, GpuError, Limits, Placement, State};
use context::Context;
use counters::CounterSet;
use events::Events;
use port::{Port, Reads};
use queues::Made;
use resources::{Dmabuf, Domain, Memory, Region};

pub use counters::CardCounters;
pub use error::{Link, Mlx5Error};
pub use events::CardEvent;
pub use gid::GidChoice;

/// How a card is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mlx5Options {
    /// The device's name, as `ibv_devices` lists it.
    pub device: String,
    /// Its port, counted from 1.
    pub port: u8,
    /// Which of the port's addresses.
    pub gid: GidChoice,
    /// Traffic class of the packets, of which RoCE v2's DSCP is the upper 6 bits; the system's setting for the port if
    /// left out, and 0 if there is none.
    pub traffic_class: Option<u8>,
    /// Service level of the packets; their Ethernet priority with RoCE.
    pub service_level: u8,
    /// Which of the port's partition keys: an index of `/sys/class/infiniband/DEVICE/ports/PORT/pkeys`.
    pub partition_key_index: u16,
    /// Local identifier of the router to other InfiniBand subnets, as `ibrouters` shows it.
    pub router_lid: Option<u16>,
}

impl Mlx5Options {
    /// Port 1 of this device, and the rest chosen.
    pub fn new(device: impl Into<String>) -> Self {
        Self {
            device: device.into(),
            port: 1,
            gid: GidChoice::default(),
            traffic_class: None,
            service_level: 0,
            partition_key_index: 0,
            router_lid: None,
        }
    }
}

/// An open card.
pub(crate) struct Mlx5 {
    context: Arc<Context>,
    capabilities: HcaCapabilities,
    more_capabilities: HcaCapabilities2,
    /// The clock of queue pairs' timestamps.
    clock: TimestampFormat,
    /// Whether it has compare-and-swap and fetch-and-add of 8 bytes.
    atomics: bool,
    event_queue: u32,
    port: Port,
    objects: Mutex<Objects>,
    /// To which all queue pairs are bound, where the card has one. Ended with the device.
    counters: Option<CounterSet>,
    /// Of all queues, where the card has such.
    events: Option<Events>,
    /// For address handles. Ended with the device.
    own_domain: Option<Domain>,
}

/// What was made, by the numbers that users know.
#[derive(Default)]
struct Objects {
    domains: HashMap<u32, (Arc<Domain>, u32)>,
    /// By local key.
    regions: HashMap<u32, Region>,
    /// By queue pair. None where parts would not be destroyed, or made again: the card may still use the memory.
    queues: HashMap<u32, Option<Made>>,
    /// Those that many send queues have in common, by number.
    completion_queues: HashMap<u32, Made>,
}

impl Mlx5 {
    /// Opens a card.
    pub fn open(options: &Mlx5Options) -> Result<Self, Error> {
        let context = Context::open(&options.device)?;
        let capabilities = context.capabilities()?;
        let lacks = |what, remedy| Mlx5Error::Lacks {
            name: options.device.clone(),
            what,
            remedy,
        };
        if !capabilities.rc {
            return Err(lacks("reliable connections", "choose another device").into());
        }
        if capabilities.cqe_version != 1 {
            return Err(lacks("CQEs of version 1", "update its firmware").into());
        }
        // Rings of sends have no consumer index.
        if !capabilities.cq_oi {
            let what = "completion queues that ignore overruns";
            return Err(lacks(what, "update its firmware").into());
        }
        let atomics = match capabilities.atomic {
            true => Some(context.atomic_capabilities()?),
            false => None,
        };
        // Linux asks for the host's order where the card has it (`handle_hca_cap_atomic`). In the other one each atomic
        // would fetch a wrong number, and nothing would say so.
        if atomics.is_some_and(|atomics| atomics.atomic_req_8B_endianness_mode != HOST_ORDER) {
            let what = "atomics in the host's byte order";
            let remedy = "load Linux's driver mlx5_core for it, or update its firmware";
            return Err(lacks(what, remedy).into());
        }
        let more_capabilities = match capabilities.hca_cap_2 {
            true => context.more_capabilities()?,
            false => HcaCapabilities2::default(),
        };
        // With RoCE it has a capability of its own, as in Linux (`mlx5_get_qp_default_ts`).
        let clocks = match capabilities.roce {
            true => context.roce_capabilities()?.qp_ts_format,
            false => capabilities.sq_ts_format,
        };
        let event_queue = context.event_queue()?;
        let port = Port::open(&context, options, Reads::of(&capabilities))?;
        let own_domain = Some(Domain::allocate(&context)?);
        Ok(Self {
            counters: CounterSet::allocate(&context, &capabilities),
            events: Events::open(&context),
            context,
            capabilities,
            more_capabilities,
            clock: clock(clocks),
            atomics: atomics.is_some_and(|atomics| has_atomics(&atomics)),
            event_queue,
            port,
            objects: Mutex::default(),
            own_domain,
        })
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a queue pair without a record rings on this page.
    fn rings_without_record(&self, page: u32) -> bool {
        let objects = self.objects();
        let mut made = objects.queues.values().flatten();
        made.any(|made| made.rings_without_record(page))
    }

    /// A domain, and its number at the card.
    fn domain(&self, number: u32) -> (Arc<Domain>, u32) {
        let objects = self.objects();
        let found = objects.domains.get(&number);
        found
            .cloned()
            .expect("a domain outlives the objects made in it")
    }

    /// Works with the queues of a queue pair.
    fn with_queues<R>(
        &self,
        queues: Queues,
        work: impl FnOnce(&Made) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let objects = self.objects();
        let made = objects.queues.get(&queues.qpn).and_then(Option::as_ref);
        work(made.ok_or(Mlx5Error::Gone { qpn: queues.qpn })?)
    }
}

/// `MLX5_ATOMIC_REQ_MODE_HOST_ENDIANNESS`.
const HOST_ORDER: u8 = 1;

/// Whether a card has the atomics that kernels post: compare-and-swap and fetch-and-add, of 8 bytes.
fn has_atomics(found: &AtomicCapabilities) -> bool {
    const OPERATIONS: u16 = 0b11;
    const BYTES: u16 = 8;
    found.atomic_operations & OPERATIONS == OPERATIONS && found.atomic_size_qp & BYTES != 0
}

/// The clock that Linux takes where nobody asks for timestamps.
fn clock(clocks: TimestampFormats) -> TimestampFormat {
    match clocks {
        TimestampFormats::FREE_RUNNING => TimestampFormat::FREE_RUNNING,
        _ => TimestampFormat::DEFAULT,
    }
}

/// Memory for who registers it: for the card, or for others that tell it.
fn memory_of(area: Area) -> Result<Memory, GpuError> {
    let address = area.start.as_ptr().expose_provenance() as u64;
    if let Placement::Gpu(gpu) = area.placement {
        gpu.synchronise_copies(address)?;
    }
    let dmabuf = match area.placement {
        Placement::Gpu(gpu) => Some(match gpu.dmabuf(address, area.len) {
            Ok((file, offset)) => Ok(Dmabuf { file, offset }),
            Err(error) => Err(error.to_string()),
        }),
        _ => None,
    };
    Ok(Memory {
        address,
        bytes: area.len as u64,
        dmabuf,
    })
}

impl Provider for Mlx5 {
    fn limits(&self) -> Limits {
        let card = &self.capabilities;
        let segments = u32::from(card.max_wqe_sz_rq) / 16;
        Limits {
            // The index of a WQE has 16 bits, of which half may be under way.
            max_depth: 1 << card.log_max_qp_sz.min(15),
            max_completion_depth: 1 << card.log_max_cq_sz.min(22),
            // The stride's logarithm has 3 bits.
            max_receive_segments: 1 << segments.checked_ilog2().unwrap_or(0).min(7),
            max_message: 1 << card.log_max_msg.min(30),
            without_record: self.more_capabilities.send_dbr_mode_no_dbr_ext,
            cross_channel: card.cd,
        }
    }

    fn gid(&self) -> Gid {
        self.port.gid()
    }

    fn card_port(&self) -> Option<CardPort> {
        Some(self.port.card_port())
    }

    fn reaches(&self, _: Placement) -> bool {
        true
    }

    fn fence_reach(&self) -> FenceReach {
        FenceReach::System
    }

    fn reader(&self) -> Reader {
        Reader::Card
    }

    /// In host memory, where nobody rings: the card has registers of its own.
    fn registers(&self, _: Placement) -> Placement {
        Placement::Host
    }

    fn allocate_domain(&self) -> Result<u32, Error> {
        let domain = Domain::allocate(&self.context)?;
        let at_card = domain.number()?;
        let number = fresh_number();
        let domain = (Arc::new(domain), at_card);
        self.objects().domains.insert(number, domain);
        Ok(number)
    }

    fn free_domain(&self, domain: u32) {
        let Some((domain, _)) = self.objects().domains.remove(&domain) else {
            return;
        };
        let Some(domain) = Arc::into_inner(domain) else {
            return;
        };
        if let Err(error) = domain.end() {
            tracing::error!(%error, "a protection domain stays");
        }
    }

    unsafe fn register(&self, domain: u32, area: Area, access: Access) -> Result<Keys, Error> {
        let (domain, _) = self.domain(domain);
        // SAFETY: the caller's promise is passed on unchanged. Both have the bits of `ibv_access_flags`.
        let region = unsafe { domain.register(&memory_of(area)?, access.bits())? };
        let (lkey, rkey) = region.keys();
        self.objects().regions.insert(lkey, region);
        Ok(Keys { lkey, rkey })
    }

    fn deregister(&self, keys: Keys) -> Result<(), Error> {
        const STEP: &str = "deregister memory";
        let region = self.objects().regions.remove(&keys.lkey);
        let region = region.expect("a region is there until it is deregistered");
        region.end().map_err(|source| {
            Error::from(Mlx5Error::System {
                step: STEP,
                remedy: error::remedy(&source),
                source,
            })
        })
    }

    unsafe fn create_completion_queue(
        &self,
        completions: CheckedCompletions,
        at: &CommonAddresses,
    ) -> Result<u32, Error> {
        // SAFETY: the caller's promise is passed on unchanged.
        let made = unsafe { Made::create_common(self, completions, at)? };
        let cqn = made.send_cqn();
        self.objects().completion_queues.insert(cqn, made);
        Ok(cqn)
    }

    fn destroy_completion_queue(&self, cqn: u32) -> Result<(), Error> {
        let made = self.objects().completion_queues.remove(&cqn);
        let made = made.expect("a completion queue is there until it is destroyed");
        Ok(made.destroy()?)
    }

    unsafe fn create(
        &self,
        domain: u32,
        config: &Checked,
        addresses: &QueueAddresses,
    ) -> Result<Queues, Error> {
        if config.access.contains(Access::REMOTE_ATOMIC) && !self.atomics {
            return Err(Mlx5Error::Lacks {
                name: self.context.name().into(),
                what: "atomics of 8 bytes",
                remedy: "leave `Access::REMOTE_ATOMIC` out, or choose another device",
            }
            .into());
        }
        let (_, domain) = self.domain(domain);
        // SAFETY: the caller's promise is passed on unchanged.
        let made = unsafe { Made::create(self, domain, config, addresses)? };
        let queues = made.queues();
        self.objects().queues.insert(queues.qpn, Some(made));
        Ok(queues)
    }

    unsafe fn renew(
        &self,
        queues: Queues,
        domain: u32,
        config: &Checked,
        addresses: &QueueAddresses,
        clear: &mut dyn FnMut(),
    ) -> Result<Queues, Error> {
        self.destroy(queues)?;
        clear();
        // SAFETY: the caller's promise is passed on unchanged.
        let made = unsafe { self.create(domain, config, addresses) };
        made.inspect_err(|error| {
            if error.is_uncertain() {
                self.objects().queues.insert(queues.qpn, None);
            }
        })
    }

    fn destroy(&self, queues: Queues) -> Result<(), Error> {
        let qpn = queues.qpn;
        let mut objects = self.objects();
        let Some(made) = objects.queues.get_mut(&qpn) else {
            // A reset destroyed them and could not make them again.
            return Ok(());
        };
        // Until all is destroyed, nobody may free the memory.
        made.take().ok_or(Mlx5Error::Gone { qpn })?.destroy()?;
        objects.queues.remove(&qpn);
        Ok(())
    }

    fn modify(&self, queues: Queues, step: &Step) -> Result<(), Error> {
        let way = match step {
            Step::ReadyToReceive { remote, .. } => {
                let domain = self.own_domain.as_ref();
                let domain = domain.expect("there until the device is closed");
                Some(self.port.way(domain, queues.qpn, remote)?)
            }
            _ => None,
        };
        self.with_queues(queues, |made| Ok(made.modify(self, step, way)?))
    }

    fn state(&self, queues: Queues) -> Result<State, Error> {
        let state = self.with_queues(queues, |made| Ok(made.state()?))?;
        Ok(match state {
            QpState::RST => State::Reset,
            QpState::INIT => State::Init,
            QpState::RTR => State::ReadyToReceive,
            QpState::RTS => State::ReadyToSend,
            // Errors, and states that nothing here brings a queue pair to.
            _ => State::Error,
        })
    }

    /// None: a card tells errors in CQEs alone.
    fn first_error(&self, _: Queues) -> Result<Option<NicError>, Error> {
        Ok(None)
    }

    fn counters(&self) -> Result<Option<CardCounters>, Error> {
        let counters = self.counters.as_ref().map(CounterSet::read);
        Ok(counters.transpose()?)
    }

    fn card_events(&self) -> Result<Vec<CardEvent>, Error> {
        let events = self.events.as_ref().map(Events::read);
        Ok(events.transpose()?.unwrap_or_default())
    }

    #[cfg(feature = "soft")]
    fn hca(&self) -> Option<&SoftHca> {
        None
    }
}

impl Drop for Mlx5 {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.counters.take().map(CounterSet::end) {
            tracing::error!(%error, "a set of counters stays");
        }
        if let Some(Err(error)) = self.own_domain.take().map(Domain::end) {
            tracing::error!(%error, "a protection domain stays");
        }
    }
}
