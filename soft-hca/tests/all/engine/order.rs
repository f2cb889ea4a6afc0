//! Fences, many queues on one page, and payloads that go back to their owner in time.

use std::alloc::{Layout, alloc};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use mlx5_wqe::{Doorbell, DoorbellRecord, Fence, Immediate, Local, UarPage, Wqe, WqeIndex};
use warpbell_soft_hca::engine::fault::Fate;
use warpbell_soft_hca::engine::packet::{Header, Opcode, PacketFlags};
use warpbell_soft_hca::engine::{Access, Transition, WireAddress};

use super::world::{
    Buffer, Connection, Node, RNR_NS, Shape, TIMEOUT_NS, World, clean, connect_queue_pair,
    create_queue_pair_on, pattern,
};

/// Steps only the first HCA.
fn step_a(world: &mut World, steps: usize) {
    for _ in 0..steps {
        world.now += 100;
        world.a.engine.step(world.now);
    }
}

#[test]
fn a_fence_waits_for_reads_and_atomics_before_it() {
    for (fence, waits) in [
        (Fence::None, false),
        (Fence::Fence, true),
        (Fence::SmallAndFence, true),
        (Fence::StrongOrdering, true),
    ] {
        let mut world = World::new();
        let here = world.a.region(&[1; 64]);
        let there = world.b.region(&[2; 64]);
        let qp = &mut world.a.qp;
        qp.write(Wqe::<1>::read(here.local(0, 8), there.remote(0)).signalled());
        let write = Wqe::<1>::write(here.local(0, 8), there.remote(8)).signalled();
        qp.post(write.fenced(fence));
        step_a(&mut world, 10);
        // The READ request, and the WRITE where it need not wait.
        assert_eq!(world.in_the_air(), if waits { 1 } else { 2 }, "{fence:?}");
        world.settle();
        assert_eq!(world.a.qp.send_cq.drain().len(), 2, "{fence:?}");
        // A fenced WRITE sends what the READ fetched.
        let expected = if waits { [2; 8] } else { [1; 8] };
        assert_eq!(there.buffer.bytes()[8..16], expected, "{fence:?}");
    }
}

#[test]
fn strong_ordering_waits_for_writes_too() {
    for (fence, packets) in [(Fence::Fence, 2), (Fence::StrongOrdering, 1)] {
        let mut world = World::new();
        let here = world.a.region(&[1; 64]);
        let there = world.b.region(&[2; 64]);
        let write = Wqe::<1>::write(here.local(0, 8), there.remote(8)).signalled();
        world.a.qp.write(write);
        world.a.qp.post(write.fenced(fence));
        step_a(&mut world, 10);
        assert_eq!(world.in_the_air(), packets, "{fence:?}");
        world.settle();
        assert_eq!(world.a.qp.send_cq.drain().len(), 2);
    }
}

#[test]
fn no_more_reads_under_way_than_the_peer_can_hold() {
    let mut world = World::with(
        Shape {
            log_depth: 6,
            ..Shape::default()
        },
        Connection::default(),
        [clean(), clean()],
    );
    let here = world.a.region(&[0; 400]);
    let there = world.b.region(&pattern(400, 1));
    for slot in 0..50 {
        let wqe = Wqe::<1>::read(here.local(slot * 8, 8), there.remote(slot * 8));
        world.a.qp.write(wqe.signalled());
    }
    world.a.qp.ring_doorbell();
    step_a(&mut world, 10);
    assert_eq!(world.in_the_air(), 16);
    world.settle();
    assert_eq!(world.a.qp.send_cq.drain().len(), 50);
    assert_eq!(here.buffer.bytes(), there.buffer.bytes());
}

#[test]
fn a_wqe_that_finds_the_window_full_goes_out_later() {
    const WQES: u64 = 70;
    let shape = Shape {
        log_depth: 7,
        log_cq_depth: 7,
        ..Shape::default()
    };
    let mut world = World::with(shape, Connection::default(), [clean(), clean()]);
    let here = world.a.region(&pattern(8 * WQES as usize, 1));
    let there = world.b.region(&vec![0; here.buffer.length]);
    for slot in 0..WQES {
        let wqe = Wqe::<1>::write(here.local(slot * 8, 8), there.remote(slot * 8));
        world.a.qp.write(wqe.signalled());
    }
    world.a.qp.ring_doorbell();
    step_a(&mut world, 10);
    // The requester has 64 WQEs under way at most.
    assert_eq!(world.in_the_air(), 64);
    world.settle();
    assert_eq!(world.a.qp.send_cq.drain().len() as u64, WQES);
    assert_eq!(here.buffer.bytes(), there.buffer.bytes());
}

