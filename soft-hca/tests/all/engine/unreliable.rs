//! Unreliable connections: what comes whole arrives, nobody hears of the rest.

use std::cell::RefCell;
use std::rc::Rc;

use mlx5_wqe::{CqeOpcode, Immediate, Remote, RemoteKey, Syndrome, Wqe};
use proptest::prelude::*;
use warpbell_soft_hca::engine::fault::Fate;
use warpbell_soft_hca::engine::packet::{Header, Opcode, PacketFlags};
use warpbell_soft_hca::engine::{Access, QueuePairOptions, QueuePairState, Transition, Transport};

use super::world::{Buffer, Connection, Faults, Shape, World, clean, pattern};

const MTU: usize = 1024;

fn world(faults: Faults) -> World {
    let shape = Shape {
        mtu: MTU as u32,
        options: QueuePairOptions {
            transport: Transport::UnreliableConnection,
            ..QueuePairOptions::default()
        },
        ..Shape::default()
    };
    World::with(shape, Connection::default(), [faults, clean()])
}

fn states(world: &World) -> [QueuePairState; 2] {
    [&world.a, &world.b].map(|node| {
        let status = node.engine.query_queue_pair(node.qp.number);
        status.unwrap().state
    })
}

#[test]
fn every_verb_of_the_transport_arrives() {
    let mut world = world(clean());
    let bytes = pattern(5000, 3);
    let source = world.a.region(&bytes);
    let target = world.b.region(&[0; 5000]);
    let inline = Wqe::<1>::write_inline(b"inline", target.remote(100)).unwrap();
    world.a.qp.write(inline);
    let write = Wqe::<1>::write(source.local(0, 100), target.remote(0));
    world.a.qp.write(write);
    world.a.qp.write(Wqe::<1>::nop());
    let immediate = Wqe::<1>::write_immediate(
        source.local(200, 4800),
        target.remote(200),
        Immediate(0x1234),
    );
    world.a.qp.write(immediate.signalled());
    world.b.qp.post_receive(&[]);
    world.a.qp.ring_doorbell();
    world.settle();
    assert_eq!(world.a.qp.send_cq.drain().len(), 1);
    let cqe = world.b.qp.receive_cq.poll().expect("immediate data");
    assert_eq!((cqe.immediate.get(), cqe.byte_count.get()), (0x1234, 4800));
    let arrived = target.buffer.bytes();
    assert_eq!(arrived[..100], bytes[..100]);
    assert_eq!(arrived[100..106], *b"inline");
    assert_eq!(arrived[200..], bytes[200..]);
    world.b.qp.post_receive(&[target.all()]);
    let send = Wqe::<1>::send_immediate(source.all(), Immediate(7)).solicited();
    world.a.qp.post(send.signalled());
    world.settle();
    assert_eq!(world.a.qp.send_cq.drain().len(), 1);
    let cqe = world.b.qp.receive_cq.poll().expect("a message");
    assert_eq!(cqe.tail().cqe_opcode(), CqeOpcode::RESPONDER_SEND_IMMEDIATE);
    assert!(cqe.tail().is_solicited());
    assert_eq!(target.buffer.bytes(), bytes);
    world.check_canaries();
}

#[test]
fn nothing_comes_back_and_what_nobody_takes_is_lost() {
    let mut world = world(clean());
    let source = world.a.region(&[7; 3000]);
    let target = world.b.region(&[0; 3000]);
    let nobody = Remote {
        key: RemoteKey(0x1234_5600),
        ..target.remote(0)
    };
    // Without a receive; with a wrong key; past the end.
    let lost = [
        Wqe::<1>::send(source.all()),
        Wqe::<1>::write(source.all(), nobody),
        Wqe::<1>::write(source.all(), target.remote(1)),
        Wqe::<1>::write_immediate(source.all(), target.remote(0), Immediate(1)),
    ];
    for wqe in lost {
        world.a.qp.post(wqe.signalled());
        world.settle();
        let cqe = world.a.qp.send_cq.poll().expect("done when it is sent");
        assert!(!cqe.tail().is_error());
    }
    assert_eq!(states(&world), [QueuePairState::ReadyToSend; 2]);
    // The two first packets of the write whose last found no receive were written; of the others nothing.
    assert_eq!(target.buffer.bytes()[..2048], [7; 2048]);
    assert_eq!(target.buffer.bytes()[2048..], [0; 952]);
    // What comes after them arrives.
    world.b.qp.post_receive(&[target.all()]);
    world.a.qp.post(Wqe::<1>::send(source.all()));
    world.settle();
    assert_eq!(world.b.qp.receive_cq.drain().len(), 1);
    assert_eq!(target.buffer.bytes(), [7; 3000]);
}

/// As a message of which a packet is lost (IBTA volume 1, 9.9.3).
#[test]
fn a_message_that_its_receive_cannot_hold_is_lost() {
    let mut world = world(clean());
    let source = world.a.region(&[7; 3000]);
    let target = world.b.region(&[0; 3000]);
    world.b.qp.post_receive(&[target.local(0, 2000)]);
    world.a.qp.post(Wqe::<1>::send(source.all()).signalled());
    world.settle();
    assert!(!world.a.qp.send_cq.poll().unwrap().tail().is_error());
    assert!(world.b.qp.receive_cq.poll().is_none());
    assert_eq!(states(&world), [QueuePairState::ReadyToSend; 2]);
    assert_eq!(target.buffer.bytes()[2000..], [0; 1000]);
    // The next one has the receive.
    world.a.qp.post(Wqe::<1>::send(source.local(0, 2000)));
    world.settle();
    let cqe = world.b.qp.receive_cq.poll().expect("a message");
    let arrived = (cqe.tail().is_error(), cqe.byte_count.get());
    assert_eq!(arrived, (false, 2000));
}

