//! Two HCAs, their memory with canaries, and a driver's view of their queues.

use std::alloc::{Layout, alloc};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use mlx5_wqe::{
    CqDoorbellRecord, CqNumber, Cqe64, Doorbell, DoorbellRecord, Local, LocalKey, Octoword,
    QpNumber, Remote, UarPage, Wqe, WqeIndex,
};
use warpbell_soft_hca::engine::fault::{Fate, FaultyWire, Pattern};
use warpbell_soft_hca::engine::packet::{Header, Packet, Range};
use warpbell_soft_hca::engine::wire::{Busy, Limits, Retract};
use warpbell_soft_hca::engine::{
    Access, CompletionQueueAttributes, CqeSize, CrossChannel, DirectMemory, Engine, Keys, Memory,
    ProtectionDomain, QueuePairAttributes, QueuePairOptions, ReadyToReceive, ReadyToSend,
    ReceiveRing, SendDoorbell, Storage, Transition, Wire, WireAddress,
};

/// Every byte before and after a buffer.
const CANARY: u8 = 0xa5;
/// How many of them on each side.
const GUARD: usize = 4096;

/// Memory with canaries on both sides, aligned to a page. Lives as long as the test.
#[derive(Clone, Copy)]
pub struct Buffer {
    start: *mut u8,
    pub length: usize,
}

impl Buffer {
    pub fn new(length: usize) -> Self {
        let size = length + 2 * GUARD;
        let layout = Layout::from_size_align(size, GUARD).unwrap();
        // SAFETY: the layout has a size, and all of the allocation is then initialised.
        let start = unsafe {
            let base = alloc(layout);
            assert!(!base.is_null());
            base.write_bytes(CANARY, size);
            base.add(GUARD).write_bytes(0, length);
            base.add(GUARD)
        };
        let _ = start.expose_provenance();
        Self { start, length }
    }

    pub fn filled(bytes: &[u8]) -> Self {
        let buffer = Self::new(bytes.len());
        buffer.write(0, bytes);
        buffer
    }

    pub fn address(&self) -> u64 {
        self.start.expose_provenance() as u64
    }

    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.length);
        // SAFETY: within the buffer; the engines are not running.
        unsafe { ptr::copy(bytes.as_ptr(), self.start.add(offset), bytes.len()) };
    }

    pub fn bytes(&self) -> Vec<u8> {
        // SAFETY: all of the buffer is initialised; the engines are not running.
        unsafe { std::slice::from_raw_parts(self.start, self.length).to_vec() }
    }

    pub fn u64_at(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.bytes()[offset..offset + 8].try_into().unwrap())
    }

    /// The atomic at an offset.
    pub fn atomic_u64(&self, offset: usize) -> &AtomicU64 {
        assert!(offset + 8 <= self.length && offset.is_multiple_of(8));
        // SAFETY: within the buffer, which lives as long as the test, and aligned.
        unsafe { AtomicU64::from_ptr(self.start.add(offset).cast()) }
    }

    fn atomic_u32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset + 4 <= self.length && offset.is_multiple_of(4));
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.start.add(offset).cast()) }
    }

    /// Nobody has written before or after the buffer.
    #[track_caller]
    pub fn check_canaries(&self) {
        for (offset, side) in [
            (-(GUARD as isize), "before"),
            (self.length as isize, "after"),
        ] {
            // SAFETY: the guards are part of the allocation.
            let guard = unsafe { std::slice::from_raw_parts(self.start.offset(offset), GUARD) };
            let hit = guard.iter().position(|byte| *byte != CANARY);
            assert_eq!(hit, None, "a byte {side} the buffer was written");
        }
    }
}

/// All packets under way, by destination.
type Air = Rc<RefCell<Vec<VecDeque<Packet>>>>;

/// One end of the test's wire.
pub struct TestWire {
    air: Air,
    address: u32,
    mtu: u32,
    extended_atomics: bool,
}

