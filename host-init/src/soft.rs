//! Software HCAs: the commands to an engine, and the provider `soft`, an engine in this process.
//!
//! ```
//! use warpbell_host_init::soft::{Drive, SoftOptions};
//! use warpbell_host_init::{Device, Nic};
//!
//! // A NIC that stands still until the test says so.
//! let options = SoftOptions { drive: Drive::ByHand, ..SoftOptions::default() };
//! let device = Device::open(Nic::Soft(options))?;
//! let hca = device.soft_hca().expect("a software HCA");
//! hca.step().expect("a step");
//! # Ok::<(), warpbell_host_init::Error>(())
//! ```

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mlx5_wqe::{CqNumber, LocalKey, QpNumber};
use warpbell::{FenceReach, SendDoorbell};
use warpbell_soft_hca::engine::packet::Range;
use warpbell_soft_hca::engine::{
    self, Command, CompletionQueueAttributes, CrossChannel, QueuePairAttributes, QueuePairState,
    QueuePairStatus, ReceiveRing, Reply, Transition, WireAddress, WrongReply, command,
};
use warpbell_soft_hca::shell::{
    Driver, HcaError, HcaOptions, HostEngine, Peers, SharedLink, SoftHca, accept, gid, offer,
};

use crate::batching::Reader;
use crate::completion_queue::CommonAddresses;
use crate::config::{Checked, CheckedCompletions};
use crate::device::{Provider, Queues, Step};
use crate::domain::fresh_number;
use crate::memory::Keys;
use crate::peer::Role;
use crate::placement::Area;
use crate::queue_memory::QueueAddresses;
use crate::state::{Endpoint, ErrorPlace, Gid, NicError};
use crate::{Access, Error, Limits, Placement, State};

pub use crate::soft_gpu::{ENGINE_THREADS, EngineLanes, SoftGpuOptions};

/// How a software HCA is opened.
#[derive(Clone, Debug, Default)]
pub struct SoftOptions {
    /// Who makes it run.
    pub drive: Drive,
    /// Its tables, its address, and faults on purpose.
    pub hca: HcaOptions,
    /// Whether the HCAs of this user's other processes reach it by its GID, and it reaches theirs by
    /// connecting to it: others of this library, and the devices that `warpbell-preload` shows to programs.
    /// It then has an address that no other one of them has, whatever `hca` says.
    pub reachable: bool,
}

/// Who makes a software HCA run.
#[derive(Clone, Debug, Default)]
pub enum Drive {
    /// A thread of its own.
    #[default]
    Thread,
    /// A thread that several devices share.
    Shared(Arc<Driver>),
    /// Nobody but the user, who calls
    /// [`Device::soft_hca`](crate::Device::soft_hca) and
    /// [`step`](warpbell_soft_hca::shell::SoftHca::step).
    ByHand,
}

/// Where a software HCA's engine runs, and the way to it.
pub(crate) trait Seat: Send + Sync {
    /// Its address on its wires.
    fn address(&self) -> WireAddress;

    /// Largest payload of a packet to that HCA, in bytes; none if no wire leads there, and none can be made.
    fn path_mtu(&self, peer: WireAddress) -> Result<Option<u32>, HcaError>;

    /// Whether the engine reads and writes memory that lies there.
    fn reaches(&self, placement: Placement) -> bool;

    /// How far the fences of those who use its queues must reach.
    fn fence_reach(&self) -> FenceReach;

    /// Who reads the rings.
    fn reader(&self) -> Reader;

    /// Where the doorbell registers of queues lie that lie there.
    fn registers(&self, queues: Placement) -> Placement {
        queues
    }

    /// Lets `work` give commands, with nobody else's in between.
    fn with_engine<R>(
        &self,
        work: impl FnOnce(&mut Commands<'_>) -> Result<R, HcaError>,
    ) -> Result<R, HcaError>;

    /// The HCA, if it is one of this process.
    fn hca(&self) -> Option<&SoftHca>;
}

/// Makes a wire in shared memory to an HCA of another process, which is at the other end of this socket.
fn link_over(
    hca: &SoftHca,
    socket: &UnixStream,
    theirs: WireAddress,
    role: Role,
    timeout: Duration,
) -> Result<(), HcaError> {
    let ours = hca.address();
    if ours == theirs {
        let (own, peer) = (ours.0, theirs.0);
        return Err(HcaError::LinkedAlready { own, peer });
    }
    let link: SharedLink = match role {
        Role::Listener => offer(socket, ours, theirs)?,
        Role::Joiner => accept(socket, ours, theirs, timeout)?,
    };
    hca.attach(link)
}

/// Gives commands to an engine.
pub(crate) struct Commands<'e>(&'e mut dyn FnMut(Command) -> Result<Reply, HcaError>);

