//! Shared receive queues: lists from which several queue pairs take.

use std::collections::{HashMap, HashSet};

use mlx5_wqe::{CqeOpcode, Immediate, Local, ReceiveWqe, Syndrome, Wqe};
use proptest::prelude::*;
use warpbell_soft_hca::engine::{
    CommandError, QueuePairOptions, QueuePairState, ReceiveRing, SharedReceiveAttributes,
    SharedReceiveQueue, SharedReceiveSlot, Topology, Transition, WireAddress,
};

use super::world::{
    Buffer, Connection, Node, Qp, Region, Shape, World, clean, connect_queue_pair,
    create_queue_pair, pattern,
};

const LOG_DEPTH: u8 = 3;
const DEPTH: u16 = 1 << LOG_DEPTH;
/// 32 bytes: the link and one segment.
const LOG_STRIDE: u8 = 1;
/// Bytes of each receive.
const ROOM: usize = 4096;

/// A list as its user keeps it: taken at the head, given back at the tail, one WQE always left.
struct List {
    queue: SharedReceiveQueue,
    ring: Buffer,
    record: Buffer,
    links: [u16; DEPTH as usize],
    head: u16,
    tail: u16,
    counter: u16,
    /// WQEs posted and not given back.
    posted: HashSet<u16>,
    /// A piece of it for each WQE.
    memory: Region,
}

impl List {
    fn new(node: &mut Node, topology: Topology) -> Self {
        let table = Vec::leak((0..2).map(|_| SharedReceiveSlot::default()).collect());
        node.engine.lend_shared_receive_queues(table);
        let ring = Buffer::new(16 << (LOG_DEPTH + LOG_STRIDE));
        let record = Buffer::new(8);
        let attributes = SharedReceiveAttributes {
            protection_domain: node.pd,
            ring: ReceiveRing {
                ring: ring.address(),
                log_depth: LOG_DEPTH,
                log_stride: LOG_STRIDE,
            },
            record: record.address(),
            topology,
        };
        // SAFETY: the buffers live as long as the test.
        let queue = unsafe { node.engine.create_shared_receive_queue(&attributes) };
        let mut list = Self {
            queue: queue.unwrap(),
            ring,
            record,
            links: std::array::from_fn(|index| index as u16 + 1),
            head: 0,
            tail: DEPTH - 1,
            counter: 0,
            posted: HashSet::new(),
            memory: node.region(&vec![0; ROOM * usize::from(DEPTH)]),
        };
        for index in 0..DEPTH {
            list.store(index, list.piece(index));
        }
        list
    }

    fn piece(&self, index: u16) -> Local {
        self.memory
            .local(u64::from(index) * ROOM as u64, ROOM as u32)
    }

    fn store(&mut self, index: u16, segment: Local) {
        let link = self.links[usize::from(index)];
        let wqe = ReceiveWqe::<2>::linked(link, &[segment]).unwrap();
        for (octoword, offset) in wqe.to_octowords().iter().zip([0, 16]) {
            let at = usize::from(index) * 32 + offset;
            self.ring.write(at, &octoword.to_bytes());
        }
    }

    /// Posts the WQE at the head; none is left if false.
    fn post(&mut self) -> bool {
        if self.head == self.tail {
            return false;
        }
        self.store(self.head, self.piece(self.head));
        self.posted.insert(self.head);
        self.head = self.links[usize::from(self.head)];
        self.counter = self.counter.wrapping_add(1);
        let word = u32::from(self.counter).to_be();
        self.record.write(0, &word.to_ne_bytes());
        true
    }

    /// A WQE has completed, and goes to the tail.
    fn free(&mut self, index: u16) {
        assert!(self.posted.remove(&index), "{index} is not the engine's");
        self.links[usize::from(self.tail)] = index;
        let link = ReceiveWqe::<2>::linked(index, &[]).unwrap().to_octowords()[0];
        self.ring
            .write(usize::from(self.tail) * 32, &link.to_bytes());
        self.tail = index;
    }

    fn bytes(&self, index: u16, length: usize) -> Vec<u8> {
        let start = usize::from(index) * ROOM;
        self.memory.buffer.bytes()[start..start + length].to_vec()
    }
}

/// Queue pairs of one HCA connected to as many of the other, which share a list.
struct Crowd {
    world: World,
    list: List,
    ours: Vec<Qp>,
    theirs: Vec<Qp>,
}

impl Crowd {
    fn new(pairs: usize, connection: Connection) -> Self {
        Self::with(pairs, connection, Topology::LinkedList)
    }