// SAFETY: payloads are borrowed from their sender until retracted, which drops their packets.
unsafe impl Wire for TestWire {
    fn limits(&self, _to: WireAddress) -> Limits {
        Limits {
            mtu: self.mtu,
            ranges: 4,
            extended_atomics: self.extended_atomics,
        }
    }

    unsafe fn send(&mut self, header: &Header, payload: &[Range]) -> Result<(), Busy> {
        let mut air = self.air.borrow_mut();
        let Some(queue) = air.get_mut(header.destination as usize) else {
            return Ok(());
        };
        if queue.len() >= 100 {
            return Err(Busy);
        }
        assert!(payload.len() <= 4, "more ranges than the wire takes");
        assert!(payload.iter().all(|range| range.length > 0), "no bytes");
        queue.push_back(Packet::new(header, payload).unwrap());
        Ok(())
    }

    unsafe fn send_copy(&mut self, header: &Header, payload: &[Range]) -> Result<(), Busy> {
        let length: u64 = payload.iter().map(|range| range.length).sum();
        let copy = Buffer::new(length as usize);
        let mut at = 0;
        for range in payload {
            let from = ptr::with_exposed_provenance::<u8>(range.address as usize);
            // SAFETY: the engine vouches for the range.
            let bytes = unsafe { std::slice::from_raw_parts(from, range.length as usize) };
            copy.write(at, bytes);
            at += bytes.len();
        }
        let whole = Range {
            address: copy.address(),
            length,
        };
        // SAFETY: the copy lives as long as the test.
        unsafe { self.send(header, &[whole][..usize::from(length > 0)]) }
    }

    fn receive(&mut self) -> Option<Packet> {
        self.air.borrow_mut()[self.address as usize].pop_front()
    }

    fn retract(&mut self, scope: Retract) {
        for queue in self.air.borrow_mut().iter_mut() {
            queue.retain(|packet| packet.header.source != self.address || !scope.covers(packet));
        }
    }
}

/// What befalls the packets that an HCA sends.
pub type Faults = Box<dyn FnMut(&Header) -> Fate>;
pub type TestEngine = Engine<'static, DirectMemory, FaultyWire<TestWire, Faults>>;

/// A completion queue as its consumer sees it.
pub struct Cq {
    pub number: CqNumber,
    pub ring: Buffer,
    pub record: Buffer,
    pub log_depth: u8,
    pub cqe_size: CqeSize,
    pub consumer: u32,
}

impl Cq {
    /// The newest CQE that was not polled, by owner parity. Consumes it.
    pub fn poll(&mut self) -> Option<Cqe64> {
        let cqe = self.peek()?;
        self.consumer += 1;
        let word = CqDoorbellRecord::consumer_word(self.consumer);
        self.record.atomic_u32(0).store(word, Ordering::Release);
        Some(cqe)
    }

    pub fn peek(&self) -> Option<Cqe64> {
        let depth = 1 << self.log_depth;
        let cqe = self.entry(self.consumer & (depth - 1));
        let owner = self.consumer & depth != 0;
        cqe.tail().is_new(owner).then_some(cqe)
    }

    pub fn entry(&self, slot: u32) -> Cqe64 {
        let end = (slot as usize + 1) << self.cqe_size.log_bytes();
        let bytes = self.ring.bytes()[end - 64..end].try_into().unwrap();
        Cqe64::from_bytes(bytes)
    }

    pub fn drain(&mut self) -> Vec<Cqe64> {
        std::iter::from_fn(|| self.poll()).collect()
    }
}

/// A queue pair as its user sees it.
pub struct Qp {
    pub number: QpNumber,
    pub ring: Buffer,
    pub receive_ring: Buffer,
    pub record: Buffer,
    pub uar: Buffer,
    pub log_depth: u8,
    pub send_doorbell: SendDoorbell,
    pub producer: u16,
    pub receive_producer: u16,
    pub send_cq: Cq,
    pub receive_cq: Cq,
}