impl<'e> Commands<'e> {
    /// Commands that go this way.
    pub fn new(way: &'e mut dyn FnMut(Command) -> Result<Reply, HcaError>) -> Self {
        Self(way)
    }

    /// Gives a command that names no memory.
    fn give<R>(&mut self, command: Command) -> Result<R, HcaError>
    where
        R: TryFrom<Reply, Error = WrongReply>,
    {
        assert!(!command.names_memory(), "given by `give_memory`");
        Ok(R::try_from((self.0)(command)?)?)
    }

    /// Gives a command that names memory.
    ///
    /// # Safety
    /// The memory is as the engine's method of the command's name wants it.
    unsafe fn give_memory<R>(&mut self, command: Command) -> Result<R, HcaError>
    where
        R: TryFrom<Reply, Error = WrongReply>,
    {
        Ok(R::try_from((self.0)(command)?)?)
    }
}

/// A software HCA in this process, and who drives it.
pub(crate) struct InProcess {
    hca: Arc<SoftHca>,
    /// The way to and from other processes, if there is one.
    peers: Option<Arc<Peers>>,
    /// Keeps the thread running; declared last, so that the HCA stops before.
    _driver: Option<Arc<Driver>>,
}

impl Drop for InProcess {
    fn drop(&mut self) {
        // Who just answers another process keeps the HCA for a moment.
        self.hca.kill();
    }
}

impl Seat for InProcess {
    fn address(&self) -> WireAddress {
        self.hca.address()
    }

    fn path_mtu(&self, peer: WireAddress) -> Result<Option<u32>, HcaError> {
        if let Some(peers) = &self.peers
            && let Err(error) = peers.reach(peer)
        {
            tracing::debug!(peer = peer.0, %error, "no process has that HCA");
        }
        self.hca.path_mtu(peer)
    }

    fn reaches(&self, placement: Placement) -> bool {
        placement.is_host()
    }

    fn fence_reach(&self) -> FenceReach {
        FenceReach::System
    }

    fn reader(&self) -> Reader {
        Reader::Host
    }

    fn with_engine<R>(
        &self,
        work: impl FnOnce(&mut Commands<'_>) -> Result<R, HcaError>,
    ) -> Result<R, HcaError> {
        self.hca.command(|engine| {
            work(&mut Commands::new(&mut |command| {
                // SAFETY: who gives a command that names memory vouches for it.
                Ok(unsafe { engine.execute(command)? })
            }))
        })?
    }

    fn hca(&self) -> Option<&SoftHca> {
        Some(&self.hca)
    }
}

/// An open software HCA.
pub(crate) struct Soft<S> {
    seat: S,
    domains: Mutex<Domains>,
}

/// The engine's domains by our numbers.
type Domains = HashMap<u32, engine::ProtectionDomain>;

/// The address on the wire of a device; none if it is no software HCA.
pub(crate) fn wire_address(gid: Gid) -> Option<WireAddress> {
    gid::address(gid.0)
}

impl Soft<InProcess> {
    pub fn open(mut options: SoftOptions) -> Result<Self, Error> {
        let no_way = |error| refused("let other processes reach it")(HcaError::Peers(error));
        let mut listener = None;
        if options.reachable {
            let (address, listening) = Peers::listen().map_err(no_way)?;
            options.hca.address = Some(address);
            listener = Some(listening);
        }
        let hca = Arc::new(SoftHca::new(options.hca));
        let driver = match options.drive {
            Drive::Thread => Some(Arc::new(
                Driver::spawn().map_err(refused("start its thread"))?,
            )),
            Drive::Shared(driver) => Some(driver),
            Drive::ByHand => None,
        };
        if let Some(driver) = &driver {
            driver.drive(&hca);
        }
        let serve = |listener| Peers::serve(hca.clone(), listener);
        let peers = listener.map(serve).transpose().map_err(no_way)?;
        Ok(Self::new(InProcess {
            hca,
            peers,
            _driver: driver,
        }))
    }
}

impl<S: Seat> Soft<S> {
    pub fn new(seat: S) -> Self {
        Self {
            seat,
            domains: Mutex::default(),
        }
    }

    fn domains(&self) -> MutexGuard<'_, Domains> {
        self.domains.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn domain(&self, number: u32) -> engine::ProtectionDomain {
        *self
            .domains()
            .get(&number)
            .expect("a domain outlives the objects made in it")
    }

