//! Queue pairs: made, taken through their states, connected, reset.
//!
//! ```
//! use warpbell_host_init::{Node, QueuePairConfig};
//!
//! let [near, far] = Node::cpu().ends()?;
//! let (ours, _theirs) = near.connected(&far, &QueuePairConfig::default())?;
//! println!("advised: {}", ours.advised_batch());
//! assert!(ours.first_error().is_none());
//! # Ok::<(), warpbell_host_init::Error>(())
//! ```

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use warpbell::{
    CompletionKind, CompletionParts, DoorbellPage, Processor, Progress, QueueError, ReceiveParts,
    ReceiveQueueHandle, SendParts, SendQueueHandle,
};

use crate::completion_queue::CommonRing;
use crate::config::{Checked, CheckedCompletions, CheckedReceive};
use crate::device::{Queues, Step};
use crate::live::{Entry, Listing};
use crate::one_path::{Taken, Written};
use crate::queue_memory::QueueMemory;
use crate::state::{Endpoint, NicError};
use crate::{Device, Error, MemoryRegion, ProtectionDomain, QueuePairConfig, State};

pub use crate::batching::Batching;
pub use crate::outstanding::{AwaitedReceive, Outstanding};

/// Largest queue pair number and packet sequence number.
const MAX_24_BITS: u32 = (1 << 24) - 1;

/// A reliable connection's end: a send queue, perhaps a receive queue, and the
/// completion queue of each.
///
/// ```
/// use warpbell::Exclusive;
/// use warpbell_host_init::{Node, QueuePairConfig, State};
///
/// let [near, far] = Node::cpu().ends()?;
/// let (mut ours, _theirs) = near.connected(&far, &QueuePairConfig::default())?;
/// let queue = ours.send_queue()?; // for a kernel
/// assert!(queue.open::<Exclusive>().is_ok());
/// ours.reset()?;
/// assert_eq!(ours.state()?, State::Reset);
/// # Ok::<(), warpbell_host_init::Error>(())
/// ```
pub struct QueuePair {
    domain: ProtectionDomain,
    config: Checked,
    queues: Queues,
    /// Sequence number of the first packet, new for each connection.
    psn: u32,
    /// The other end, from RTR on.
    remote: Option<Endpoint>,
    /// Freed only after the device has let go of it.
    memory: ManuallyDrop<QueueMemory>,
    /// How other processes find the queues. Taken away before the memory is freed.
    listed: Option<Entry>,
    _path: Option<Taken>,
    /// The completion queue that its send queue has in common with others. Dropped after the queue pair is destroyed.
    common: Option<Arc<CommonRing>>,
}

impl QueuePair {
    pub(crate) fn new(domain: &ProtectionDomain, config: &QueuePairConfig) -> Result<Self, Error> {
        let config = config.check(&domain.device().limits(), domain.placement())?;
        Self::of_checked(domain, config, None)
    }

    /// Makes one, perhaps over a completion queue that it has in common with others.
    pub(crate) fn of_checked(
        domain: &ProtectionDomain,
        config: Checked,
        common: Option<Arc<CommonRing>>,
    ) -> Result<Self, Error> {
        let config = Checked {
            common_cqn: common.as_ref().map(|ring| ring.cqn()),
            ..config
        };
        let device = domain.device();
        device.require_reach("a queue pair", config.placement)?;
        device.require_reach("a completion queue", config.completion_placement)?;
        let by_gpu = config.state_placement.processor() != Processor::CPU;
        let in_host = by_gpu && config.completion_placement.is_host();
        let path = domain.take(in_host.then_some(Written::CompletionsInHost))?;
        let memory = QueueMemory::new(&config, domain.provider().registers(config.placement))?;
        // SAFETY: the memory is fresh, and lives until `destroy` has succeeded, or for ever if the
        // device may still make the queue pair.
        let made = unsafe {
            domain
                .provider()
                .create(domain.number(), &config, &memory.addresses())
        };
        let queues = match made {
            Ok(queues) => queues,
            Err(error) => {
                if error.is_uncertain() {
                    tracing::error!(%error, "the memory of a queue pair is leaked");
                    memory.leak();
                }
                return Err(error);
            }
        };
        let memory = ManuallyDrop::new(memory);
        let mut pair = Self {
            domain: domain.clone(),
            config,
            queues,
            psn: fresh_psn(),
            remote: None,
            memory,
            listed: None,
            _path: path,
            common,
        };
        pair.listed = Some(Entry::new(pair.listing()));
        Ok(pair)
    }