/// PSNs are compared around their circle, so only a part of them may be under way.
#[test]
fn no_more_psns_under_way_than_can_be_compared() {
    const MTU: u32 = 256;
    const GIB: usize = 1 << 30;
    let shape = Shape {
        mtu: MTU,
        ..Shape::default()
    };
    let mut world = World::with(shape, Connection::default(), [clean(), clean()]);
    let small = world.a.region(&[1; 8]);
    let there = world.b.region(&[0; 8]);
    // Nobody touches these bytes, because the READ is never answered.
    // SAFETY: the layout has a size.
    let memory = unsafe { alloc(Layout::from_size_align(GIB, 4096).unwrap()) };
    assert!(!memory.is_null());
    let address = memory.expose_provenance() as u64;
    let engine = &mut world.a.engine;
    let access = Access::LOCAL_WRITE;
    // SAFETY: the memory is never freed.
    let keys = unsafe { engine.register_memory(world.a.pd, address, GIB as u64, access) }.unwrap();
    // One packet short of 2^22.
    let large = Local {
        address,
        length: GIB as u32 - MTU,
        key: keys.local,
    };
    world.a.qp.write(Wqe::<1>::read(large, there.remote(0)));
    for _ in 0..2 {
        let write = Wqe::<1>::write(small.all(), there.remote(0));
        world.a.qp.write(write);
    }
    world.a.qp.ring_doorbell();
    step_a(&mut world, 10);
    // The READ, and the WRITE that makes 2^22 full. The other one waits.
    assert_eq!(world.in_the_air(), 2);
}

#[test]
fn a_long_message_asks_for_an_acknowledgement_every_16_packets() {
    let asked = Rc::new(RefCell::new(Vec::new()));
    let log = asked.clone();
    let listen = Box::new(move |header: &Header| {
        let acknowledge = header.flags().contains(PacketFlags::ACKNOWLEDGE);
        log.borrow_mut().push(acknowledge);
        Fate::Pass
    });
    let mut world = World::with(Shape::default(), Connection::default(), [listen, clean()]);
    let source = world.a.region(&[1; 40 * 1024]);
    let target = world.b.region(&[0; 40 * 1024]);
    let write = Wqe::<1>::write(source.all(), target.remote(0));
    world.a.qp.post(write.signalled());
    world.settle();
    assert_eq!(world.a.qp.send_cq.drain().len(), 1);
    let expected: Vec<_> = (0..40)
        .map(|packet| [15, 31, 39].contains(&packet))
        .collect();
    assert_eq!(*asked.borrow(), expected);
}

#[test]
fn nothing_is_executed_without_a_doorbell_or_outside_rts() {
    use mlx5_wqe::DoorbellRecord;
    let mut world = World::new();
    world.a.qp.write(Wqe::<1>::nop().signalled());
    let word = DoorbellRecord::word(world.a.qp.producer);
    world.a.qp.record.write(4, &word.to_ne_bytes());
    world.settle();
    assert!(world.a.qp.send_cq.poll().is_none(), "no doorbell was rung");
    world.a.qp.ring_doorbell();
    world.settle();
    assert!(world.a.qp.send_cq.poll().is_some());
    world.reset();
    world.a.qp.post(Wqe::<1>::nop().signalled());
    world.settle();
    assert!(world.a.qp.send_cq.poll().is_none(), "in RESET");
}

#[test]
fn the_record_counts_and_not_what_the_doorbell_says() {
    let mut world = World::new();
    for _ in 0..3 {
        world.a.qp.write(Wqe::<1>::nop().signalled());
    }
    let word = DoorbellRecord::word(2);
    world.a.qp.record.write(4, &word.to_ne_bytes());
    // A doorbell that names the right queue and the wrong index.
    let doorbell = Doorbell::of_producer(WqeIndex(3), world.a.qp.number);
    let [register, _] = UarPage::DOORBELLS;
    let uar = world.a.qp.uar;
    let register = uar.atomic_u64(register);
    register.store(doorbell.0, Ordering::Release);
    world.settle();
    assert_eq!(world.a.qp.send_cq.drain().len(), 2);
}

