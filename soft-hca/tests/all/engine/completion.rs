//! Completion queues: owner parity, overrun, collapsed, armed events.

use mlx5_wqe::{CqArm, Cqe64, Immediate, UarPage, Wqe};
use std::sync::atomic::Ordering;
use warpbell_soft_hca::engine::{CqeSize, Event, QueuePairState};

use super::world::{Connection, Qp, Shape, World, clean};

fn world(shape: Shape) -> World {
    World::with(shape, Connection::default(), [clean(), clean()])
}

/// Arms the send completion queue, through record and register.
fn arm(qp: &Qp, sequence: u8, solicited_only: bool, ring: bool) {
    let cq = &qp.send_cq;
    let arm = CqArm {
        sequence,
        solicited_only,
        consumer: cq.consumer,
    };
    cq.record.write(4, &arm.word().to_ne_bytes());
    if ring {
        qp.uar
            .atomic_u64(UarPage::CQ_ARM)
            .store(arm.doorbell(cq.number), Ordering::Release);
    }
}

#[test]
fn owner_parity_over_many_laps_and_indices_past_16_bits() {
    for log_cq_depth in [0, 1, 3] {
        let mut world = world(Shape {
            log_cq_depth,
            log_depth: 0,
            ..Shape::default()
        });
        // The send queue's index wraps too: 70,000 blocks.
        for count in 0..70_000_u32 {
            let index = world.a.qp.post(Wqe::<1>::nop().signalled());
            world.step();
            world.step();
            let slot = count & ((1 << log_cq_depth) - 1);
            let cqe = world.a.qp.send_cq.entry(slot);
            assert_eq!(u32::from(cqe.tail().owner()), count >> log_cq_depth & 1);
            let polled = world.a.qp.send_cq.poll().expect("a completion");
            assert_eq!(polled.tail().wqe_index(), index);
            assert!(!polled.tail().is_error());
        }
    }
}

/// Of large entries the second half is the CQE, as drivers read it; the first half is for data, of which there are none.
#[test]
fn large_entries_hold_their_cqe_in_the_second_half() {
    let log_cq_depth = 2;
    let mut world = world(Shape {
        log_cq_depth,
        cqe_size: CqeSize::Bytes128,
        ..Shape::default()
    });
    for _ in 0..3 << log_cq_depth {
        let index = world.a.qp.post(Wqe::<1>::nop().signalled());
        world.settle();
        let polled = world.a.qp.send_cq.poll().expect("a completion");
        assert_eq!(polled.tail().wqe_index(), index);
    }
    let ring = world.a.qp.send_cq.ring.bytes();
    assert_eq!(ring.len(), 128 << log_cq_depth);
    for entry in ring.chunks(128) {
        assert_eq!(entry[..64], [0; 64]);
    }
    world.check_canaries();
}

#[test]
fn a_full_queue_takes_no_more_and_says_so() {
    let mut world = world(Shape {
        log_cq_depth: 2,
        ..Shape::default()
    });
    for _ in 0..4 {
        world.a.qp.write(Wqe::<1>::nop().signalled());
    }
    world.a.qp.ring_doorbell();
    world.settle();
    assert_eq!(world.a.engine.poll_event(), None);
    let full: Vec<u8> = world.a.qp.send_cq.ring.bytes();
    world.a.qp.post(Wqe::<1>::nop().signalled());
    world.settle();
    let (qp, cq) = (world.a.qp.number, world.a.qp.send_cq.number);
    assert_eq!(world.a.engine.poll_event(), Some(Event::Overrun(cq)));
    assert_eq!(world.a.engine.poll_event(), Some(Event::QueuePairFatal(qp)));
    assert_eq!(world.a.engine.poll_event(), None);
    let status = world.a.engine.query_queue_pair(qp).unwrap();
    assert_eq!(status.state, QueuePairState::Error);
    // The CQEs that were there still are, and no other ever comes.
    assert_eq!(world.a.qp.send_cq.ring.bytes(), full);
    assert_eq!(world.a.qp.send_cq.drain().len(), 4);
    world.a.qp.post(Wqe::<1>::nop().signalled());
    world.settle();
    assert!(world.a.qp.send_cq.poll().is_none());
}

#[test]
fn a_consumer_that_keeps_up_never_overruns() {
    let mut world = world(Shape {
        log_cq_depth: 2,
        ..Shape::default()
    });
    for _ in 0..50 {
        for _ in 0..4 {
            world.a.qp.write(Wqe::<1>::nop().signalled());
        }
        world.a.qp.ring_doorbell();
        world.settle();
        assert_eq!(world.a.qp.send_cq.drain().len(), 4);
    }
    assert_eq!(world.a.engine.poll_event(), None);
}

#[test]
fn an_overrun_by_command_comes_with_the_next_cqe() {
    let mut world = World::new();
    let cq = world.a.qp.send_cq.number;
    world.a.qp.post(Wqe::<1>::nop().signalled());
    world.settle();
    world.a.engine.overrun_completion_queue(cq).unwrap();
    world.settle();
    assert_eq!(world.a.engine.poll_event(), None);
    world.a.qp.post(Wqe::<1>::nop().signalled());
    world.settle();
    assert_eq!(world.a.engine.poll_event(), Some(Event::Overrun(cq)));
    assert_eq!(world.a.qp.send_cq.drain().len(), 1);
}

#[test]
fn ignoring_overrun_writes_over_old_entries() {
    let mut world = world(Shape {
        log_cq_depth: 1,
        ignore_overrun: true,
        ..Shape::default()
    });
    for _ in 0..5 {
        world.a.qp.write(Wqe::<1>::nop().signalled());
    }
    world.a.qp.ring_doorbell();
    world.settle();
    assert_eq!(world.a.engine.poll_event(), None);
    let counters: Vec<u16> = (0..2)
        .map(|slot| world.a.qp.send_cq.entry(slot).tail().wqe_counter())
        .collect();
    assert_eq!(counters, [4, 3]);
}

