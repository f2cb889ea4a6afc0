//! Queue pairs without a doorbell record: the doorbell tells all.

use std::sync::atomic::Ordering;

use mlx5_wqe::{Doorbell, DoorbellRecord, Fence, QpNumber, UarPage, Wqe, WqeIndex};
use warpbell_soft_hca::engine::{
    CommandError, CrossChannel, QueuePairAttributes, SendDoorbell, Transition,
};

use super::world::{
    Connection, Node, Shape, World, clean, connect_queue_pair, create_queue_pair_on,
};

fn world() -> World {
    let shape = Shape {
        send_doorbell: SendDoorbell::WithoutRecord,
        ..Shape::default()
    };
    World::with(shape, Connection::default(), [clean(), clean()])
}

/// Stores a doorbell; gives how many WQEs completed because of it.
fn ring(world: &mut World, register: usize, doorbell: Doorbell) -> usize {
    let register = world.a.qp.uar.atomic_u64(register);
    register.store(doorbell.0, Ordering::Release);
    world.settle();
    world.a.qp.send_cq.drain().len()
}

const REGISTER: usize = UarPage::DOORBELL_WITHOUT_RECORD;

#[test]
fn the_doorbell_counts_and_no_record() {
    let mut world = world();
    for _ in 0..3 {
        world.a.qp.write(Wqe::<1>::nop().signalled());
    }
    let number = world.a.qp.number;
    let record = DoorbellRecord::word(3);
    world.a.qp.record.write(4, &record.to_ne_bytes());
    let told = |index| Doorbell::of_producer(WqeIndex(index), number);
    // The register of queue pairs with a record is none of this one's.
    assert_eq!(ring(&mut world, UarPage::DOORBELLS[0], told(3)), 0);
    assert_eq!(ring(&mut world, REGISTER, told(2)), 2);
    // Old ones that come late, and some that are further ahead than the ring is long.
    for index in [2, 1, 0, 0xfff0, 19, 0x8000] {
        assert_eq!(ring(&mut world, REGISTER, told(index)), 0, "{index}");
    }
    // Somebody else's.
    let other = QpNumber::from_low_bits(number.get() ^ 1);
    let doorbell = Doorbell::of_producer(WqeIndex(3), other);
    assert_eq!(ring(&mut world, REGISTER, doorbell), 0);
    assert_eq!(ring(&mut world, REGISTER, told(3)), 1);
}

/// A GPU cannot exchange a word of the host's in one step: what a host rings between its load and its store would be lost.
#[test]
fn what_was_heard_stays_in_its_register() {
    for (send_doorbell, register) in [
        (SendDoorbell::WithRecord, UarPage::DOORBELLS[0]),
        (SendDoorbell::WithoutRecord, REGISTER),
    ] {
        let shape = Shape {
            send_doorbell,
            ..Shape::default()
        };
        let mut world = World::with(shape, Connection::default(), [clean(), clean()]);
        for producer in 1..=3 {
            world.a.qp.post(Wqe::<1>::nop().signalled());
            world.settle();
            assert_eq!(world.a.qp.send_cq.drain().len(), 1);
            let told = Doorbell::of_producer(WqeIndex(producer), world.a.qp.number);
            let found = world.a.qp.uar.atomic_u64(register).load(Ordering::Relaxed);
            assert_eq!(found, told.0, "{send_doorbell:?}");
        }
    }
}

/// What was told stays told, also while it waits for something else.
#[test]
fn a_doorbell_that_comes_late_takes_nothing_back() {
    let mut world = world();
    let here = world.a.region(&[1; 64]);
    let there = world.b.region(&[2; 64]);
    let qp = &mut world.a.qp;
    qp.write(Wqe::<1>::read(here.local(0, 8), there.remote(0)).signalled());
    let write = Wqe::<1>::write(here.local(0, 8), there.remote(8)).signalled();
    qp.post(write.fenced(Fence::Fence));
    let number = qp.number;
    for now in 1..10 {
        world.a.engine.step(100 * now);
    }
    assert_eq!(world.in_the_air(), 1, "the write waits for the read");
    let late = Doorbell::of_producer(WqeIndex(1), number);
    assert_eq!(ring(&mut world, REGISTER, late), 2);
}