pub const LOG_DEPTH: u8 = 4;
pub const LOG_CQ_DEPTH: u8 = 6;
pub const LOG_RECEIVE_DEPTH: u8 = 3;
pub const LOG_STRIDE: u8 = 2;

impl Qp {
    /// Writes a WQE into the ring; [`ring_doorbell`](Self::ring_doorbell) hands it over.
    pub fn write<const BLOCKS: usize>(&mut self, wqe: Wqe<BLOCKS>) -> WqeIndex {
        let index = WqeIndex(self.producer);
        let blocks = wqe.place(index, self.number);
        for block in &blocks[..usize::from(wqe.blocks())] {
            let slot = usize::from(self.producer) & ((1 << self.log_depth) - 1);
            for (octoword, offset) in block.iter().zip((0..64).step_by(16)) {
                self.ring.write(slot * 64 + offset, &octoword.to_bytes());
            }
            self.producer = self.producer.wrapping_add(1);
        }
        index
    }

    pub fn ring_doorbell(&self) {
        let doorbell = Doorbell::of_producer(WqeIndex(self.producer), self.number);
        let register = match self.send_doorbell {
            SendDoorbell::WithRecord => {
                let word = DoorbellRecord::word(self.producer);
                self.record.atomic_u32(4).store(word, Ordering::Release);
                UarPage::DOORBELLS[0]
            }
            SendDoorbell::WithoutRecord => UarPage::DOORBELL_WITHOUT_RECORD,
        };
        self.uar
            .atomic_u64(register)
            .store(doorbell.0, Ordering::Release);
    }

    pub fn post<const BLOCKS: usize>(&mut self, wqe: Wqe<BLOCKS>) -> WqeIndex {
        let index = self.write(wqe);
        self.ring_doorbell();
        index
    }

    /// Posts a receive; the list is ended where it is shorter than the stride.
    pub fn post_receive(&mut self, segments: &[Local]) {
        use mlx5_wqe::segment::Data;
        let slot = usize::from(self.receive_producer) & ((1 << LOG_RECEIVE_DEPTH) - 1);
        let mut entries: Vec<Octoword> = segments
            .iter()
            .map(|local| Data::new(*local).to_octoword())
            .collect();
        entries.resize(1 << LOG_STRIDE, Data::LIST_END.to_octoword());
        for (entry, octoword) in entries.iter().enumerate() {
            let offset = (slot << LOG_STRIDE | entry) * 16;
            self.receive_ring.write(offset, &octoword.to_bytes());
        }
        self.receive_producer = self.receive_producer.wrapping_add(1);
        let word = DoorbellRecord::word(self.receive_producer);
        self.record.atomic_u32(0).store(word, Ordering::Release);
    }

    /// After RESET: as the engine counts, so does the user.
    pub fn reset(&mut self) {
        self.producer = 0;
        self.receive_producer = 0;
        self.record.atomic_u64(0).store(0, Ordering::Release);
    }

    fn buffers(&self) -> [Buffer; 8] {
        [
            self.ring,
            self.receive_ring,
            self.record,
            self.uar,
            self.send_cq.ring,
            self.send_cq.record,
            self.receive_cq.ring,
            self.receive_cq.record,
        ]
    }
}

/// Registered memory.
#[derive(Clone, Copy)]
pub struct Region {
    pub buffer: Buffer,
    pub keys: Keys,
}

impl Region {
    pub fn local(&self, offset: u64, length: u32) -> Local {
        Local {
            address: self.buffer.address() + offset,
            length,
            key: self.keys.local,
        }
    }

    pub fn all(&self) -> Local {
        self.local(0, self.buffer.length as u32)
    }

    pub fn remote(&self, offset: u64) -> Remote {
        Remote {
            address: self.buffer.address() + offset,
            key: self.keys.remote,
        }
    }
}

