//! Datagrams: each goes where its address vector says, and arrives behind a global route header.

use mlx5_wqe::segment::Data;
use mlx5_wqe::{
    AddressVector, Cqe64, CqeOpcode, Immediate, Local, Opcode, QpNumber, Syndrome, Wqe,
};
use proptest::prelude::*;
use warpbell_soft_hca::engine::packet::{Header, Opcode as Packet};
use warpbell_soft_hca::engine::{
    CommandError, QueuePairOptions, QueuePairState, Transport, WireAddress, gid,
};
use zerocopy::byteorder::big_endian::U32;

use super::world::{Buffer, Connection, Shape, World, clean, pattern};

const MTU: u32 = 1024;
const KEY: u32 = 0x1122_3344;
const HEADER: usize = 40;

fn world() -> World {
    let shape = Shape {
        mtu: MTU,
        options: QueuePairOptions {
            transport: Transport::Datagram,
            ..QueuePairOptions::default()
        },
        ..Shape::default()
    };
    let mut world = World::with(shape, Connection::default(), [clean(), clean()]);
    for node in [&mut world.a, &mut world.b] {
        node.engine.set_q_key(node.qp.number, KEY).unwrap();
    }
    world
}

fn vector(to: WireAddress, qpn: QpNumber, key: u32) -> AddressVector {
    AddressVector {
        rgid: gid::of(to),
        tclass: 0xab,
        hop_limit: 64,
        grh_gid_fl: U32::new(1 << 30 | 0x1_2345),
        ..AddressVector::datagram(qpn, key)
    }
}

fn datagram(opcode: Opcode, to: AddressVector, list: &[Local]) -> Wqe<8> {
    let mut segments = to.to_octowords().to_vec();
    segments.extend(list.iter().map(|local| Data::new(*local).to_octoword()));
    let immediate = Immediate(0x55aa).0;
    Wqe::from_segments(opcode, 0, immediate, &segments, 0)
        .unwrap()
        .signalled()
}

/// Posts a datagram at A; how it completes there, and what it completes at B.
fn send(world: &mut World, wqe: Wqe<8>) -> (Cqe64, Option<Cqe64>) {
    world.a.qp.post(wqe);
    world.settle();
    let sent = world.a.qp.send_cq.poll().expect("a completion");
    assert!(world.a.qp.send_cq.poll().is_none());
    (sent, world.b.qp.receive_cq.poll())
}

fn state(world: &World, of_b: bool) -> QueuePairState {
    let node = if of_b { &world.b } else { &world.a };
    let status = node.engine.query_queue_pair(node.qp.number);
    status.unwrap().state
}

#[test]
fn a_datagram_arrives_behind_its_route_header() {
    let mut world = world();
    let bytes = pattern(101, 1);
    let source = world.a.region(&bytes);
    let target = world.b.region(&[0; 200]);
    for (opcode, arrives, extra) in [
        (Opcode::SEND, CqeOpcode::RESPONDER_SEND, 0),
        (
            Opcode::SEND_IMMEDIATE,
            CqeOpcode::RESPONDER_SEND_IMMEDIATE,
            4,
        ),
    ] {
        world.b.qp.post_receive(&[target.all()]);
        let to = vector(WireAddress(1), world.b.qp.number, KEY);
        let (sent, arrived) = send(&mut world, datagram(opcode, to, &[source.all()]));
        assert!(!sent.tail().is_error());
        let cqe = arrived.expect("a datagram");
        assert_eq!(cqe.tail().cqe_opcode(), arrives);
        assert_eq!(cqe.byte_count.get() as usize, HEADER + bytes.len());
        assert_eq!(cqe.source_qpn(), world.a.qp.number);
        assert_eq!(cqe.flags_rqpn.get() >> 28 & 3, 1, "there is a header");
        if extra > 0 {
            assert_eq!(cqe.immediate.get(), 0x55aa);
        }
        let stored = target.buffer.bytes();
        assert_eq!(stored[HEADER..HEADER + 101], bytes);
        // RFC 8200: version, traffic class and flow label; length; next header; hop limit; the two addresses.
        let length = 104 + 8 + 12 + 8 + 4 + extra;
        assert_eq!(stored[..4], [0x6a, 0xb1, 0x23, 0x45]);
        assert_eq!(stored[4..8], [0, length, 17, 64]);
        assert_eq!(stored[8..24], gid::of(WireAddress(0)));
        assert_eq!(stored[24..40], gid::of(WireAddress(1)));
    }
    assert_eq!(world.in_the_air(), 0, "nobody answers");
    world.check_canaries();
}

