//! Peers and users that do not keep the rules.

use mlx5_wqe::{Syndrome, Wqe};
use proptest::prelude::*;
use warpbell_soft_hca::engine::packet::{Header, Opcode, PacketFlags};
use warpbell_soft_hca::engine::{Access, QueuePairOptions, QueuePairState, Transport};

use super::world::{Buffer, Connection, Shape, TIMEOUT_NS, World, clean, pattern};

/// Where packets and WQEs of these tests start.
const PSN: u32 = 0xff_fff0;

#[test]
fn a_forged_packet_of_a_stranger_is_dropped() {
    let mut world = World::new();
    let target = world
        .b
        .register(Buffer::new(64), Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let source = Buffer::filled(&[9; 64]);
    let good = Header {
        destination: 1,
        source: 0,
        destination_qp: world.b.qp.number.get(),
        source_qp: world.a.qp.number.get(),
        psn: Connection::default().psn,
        opcode: Opcode::Write as u8,
        flags: 0b111,
        address: target.buffer.address(),
        rkey: target.keys.remote.0,
        length: 64,
        ..Header::default()
    };
    let forged = [
        Header { source: 7, ..good },
        Header {
            source_qp: good.source_qp + 1,
            ..good
        },
        Header {
            destination_qp: good.destination_qp + (1 << 16),
            ..good
        },
        Header { opcode: 99, ..good },
        Header {
            psn: 1 << 24 | good.psn,
            ..good
        },
    ];
    for header in forged {
        world.inject(header, source);
        world.settle();
        assert_eq!(target.buffer.bytes(), [0; 64]);
    }
    // Malformed, but from the peer: the queue pair goes to error and nothing is written.
    for header in [
        Header {
            flags: 0b110,
            ..good
        },
        Header { length: 63, ..good },
        Header {
            length: u32::MAX,
            ..good
        },
    ] {
        let mut world = World::new();
        let target = world.b.region(&[0; 64]);
        let header = Header {
            destination_qp: world.b.qp.number.get(),
            source_qp: world.a.qp.number.get(),
            address: target.buffer.address(),
            rkey: target.keys.remote.0,
            ..header
        };
        world.inject(header, source);
        world.settle();
        assert_eq!(target.buffer.bytes(), [0; 64]);
        let status = world.b.engine.query_queue_pair(world.b.qp.number).unwrap();
        assert_eq!(status.state, QueuePairState::Error);
    }
    // And the real thing, so that the above was dropped for its reason.
    world.inject(good, source);
    world.settle();
    assert_eq!(target.buffer.bytes(), [9; 64]);
}

/// A header from `a` to `b`.
fn from_a(world: &World) -> Header {
    Header {
        destination: 1,
        source: 0,
        destination_qp: world.b.qp.number.get(),
        source_qp: world.a.qp.number.get(),
        psn: PSN,
        ..Header::default()
    }
}

/// Its key is not looked at, neither when the request comes first nor when it comes again.
#[test]
fn a_read_of_no_bytes_needs_no_key() {
    let mut world = World::new();
    let read = Header {
        opcode: Opcode::ReadRequest as u8,
        ..from_a(&world)
    };
    for answers in 1..3 {
        world.inject(read, Buffer::new(0));
        world.b.engine.step(world.now);
        assert_eq!(world.in_the_air(), answers);
    }
}

#[test]
fn a_request_that_no_peer_makes_is_invalid() {
    const MTU: usize = 1024;
    let target = |world: &mut World| world.b.region(&[0; 2 * MTU]);
    let refused = |world: &mut World| {
        world.settle();
        let status = world.b.engine.query_queue_pair(world.b.qp.number).unwrap();
        status.first_error.expect("a refusal").syndrome
    };
    // Others in the middle of a WRITE.
    for opcode in [Opcode::Send, Opcode::ReadRequest, Opcode::Atomic] {
        let mut world = World::new();
        let target = target(&mut world);
        world.b.qp.post_receive(&[target.all()]);
        let write = Header {
            opcode: Opcode::Write as u8,
            flags: PacketFlags::FIRST.bits(),
            address: target.buffer.address(),
            rkey: target.keys.remote.0,
            length: 2 * MTU as u32,
            ..from_a(&world)
        };
        let other = Header {
            opcode: opcode as u8,
            flags: (PacketFlags::FIRST | PacketFlags::LAST).bits(),
            psn: write.psn + 1,
            detail: 1,
            width: 8,
            length: 8,
            ..write
        };
        world.inject(write, Buffer::new(MTU));
        world.inject(other, Buffer::new(0));
        assert_eq!(refused(&mut world), Syndrome::REMOTE_INVALID_REQUEST);
    }
    // More bytes than announced; more than any message has, and as many, for which no key is good.
    let longest = 1 << 30;
    for (opcode, length, payload, syndrome) in [
        (Opcode::Write, 8, MTU, Syndrome::REMOTE_INVALID_REQUEST),
        (
            Opcode::Write,
            longest + 1,
            8,
            Syndrome::REMOTE_INVALID_REQUEST,
        ),
        (Opcode::Write, longest, 8, Syndrome::REMOTE_ACCESS),
        (
            Opcode::ReadRequest,
            longest + 1,
            0,
            Syndrome::REMOTE_INVALID_REQUEST,
        ),
        (Opcode::ReadRequest, longest, 0, Syndrome::REMOTE_ACCESS),
    ] {
        let mut world = World::new();
        let target = target(&mut world);
        let header = Header {
            opcode: opcode as u8,
            flags: PacketFlags::FIRST.bits(),
            address: target.buffer.address(),
            rkey: target.keys.remote.0,
            length,
            ..from_a(&world)
        };
        world.inject(header, Buffer::filled(&vec![9; payload]));
        assert_eq!(refused(&mut world), syndrome, "{opcode:?} of {length}");
        assert_eq!(target.buffer.bytes(), [0; 2 * MTU]);
    }
}

#[test]
fn nothing_is_executed_behind_a_read_that_no_key_allows() {
    let mut world = World::new();
    let target = world.b.region(&[0; 8]);
    let read = Header {
        opcode: Opcode::ReadRequest as u8,
        address: target.buffer.address(),
        rkey: 0,
        length: 8,
        ..from_a(&world)
    };
    let write = Header {
        opcode: Opcode::Write as u8,
        flags: (PacketFlags::FIRST | PacketFlags::LAST).bits(),
        psn: read.psn + 1,
        rkey: target.keys.remote.0,
        ..read
    };
    world.inject(read, Buffer::new(0));
    world.inject(write, Buffer::filled(&[9; 8]));
    world.settle();
    assert_eq!(target.buffer.bytes(), [0; 8]);
}

#[test]
fn more_atomics_at_a_time_than_answers_are_kept() {
    let mut world = World::new();
    let counter = world.b.region(&[0; 8]);
    for count in 0..20 {
        let header = Header {
            opcode: Opcode::Atomic as u8,
            psn: (PSN + count) & 0xff_ffff,
            detail: 1,
            width: 8,
            address: counter.buffer.address(),
            rkey: counter.keys.remote.0,
            operands: [1, 0, 0, 0],
            ..from_a(&world)
        };
        world.inject(header, Buffer::new(0));
    }
    world.settle();
    // Each of those executed has an answer; the one too many is refused.
    assert_eq!(counter.buffer.u64_at(0), 16);
    let status = world.b.engine.query_queue_pair(world.b.qp.number).unwrap();
    assert_eq!(status.state, QueuePairState::Error);
}

#[test]
fn memory_deregistered_in_the_middle_of_an_answer() {
    // More packets than the wire takes at a time.
    const LENGTH: usize = 150 * 1024;
    let mut world = World::new();
    let target = world.a.region(&vec![0; LENGTH]);
    let source = world.b.region(&pattern(LENGTH, 1));
    let read = Wqe::<1>::read(target.all(), source.remote(0)).signalled();
    world.a.qp.post(read);
    for _ in 0..3 {
        world.now += 100;
        world.a.engine.step(world.now);
    }
    world.b.engine.step(world.now);
    world.b.engine.step(world.now);
    assert_eq!(world.in_the_air(), 100);
    world.b.engine.deregister_memory(source.keys.local).unwrap();
    for _ in 0..3 {
        world.b.engine.step(world.now);
    }
    // The refusal, and nothing of the memory.
    assert_eq!(world.in_the_air(), 1);
    world.run_for(20 * TIMEOUT_NS);
    assert!(world.a.qp.send_cq.poll().unwrap().tail().is_error());
    assert_eq!(target.buffer.bytes(), vec![0; LENGTH]);
}

#[test]
fn a_wqe_overwritten_under_way() {
    // More packets than a step sends.
    const LENGTH: usize = 70 * 1024;
    let mut world = World::new();
    let source = world.a.region(&pattern(LENGTH, 1));
    let target = world.b.region(&vec![0; LENGTH]);
    let write = Wqe::<1>::write(source.all(), target.remote(0)).signalled();
    world.a.qp.post(write);
    world.now += 100;
    world.a.engine.step(world.now);
    assert_eq!(world.in_the_air(), 64);
    // A byte less.
    let count = (LENGTH as u32 - 1).to_be_bytes();
    world.a.qp.ring.write(32, &count);
    world.settle();
    let cqe = world.a.qp.send_cq.poll().expect("an error");
    assert_eq!(cqe.error_word().syndrome().0, 0x02);
    // The bytes that were still to come did not.
    assert_eq!(target.buffer.bytes()[64 * 1024..], [0; 6 * 1024]);
    world.check_canaries();
}

#[test]
fn an_acknowledgement_of_what_was_not_sent() {
    let mut world = World::new();
    let source = world.a.region(&[1; 8]);
    let target = world.b.region(&[0; 8]);
    let ahead = Header {
        destination: 0,
        source: 1,
        destination_qp: world.a.qp.number.get(),
        source_qp: world.b.qp.number.get(),
        opcode: Opcode::Acknowledge as u8,
        psn: PSN + 1,
        ..Header::default()
    };
    let write = Wqe::<1>::write(source.all(), target.remote(0)).signalled();
    world.a.qp.post(write);
    world.now += 100;
    world.a.engine.step(world.now);
    world.inject(ahead, Buffer::new(0));
    world.a.engine.step(world.now);
    assert!(world.a.qp.send_cq.poll().is_none());
    world.settle();
    assert_eq!(world.a.qp.send_cq.drain().len(), 1);
    assert_eq!(target.buffer.bytes(), [1; 8]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    /// Whatever a peer sends, over whatever transport: nothing is written where no key and no receive allows it.
    #[test]
    fn any_packets_write_nothing_that_no_key_and_no_receive_allows(
        transport in 0..3_usize,
        packets in proptest::collection::vec(
            (0..12_u8, any::<u8>(), -2..4_i32, 0..3_usize, 0..300_u64, 0..200_usize, any::<u32>()),
            1..20,
        ),
    ) {
        let transports = [
            Transport::ReliableConnection,
            Transport::UnreliableConnection,
            Transport::Datagram,
        ];
        let shape = Shape {
            options: QueuePairOptions {
                transport: transports[transport],
                ..QueuePairOptions::default()
            },
            ..Shape::default()
        };
        let mut world = World::with(shape, Connection::default(), [clean(), clean()]);
        let open = world.b.region(&[0; 128]);
        let closed = world.b.register(Buffer::new(128), Access::REMOTE_READ);
        let keys = [open.keys.remote.0, closed.keys.remote.0, 0];
        (0..4).for_each(|_| world.b.qp.post_receive(&[open.local(64, 64)]));
        for (opcode, flags, ahead, key, address, length, number) in packets {
            let header = Header {
                opcode,
                flags,
                psn: (PSN + ahead.rem_euclid(8) as u32) & 0xff_ffff,
                // 0 is the queue pair's Q_Key, too.
                rkey: keys[key],
                address: open.buffer.address() - 100 + address,
                length: number % 400,
                width: number as u8,
                operands: [u64::from(number); 4],
                ..from_a(&world)
            };
            world.inject(header, Buffer::filled(&vec![0xff; length]));
            world.step();
            world.step();
        }
        world.settle();
        prop_assert_eq!(closed.buffer.bytes(), [0; 128]);
        world.check_canaries();
    }
}