/// An HCA with one protection domain and one queue pair.
pub struct Node {
    pub engine: TestEngine,
    pub pd: ProtectionDomain,
    pub qp: Qp,
    buffers: Vec<Buffer>,
    keys: Vec<LocalKey>,
}

/// How the queues are made.
#[derive(Clone, Copy)]
pub struct Shape {
    pub mtu: u32,
    /// Whether the wire has packets for atomics of 4 bytes and for masked ones.
    pub extended_atomics: bool,
    pub log_depth: u8,
    pub log_cq_depth: u8,
    pub cqe_size: CqeSize,
    pub collapsed: bool,
    pub ignore_overrun: bool,
    /// Whether completion queues can be armed, at their queue pair's UAR page.
    pub events: bool,
    /// Queue pairs that the engine has room for.
    pub queue_pairs: usize,
    pub options: QueuePairOptions,
    pub send_doorbell: SendDoorbell,
    pub cross_channel: CrossChannel,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            mtu: 1024,
            extended_atomics: true,
            log_depth: LOG_DEPTH,
            log_cq_depth: LOG_CQ_DEPTH,
            cqe_size: CqeSize::default(),
            collapsed: false,
            ignore_overrun: false,
            events: true,
            queue_pairs: 3,
            options: QueuePairOptions::default(),
            send_doorbell: SendDoorbell::WithRecord,
            cross_channel: CrossChannel::empty(),
        }
    }
}

/// Tables of fresh entries.
pub fn storage(shape: Shape) -> Storage<'static> {
    fn table<T: Default>(length: usize) -> &'static mut [T] {
        Vec::leak((0..length).map(|_| T::default()).collect())
    }
    Storage {
        protection_domains: table(3),
        regions: table(16),
        revoked: table(16),
        completion_queues: table(2 * shape.queue_pairs),
        queue_pairs: table(shape.queue_pairs),
        uars: table(shape.queue_pairs),
    }
}

impl Node {
    fn new(air: &Air, address: u32, faults: Faults, shape: Shape) -> Self {
        let wire = TestWire {
            air: air.clone(),
            address,
            mtu: shape.mtu,
            extended_atomics: shape.extended_atomics,
        };
        let storage = storage(shape);
        let wire = FaultyWire::new(wire, faults);
        let mut engine = Engine::new(WireAddress(address), DirectMemory, wire, storage);
        let pd = engine.create_protection_domain().unwrap();
        let qp = create_queue_pair(&mut engine, pd, shape);
        Self {
            engine,
            pd,
            qp,
            buffers: Vec::new(),
            keys: Vec::new(),
        }
    }

    pub fn register(&mut self, buffer: Buffer, access: Access) -> Region {
        self.buffers.push(buffer);
        let (address, length) = (buffer.address(), buffer.length as u64);
        // SAFETY: the buffer lives as long as the test.
        let keys = unsafe {
            self.engine
                .register_memory(self.pd, address, length, access)
        };
        let keys = keys.unwrap();
        self.keys.push(keys.local);
        Region { buffer, keys }
    }

    /// Deregisters everything.
    pub fn forget_regions(&mut self) {
        for key in self.keys.drain(..) {
            self.engine.deregister_memory(key).unwrap();
        }
    }

    /// Memory with every right.
    pub fn region(&mut self, bytes: &[u8]) -> Region {
        self.register(Buffer::filled(bytes), Access::all())
    }

    pub fn check_canaries(&self) {
        for buffer in self.buffers.iter().chain(&self.qp.buffers()) {
            buffer.check_canaries();
        }
    }
}

