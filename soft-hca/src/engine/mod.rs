//! The adapter itself.

pub mod command;
pub mod event;
pub mod fault;
pub mod memory;
pub mod packet;
pub mod wire;

use core::marker::PhantomData;

pub use command::{
    Access, CommandError, CompletionQueueAttributes, Counters, FirstError, Keys, ProtectionDomain,
    QueuePairAttributes, QueuePairState, QueuePairStatus, ReadyToReceive, ReadyToSend, ReceiveRing,
    Transition,
};
pub use event::Event;
pub use memory::{DirectMemory, Memory};
use mlx5_wqe::{CqNumber, LocalKey, QpNumber};
pub use packet::WireAddress;
pub use wire::Wire;

/// An entry of the engine's table of protection domains.
#[derive(Debug, Default)]
pub struct ProtectionDomainSlot {}
/// An entry of the engine's table of registered memory.
#[derive(Debug, Default)]
pub struct RegionSlot {}
/// An entry of the engine's table of completion queues.
#[derive(Debug, Default)]
pub struct CompletionQueueSlot {}
/// An entry of the engine's table of queue pairs.
#[derive(Debug, Default)]
pub struct QueuePairSlot {}
/// An entry of the engine's table of UAR pages, one for each page that queues name.
#[derive(Debug, Default)]
pub struct UarSlot {}

/// Where an engine keeps its tables; all entries fresh (`Default`). Each table has at most
/// 65,535 entries that are used.
#[derive(Debug)]
pub struct Storage<'t> {
    /// Protection domains.
    pub protection_domains: &'t mut [ProtectionDomainSlot],
    /// Registered memory.
    pub regions: &'t mut [RegionSlot],
    /// Completion queues.
    pub completion_queues: &'t mut [CompletionQueueSlot],
    /// Queue pairs.
    pub queue_pairs: &'t mut [QueuePairSlot],
    /// UAR pages.
    pub uars: &'t mut [UarSlot],
}

/// A software HCA.
///
/// Nothing happens between calls: commands act at once, everything else happens in
/// [`step`](Self::step).
#[derive(Debug)]
pub struct Engine<'t, M, W> {
    address: WireAddress,
    wire: W,
    storage: PhantomData<(Storage<'t>, M)>,
}

impl<'t, M: Memory, W: Wire> Engine<'t, M, W> {
    /// An engine without any object, whose address on `wire` is `address`.
    pub fn new(address: WireAddress, memory: M, wire: W, storage: Storage<'t>) -> Self {
        let _ = (memory, storage);
        Self {
            address,
            wire,
            storage: PhantomData,
        }
    }

    /// Its address on the wire.
    pub const fn address(&self) -> WireAddress {
        self.address
    }

    /// Its end of the wire.
    pub const fn wire(&mut self) -> &mut W {
        &mut self.wire
    }

    /// Does a bounded amount of work: looks at doorbells, executes WQEs, handles packets and
    /// timers. `now_ns` is the time in nanoseconds since any moment, and never goes back.
    ///
    /// Gives the number of things done (doorbells, WQEs, packets, completions, timers); 0 means
    /// that nothing was to be done, and the caller may pause.
    pub fn step(&mut self, now_ns: u64) -> usize {
        let _ = now_ns;
        todo!()
    }

    /// The next event, if there is one.
    pub fn poll_event(&mut self) -> Option<Event> {
        todo!()
    }

    /// Creates a protection domain.
    pub fn create_protection_domain(&mut self) -> Result<ProtectionDomain, CommandError> {
        todo!()
    }

    /// Destroys a protection domain that no memory and no queue pair uses.
    pub fn destroy_protection_domain(&mut self, pd: ProtectionDomain) -> Result<(), CommandError> {
        let _ = pd;
        todo!()
    }

    /// Registers `length` bytes from `address`.
    ///
    /// # Safety
    ///
    /// The range must be valid for what `access` allows until it is deregistered.
    pub unsafe fn register_memory(
        &mut self,
        pd: ProtectionDomain,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<Keys, CommandError> {
        let _ = (pd, address, length, access);
        todo!()
    }

    /// Deregisters memory: its keys mean nothing any more, and nobody touches it when this
    /// returns.
    pub fn deregister_memory(&mut self, key: LocalKey) -> Result<(), CommandError> {
        let _ = key;
        todo!()
    }

    /// Creates a completion queue.
    ///
    /// # Safety
    ///
    /// Ring, record and UAR page must be valid until the queue is destroyed.
    pub unsafe fn create_completion_queue(
        &mut self,
        attributes: &CompletionQueueAttributes,
    ) -> Result<CqNumber, CommandError> {
        let _ = attributes;
        todo!()
    }

    /// Destroys a completion queue that no queue pair uses.
    pub fn destroy_completion_queue(&mut self, cq: CqNumber) -> Result<(), CommandError> {
        let _ = cq;
        todo!()
    }

    /// Creates a queue pair, in RESET.
    ///
    /// # Safety
    ///
    /// Rings, record and UAR page must be valid until the queue pair is destroyed.
    pub unsafe fn create_queue_pair(
        &mut self,
        attributes: &QueuePairAttributes,
    ) -> Result<QpNumber, CommandError> {
        let _ = attributes;
        todo!()
    }

    /// Destroys a queue pair. Its unfinished WQEs complete no more.
    pub fn destroy_queue_pair(&mut self, qp: QpNumber) -> Result<(), CommandError> {
        let _ = qp;
        todo!()
    }

    /// Takes a queue pair from one state to another.
    pub fn modify_queue_pair(
        &mut self,
        qp: QpNumber,
        transition: Transition,
    ) -> Result<(), CommandError> {
        let _ = (qp, transition);
        todo!()
    }

    /// State, counters and first error of a queue pair.
    pub fn query_queue_pair(&self, qp: QpNumber) -> Result<QueuePairStatus, CommandError> {
        let _ = qp;
        todo!()
    }

    /// Makes the `count`-th send WQE from now on (0 is the next to be fetched) fail with this
    /// syndrome and vendor code, unexecuted. A second call replaces the first; RESET forgets it.
    pub fn fail_send(
        &mut self,
        qp: QpNumber,
        count: u32,
        syndrome: u8,
        vendor: u8,
    ) -> Result<(), CommandError> {
        let _ = (qp, count, syndrome, vendor);
        todo!()
    }

    /// Makes a completion queue behave as if it were full when its next CQE comes.
    pub fn overrun_completion_queue(&mut self, cq: CqNumber) -> Result<(), CommandError> {
        let _ = cq;
        todo!()
    }
}