#[test]
fn a_queue_pair_reaches_itself() {
    let mut world = world();
    let source = world.a.region(&[7; 8]);
    let target = world.a.region(&[0; 48]);
    world.a.qp.post_receive(&[target.all()]);
    let to = vector(WireAddress(0), world.a.qp.number, KEY);
    let (sent, _) = send(&mut world, datagram(Opcode::SEND, to, &[source.all()]));
    assert!(!sent.tail().is_error());
    let cqe = world.a.qp.receive_cq.poll().expect("a datagram");
    assert_eq!(cqe.source_qpn(), world.a.qp.number);
    assert_eq!(target.buffer.bytes()[HEADER..], [7; 8]);
}

#[test]
fn what_nobody_takes_is_lost_and_nobody_is_told() {
    let mut world = world();
    let source = world.a.region(&[7; 8]);
    let target = world.b.region(&[0; 48]);
    let qpn = world.b.qp.number;
    let good = vector(WireAddress(1), qpn, KEY);
    // No receive; a wrong key; another queue pair; an HCA, and a GID, that are nobody's.
    let (sent, arrived) = send(&mut world, datagram(Opcode::SEND, good, &[source.all()]));
    assert!(!sent.tail().is_error() && arrived.is_none());
    world.b.qp.post_receive(&[target.all()]);
    let wrong = [
        vector(WireAddress(1), qpn, KEY + 1),
        vector(
            WireAddress(1),
            QpNumber::new(qpn.get() ^ 1 << 16).unwrap(),
            KEY,
        ),
        vector(WireAddress(9), qpn, KEY),
        AddressVector {
            rgid: [0; 16],
            ..good
        },
    ];
    for to in wrong {
        let (sent, arrived) = send(&mut world, datagram(Opcode::SEND, to, &[source.all()]));
        assert!(!sent.tail().is_error() && arrived.is_none());
    }
    for of_b in [false, true] {
        assert_eq!(state(&world, of_b), QueuePairState::ReadyToSend);
    }
    // A key with its top bit set stands for the queue pair's own.
    let own = vector(WireAddress(1), qpn, 0x8000_0000);
    let (_, arrived) = send(&mut world, datagram(Opcode::SEND, own, &[source.all()]));
    assert!(arrived.is_some());
}

#[test]
fn a_packet_of_another_transport_is_nobody_s() {
    // Connected to each other as RC peers are, but that B takes datagrams.
    let mut world = world();
    let shape = Shape {
        mtu: MTU,
        ..Shape::default()
    };
    let reliable = super::world::create_queue_pair(&mut world.a.engine, world.a.pd, shape);
    let peer = (WireAddress(1), world.b.qp.number);
    let with = Connection {
        retry_count: 0,
        ..Connection::default()
    };
    let engine = &mut world.a.engine;
    super::world::connect_queue_pair(engine, reliable.number, peer, MTU, with);
    let source = world.a.region(&[7; 8]);
    let target = world.b.region(&[0; 48]);
    world.b.qp.post_receive(&[target.all()]);
    let mut reliable = reliable;
    reliable.post(Wqe::<1>::send(source.all()));
    world.run_for(1_000_000);
    let cqe = reliable.send_cq.poll().expect("nobody acknowledges");
    assert_eq!(cqe.error_word().syndrome(), Syndrome::TRANSPORT_RETRY);
    assert!(world.b.qp.receive_cq.poll().is_none());
    // And the other way round.
    let to = vector(WireAddress(0), reliable.number, 0);
    let (_, _) = send(&mut world, datagram(Opcode::SEND, to, &[source.all()]));
    assert!(reliable.receive_cq.poll().is_none());
}

#[test]
fn errors_are_their_own_end_s() {
    // At the sender: too long, no datagram, no GID in the vector.
    let sends: [&dyn Fn(&mut World) -> Wqe<8>; 3] = [
        &|world| {
            let to = vector(WireAddress(1), world.b.qp.number, KEY);
            let source = world.a.region(&[7; MTU as usize + 1]);
            datagram(Opcode::SEND, to, &[source.all()])
        },
        &|world| {
            let to = vector(WireAddress(1), world.b.qp.number, KEY);
            datagram(Opcode::RDMA_WRITE, to, &[])
        },
        &|world| {
            let mut to = vector(WireAddress(1), world.b.qp.number, KEY);
            to.dqp_dct = U32::new(world.b.qp.number.get());
            datagram(Opcode::SEND, to, &[])
        },
    ];
    let syndromes = [
        Syndrome::LOCAL_LENGTH,
        Syndrome::LOCAL_QP_OPERATION,
        Syndrome::LOCAL_QP_OPERATION,
    ];
    for (make, syndrome) in sends.into_iter().zip(syndromes) {
        let mut world = world();
        let wqe = make(&mut world);
        let (sent, arrived) = send(&mut world, wqe);
        assert_eq!(sent.error_word().syndrome(), syndrome);
        assert!(arrived.is_none());
    }
    // At the receiver: not writable.
    let mut world = world();
    let source = world.a.region(&[7; 8]);
    let target = world.b.region(&[0; 48]);
    world.b.qp.post_receive(&[target.local(0, 49)]);
    let to = vector(WireAddress(1), world.b.qp.number, KEY);
    let (sent, arrived) = send(&mut world, datagram(Opcode::SEND, to, &[source.all()]));
    assert!(!sent.tail().is_error());
    let syndrome = arrived.unwrap().error_word().syndrome();
    assert_eq!(syndrome, Syndrome::LOCAL_PROTECTION);
    assert_eq!(state(&world, false), QueuePairState::ReadyToSend);
    assert_eq!(state(&world, true), QueuePairState::Error);
    world.check_canaries();
    let unknown = QpNumber::new(0x12_3456).unwrap();
    let refused = world.a.engine.set_q_key(unknown, 0);
    assert_eq!(refused, Err(CommandError::NoQueuePair));
}