#[test]
fn a_collapsed_queue_keeps_the_newest_in_entry_0() {
    let mut world = world(Shape {
        log_cq_depth: 3,
        collapsed: true,
        ignore_overrun: true,
        ..Shape::default()
    });
    for round in 0..40 {
        world.a.qp.write(Wqe::<1>::nop());
        let index = world.a.qp.post(Wqe::<1>::nop().signalled());
        world.settle();
        let cqe = world.a.qp.send_cq.entry(0);
        assert_eq!(cqe.tail().wqe_index(), index, "round {round}");
        for slot in 1..8 {
            assert_eq!(world.a.qp.send_cq.entry(slot), Cqe64::INVALID);
        }
    }
}

#[test]
fn an_armed_queue_reports_the_next_cqe_once() {
    let mut world = World::new();
    let event = Some(Event::Completion(world.a.qp.send_cq.number));
    let post = |world: &mut World| {
        world.a.qp.post(Wqe::<1>::nop().signalled());
        world.settle();
    };
    post(&mut world);
    assert_eq!(world.a.engine.poll_event(), None, "never armed");
    world.a.qp.send_cq.drain();
    arm(&world.a.qp, 0, false, true);
    world.settle();
    assert_eq!(world.a.engine.poll_event(), None, "nothing came yet");
    post(&mut world);
    assert_eq!(world.a.engine.poll_event(), event);
    post(&mut world);
    assert_eq!(world.a.engine.poll_event(), None, "armed for one only");
    // Armed with CQEs that were not consumed: the event comes at once.
    arm(&world.a.qp, 1, false, true);
    world.settle();
    assert_eq!(world.a.engine.poll_event(), event);
    world.a.qp.send_cq.drain();
    // Without a doorbell nothing is armed.
    arm(&world.a.qp, 2, false, false);
    post(&mut world);
    assert_eq!(world.a.engine.poll_event(), None);
}

/// As perftest's latency programs do: the event is taken, the queue armed, and polled only then.
#[test]
fn a_cqe_raises_one_event_however_early_its_queue_is_armed_again() {
    for solicited_only in [false, true] {
        let mut world = World::new();
        let event = Some(Event::Completion(world.b.qp.receive_cq.number));
        let source = world.a.region(&[1; 8]);
        let target = world.b.region(&[0; 8]);
        let arm = |world: &mut World, sequence| {
            let cq = &world.b.qp.receive_cq;
            let request = CqArm {
                sequence,
                solicited_only,
                consumer: cq.consumer,
            };
            cq.record.write(4, &request.word().to_ne_bytes());
            let register = world.b.qp.uar.atomic_u64(UarPage::CQ_ARM);
            register.store(request.doorbell(cq.number), Ordering::Release);
            world.settle();
        };
        let send = Wqe::<1>::send_immediate(source.all(), Immediate(1)).solicited();
        arm(&mut world, 0);
        for round in 0..20 {
            world.b.qp.post_receive(&[target.all()]);
            world.a.qp.post(send);
            world.settle();
            assert_eq!(world.b.engine.poll_event(), event, "round {round}");
            arm(&mut world, round + 1);
            assert_eq!(world.b.engine.poll_event(), None, "the same CQE again");
            assert!(world.b.qp.receive_cq.poll().is_some());
        }
        // One that comes between event and request is told at once.
        for _ in 0..2 {
            world.b.qp.post_receive(&[target.all()]);
            world.a.qp.post(send);
            world.settle();
        }
        assert_eq!(world.b.engine.poll_event(), event);
        arm(&mut world, 0);
        assert_eq!(world.b.engine.poll_event(), event);
    }
}

#[test]
fn a_doorbell_that_overwrote_another_arms_both() {
    let mut world = World::new();
    // Both queues of the page are armed, but the register holds the other's number only.
    arm(&world.a.qp, 1, false, false);
    let number = world.a.qp.receive_cq.number;
    let other = CqArm {
        sequence: 1,
        solicited_only: false,
        consumer: 0,
    };
    let record = world.a.qp.receive_cq.record;
    record.write(4, &other.word().to_ne_bytes());
    world
        .a
        .qp
        .uar
        .atomic_u64(UarPage::CQ_ARM)
        .store(other.doorbell(number), Ordering::Release);
    world.settle();
    world.a.qp.post(Wqe::<1>::nop().signalled());
    world.settle();
    let event = Event::Completion(world.a.qp.send_cq.number);
    assert_eq!(world.a.engine.poll_event(), Some(event));
}

#[test]
fn armed_for_solicited_waits_for_one() {
    let mut world = World::new();
    let source = world.a.region(&[1; 8]);
    let target = world.b.region(&[0; 8]);
    for _ in 0..2 {
        world.b.qp.post_receive(&[target.all()]);
    }
    let cq = &world.b.qp.receive_cq;
    let request = CqArm {
        sequence: 1,
        solicited_only: true,
        consumer: 0,
    };
    cq.record.write(4, &request.word().to_ne_bytes());
    world
        .b
        .qp
        .uar
        .atomic_u64(UarPage::CQ_ARM)
        .store(request.doorbell(cq.number), Ordering::Release);
    let event = Event::Completion(cq.number);
    let send = Wqe::<1>::send_immediate(source.all(), Immediate(1));
    world.a.qp.post(send);
    world.settle();
    assert_eq!(world.b.engine.poll_event(), None);
    world.a.qp.post(send.solicited());
    world.settle();
    assert_eq!(world.b.engine.poll_event(), Some(event));
}