pub fn create_completion_queue<M: Memory, W: Wire>(
    engine: &mut Engine<'_, M, W>,
    uar: Buffer,
    shape: Shape,
) -> Cq {
    let log_bytes = shape.cqe_size.log_bytes();
    let ring = Buffer::new(1 << (shape.log_cq_depth + log_bytes));
    for entry in 1..=1 << shape.log_cq_depth {
        ring.write((entry << log_bytes) - 64, &Cqe64::INVALID.to_bytes());
    }
    let record = Buffer::new(8);
    let attributes = CompletionQueueAttributes {
        ring: ring.address(),
        log_depth: shape.log_cq_depth,
        record: record.address(),
        uar: shape.events.then(|| uar.address()),
        collapsed: shape.collapsed,
        ignore_overrun: shape.ignore_overrun,
    };
    Cq {
        // SAFETY: the buffers live as long as the test.
        number: unsafe { engine.create_completion_queue_with(&attributes, shape.cqe_size) }
            .unwrap(),
        ring,
        record,
        log_depth: shape.log_cq_depth,
        cqe_size: shape.cqe_size,
        consumer: 0,
    }
}

pub fn create_queue_pair<M: Memory, W: Wire>(
    engine: &mut Engine<'_, M, W>,
    pd: ProtectionDomain,
    shape: Shape,
) -> Qp {
    create_queue_pair_on(engine, pd, shape, Buffer::new(4096))
}

/// A queue pair whose doorbell is on the page `uar`.
pub fn create_queue_pair_on<M: Memory, W: Wire>(
    engine: &mut Engine<'_, M, W>,
    pd: ProtectionDomain,
    shape: Shape,
    uar: Buffer,
) -> Qp {
    let send_cq = create_completion_queue(engine, uar, shape);
    let receive_cq = create_completion_queue(engine, uar, shape);
    let ring = Buffer::new(64 << shape.log_depth);
    let receive_ring = Buffer::new(16 << (LOG_RECEIVE_DEPTH + LOG_STRIDE));
    let record = Buffer::new(8);
    let attributes = QueuePairAttributes {
        protection_domain: pd,
        send_ring: ring.address(),
        log_send_depth: shape.log_depth,
        receive: Some(ReceiveRing {
            ring: receive_ring.address(),
            log_depth: LOG_RECEIVE_DEPTH,
            log_stride: LOG_STRIDE,
        }),
        record: record.address(),
        send_doorbell: shape.send_doorbell,
        uar: uar.address(),
        send_cq: send_cq.number,
        receive_cq: receive_cq.number,
        cross_channel: shape.cross_channel,
    };
    Qp {
        // SAFETY: the buffers live as long as the test.
        number: unsafe { engine.create_queue_pair_with(&attributes, &shape.options) }.unwrap(),
        ring,
        receive_ring,
        record,
        uar,
        log_depth: shape.log_depth,
        send_doorbell: shape.send_doorbell,
        producer: 0,
        receive_producer: 0,
        send_cq,
        receive_cq,
    }
}

/// How two queue pairs are connected.
#[derive(Clone, Copy)]
pub struct Connection {
    pub psn: u32,
    pub retry_count: u8,
    pub rnr_retry: u8,
    pub ack_timeout_ns: u64,
    pub access: Access,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            psn: 0xff_fff0,
            retry_count: 7,
            rnr_retry: 7,
            ack_timeout_ns: TIMEOUT_NS,
            access: Access::all(),
        }
    }
}

/// The acknowledgement timeout of the tests, in steps of the clock.
pub const TIMEOUT_NS: u64 = 100_000;
/// The RNR timer of the tests.
pub const RNR_NS: u32 = 20_000;

/// Takes `node`'s queue pair from RESET to RTS, connected to `peer`.
pub fn connect(node: &mut Node, peer: (WireAddress, QpNumber), mtu: u32, with: Connection) {
    connect_queue_pair(&mut node.engine, node.qp.number, peer, mtu, with);
}