    /// What other processes may know of it.
    fn listing(&self) -> Listing<'_> {
        Listing {
            qpn: self.queues.qpn,
            send_cqn: self.queues.send_cqn,
            gid: self.device().gid(),
            counters: self.domain.provider().counters_address(self.queues),
            remote: self.remote.as_ref(),
            memory: &self.memory,
            config: &self.config,
        }
    }

    fn list_again(&self) {
        if let Some(listed) = &self.listed {
            listed.renew(self.listing());
        }
    }

    /// Its number at the device; [`reset`](Self::reset) gives it a new one.
    pub fn qpn(&self) -> u32 {
        self.queues.qpn
    }

    /// The number of the send queue's completion queue at its device, for [`Wqe::wait`](warpbell::wqe::Wqe::wait);
    /// [`reset`](Self::reset) gives it a new one.
    pub fn send_cqn(&self) -> u32 {
        self.queues.send_cqn
    }

    /// The domain that it belongs to.
    pub fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// The device that it belongs to.
    pub fn device(&self) -> &Device {
        self.domain.device()
    }

    /// The state that it is in now. An error may change it at any time.
    ///
    /// # Errors
    /// [`Error::Soft`] if the device has stopped.
    pub fn state(&self) -> Result<State, Error> {
        self.domain.provider().state(self.queues)
    }

    /// What the other end needs to connect to this one. It is valid until the
    /// next [`reset`](Self::reset).
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            gid: self.device().gid(),
            qpn: self.qpn(),
            psn: self.psn,
            card: self.domain.provider().card_port(),
        }
    }

    /// RESET → INIT: receives may be posted from now on.
    ///
    /// # Errors
    /// [`Error::WrongState`] from any other state.
    pub fn to_init(&mut self) -> Result<(), Error> {
        self.step(&Step::Init {
            access: self.config.access,
        })
    }

    /// INIT → RTR: answers the requests of that other end from now on.
    ///
    /// # Errors
    /// [`Error::WrongState`] from any other state; [`Error::BadEndpoint`] if a
    /// number of `remote` cannot be; [`Error::Unreachable`] if no wire leads to
    /// its device.
    pub fn to_ready_to_receive(&mut self, remote: &Endpoint) -> Result<(), Error> {
        for (what, value) in [
            ("queue pair number", remote.qpn),
            ("sequence number", remote.psn),
        ] {
            if value > MAX_24_BITS {
                return Err(Error::BadEndpoint {
                    what,
                    value: u64::from(value),
                });
            }
        }
        self.step(&Step::ReadyToReceive {
            remote: *remote,
            config: self.config,
        })?;
        self.remote = Some(*remote);
        self.list_again();
        Ok(())
    }

    /// RTR → RTS: executes the requests that are posted from now on.
    ///
    /// # Errors
    /// [`Error::WrongState`] from any other state.
    pub fn to_ready_to_send(&mut self) -> Result<(), Error> {
        let Some(remote) = self.remote else {
            return Err(Error::WrongState {
                qpn: self.qpn(),
                from: self.state()?,
                to: State::ReadyToSend,
            });
        };
        self.step(&Step::ReadyToSend {
            psn: self.psn,
            remote,
            config: self.config,
        })
    }

    /// Any state but RESET → ERROR: every work request is flushed.
    ///
    /// # Errors
    /// [`Error::WrongState`] from RESET.
    pub fn to_error(&mut self) -> Result<(), Error> {
        self.step(&Step::Error)
    }

    /// All steps up to RTS, from RESET or INIT. The other end does the same with
    /// this end's [`endpoint`](Self::endpoint).
    ///
    /// # Errors
    /// Those of the single steps; the steps before the failing one hold.
    pub fn connect(&mut self, remote: &Endpoint) -> Result<(), Error> {
        if self.state()? != State::Init {
            self.to_init()?;
        }
        self.to_ready_to_receive(remote)?;
        self.to_ready_to_send()
    }

    /// Any state → RESET, as new: queues, completion queues and device-side state
    /// are empty, and the first error is forgotten. Requests under way complete no
    /// more. Number and [`endpoint`](Self::endpoint) are new as well, so that late
    /// packets of the old connection find nobody.
    ///
    /// The borrow checker makes sure that no handle is left. A kernel that was
    /// launched with one must have ended.
    ///
    /// # Errors
    /// [`Error::CommonReset`] if others have the same completion queue; [`Error::Soft`] if the device has stopped; [`Error::Gpu`] if the GPU is lost.
    pub fn reset(&mut self) -> Result<(), Error> {
        if self.common.is_some() {
            return Err(Error::CommonReset { qpn: self.qpn() });
        }
        let (domain, addresses) = (&self.domain, self.memory.addresses());
        let memory = &mut *self.memory;
        let mut cleared = Ok(());
        // SAFETY: the memory is as fresh once it is cleared, and lives until
        // `destroy` has succeeded.
        self.queues = unsafe {
            domain.provider().renew(
                self.queues,
                domain.number(),
                &self.config,
                &addresses,
                &mut || cleared = memory.clear(),
            )?
        };
        self.psn = fresh_psn();
        self.remote = None;
        self.list_again();
        cleared
    }

    fn step(&mut self, step: &Step) -> Result<(), Error> {
        let from = self.state()?;
        let to = step.target();
        let legal = matches!(
            (from, to),
            (State::Reset, State::Init)
                | (State::Init, State::ReadyToReceive)
                | (State::ReadyToReceive, State::ReadyToSend)
        ) || (to == State::Error && from != State::Reset);
        if !legal {
            return Err(Error::WrongState {
                qpn: self.qpn(),
                from,
                to,
            });
        }
        self.domain.provider().modify(self.queues, step)
    }

    /// The send queue, for a kernel. It borrows the queue pair, which therefore
    /// outlives it and is not reset under it.
    ///
    /// # Errors
    /// [`Error::NotReady`] unless the queue pair is in RTS; [`Error::Managed`] of one that others start.
    pub fn send_queue(&self) -> Result<SendQueueHandle<'_>, Error> {
        match self.config.managed_send {
            true => Err(Error::Managed { qpn: self.qpn() }),
            false => self.held_queue(),
        }
    }

    /// The send queue, also of a managed queue pair, which others start: for code that stores WQEs there and leaves it
    /// to them to send these. What is posted to a managed queue waits for its starter.
    ///
    /// # Errors
    /// [`Error::NotReady`] unless the queue pair is in RTS.
    pub fn held_queue(&self) -> Result<SendQueueHandle<'_>, Error> {
        self.require(&[State::ReadyToSend], "send", State::ReadyToSend)?;
        // SAFETY: all pointers lead into `memory`, whose layout made room for the
        // depths of `config`; it lives, and is not cleared, as long as `self` is
        // borrowed. A register of the device's own stays mapped until `destroy`. Each queue
        // has a completion queue of its own, or an entry that a common one's readers fill, and an
        // ordinary one is at least as deep (checked with the configuration). The device made the queue pair with that kind of
        // doorbell. Where fences reach no further than the GPU,
        // the device refuses all memory but that GPU's. The queue's state lies where its kernels run, for which
        // every handle is.
        Ok(unsafe {
            SendQueueHandle::new(self.send_parts()).on(self.config.state_placement.processor())
        })
    }

    /// Where the parts of the send queue lie, for kernels of another library. `docs/abi.md` says what such kernels
    /// need.
    ///
    /// The addresses are good until the queue pair is reset or dropped. To use the parts is `unsafe`, as with all raw
    /// pointers, and other kernels may use none of a handle of the same queue pair.
    pub fn send_parts(&self) -> SendParts {
        SendParts {
            ring: self.memory.send_ring(),
            // Word 1 of the doorbell record.
            record: self.memory.record().wrapping_add(1),
            doorbell: match self.queues.doorbell {
                Some((register, _)) => std::ptr::with_exposed_provenance(register as usize),
                None => self.memory.doorbell(),
            },
            doorbell_page: match self.queues.doorbell {
                Some((_, page)) => page,
                None => DoorbellPage::Memory,
            },
            completions: parts(self.memory.send_completions(), self.config.send_completions),
            state: self.memory.send_state(),
            qpn: self.qpn(),
            max_message: self.config.max_message,
            depth_log2: self.config.send_depth_log2,
            reach: self.domain.provider().fence_reach(),
            send_doorbell: self.config.send_doorbell,
        }
    }

    /// The receive queue, for a kernel; as [`send_queue`](Self::send_queue).
    ///
    /// Receives may be posted before the other end is known, from INIT on.
    ///
    /// # Errors
    /// [`Error::NoReceiveQueue`] if the queue pair was made without one;
    /// [`Error::NotReady`] in RESET and ERROR.
    pub fn receive_queue(&self) -> Result<ReceiveQueueHandle<'_>, Error> {
        let receive = self
            .config
            .receive
            .ok_or(Error::NoReceiveQueue { qpn: self.qpn() })?;
        let able = [State::Init, State::ReadyToReceive, State::ReadyToSend];
        self.require(&able, "receive", State::Init)?;
        // SAFETY: as in `send_queue`.
        Ok(unsafe {
            ReceiveQueueHandle::new(self.receive_parts_of(receive))
                .on(self.config.state_placement.processor())
        })
    }

    /// Where the parts of the receive queue lie, if there is one; as [`send_parts`](Self::send_parts).
    pub fn receive_parts(&self) -> Option<ReceiveParts> {
        Some(self.receive_parts_of(self.config.receive?))
    }

    fn receive_parts_of(&self, receive: CheckedReceive) -> ReceiveParts {
        ReceiveParts {
            ring: self.memory.receive_ring(),
            record: self.memory.record(),
            completions: parts(self.memory.receive_completions(), receive.completions),
            state: self.memory.receive_state(),
            qpn: self.qpn(),
            max_message: self.config.max_message,
            depth_log2: receive.depth_log2,
            stride_log2: receive.stride_log2,
            reach: self.domain.provider().fence_reach(),
        }
    }

    fn require(&self, able: &[State], queue: &'static str, needed: State) -> Result<(), Error> {
        let state = self.state()?;
        if able.contains(&state) {
            return Ok(());
        }
        Err(Error::NotReady {
            qpn: self.qpn(),
            state,
            queue,
            needed,
        })
    }

    /// How it was made.
    pub(crate) fn config(&self) -> &Checked {
        &self.config
    }

    /// Whether its send queue's CQEs go to that ring.
    pub(crate) fn is_over(&self, ring: &Arc<CommonRing>) -> bool {
        let own = self.common.as_ref();
        own.is_some_and(|own| Arc::ptr_eq(own, ring))
    }

    /// Bytes that its completion queues take, without one that it has in common with others.
    pub fn completion_bytes(&self) -> usize {
        self.memory.completion_bytes()
    }

    /// Where its queues lie.
    pub(crate) fn memory(&self) -> &QueueMemory {
        &self.memory
    }

    /// The device's own doorbell register, if it has one, and its kind of page.
    pub(crate) fn send_register(&self) -> Option<(u64, DoorbellPage)> {
        self.queues.doorbell
    }

    /// Refuses memory of another protection domain, whose keys this queue pair's
    /// work requests could not use.
    ///
    /// # Errors
    /// [`Error::ForeignDomain`] if it is.
    pub fn check(&self, region: &MemoryRegion) -> Result<(), Error> {
        if region.domain().is(&self.domain) {
            return Ok(());
        }
        let (region, queue_pair) = (region.domain().number(), self.domain.number());
        Err(Error::ForeignDomain { region, queue_pair })
    }

    /// The first error that a kernel saw in one of the two queues, the send queue
    /// first; its `Display` says it in words. It can be read at any time, while a
    /// kernel runs too. None as well if the state lies on a GPU that is lost.
    pub fn first_error(&self) -> Option<QueueError> {
        let [send, receive] = self.memory.states();
        send.first_error().or_else(|| receive.first_error())
    }

    /// The first error as the device saw it, whether or not a kernel polls; the
    /// end that refused a request learns of it here, because no completion says so.
    /// None of a card, which tells of errors in completions alone.
    ///
    /// # Errors
    /// [`Error::Soft`] if the device has stopped.
    pub fn nic_error(&self) -> Result<Option<NicError>, Error> {
        self.domain.provider().first_error(self.queues)
    }

    /// How far the send queue has come, for a watchdog.
    pub fn send_progress(&self) -> Progress {
        self.memory.states()[0].progress()
    }

    /// A number that changes with all that is posted and completed, for a watchdog. It
    /// is read from the doorbell records, of a queue without one from its ring, and from the
    /// CQEs, at any time.
    pub(crate) fn mark(&self) -> Option<u64> {
        self.memory.mark()
    }

    /// The oldest request of the send queue whose completion the kernel has not
    /// been told, if there is one: what a kernel that hangs may be waiting for. It
    /// is read from the doorbell record and the CQEs, at any time; without a record
    /// from the WQEs in the ring, so that one counts as posted that no doorbell told of.
    pub fn outstanding(&self) -> Option<Outstanding> {
        let ring = self.memory.sends(self.qpn())?;
        ring.outstanding(self.qpn())
    }

    /// The receive that waits for the next message, if one is posted: read as
    /// [`outstanding`](Self::outstanding) is.
    pub fn awaited_receive(&self) -> Option<AwaitedReceive> {
        self.memory.awaited_receive(self.qpn())
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        self.listed = None;
        // SAFETY: taken once, here.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        if let Err(error) = self.domain.provider().destroy(self.queues) {
            tracing::error!(qpn = self.qpn(), %error, "the memory of a queue pair is leaked");
            memory.leak();
            std::mem::forget(self.common.take());
        }
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("queues", &self.queues)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Connects two queue pairs of this process, of one device or of two: both go
/// from RESET (or INIT) to RTS.
///
/// # Errors
/// [`Error::WrongState`] if one of them is further already; then neither has
/// changed.
///
/// ```
/// use warpbell_host_init::{Node, QueuePairConfig, State, connect};
///
/// let [near, far] = Node::cpu().ends()?;
/// let config = QueuePairConfig::default();
/// let (mut one, mut other) = (near.queue_pair(&config)?, far.queue_pair(&config)?);
/// connect(&mut one, &mut other)?;
/// assert_eq!(one.state()?, State::ReadyToSend);
/// # Ok::<(), warpbell_host_init::Error>(())
/// ```
pub fn connect(one: &mut QueuePair, other: &mut QueuePair) -> Result<(), Error> {
    for end in [&*one, &*other] {
        let from = end.state()?;
        if !matches!(from, State::Reset | State::Init) {
            return Err(Error::WrongState {
                qpn: end.qpn(),
                from,
                to: State::Init,
            });
        }
    }
    one.device().link(other.device())?;
    let (first, second) = (one.endpoint(), other.endpoint());
    one.connect(&second)?;
    other.connect(&first)
}

fn parts(
    (ring, record): (*const warpbell::CompletionSlot, *const warpbell::Word32),
    completions: CheckedCompletions,
) -> CompletionParts {
    let kind = match completions.collapsed {
        true => CompletionKind::Collapsed,
        false => CompletionKind::Ordinary,
    };
    CompletionParts {
        ring,
        record,
        depth_log2: completions.depth_log2,
        kind,
    }
}

/// A random sequence number, so that packets of an old connection stand out.
fn fresh_psn() -> u32 {
    RandomState::new().hash_one("psn") as u32 & MAX_24_BITS
}