    /// Runs `work`, which is a step of start-up.
    fn engine<R>(
        &self,
        step: &'static str,
        work: impl FnOnce(&mut Commands<'_>) -> Result<R, HcaError>,
    ) -> Result<R, Error> {
        self.seat.with_engine(work).map_err(refused(step))
    }

    /// As `engine`, for the end of an object: an HCA that has stopped uses
    /// nothing any more.
    fn release(
        &self,
        step: &'static str,
        work: impl FnOnce(&mut Commands<'_>) -> Result<(), HcaError>,
    ) -> Result<(), Error> {
        match self.engine(step, work) {
            Err(Error::Soft {
                source: HcaError::Stopped | HcaError::Panicked(_),
                ..
            }) => Ok(()),
            result => result,
        }
    }

    fn status(&self, queues: Queues) -> Result<QueuePairStatus, Error> {
        let qp = QpNumber::from_low_bits(queues.qpn);
        self.engine("query a queue pair", |engine| {
            engine.give(Command::QueryQueuePair(qp))
        })
    }

    fn ready_to_receive(&self, remote: &Endpoint, config: &Checked) -> Result<Transition, Error> {
        let unreachable = Error::Unreachable { gid: remote.gid };
        let Some(remote_address) = wire_address(remote.gid) else {
            return Err(unreachable);
        };
        let path_mtu = self
            .seat
            .path_mtu(remote_address)
            .map_err(refused("look for a wire"))?;
        Ok(Transition::ReadyToReceive(engine::ReadyToReceive {
            remote_address,
            remote_qp: QpNumber::from_low_bits(remote.qpn),
            receive_psn: remote.psn,
            path_mtu: path_mtu.ok_or(unreachable)?,
            min_rnr_timer_ns: command::rnr_timer_ns(config.timers.rnr_timer),
        }))
    }
}

pub(crate) fn refused(step: &'static str) -> impl Fn(HcaError) -> Error {
    move |source| Error::Soft { step, source }
}

fn access_of(access: Access) -> engine::Access {
    // Both give the bits of `ibv_access_flags`.
    engine::Access::from_bits_truncate(access.bits())
}

fn completion_queue(
    ring: u64,
    record: u64,
    completions: CheckedCompletions,
) -> CompletionQueueAttributes {
    CompletionQueueAttributes {
        ring,
        log_depth: completions.depth_log2,
        record,
        uar: None,
        collapsed: completions.collapsed,
        ignore_overrun: completions.ignore_overrun,
    }
}

impl<S: Seat> Provider for Soft<S> {
    fn limits(&self) -> Limits {
        Limits {
            max_depth: 1 << command::MAX_LOG_QUEUE_DEPTH,
            max_completion_depth: 1 << command::MAX_LOG_CQ_DEPTH,
            max_receive_segments: 1 << command::MAX_LOG_RECEIVE_STRIDE,
            max_message: mlx5_wqe::decode::MAX_MESSAGE_LENGTH,
            without_record: true,
            cross_channel: true,
        }
    }

    fn gid(&self) -> Gid {
        Gid(gid::of(self.seat.address()))
    }

    fn reaches(&self, placement: Placement) -> bool {
        self.seat.reaches(placement)
    }

    fn fence_reach(&self) -> FenceReach {
        self.seat.fence_reach()
    }

    fn reader(&self) -> Reader {
        self.seat.reader()
    }

    fn registers(&self, queues: Placement) -> Placement {
        self.seat.registers(queues)
    }

    fn allocate_domain(&self) -> Result<u32, Error> {
        let domain = self.engine("make a protection domain", |engine| {
            engine.give(Command::CreateProtectionDomain)
        })?;
        let number = fresh_number();
        self.domains().insert(number, domain);
        Ok(number)
    }

    fn free_domain(&self, domain: u32) {
        let Some(domain) = self.domains().remove(&domain) else {
            return;
        };
        let freed = self.release("free a protection domain", |engine| {
            engine.give(Command::DestroyProtectionDomain(domain))
        });
        if let Err(error) = freed {
            tracing::error!(%error, "a protection domain stays");
        }
    }

    unsafe fn register(&self, domain: u32, area: Area, access: Access) -> Result<Keys, Error> {
        let register = Command::RegisterMemory {
            protection_domain: self.domain(domain),
            range: Range {
                address: area.start.as_ptr().expose_provenance() as u64,
                length: area.len as u64,
            },
            access: access_of(access),
        };
        let keys: engine::Keys = self.engine("register memory", |engine| {
            // SAFETY: the caller's promise is passed on unchanged.
            unsafe { engine.give_memory(register) }
        })?;
        Ok(Keys {
            lkey: keys.local.0,
            rkey: keys.remote.0,
        })
    }

    fn deregister(&self, keys: Keys) -> Result<(), Error> {
        self.release("deregister memory", |engine| {
            engine.give(Command::DeregisterMemory(LocalKey(keys.lkey)))
        })
    }

    unsafe fn create_completion_queue(
        &self,
        completions: CheckedCompletions,
        at: &CommonAddresses,
    ) -> Result<u32, Error> {
        let attributes = completion_queue(at.ring, at.record, completions);
        let made: CqNumber = self.engine("make a completion queue", |engine| {
            // SAFETY: the caller's promise is passed on unchanged.
            unsafe { engine.give_memory(Command::CreateCompletionQueue(attributes)) }
        })?;
        Ok(made.get())
    }

    fn destroy_completion_queue(&self, cqn: u32) -> Result<(), Error> {
        self.release("destroy a completion queue", |engine| {
            let cq = CqNumber::from_low_bits(cqn);
            engine.give(Command::DestroyCompletionQueue(cq))
        })
    }

    unsafe fn create(
        &self,
        domain: u32,
        config: &Checked,
        addresses: &QueueAddresses,
    ) -> Result<Queues, Error> {
        let domain = self.domain(domain);
        self.engine("make a queue pair", |engine| {
            // SAFETY: the caller's promise is passed on unchanged; what was made
            // before a failing step is destroyed again.
            unsafe { create(engine, domain, config, addresses) }
        })
    }

    unsafe fn renew(
        &self,
        queues: Queues,
        domain: u32,
        config: &Checked,
        addresses: &QueueAddresses,
        clear: &mut dyn FnMut(),
    ) -> Result<Queues, Error> {
        let domain = self.domain(domain);
        // In one go, so that nobody takes the freed entries in between.
        self.engine("reset a queue pair", |engine| {
            destroy(engine, queues)?;
            clear();
            // SAFETY: the caller's promise is passed on unchanged.
            unsafe { create(engine, domain, config, addresses) }
        })
    }

    fn destroy(&self, queues: Queues) -> Result<(), Error> {
        self.release("destroy a queue pair", |engine| destroy(engine, queues))
    }

    fn modify(&self, queues: Queues, step: &Step) -> Result<(), Error> {
        let transition = match step {
            Step::Init { access } => Transition::Init {
                access: access_of(*access),
            },
            Step::ReadyToReceive { remote, config } => self.ready_to_receive(remote, config)?,
            Step::ReadyToSend { psn, config, .. } => Transition::ReadyToSend(engine::ReadyToSend {
                send_psn: *psn,
                retry_count: config.timers.retry_count,
                rnr_retry: config.timers.rnr_retry,
                ack_timeout_ns: command::ack_timeout_ns(config.timers.acknowledge_timeout),
            }),
            Step::Error => Transition::Error,
        };
        self.engine("modify a queue pair", |engine| {
            let qp = QpNumber::from_low_bits(queues.qpn);
            engine.give(Command::ModifyQueuePair(qp, transition))
        })
    }

    fn state(&self, queues: Queues) -> Result<State, Error> {
        let status = self.status(queues)?;
        Ok(match status.state {
            QueuePairState::Reset => State::Reset,
            QueuePairState::Init => State::Init,
            QueuePairState::ReadyToReceive => State::ReadyToReceive,
            QueuePairState::ReadyToSend => State::ReadyToSend,
            QueuePairState::Error => State::Error,
        })
    }

    fn first_error(&self, queues: Queues) -> Result<Option<NicError>, Error> {
        Ok(self.status(queues)?.first_error.map(|error| NicError {
            syndrome: error.syndrome,
            vendor: error.vendor,
            place: match error.place {
                engine::ErrorPlace::Send(wqe) => ErrorPlace::Send(wqe),
                engine::ErrorPlace::Receive(wqe) => ErrorPlace::Receive(wqe),
                engine::ErrorPlace::CompletionQueue => ErrorPlace::CompletionQueue,
                engine::ErrorPlace::Elsewhere => ErrorPlace::Elsewhere,
            },
        }))
    }

    fn counters_address(&self, queues: Queues) -> Option<u64> {
        let qp = QpNumber::from_low_bits(queues.qpn);
        let address = |engine: &mut HostEngine<'_>| {
            let counters = ptr::from_ref(engine.counters(qp).ok()?);
            Some(counters.addr() as u64)
        };
        self.hca()?.command(address).ok()?
    }

    fn link_over(
        &self,
        socket: &UnixStream,
        theirs: Gid,
        role: Role,
        timeout: Duration,
    ) -> Result<(), Error> {
        let unreachable = || Error::Unreachable { gid: theirs };
        let hca = self.hca().ok_or_else(unreachable)?;
        let address = wire_address(theirs).ok_or_else(unreachable)?;
        let linked = link_over(hca, socket, address, role, timeout);
        linked.map_err(refused("link two processes"))
    }

    fn hca(&self) -> Option<&SoftHca> {
        self.seat.hca()
    }
}

/// Makes the completion queues and the queue pair; if one cannot be made, the ones
/// before it are destroyed again.
///
/// # Safety
/// As for [`Provider::create`].
unsafe fn create(
    engine: &mut Commands<'_>,
    protection_domain: engine::ProtectionDomain,
    config: &Checked,
    at: &QueueAddresses,
) -> Result<Queues, HcaError> {
    let mut made = Vec::new();
    // SAFETY: the caller's promise is passed on unchanged.
    let result = unsafe { create_all(engine, protection_domain, config, at, &mut made) };
    if result.is_err() {
        for cq in made {
            engine.give::<()>(Command::DestroyCompletionQueue(cq))?;
        }
    }
    result
}

/// As `create`, and notes the completion queues `made` so far.
///
/// # Safety
/// As for [`Provider::create`].
unsafe fn create_all(
    engine: &mut Commands<'_>,
    protection_domain: engine::ProtectionDomain,
    config: &Checked,
    at: &QueueAddresses,
    made: &mut Vec<CqNumber>,
) -> Result<Queues, HcaError> {
    let send_cq = match config.common_cqn {
        Some(number) => CqNumber::from_low_bits(number),
        None => {
            let (ring, record) = (at.send_completions, at.send_completion_record);
            let send = completion_queue(ring, record, config.send_completions);
            // SAFETY: the caller vouches for all memory at `at`.
            let cq = unsafe { engine.give_memory(Command::CreateCompletionQueue(send))? };
            made.push(cq);
            cq
        }
    };
    let mut receive_cq = send_cq;
    if let Some(receive) = config.receive {
        let (ring, record) = (at.receive_completions, at.receive_completion_record);
        let receive = completion_queue(ring, record, receive.completions);
        // SAFETY: as above.
        receive_cq = unsafe { engine.give_memory(Command::CreateCompletionQueue(receive))? };
        made.push(receive_cq);
    }
    let attributes = QueuePairAttributes {
        protection_domain,
        send_ring: at.send_ring,
        log_send_depth: config.send_depth_log2,
        receive: config.receive.map(|receive| ReceiveRing {
            ring: at.receive_ring,
            log_depth: receive.depth_log2,
            log_stride: receive.stride_log2,
        }),
        record: at.record,
        send_doorbell: match config.send_doorbell {
            SendDoorbell::WithRecord => engine::SendDoorbell::WithRecord,
            SendDoorbell::WithoutRecord => engine::SendDoorbell::WithoutRecord,
        },
        uar: at.uar,
        send_cq,
        receive_cq,
        cross_channel: cross_channel(config),
    };
    // SAFETY: as above.
    let qp: QpNumber = unsafe { engine.give_memory(Command::CreateQueuePair(attributes))? };
    Ok(Queues {
        qpn: qp.get(),
        send_cqn: send_cq.get(),
        common_sends: config.common_cqn.is_some(),
        receive_cqn: receive_cq.get(),
        doorbell: None,
    })
}

/// What a queue pair has to do with the queues of others.
fn cross_channel(config: &Checked) -> CrossChannel {
    let mut cross_channel = CrossChannel::empty();
    cross_channel.set(CrossChannel::MASTER, config.cross_channel);
    cross_channel.set(CrossChannel::MANAGED_SEND, config.managed_send);
    cross_channel
}

fn destroy(engine: &mut Commands<'_>, queues: Queues) -> Result<(), HcaError> {
    let qp = QpNumber::from_low_bits(queues.qpn);
    engine.give::<()>(Command::DestroyQueuePair(qp))?;
    let (send, receive) = (queues.send_cqn, queues.receive_cqn);
    let own_send = (!queues.common_sends).then_some(send);
    let own_receive = (receive != send).then_some(receive);
    for cqn in own_send.into_iter().chain(own_receive) {
        let cq = CqNumber::from_low_bits(cqn);
        engine.give::<()>(Command::DestroyCompletionQueue(cq))?;
    }
    Ok(())
}