#[test]
fn a_doorbell_overwritten_by_a_sibling_s_is_not_lost() {
    let mut world = World::new();
    // A second queue pair, on the page of the first, rings last.
    let page = world.a.qp.uar;
    let Node { engine, pd, .. } = &mut world.a;
    let mut other = create_queue_pair_on(engine, *pd, world.shape, page);
    world.a.qp.post(Wqe::<1>::nop().signalled());
    other.post(Wqe::<1>::nop().signalled());
    world.settle();
    assert!(world.a.qp.send_cq.poll().is_some());
}

/// A poster that rings ahead of its record rings the same behind it.
#[test]
fn a_ring_ahead_of_its_record_is_not_all_that_is_heard() {
    for late in [0, 300] {
        let mut world = World::new();
        world.a.qp.write(Wqe::<1>::nop().signalled());
        let doorbell = Doorbell::of_producer(WqeIndex(world.a.qp.producer), world.a.qp.number);
        let [register, _] = UarPage::DOORBELLS;
        let uar = world.a.qp.uar;
        let register = uar.atomic_u64(register);
        register.store(doorbell.0, Ordering::Release);
        for _ in 0..late {
            world.step();
        }
        world.settle();
        assert!(world.a.qp.send_cq.poll().is_none(), "no record tells of it");
        let word = DoorbellRecord::word(world.a.qp.producer);
        world.a.qp.record.write(4, &word.to_ne_bytes());
        register.store(doorbell.0, Ordering::Release);
        world.settle();
        assert!(world.a.qp.send_cq.poll().is_some(), "{late}");
    }
}

/// A register keeps what was heard there, and a queue pair that begins anew rings as it did before.
#[test]
fn the_first_ring_after_a_reset_is_heard_though_it_is_the_last_one_again() {
    for sibling in [false, true] {
        let mut world = World::new();
        let page = world.a.qp.uar;
        if sibling {
            let peer = world.b.qp.number;
            let Node { engine, pd, .. } = &mut world.a;
            let other = create_queue_pair_on(engine, *pd, world.shape, page);
            let to = (WireAddress(1), peer);
            connect_queue_pair(
                engine,
                other.number,
                to,
                world.shape.mtu,
                Connection::default(),
            );
        }
        for life in 0..3 {
            world.a.qp.post(Wqe::<1>::nop().signalled());
            world.settle();
            let completed = world.a.qp.send_cq.drain().len();
            assert_eq!(completed, 1, "life {life}, with a sibling: {sibling}");
            world.reset();
            world.connect(Connection::default());
            // It looks at the register once more before the next ring.
            world.settle();
        }
    }
}

#[test]
fn a_payload_goes_back_when_its_queue_pair_fails() {
    let mut world = World::new();
    let source = world.a.region(&[1; 64]);
    let target = world.b.region(&[0; 64]);
    world
        .a
        .qp
        .post(Wqe::<1>::write(source.all(), target.remote(0)));
    step_a(&mut world, 3);
    assert_eq!(world.in_the_air(), 1);
    let qp = world.a.qp.number;
    world
        .a
        .engine
        .modify_queue_pair(qp, Transition::Error)
        .unwrap();
    assert_eq!(world.in_the_air(), 0, "the owner may free its memory now");
    world.settle();
    assert_eq!(target.buffer.bytes(), [0; 64]);
}

#[test]
fn deregistered_memory_is_not_read_any_more() {
    let mut world = World::new();
    let target = world.a.region(&[0; 4096]);
    let source = world.b.region(&pattern(4096, 1));
    world
        .a
        .qp
        .post(Wqe::<1>::read(target.all(), source.remote(0)).signalled());
    step_a(&mut world, 3);
    for _ in 0..2 {
        world.b.engine.step(world.now);
    }
    assert_eq!(world.in_the_air(), 4, "the answer");
    world.b.engine.deregister_memory(source.keys.local).unwrap();
    assert_eq!(world.in_the_air(), 0);
    world.run_for(20 * TIMEOUT_NS);
    let cqe = world.a.qp.send_cq.poll().expect("an error");
    assert!(cqe.tail().is_error());
    assert_eq!(target.buffer.bytes(), [0; 4096]);
}