/// A receive that may not be written is its owner's error.
#[test]
fn a_receive_with_a_bad_key() {
    let mut world = world(clean());
    let source = world.a.region(&[7; 8]);
    let target = world.b.register(Buffer::new(8), Access::REMOTE_READ);
    world.b.qp.post_receive(&[target.all()]);
    world.a.qp.post(Wqe::<1>::send(source.all()).signalled());
    world.settle();
    assert!(!world.a.qp.send_cq.poll().unwrap().tail().is_error());
    let cqe = world.b.qp.receive_cq.poll().expect("an error");
    assert_eq!(cqe.error_word().syndrome(), Syndrome::LOCAL_PROTECTION);
    let [sender, receiver] = states(&world);
    assert_eq!(sender, QueuePairState::ReadyToSend);
    assert_eq!(receiver, QueuePairState::Error);
}

#[test]
fn a_packet_that_cannot_be_is_dropped() {
    let connection = Connection::default();
    for in_error in [false, true] {
        let mut world = world(clean());
        let target = world.b.region(&[0; 8]);
        let good = Header {
            destination: 1,
            source: 0,
            destination_qp: world.b.qp.number.get(),
            source_qp: world.a.qp.number.get(),
            psn: connection.psn,
            opcode: Opcode::Write as u8,
            flags: (PacketFlags::FIRST | PacketFlags::LAST | PacketFlags::UNRELIABLE).bits(),
            address: target.buffer.address(),
            rkey: target.keys.remote.0,
            length: 8,
            ..Header::default()
        };
        let wrong = match in_error {
            true => good,
            // PSNs have 24 bits.
            false => Header {
                psn: 1 << 24 | good.psn,
                ..good
            },
        };
        if in_error {
            let qp = world.b.qp.number;
            let engine = &mut world.b.engine;
            engine.modify_queue_pair(qp, Transition::Error).unwrap();
        }
        world.inject(wrong, Buffer::filled(&[9; 8]));
        world.settle();
        assert_eq!(target.buffer.bytes(), [0; 8]);
        if !in_error {
            world.inject(good, Buffer::filled(&[9; 8]));
            world.settle();
            assert_eq!(target.buffer.bytes(), [9; 8]);
        }
    }
}

#[test]
fn verbs_that_need_an_answer_are_refused() {
    let source = |world: &mut World| world.a.region(&[7; 8]).all();
    let mut refused = Vec::new();
    for verb in 0..3 {
        let mut world = world(clean());
        let (local, target) = (source(&mut world), world.b.region(&[0; 8]));
        let wqe = match verb {
            0 => Wqe::<1>::read(local, target.remote(0)),
            1 => Wqe::<1>::fetch_add(local, target.remote(0), 1),
            _ => Wqe::<1>::send_invalidate(local, target.keys.remote),
        };
        world.a.qp.post(wqe);
        world.settle();
        let cqe = world.a.qp.send_cq.poll().expect("an error");
        refused.push(cqe.error_word().syndrome());
    }
    assert_eq!(refused, [Syndrome::LOCAL_QP_OPERATION; 3]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    /// Whatever is lost under way: exactly those messages arrive of which nothing was, each whole and in order.
    #[test]
    fn messages_arrive_whole_or_not_at_all(
        lengths in proptest::collection::vec(1..5000_usize, 1..25),
        lost in proptest::collection::vec(prop::bool::weighted(0.2), 150),
    ) {
        // Which packets were lost, in the order in which they were sent.
        let fates = Rc::new(RefCell::new(Vec::new()));
        let log = fates.clone();
        let faults = Box::new(move |_: &Header| {
            let mut log = log.borrow_mut();
            let lost = lost[log.len() % lost.len()];
            log.push(lost);
            if lost { Fate::Drop } else { Fate::Pass }
        });
        let mut world = world(faults);
        let source = world.a.region(&pattern(5000, 1));
        let target = world.b.region(&[0; 5000]);
        let mut sent = 0;
        // One receive waits at any time: one that a lost message had taken is the next one's.
        world.b.qp.post_receive(&[target.all()]);
        for (count, length) in lengths.iter().enumerate() {
            let bytes = pattern(*length, count as u8);
            source.buffer.write(0, &bytes);
            world.a.qp.post(Wqe::<1>::send(source.local(0, *length as u32)).signalled());
            world.settle();
            prop_assert!(!world.a.qp.send_cq.poll().expect("done").tail().is_error());
            let packets = length.div_ceil(MTU);
            let whole = !fates.borrow()[sent..sent + packets].contains(&true);
            sent += packets;
            prop_assert_eq!(fates.borrow().len(), sent);
            let arrived = world.b.qp.receive_cq.poll();
            prop_assert_eq!(arrived.is_some(), whole);
            if let Some(cqe) = arrived {
                prop_assert_eq!(cqe.byte_count.get() as usize, *length);
                prop_assert_eq!(&target.buffer.bytes()[..*length], &bytes[..]);
                world.b.qp.post_receive(&[target.all()]);
            }
        }
        world.check_canaries();
    }
}
