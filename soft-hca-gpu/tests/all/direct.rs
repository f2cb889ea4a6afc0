//! Writes within one HCA, with packets and without: nobody can tell the difference.

mod alone;
mod burst;

use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex};

use mlx5_wqe::{RemoteKey, Wqe};
use proptest::prelude::*;
use warpbell_soft_hca::engine::packet::{Header, Packet, Range};
use warpbell_soft_hca::engine::wire::{Busy, Limits, Retract};
use warpbell_soft_hca::engine::{
    Access, CrossChannel, DirectMemory, Engine, Loopback, Memory, ProtectionDomain,
    QueuePairStatus, SendDoorbell, Transition, Wire, WireAddress,
};
use warpbell_soft_hca_gpu::{Crew, Desk, LaneMemory, Lender, OneLane, Served, Small};

use crate::world::{
    Buffer, Connection, Qp, Region, Shape, connect_queue_pair, create_queue_pair, pattern, storage,
};

const MTU: u32 = 256;
const OWN: WireAddress = WireAddress(3);

/// A loopback whose packets are counted; it may keep to itself that they come back, so that all writes need some.
struct Counting {
    inner: Loopback<32>,
    loops_back: bool,
    sent: usize,
}

impl Counting {
    const fn new(loops_back: bool) -> Self {
        Self {
            inner: Loopback::new(MTU),
            loops_back,
            sent: 0,
        }
    }
}

// SAFETY: forwards to a wire that keeps the contract.
unsafe impl Wire for Counting {
    fn limits(&self, to: WireAddress) -> Limits {
        self.inner.limits(to)
    }

    fn loops_back(&self) -> bool {
        self.loops_back
    }

    fn may_have_packets(&self) -> bool {
        self.inner.may_have_packets()
    }

    unsafe fn send(&mut self, header: &Header, payload: &[Range]) -> Result<(), Busy> {
        self.sent += 1;
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe { self.inner.send(header, payload) }
    }

    fn receive(&mut self) -> Option<Packet> {
        self.inner.receive()
    }

    fn retract(&mut self, scope: Retract) {
        self.inner.retract(scope);
    }
}

/// Memory with a range that nobody may read, which notes in what order it is stored to.
#[derive(Clone, Default)]
struct Guarded {
    inner: DirectMemory,
    range: Arc<Mutex<Range>>,
    /// Which lane stores, and what.
    stores: Arc<Mutex<Vec<(u32, Stored)>>>,
    /// Whose memory this is.
    lane: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stored {
    /// Bytes from this address on.
    At(u64),
    /// A fence: what is before it comes before what is behind it.
    Released,
}

impl Guarded {
    fn note(&self, stored: Stored) {
        self.stores.lock().unwrap().push((self.lane, stored));
    }
}

/// Methods that are the inner memory's.
macro_rules! passed_on {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(unsafe fn $name(&self, $($argument: $type),*) $(-> $result)? {
            // SAFETY: the caller's promise is passed on unchanged.
            unsafe { self.inner.$name($($argument),*) }
        })*
    };
}

// SAFETY: forwards to memory that keeps the contract.
unsafe impl Memory for Guarded {
    unsafe fn read_block(&self, address: u64) -> [u64; 8] {
        let block = Range {
            address,
            length: 64,
        };
        assert!(
            !self.range.lock().unwrap().overlaps(&block),
            "a block that is not posted"
        );
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe { self.inner.read_block(address) }
    }

    fn acquire(&self) {
        self.inner.acquire();
    }

    fn release(&self) {
        self.note(Stored::Released);
        self.inner.release();
    }

    passed_on! {
        copy(source: u64, destination: u64, length: usize);
        peek_u32(address: u64) -> u32;
        read(address: u64, bytes: &mut [u8]);
        write_u64(address: u64, value: u64);
        write(address: u64, bytes: &[u8]);
        peek_u64(address: u64) -> u64;
        load_u32(address: u64) -> u32;
        load_u64(address: u64) -> u64;
        store_u64(address: u64, value: u64);
        swap_u64(address: u64, value: u64) -> u64;
        compare_exchange_u32(address: u64, current: u32, new: u32) -> Result<u32, u32>;
        compare_exchange_u64(address: u64, current: u64, new: u64) -> Result<u64, u64>;
    }
}