/// The same with a queue pair of one's own.
pub fn connect_queue_pair<M: Memory, W: Wire>(
    engine: &mut Engine<'_, M, W>,
    qp: QpNumber,
    (remote_address, remote_qp): (WireAddress, QpNumber),
    mtu: u32,
    with: Connection,
) {
    let steps = [
        Transition::Init {
            access: with.access,
        },
        Transition::ReadyToReceive(ReadyToReceive {
            remote_address,
            remote_qp,
            receive_psn: with.psn,
            path_mtu: mtu,
            min_rnr_timer_ns: RNR_NS,
        }),
        Transition::ReadyToSend(ReadyToSend {
            send_psn: with.psn,
            retry_count: with.retry_count,
            rnr_retry: with.rnr_retry,
            ack_timeout_ns: with.ack_timeout_ns,
        }),
    ];
    for step in steps {
        engine.modify_queue_pair(qp, step).unwrap();
    }
}

/// Two HCAs, connected.
pub struct World {
    pub a: Node,
    pub b: Node,
    pub now: u64,
    pub shape: Shape,
    air: Air,
}

/// A wire without faults.
pub fn clean() -> Faults {
    Box::new(|_: &Header| Fate::Pass)
}

/// A wire whose faults a pattern decides.
pub fn faulty(mut pattern: impl Pattern + 'static) -> Faults {
    Box::new(move |header: &Header| pattern.fate(header))
}

impl World {
    pub fn new() -> Self {
        Self::with(Shape::default(), Connection::default(), [clean(), clean()])
    }

    pub fn connected(connection: Connection) -> Self {
        Self::with(Shape::default(), connection, [clean(), clean()])
    }

    pub fn with(shape: Shape, connection: Connection, [first, second]: [Faults; 2]) -> Self {
        let air = Air::default();
        air.borrow_mut().resize_with(2, VecDeque::new);
        let a = Node::new(&air, 0, first, shape);
        let b = Node::new(&air, 1, second, shape);
        let mut world = Self {
            a,
            b,
            now: 0,
            shape,
            air,
        };
        world.connect(connection);
        world
    }

    pub fn connect(&mut self, connection: Connection) {
        let (a, b) = (self.a.qp.number, self.b.qp.number);
        let mtu = self.shape.mtu;
        connect(&mut self.a, (WireAddress(1), b), mtu, connection);
        connect(&mut self.b, (WireAddress(0), a), mtu, connection);
    }

    /// Takes both ends through RESET.
    pub fn reset(&mut self) {
        for node in [&mut self.a, &mut self.b] {
            node.qp.reset();
            let qp = node.qp.number;
            node.engine
                .modify_queue_pair(qp, Transition::Reset)
                .unwrap();
        }
    }

    pub fn step(&mut self) -> usize {
        self.now += 1_000;
        self.a.engine.step(self.now) + self.b.engine.step(self.now)
    }

    /// Steps both until the clock has gone `ns` further.
    pub fn run_for(&mut self, ns: u64) {
        let end = self.now + ns;
        while self.now < end {
            self.step();
        }
    }

    /// Long enough for everything that needs no timer.
    pub fn settle(&mut self) {
        self.run_for(60_000);
    }

    /// Puts a packet under way that nobody sent.
    pub fn inject(&mut self, header: Header, payload: Buffer) {
        let range = Range {
            address: payload.address(),
            length: payload.length as u64,
        };
        let packet = Packet::new(&header, &[range]).unwrap();
        self.air.borrow_mut()[header.destination as usize].push_back(packet);
    }

    /// Leaves so many of the packets under way to the HCA with this address, the oldest; the others are lost.
    pub fn keep_in_the_air(&mut self, address: usize, packets: usize) {
        self.air.borrow_mut()[address].truncate(packets);
    }

    /// Packets under way.
    pub fn in_the_air(&self) -> usize {
        self.air.borrow().iter().map(VecDeque::len).sum()
    }

    pub fn check_canaries(&self) {
        self.a.check_canaries();
        self.b.check_canaries();
    }
}

/// Bytes that differ from place to place.
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|index| (index as u8).wrapping_mul(31) ^ (index >> 8) as u8 ^ seed)
        .collect()
}