/// What does not fit into the receive is dropped, which the next one takes then (IBTA volume 1, 9.8.3.2.2, 9.9.3).
#[test]
fn what_is_too_long_is_lost_and_the_receive_is_not() {
    let mut world = world();
    let long = world.a.region(&[7; 9]);
    let target = world.b.region(&[0; 48]);
    // In two segments; the second one is too short by one byte.
    let receive = [target.local(0, 44), target.local(44, 4)];
    world.b.qp.post_receive(&receive);
    let to = vector(WireAddress(1), world.b.qp.number, KEY);
    let (sent, arrived) = send(&mut world, datagram(Opcode::SEND, to, &[long.all()]));
    assert!(!sent.tail().is_error() && arrived.is_none());
    assert_eq!(target.buffer.bytes(), [0; 48]);
    let (sent, arrived) = send(&mut world, datagram(Opcode::SEND, to, &[long.local(0, 8)]));
    assert!(!sent.tail().is_error());
    assert_eq!(arrived.expect("a datagram").tail().wqe_counter(), 0);
    assert_eq!(target.buffer.bytes()[HEADER..], [7; 8]);
    // Not even for the header.
    world.b.qp.post_receive(&[target.local(0, 39)]);
    let (_, arrived) = send(&mut world, datagram(Opcode::SEND, to, &[]));
    assert!(arrived.is_none());
    assert_eq!(state(&world, true), QueuePairState::ReadyToSend);
    world.check_canaries();
}

/// Nor is a packet longer than the path allows.
#[test]
fn a_datagram_of_more_than_the_path_s_mtu_is_dropped() {
    for (length, fits) in [(MTU, true), (MTU + 1, false)] {
        let mut world = world();
        let target = world.b.region(&vec![0; HEADER + MTU as usize + 1]);
        world.b.qp.post_receive(&[target.all()]);
        let header = Header {
            destination: 1,
            destination_qp: world.b.qp.number.get(),
            opcode: Packet::Datagram as u8,
            rkey: KEY,
            length,
            ..Header::default()
        };
        world.inject(header, Buffer::filled(&vec![7; length as usize]));
        world.settle();
        assert_eq!(world.b.qp.receive_cq.poll().is_some(), fits);
        assert_eq!(state(&world, true), QueuePairState::ReadyToSend);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    /// However message and receive are cut: header and message lie one after the other in the receive's segments.
    #[test]
    fn lists_of_any_cut_carry_the_same_bytes(
        sources in proptest::collection::vec(1..400_usize, 1..10),
        mut targets in proptest::collection::vec(1..300_usize, 1..4),
    ) {
        let mut world = world();
        let total = sources.iter().sum::<usize>().min(MTU as usize);
        let message = pattern(total, 9);
        let source = world.a.region(&message);
        let (mut list, mut at) = (Vec::new(), 0);
        for length in sources {
            let length = length.min(total - at);
            if length > 0 {
                list.push(source.local(at as u64, length as u32));
            }
            at += length;
        }
        targets.push(HEADER + total);
        let room: usize = targets.iter().sum();
        let target = world.b.region(&vec![0; room]);
        let (mut receive, mut at) = (Vec::new(), 0);
        for length in targets {
            receive.push(target.local(at as u64, length as u32));
            at += length;
        }
        world.b.qp.post_receive(&receive);
        let to = vector(WireAddress(1), world.b.qp.number, KEY);
        let (sent, arrived) = send(&mut world, datagram(Opcode::SEND, to, &list));
        prop_assert!(!sent.tail().is_error());
        prop_assert_eq!(arrived.unwrap().byte_count.get() as usize, HEADER + total);
        let stored = target.buffer.bytes();
        prop_assert_eq!(&stored[8..24], &gid::of(WireAddress(0)));
        prop_assert_eq!(&stored[HEADER..HEADER + total], &message[..]);
        world.check_canaries();
    }
}