    fn with(pairs: usize, connection: Connection, topology: Topology) -> Self {
        let shape = Shape {
            queue_pairs: pairs + 1,
            ..Shape::default()
        };
        let mut world = World::with(shape, Connection::default(), [clean(), clean()]);
        let list = List::new(&mut world.b, topology);
        let shared = Shape {
            options: QueuePairOptions {
                shared_receive_queue: Some(list.queue),
                ..QueuePairOptions::default()
            },
            ..shape
        };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..pairs {
            let (a, b) = (&mut world.a, &mut world.b);
            let here = create_queue_pair(&mut a.engine, a.pd, shape);
            let there = create_queue_pair(&mut b.engine, b.pd, shared);
            let (us, them) = (
                (WireAddress(0), here.number),
                (WireAddress(1), there.number),
            );
            connect_queue_pair(&mut a.engine, here.number, them, shape.mtu, connection);
            connect_queue_pair(&mut b.engine, there.number, us, shape.mtu, connection);
            ours.push(here);
            theirs.push(there);
        }
        Self {
            world,
            list,
            ours,
            theirs,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    /// Whoever takes which WQE, and in whatever order they come back: each message of a queue pair arrives whole, in
    /// that queue pair's order, in the WQE that its CQE names.
    #[test]
    fn messages_arrive_whole_in_the_wqes_that_their_cqes_name(
        messages in proptest::collection::vec((0..3_usize, 1..ROOM, any::<u8>()), 1..60),
    ) {
        let mut crowd = Crowd::new(3, Connection::default());
        let mut sent: HashMap<usize, Vec<Vec<u8>>> = HashMap::new();
        let mut arrived: HashMap<usize, usize> = HashMap::new();
        for round in messages.chunks(4) {
            for (from, length, seed) in round {
                let bytes = pattern(*length, *seed);
                let source = crowd.world.a.region(&bytes);
                crowd.ours[*from].post(Wqe::<1>::send(source.all()).signalled());
                sent.entry(*from).or_default().push(bytes);
                prop_assert!(crowd.list.post());
                // The packets of several messages mix.
                crowd.world.step();
            }
            crowd.world.settle();
            let mut taken = Vec::new();
            for (to, qp) in crowd.theirs.iter_mut().enumerate() {
                for cqe in qp.receive_cq.drain() {
                    prop_assert_eq!(cqe.tail().cqe_opcode(), CqeOpcode::RESPONDER_SEND);
                    let index = cqe.tail().wqe_counter();
                    let next = arrived.entry(to).or_default();
                    let expected = &sent[&to][*next];
                    *next += 1;
                    prop_assert_eq!(cqe.byte_count.get() as usize, expected.len());
                    prop_assert_eq!(&crowd.list.bytes(index, expected.len()), expected);
                    taken.push(index);
                }
            }
            prop_assert_eq!(taken.len(), round.len());
            // Back in another order than they were taken in.
            taken.sort_by_key(|index| index.wrapping_mul(5) % DEPTH);
            taken.into_iter().for_each(|index| crowd.list.free(index));
            // 16 regions is all the table has.
            crowd.world.a.forget_regions();
        }
        crowd.world.check_canaries();
    }
}

#[test]
fn an_empty_list_is_no_receive_until_something_is_posted() {
    let mut crowd = Crowd::new(1, Connection::default());
    let source = crowd.world.a.region(&[7; 100]);
    crowd.ours[0].post(Wqe::<1>::send(source.all()).signalled());
    crowd.world.settle();
    assert!(crowd.ours[0].send_cq.poll().is_none());
    assert!(crowd.list.post());
    crowd.world.run_for(200_000);
    assert!(crowd.ours[0].send_cq.poll().is_some());
    assert_eq!(crowd.theirs[0].receive_cq.drain().len(), 1);
    assert_eq!(crowd.list.bytes(0, 100), [7; 100]);
    // Immediate data of a write takes one too.
    let target = crowd.world.b.region(&[0; 100]);
    let write = Wqe::<1>::write_immediate(source.all(), target.remote(0), Immediate(9));
    crowd.list.post();
    crowd.ours[0].post(write.signalled());
    crowd.world.settle();
    let cqe = crowd.theirs[0].receive_cq.poll().expect("a completion");
    assert_eq!(cqe.immediate.get(), 9);
    assert_eq!(cqe.tail().wqe_counter(), 1);
}

/// Whatever the links say: the WQEs come by their places, and CQEs count them past the ring.
#[test]
fn a_cyclic_queue_is_taken_by_place() {
    let mut crowd = Crowd::with(1, Connection::default(), Topology::Cyclic);
    for index in 0..DEPTH {
        crowd.list.links[usize::from(index)] = 0;
        crowd.list.store(index, crowd.list.piece(index));
    }
    for count in 1..=3 * DEPTH {
        let bytes = pattern(100, count as u8);
        let source = crowd.world.a.region(&bytes);
        let word = u32::from(count).to_be();
        crowd.list.record.write(0, &word.to_ne_bytes());
        crowd.ours[0].post(Wqe::<1>::send(source.all()).signalled());
        crowd.world.settle();
        let cqe = crowd.theirs[0].receive_cq.poll().expect("a completion");
        assert_eq!(cqe.tail().wqe_counter(), count - 1);
        assert_eq!(crowd.list.bytes((count - 1) % DEPTH, 100), bytes);
        crowd.world.a.forget_regions();
    }
    crowd.world.check_canaries();
}

#[test]
fn only_the_wqe_in_hand_is_flushed() {
    let mut crowd = Crowd::new(2, Connection::default());
    (0..4).for_each(|_| assert!(crowd.list.post()));
    let source = crowd.world.a.region(&[7; ROOM]);
    // The first packet of several arrives, no more.
    crowd.ours[0].post(Wqe::<1>::send(source.all()).signalled());
    while crowd.world.in_the_air() == 0 {
        crowd.world.a.engine.step(crowd.world.now);
    }
    crowd.world.keep_in_the_air(1, 1);
    crowd.world.b.engine.step(crowd.world.now);
    for (qp, flushed) in [(0, 1), (1, 0)] {
        let number = crowd.theirs[qp].number;
        let engine = &mut crowd.world.b.engine;
        engine.modify_queue_pair(number, Transition::Error).unwrap();
        crowd.world.settle();
        let cqes = crowd.theirs[qp].receive_cq.drain();
        assert_eq!(cqes.len(), flushed);
        for cqe in cqes {
            assert_eq!(cqe.error_word().syndrome(), Syndrome::FLUSHED);
            assert_eq!(cqe.tail().wqe_counter(), 0);
        }
    }
    let status = crowd
        .world
        .b
        .engine
        .query_queue_pair(crowd.theirs[1].number);
    assert_eq!(status.unwrap().state, QueuePairState::Error);
}

#[test]
fn commands_refuse_what_cannot_be() {
    let mut crowd = Crowd::new(1, Connection::default());
    let (node, queue) = (&mut crowd.world.b, crowd.list.queue);
    assert_eq!(
        node.engine.destroy_shared_receive_queue(queue),
        Err(CommandError::InUse)
    );
    assert_eq!(
        node.engine.destroy_protection_domain(node.pd),
        Err(CommandError::InUse)
    );
    let number = crowd.theirs[0].number;
    node.engine.destroy_queue_pair(number).unwrap();
    node.engine.destroy_shared_receive_queue(queue).unwrap();
    assert_eq!(
        node.engine.destroy_shared_receive_queue(queue),
        Err(CommandError::NoSharedReceiveQueue)
    );
    let good = SharedReceiveAttributes {
        protection_domain: node.pd,
        ring: ReceiveRing {
            ring: crowd.list.ring.address(),
            log_depth: LOG_DEPTH,
            log_stride: LOG_STRIDE,
        },
        record: crowd.list.record.address(),
        topology: Topology::LinkedList,
    };
    let bad = [
        (0, LOG_DEPTH, 0, CommandError::TooDeep),
        (0, LOG_DEPTH, 6, CommandError::TooDeep),
        (0, 16, LOG_STRIDE, CommandError::TooDeep),
        (8, LOG_DEPTH, LOG_STRIDE, CommandError::Misaligned),
    ];
    for (shift, log_depth, log_stride, error) in bad {
        let attributes = SharedReceiveAttributes {
            ring: ReceiveRing {
                ring: good.ring.ring + shift,
                log_depth,
                log_stride,
            },
            ..good
        };
        // SAFETY: refused, so that nothing of it is used.
        let created = unsafe { node.engine.create_shared_receive_queue(&attributes) };
        assert_eq!(created, Err(error));
    }
    // A table for two.
    for expected in [true, true, false] {
        // SAFETY: the buffers live as long as the test.
        let created = unsafe { node.engine.create_shared_receive_queue(&good) };
        assert_eq!(created.is_ok(), expected);
    }
    let engine = &mut crowd.world.a.engine;
    let attributes = SharedReceiveAttributes {
        protection_domain: crowd.world.a.pd,
        ..good
    };
    // SAFETY: refused, so that nothing of it is used.
    let created = unsafe { engine.create_shared_receive_queue(&attributes) };
    assert_eq!(created, Err(CommandError::TableFull), "no table was lent");
}