// SAFETY: as above.
unsafe impl LaneMemory for Guarded {
    unsafe fn copy_part(&self, source: u64, destination: u64, length: u64, part: u32, parts: u32) {
        self.note(Stored::At(destination));
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe {
            self.inner
                .copy_part(source, destination, length, part, parts);
        }
    }

    unsafe fn store_small(&self, destination: u64, length: u64, data: &Small) {
        self.note(Stored::At(destination));
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe { self.inner.store_small(destination, length, data) }
    }

    passed_on! {
        load_small(source: u64, length: u64) -> Small;
    }
}

/// One HCA with two queue pairs, connected with each other.
struct Rig<W> {
    engine: Engine<'static, Guarded, W>,
    lender: Lender<'static, 'static>,
    crew: Crew<'static, 'static, Guarded, OneLane>,
    guarded: Arc<Mutex<Range>>,
    /// What the crew stores.
    stores: Arc<Mutex<Vec<(u32, Stored)>>>,
    pairs: [Qp; 2],
    memory: Region,
    may_write: bool,
    now: u64,
}

impl Rig<Counting> {
    /// Packets so far.
    fn sent(&mut self) -> usize {
        // SAFETY: it is only looked at.
        unsafe { self.engine.wire() }.sent
    }
}

/// Each pair has four areas of its own: what it sends, where answers go, what is written, what is received.
/// So nothing depends on what the other pair does meanwhile.
const AREA: u64 = 1024;
const BYTES: usize = 8 * AREA as usize;

impl<W: Wire> Rig<W> {
    fn new(wire: W, access: Access) -> Self {
        Self::with(wire, access, SendDoorbell::WithRecord)
    }

    fn with(wire: W, access: Access, send_doorbell: SendDoorbell) -> Self {
        let shape = Shape {
            send_doorbell,
            ..Shape::default()
        };
        Self::shaped(wire, access, shape)
    }

    fn shaped(wire: W, access: Access, shape: Shape) -> Self {
        Self::in_domains(wire, access, shape, |engine| {
            let domain = engine.create_protection_domain().unwrap();
            [domain; 2]
        })
    }