#[test]
fn a_write_with_immediate_waits_for_a_receive() {
    let mut world = World::new();
    let data = pattern(3000, 1);
    let source = world.a.region(&data);
    let target = world.b.region(&[0; 3000]);
    let write = Wqe::<1>::write_immediate(source.all(), target.remote(0), Immediate(9));
    world.a.qp.post(write.signalled());
    world.run_for(5 * u64::from(RNR_NS));
    assert!(world.a.qp.send_cq.poll().is_none());
    world.b.qp.post_receive(&[]);
    world.settle();
    assert!(!world.a.qp.send_cq.poll().unwrap().tail().is_error());
    assert_eq!(world.b.qp.receive_cq.drain().len(), 1);
    assert_eq!(target.buffer.bytes(), data);
}

#[test]
fn an_atomic_whose_answer_is_lost_is_executed_once() {
    // The first two answers to atomics are lost.
    let mut lost = 0;
    let drop_answers = Box::new(move |header: &Header| {
        if header.opcode == Opcode::AtomicResponse as u8 && lost < 2 {
            lost += 1;
            return Fate::Drop;
        }
        Fate::Pass
    });
    let mut world = World::with(
        Shape::default(),
        Connection::default(),
        [clean(), drop_answers],
    );
    let result = world.a.region(&[0xff; 8]);
    let counter = world.b.region(&10_u64.to_ne_bytes());
    let wqe = Wqe::<1>::fetch_add(result.all(), counter.remote(0), 1).signalled();
    world.a.qp.post(wqe);
    world.run_for(5 * TIMEOUT_NS);
    assert!(!world.a.qp.send_cq.poll().unwrap().tail().is_error());
    assert_eq!(result.buffer.u64_at(0), 10);
    assert_eq!(counter.buffer.u64_at(0), 11);
    let status = world.b.engine.query_queue_pair(world.b.qp.number);
    assert_eq!(status.unwrap().counters.duplicates, 2);
}

#[test]
fn a_late_duplicate_does_not_take_the_room_of_a_new_read() {
    let connection = Connection::default();
    let mut world = World::connected(connection);
    let here = world.a.region(&[0; 400]);
    let there = world.b.region(&pattern(400, 1));
    let read =
        |slot: u64| Wqe::<1>::read(here.local(slot * 8, 8), there.remote(slot * 8)).signalled();
    world.a.qp.post(read(0));
    world.settle();
    // The first READ once more, and behind it as many as there may be: all in one step of the responder.
    let duplicate = Header {
        destination: 1,
        source: 0,
        destination_qp: world.b.qp.number.get(),
        source_qp: world.a.qp.number.get(),
        psn: connection.psn,
        opcode: Opcode::ReadRequest as u8,
        flags: 0b111,
        address: there.buffer.address(),
        rkey: there.keys.remote.0,
        length: 8,
        ..Header::default()
    };
    world.inject(duplicate, Buffer::new(0));
    for slot in 1..17 {
        world.a.qp.write(read(slot));
    }
    world.a.qp.ring_doorbell();
    step_a(&mut world, 10);
    assert_eq!(world.in_the_air(), 17);
    world.run_for(3 * TIMEOUT_NS);
    assert_eq!(world.a.qp.send_cq.drain().len(), 17);
    assert_eq!(here.buffer.bytes()[..136], there.buffer.bytes()[..136]);
}

#[test]
fn each_gap_is_noticed_without_a_timer() {
    // The second packet of every message is lost when it first comes.
    let mut seen = std::collections::HashSet::new();
    let lose = Box::new(move |header: &Header| {
        let first = header.psn & 3 == 1 && seen.insert(header.psn);
        if first { Fate::Drop } else { Fate::Pass }
    });
    let connection = Connection {
        psn: 0,
        ..Connection::default()
    };
    let mut world = World::with(Shape::default(), connection, [lose, clean()]);
    let data = pattern(4096, 1);
    let source = world.a.region(&data);
    let target = world.b.region(&[0; 4096]);
    for _ in 0..6 {
        let wqe = Wqe::<1>::write(source.all(), target.remote(0));
        world.a.qp.post(wqe.signalled());
        world.run_for(20_000);
        assert!(world.a.qp.send_cq.poll().is_some());
    }
    let status = world.a.engine.query_queue_pair(world.a.qp.number);
    assert_eq!(status.unwrap().counters.retries, 6);
}