/// libmlx5's form, which names the last WQE.
#[test]
fn the_first_bytes_of_a_wqe_are_a_doorbell_too() {
    let mut world = world();
    let number = world.a.qp.number;
    for index in 0..40 {
        let wqe = Wqe::<1>::nop().signalled();
        world.a.qp.write(wqe);
        let blocks = wqe.place(WqeIndex(index), number);
        assert_eq!(ring(&mut world, REGISTER, Doorbell::of_wqe(&blocks)), 1);
    }
}

#[test]
fn a_page_has_one_such_doorbell() {
    let mut world = world();
    let page = world.a.qp.uar;
    let Node { engine, pd, qp, .. } = &mut world.a;
    let attributes = QueuePairAttributes {
        protection_domain: *pd,
        send_ring: qp.ring.address(),
        log_send_depth: qp.log_depth,
        receive: None,
        record: qp.record.address(),
        send_doorbell: SendDoorbell::WithoutRecord,
        uar: page.address(),
        send_cq: qp.send_cq.number,
        receive_cq: qp.receive_cq.number,
        cross_channel: CrossChannel::empty(),
    };
    // SAFETY: the buffers live as long as the test.
    let mut create = || unsafe { engine.create_queue_pair(&attributes) };
    assert_eq!(create(), Err(CommandError::DoorbellTaken));
    assert_eq!(create(), Err(CommandError::DoorbellTaken));
    engine.destroy_queue_pair(qp.number).unwrap();
    // SAFETY: as above.
    let freed = unsafe { engine.create_queue_pair(&attributes) }.unwrap();
    engine.destroy_queue_pair(freed).unwrap();
    engine.destroy_protection_domain(*pd).unwrap();
}

/// A queue pair with a record has another register of the same page: neither's doorbell is lost.
#[test]
fn one_with_a_record_may_share_the_page() {
    let mut world = world();
    let page = world.a.qp.uar;
    let Node { engine, pd, .. } = &mut world.a;
    let peer = (engine.address(), world.b.qp.number);
    let shape = Shape {
        send_doorbell: SendDoorbell::WithRecord,
        ..world.shape
    };
    let mut other = create_queue_pair_on(engine, *pd, shape, page);
    connect_queue_pair(engine, other.number, peer, shape.mtu, Connection::default());
    for _ in 0..40 {
        world.a.qp.post(Wqe::<1>::nop().signalled());
        other.post(Wqe::<1>::nop().signalled());
        world.settle();
        let done = [&mut world.a.qp, &mut other].map(|qp| qp.send_cq.drain().len());
        assert_eq!(done, [1, 1]);
    }
    world.a.engine.destroy_queue_pair(other.number).unwrap();
    world.a.qp.post(Wqe::<1>::nop().signalled());
    world.settle();
    assert_eq!(world.a.qp.send_cq.drain().len(), 1);
}

/// What was rung is flushed, though nobody had heard it before the error; after RESET it means nothing.
#[test]
fn errors_and_reset() {
    let mut world = world();
    for round in 0..3 {
        world.a.qp.post(Wqe::<1>::nop().signalled());
        let number = world.a.qp.number;
        let error = world.a.engine.modify_queue_pair(number, Transition::Error);
        error.unwrap();
        world.settle();
        world.a.qp.post(Wqe::<1>::nop().signalled());
        world.settle();
        let flushed = world.a.qp.send_cq.drain();
        assert_eq!(flushed.len(), 2, "round {round}");
        assert!(flushed.iter().all(|cqe| cqe.tail().is_error()));
        // This one stays in the register.
        world.a.qp.post(Wqe::<1>::nop().signalled());
        world.reset();
        world.connect(Connection::default());
        world.settle();
        assert_eq!(world.a.qp.send_cq.drain().len(), 0, "round {round}");
        world.a.qp.post(Wqe::<1>::nop().signalled());
        world.settle();
        assert_eq!(world.a.qp.send_cq.drain().len(), 1, "round {round}");
        world.reset();
        world.connect(Connection::default());
    }
}