    /// The memory is the first pair's domain's.
    fn in_domains(
        wire: W,
        access: Access,
        shape: Shape,
        domains: impl FnOnce(&mut Engine<'static, Guarded, W>) -> [ProtectionDomain; 2],
    ) -> Self {
        let shape = Shape {
            mtu: MTU,
            queue_pairs: 2,
            events: false,
            ..shape
        };
        let memory = Guarded::default();
        let guarded = memory.range.clone();
        let crew = Guarded {
            range: guarded.clone(),
            ..Guarded::default()
        };
        let stores = crew.stores.clone();
        let desk = Desk::set_up(Box::leak(Box::new(MaybeUninit::uninit())), 1);
        // SAFETY: the desk is new, and there is one lane.
        let crew = unsafe { Crew::new(desk, OneLane, crew) };
        // SAFETY: the same, and one engine.
        let lender = unsafe { Lender::new(desk) };
        let mut engine = Engine::new(OWN, memory, wire, storage(shape));
        let domains = domains(&mut engine);
        // What has to do with other queues is the second one.
        let [one, other] = domains;
        let plain = Shape {
            cross_channel: CrossChannel::empty(),
            ..shape
        };
        let pairs = [(one, plain), (other, shape)]
            .map(|(domain, shape)| create_queue_pair(&mut engine, domain, shape));
        let connection = Connection {
            access,
            ..Connection::default()
        };
        for (pair, peer) in [(&pairs[0], &pairs[1]), (&pairs[1], &pairs[0])] {
            let peer = (OWN, peer.number);
            connect_queue_pair(&mut engine, pair.number, peer, MTU, connection);
        }
        let buffer = Buffer::filled(&pattern(BYTES, 9));
        // SAFETY: the buffer lives as long as the test.
        let keys = unsafe {
            engine.register_memory(domains[0], buffer.address(), BYTES as u64, Access::all())
        };
        let memory = Region {
            buffer,
            keys: keys.unwrap(),
        };
        Self {
            engine,
            lender,
            crew,
            guarded,
            stores,
            pairs,
            memory,
            may_write: access.contains(Access::REMOTE_WRITE),
            now: 0,
        }
    }

    fn act(&mut self, action: &Action) {
        let memory = self.memory;
        let Action {
            pair, what, length, ..
        } = *action;
        let [source, answer, target, received] =
            [0, 1, 2, 3].map(|area| (u64::from(pair) * 4 + area) * AREA);
        let (from, to) = (u64::from(action.from), u64::from(action.to));
        let (local, remote) = (
            memory.local(source + from, length),
            memory.remote(target + to),
        );
        // An error takes the other end down at a moment that depends on the packets: nothing else is under way.
        let write = matches!(what, What::Write | What::Word | What::Words);
        let fails = what == What::WrongKey || (write && !self.may_write);
        if fails {
            self.settle();
        }
        let qp = &mut self.pairs[usize::from(pair)];
        let wqe = match what {
            What::Write => Wqe::<1>::write(local, remote),
            What::Word => Wqe::<1>::write_value(u64::from(length) << 32 | to, remote),
            // As active messages are.
            What::Words => {
                let word = u64::from(length) << 32 | to;
                Wqe::<1>::write_value([word, !word, word + 1], remote)
            }
            What::Read => {
                Wqe::<1>::read(memory.local(answer + from, length), memory.remote(source))
            }
            What::Add => Wqe::<1>::fetch_add(memory.local(answer + from, 8), remote, 3),
            What::Send => Wqe::<1>::send(local),
            What::Receive => return qp.post_receive(&[memory.local(received + to, MTU + 1)]),
            What::Nop => Wqe::<1>::nop(),
            What::WrongKey => {
                let key = RemoteKey(remote.key.0 ^ 1);
                Wqe::<1>::write(local, mlx5_wqe::Remote { key, ..remote })
            }
            What::Step => return self.step(),
            What::Reset => return self.reset(),
        };
        qp.write(if action.signalled {
            wqe.signalled()
        } else {
            wqe
        });
        if fails {
            self.settle();
        } else if action.ring {
            qp.ring_doorbell();
        }
    }

    fn step(&mut self) {
        self.now += 1_000;
        // Until nothing is left to do but to wait, because how often a SEND is tried again depends on the time, and
        // who lends needs more steps than who does it all.
        for _ in 0..1_000 {
            let worked = self.engine.step_with(self.now, &mut self.lender) > 0;
            // A lane executes one write at a time.
            let mut served = false;
            while self.crew.round() == Served::Something {
                served = true;
            }
            if !worked && !served {
                return;
            }
        }
        panic!("the engine does not come to rest");
    }

    /// Gets everything back that is lent.
    fn clear(&mut self) {
        while !self.lender.clear(&mut self.engine) {
            self.crew.round();
        }
    }

    /// Both ends through RESET, and connected again.
    fn reset(&mut self) {
        self.reset_to([Connection::default().psn; 2]);
    }

    /// The same, each with a PSN of its own, from which it counts what it sends and what it expects.
    fn reset_to(&mut self, psns: [u32; 2]) {
        self.settle();
        self.clear();
        for pair in &mut self.pairs {
            pair.reset();
            let number = pair.number;
            self.engine
                .modify_queue_pair(number, Transition::Reset)
                .unwrap();
        }
        let [one, other] = self.pairs.each_ref().map(|pair| pair.number);
        for ((own, peer), psn) in [(one, other), (other, one)].into_iter().zip(psns) {
            let mut connection = Connection {
                psn,
                ..Connection::default()
            };
            connection.access.set(Access::REMOTE_WRITE, self.may_write);
            connect_queue_pair(&mut self.engine, own, (OWN, peer), MTU, connection);
        }
    }

    /// Rings, and lets everything end that needs no timer.
    fn settle(&mut self) {
        for pair in &self.pairs {
            pair.ring_doorbell();
        }
        for _ in 0..100 {
            self.step();
        }
    }

    /// All that anybody can see.
    fn seen(&mut self) -> Seen {
        self.settle();
        self.clear();
        let [one, other] = &self.pairs;
        self.memory.buffer.check_canaries();
        Seen {
            memory: self.memory.buffer.bytes(),
            completions: [
                &one.send_cq,
                &one.receive_cq,
                &other.send_cq,
                &other.receive_cq,
            ]
            .map(|queue| queue.ring.bytes()),
            status: [one, other].map(|pair| self.engine.query_queue_pair(pair.number).unwrap()),
        }
    }
}

#[derive(Debug, PartialEq)]
struct Seen {
    memory: Vec<u8>,
    completions: [Vec<u8>; 4],
    status: [QueuePairStatus; 2],
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Write,
    Word,
    Words,
    Read,
    Add,
    Send,
    Receive,
    Nop,
    WrongKey,
    Step,
    Reset,
}

#[derive(Clone, Copy, Debug)]
struct Action {
    what: What,
    pair: u8,
    from: u16,
    to: u16,
    length: u32,
    signalled: bool,
    ring: bool,
}

fn action() -> impl Strategy<Value = Action> {
    let what = prop_oneof![
        8 => Just(What::Write),
        2 => Just(What::Word),
        1 => Just(What::Words),
        1 => Just(What::Read),
        1 => Just(What::Add),
        1 => Just(What::Send),
        1 => Just(What::Receive),
        1 => Just(What::Nop),
        1 => Just(What::WrongKey),
        4 => Just(What::Step),
        1 => Just(What::Reset),
    ];
    let length = prop_oneof![Just(1u32), Just(8), Just(64), 1..=MTU, Just(MTU + 1)];
    (
        what,
        0u8..2,
        0u16..4,
        0u16..4,
        length,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(what, pair, from, to, length, signalled, ring)| Action {
            what,
            pair,
            from: 8 * from,
            to: 128 * to,
            length,
            signalled,
            ring,
        })
}

#[test]
fn a_peer_that_expects_another_psn_is_not_written_to() {
    for loops_back in [true, false] {
        let mut rig = Rig::new(Counting::new(loops_back), Access::all());
        // To the peer the first packet is one of long ago.
        rig.reset_to([7, 9]);
        let before = rig.memory.buffer.bytes();
        let (from, to) = (rig.memory.local(0, 8), rig.memory.remote(2 * AREA));
        rig.pairs[0].write(Wqe::<1>::write(from, to));
        assert_eq!(rig.seen().memory, before);
    }
}

proptest! {
    #[test]
    fn nobody_can_tell_whether_packets_travelled(
        actions in proptest::collection::vec(action(), 0..14),
        may_write: bool,
        without_record: bool,
    ) {
        let mut access = Access::all();
        access.set(Access::REMOTE_WRITE, may_write);
        let doorbell = match without_record {
            false => SendDoorbell::WithRecord,
            true => SendDoorbell::WithoutRecord,
        };
        let mut direct = Rig::with(Loopback::<32>::new(MTU), access, doorbell);
        let mut packets = Rig::with(Counting::new(false), access, doorbell);
        for action in &actions {
            direct.act(action);
            packets.act(action);
        }
        prop_assert_eq!(direct.seen(), packets.seen());
    }
}

/// Otherwise the comparison above would say nothing.
#[test]
fn plain_writes_need_no_packet_where_the_wire_says_so() {
    let counted = |loops_back: bool| {
        let mut rig = Rig::new(Counting::new(loops_back), Access::all());
        let memory = rig.memory;
        for _ in 0..5 {
            rig.pairs[0].write(Wqe::<1>::write(memory.local(0, 64), memory.remote(512)));
        }
        rig.pairs[0].post(Wqe::<1>::write_value(1, memory.remote(768)));
        rig.settle();
        rig.sent()
    };
    assert_eq!(counted(true), 0);
    assert!(counted(false) >= 6);
}

/// A request that the engine executes itself calls all loans back. What was not executed yet is lent again, and does not
/// go in packets, which take a GPU long, and keep all queues from being lent meanwhile.
#[test]
fn what_was_called_back_for_another_needs_no_packet_either() {
    let mut rig = Rig::new(Counting::new(true), Access::all());
    let memory = rig.memory;
    let write = Wqe::<1>::write(memory.local(0, 64), memory.remote(AREA)).signalled();
    for round in 0..20 {
        for _ in 0..3 {
            rig.pairs[0].write(write);
        }
        rig.pairs[0].ring_doorbell();
        // At another moment each time.
        for _ in 0..round % 4 {
            rig.engine.step_with(rig.now, &mut rig.lender);
        }
        rig.pairs[1].post(Wqe::<1>::nop().signalled());
        rig.settle();
        assert_eq!(rig.pairs[0].send_cq.drain().len(), 3);
        assert_eq!(rig.pairs[1].send_cq.drain().len(), 1);
    }
    assert_eq!(rig.sent(), 0);
}

/// A queue that always has something posted keeps its seat only until another one asks for it.
#[test]
fn a_busy_queue_does_not_keep_the_only_seat() {
    for rounds in 1..=4 {
        let mut rig = Rig::new(Counting::new(true), Access::all());
        let memory = rig.memory;
        let write = Wqe::<1>::write(memory.local(0, 64), memory.remote(AREA)).signalled();
        let (mut posted, mut done) = (0, 0);
        for turn in 0..200 {
            while posted - done < 3 {
                rig.pairs[0].post(write);
                posted += 1;
            }
            if turn == 20 {
                rig.pairs[1].post(write);
            }
            rig.now += 1_000;
            rig.engine.step_with(rig.now, &mut rig.lender);
            for _ in 0..rounds {
                rig.crew.round();
            }
            done += rig.pairs[0].send_cq.drain().len();
        }
        assert!(done > 20, "{done} with {rounds} rounds a turn");
        let other = rig.pairs[1].send_cq.drain().len();
        assert_eq!((other, rig.sent()), (1, 0), "{rounds} rounds a turn");
    }
}

/// A loan that is called back while a doorbell waits takes nothing of it along: the register still has it.
#[test]
fn a_ring_that_nobody_has_heard_outlives_the_loan() {
    for doorbell in [SendDoorbell::WithRecord, SendDoorbell::WithoutRecord] {
        let mut rig = Rig::with(Loopback::<32>::new(MTU), Access::all(), doorbell);
        let memory = rig.memory;
        let write = Wqe::<1>::write(memory.local(0, 64), memory.remote(512)).signalled();
        for posted in 1..20 {
            rig.pairs[0].post(write);
            if posted % 3 != 0 {
                rig.step();
            }
            // Lent from the first step on; what was rung after the crew's last look is in the register alone.
            rig.clear();
        }
        for _ in 0..100 {
            rig.step();
        }
        assert_eq!(rig.pairs[0].send_cq.drain().len(), 19, "{doorbell:?}");
    }
}

/// Its owner may be writing it.
#[test]
fn a_block_that_is_not_posted_is_not_looked_at() {
    let mut rig = Rig::new(Loopback::<32>::new(MTU), Access::all());
    let memory = rig.memory;
    let add = Wqe::<1>::fetch_add(memory.local(0, 8), memory.remote(512), 1).signalled();
    let write = Wqe::<1>::write(memory.local(0, 64), memory.remote(512)).signalled();
    for wqe in [add, write, add] {
        rig.pairs[0].post(wqe);
        let posted = 64 * u64::from(rig.pairs[0].producer);
        let ring = rig.pairs[0].ring;
        *rig.guarded.lock().unwrap() = Range {
            address: ring.address() + posted,
            length: ring.length as u64 - posted,
        };
        rig.settle();
    }
    assert_eq!(rig.pairs[0].send_cq.drain().len(), 3);
}

/// A queue that waits for one whose writes the crew executes: the engine hears of each of its CQEs.
#[test]
fn a_queue_waits_for_one_that_is_lent() {
    let shape = Shape {
        cross_channel: CrossChannel::MASTER,
        ..Shape::default()
    };
    let mut rig = Rig::shaped(Loopback::<32>::new(MTU), Access::all(), shape);
    let memory = rig.memory;
    let write = Wqe::<1>::write(memory.local(0, 8), memory.remote(AREA)).signalled();
    rig.pairs[0].post(write);
    rig.step();
    rig.step();
    assert_eq!(rig.pairs[0].send_cq.drain().len(), 1);
    let wait = Wqe::<1>::wait(rig.pairs[0].send_cq.number, 3);
    rig.pairs[1].write(wait.signalled());
    rig.pairs[1].post(write);
    for number in 1..4 {
        rig.step();
        assert_eq!(rig.pairs[1].send_cq.drain().len(), 0, "before CQE {number}");
        rig.pairs[0].post(write);
        rig.step();
        assert_eq!(rig.pairs[0].send_cq.drain().len(), 1);
    }
    rig.step();
    assert_eq!(rig.pairs[1].send_cq.drain().len(), 2);
    // From then on it is lent as before.
    rig.pairs[0].post(write);
    rig.step();
    assert_eq!(rig.pairs[0].send_cq.drain().len(), 1);
}
