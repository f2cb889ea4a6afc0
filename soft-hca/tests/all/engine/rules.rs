//! Rules of the InfiniBand specification (volume 1) for ends that do not keep it, each by section or statement.

use mlx5_wqe::{Local, Masked, Remote, RemoteKey, Syndrome, Wqe, WqeIndex};
use warpbell_soft_hca::engine::fault::Fate;
use warpbell_soft_hca::engine::packet::{Header, Opcode, PacketFlags, Refusal};
use warpbell_soft_hca::engine::{
    ErrorPlace, FirstError, QueuePairOptions, QueuePairState, Transition, Transport,
};

use super::world::{Buffer, Connection, Qp, RNR_NS, Region, Shape, TIMEOUT_NS, World, clean};

/// Where packets and WQEs of these tests start.
const PSN: u32 = 0xff_fff0;
const MTU: usize = 1024;

/// A request from `a` to `b`.
fn request(world: &World, opcode: Opcode, flags: PacketFlags, target: &Region) -> Header {
    Header {
        destination: 1,
        source: 0,
        destination_qp: world.b.qp.number.get(),
        source_qp: world.a.qp.number.get(),
        psn: PSN,
        opcode: opcode as u8,
        flags: flags.bits(),
        address: target.buffer.address(),
        rkey: target.keys.remote.0,
        length: target.buffer.length as u32,
        ..Header::default()
    }
}

/// A response from `b` to `a`.
fn response(world: &World, opcode: Opcode, psn: u32) -> Header {
    Header {
        destination: 0,
        source: 1,
        destination_qp: world.a.qp.number.get(),
        source_qp: world.b.qp.number.get(),
        psn,
        opcode: opcode as u8,
        ..Header::default()
    }
}

/// Lets `a` alone do what it can.
fn let_a_work(world: &mut World) {
    for _ in 0..3 {
        world.now += 100;
        world.a.engine.step(world.now);
    }
}

fn first_error(world: &World) -> Option<FirstError> {
    let status = world.b.engine.query_queue_pair(world.b.qp.number);
    status.unwrap().first_error
}

/// C9-92: of a message of several packets each has bytes.
#[test]
fn a_packet_of_several_is_not_empty() {
    const FIRST: PacketFlags = PacketFlags::FIRST;
    const LAST: PacketFlags = PacketFlags::LAST;
    const MIDDLE: PacketFlags = PacketFlags::empty();
    let cases = [
        vec![(FIRST, 0)],
        vec![(FIRST, MTU), (MIDDLE, 0)],
        vec![(FIRST, MTU), (LAST, 0)],
    ];
    for (opcode, packets) in [Opcode::Write, Opcode::Send]
        .into_iter()
        .flat_map(|opcode| cases.clone().into_iter().map(move |case| (opcode, case)))
    {
        let mut world = World::new();
        let length = packets.iter().map(|(_, length)| length).sum::<usize>();
        // What comes last has its end where the message has its own.
        let ends = packets
            .last()
            .is_some_and(|(flags, _)| flags.contains(LAST));
        let target = world.b.region(&vec![0; length + usize::from(!ends)]);
        world.b.qp.post_receive(&[target.all()]);
        for (number, (flags, length)) in packets.iter().enumerate() {
            let header = Header {
                psn: PSN + number as u32,
                ..request(&world, opcode, *flags, &target)
            };
            world.inject(header, Buffer::filled(&vec![9; *length]));
        }
        world.settle();
        let error = first_error(&world).unwrap_or_else(|| panic!("{opcode:?} {packets:?}"));
        assert_eq!(error.syndrome, Syndrome::REMOTE_INVALID_REQUEST);
        let good = (packets.len() - 1) * MTU;
        assert_eq!(
            target.buffer.bytes()[good..],
            vec![0; length - good + usize::from(!ends)]
        );
    }
}

/// 9.9.6.3, class J: a key that cannot be taken away ends the receive, and the sender is told nothing.
#[test]
fn a_key_that_cannot_be_taken_away_is_the_receiver_s_error() {
    let mut world = World::new();
    let source = world.a.region(&[1; 64]);
    let target = world.b.region(&[0; 64]);
    (0..2).for_each(|_| world.b.qp.post_receive(&[target.all()]));
    let unknown = RemoteKey(target.keys.remote.0 ^ 0x40);
    let wqe = Wqe::<1>::send_invalidate(source.all(), unknown);
    world.a.qp.post(wqe.signalled());
    world.settle();
    let cqes = world.b.qp.receive_cq.drain();
    let syndromes: Vec<_> = cqes.iter().map(|cqe| cqe.error_word().syndrome()).collect();
    assert_eq!(syndromes, [Syndrome::MEMORY_WINDOW_BIND, Syndrome::FLUSHED]);
    let error = first_error(&world).expect("an error");
    assert_eq!(error.place, ErrorPlace::Receive(WqeIndex(0)));
    let status = world.b.engine.query_queue_pair(world.b.qp.number).unwrap();
    assert_eq!(status.state, QueuePairState::Error);
    assert!(world.a.qp.send_cq.poll().is_none(), "the sender is told");
    world.run_for(20 * TIMEOUT_NS);
    let cqe = world.a.qp.send_cq.poll().expect("no answer ever");
    assert_eq!(cqe.error_word().syndrome(), Syndrome::TRANSPORT_RETRY);
}

/// 11.6.2, bad response: to another kind of request than was made at its PSN. Nothing is repeated.
#[test]
fn a_response_of_another_kind_ends_the_request() {
    type Ask = fn(&Region, &Region) -> Wqe<1>;
    let write: Ask = |local, remote| Wqe::write(local.all(), remote.remote(0));
    let read: Ask = |local, remote| Wqe::read(local.all(), remote.remote(0));
    let add: Ask = |local, remote| Wqe::fetch_add(local.all(), remote.remote(0), 1);
    for (ask, opcode) in [
        (write, Opcode::ReadResponse),
        (write, Opcode::AtomicResponse),
        (read, Opcode::AtomicResponse),
        (add, Opcode::ReadResponse),
    ] {
        let mut world = World::new();
        let local = world.a.region(&[1; 8]);
        let remote = world.b.region(&[2; 8]);
        world.a.qp.post(ask(&local, &remote).signalled());
        let_a_work(&mut world);
        world.inject(response(&world, opcode, PSN), Buffer::filled(&[3; 8]));
        let_a_work(&mut world);
        let cqe = world.a.qp.send_cq.poll().expect("an error");
        assert_eq!(cqe.error_word().syndrome(), Syndrome::BAD_RESPONSE);
        assert_eq!(local.buffer.bytes(), [1; 8]);
    }
    // One that comes late, to a request that is done.
    let mut world = World::new();
    let local = world.a.region(&[1; 8]);
    let remote = world.b.region(&[2; 8]);
    for ask in [read, write] {
        world.a.qp.post(ask(&local, &remote).signalled());
        world.settle();
        world.inject(
            response(&world, Opcode::ReadResponse, PSN),
            Buffer::filled(&[3; 8]),
        );
        world.settle();
        assert!(!world.a.qp.send_cq.poll().unwrap().tail().is_error());
    }
    assert_eq!(local.buffer.bytes(), [2; 8]);
}

/// Nothing answers a request before it is sent.
#[test]
fn a_response_to_what_was_not_sent_is_none() {
    /// Packets that the wire holds.
    const FULL: usize = 100;
    let mut world = World::new();
    let local = world.a.region(&[1; 8]);
    let remote = world.b.region(&[2; 8]);
    for _ in 0..FULL {
        let nobody_s = Header {
            destination: 1,
            ..Header::default()
        };
        world.inject(nobody_s, Buffer::new(0));
    }
    let read = Wqe::<1>::read(local.all(), remote.remote(0));
    world.a.qp.post(read.signalled());
    let_a_work(&mut world);
    assert_eq!(world.in_the_air(), FULL, "the request waits");
    world.inject(
        response(&world, Opcode::ReadResponse, PSN),
        Buffer::filled(&[3; 8]),
    );
    let_a_work(&mut world);
    assert!(world.a.qp.send_cq.poll().is_none());
    assert_eq!(local.buffer.bytes(), [1; 8]);
    world.settle();
    assert!(!world.a.qp.send_cq.poll().unwrap().tail().is_error());
    assert_eq!(local.buffer.bytes(), [2; 8]);
}

/// A refusal for a gap in the PSNs is a reason to try again, and counts as one. Progress gives all tries back.
#[test]
fn a_peer_that_misses_packets_for_ever_spends_the_retries() {
    let mut world = World::connected(Connection {
        retry_count: 2,
        ack_timeout_ns: 0,
        ..Connection::default()
    });
    let local = world.a.region(&[1; 8]);
    let remote = world.b.region(&[2; 8]);
    let write = Wqe::<1>::write(local.all(), remote.remote(0)).signalled();
    (0..2).for_each(|_| {
        world.a.qp.post(write);
    });
    let_a_work(&mut world);
    let refuse = |world: &mut World, psn, times| {
        let refusal = Header {
            detail: Refusal::Sequence as u8,
            ..response(world, Opcode::Refuse, psn)
        };
        (0..times).for_each(|_| world.inject(refusal, Buffer::new(0)));
        let_a_work(world);
    };
    // The same refusal twice, with nothing sent between them, is one.
    refuse(&mut world, PSN, 2);
    refuse(&mut world, PSN, 1);
    assert!(world.a.qp.send_cq.poll().is_none());
    refuse(&mut world, PSN + 1, 1);
    assert!(!world.a.qp.send_cq.poll().unwrap().tail().is_error());
    refuse(&mut world, PSN + 1, 1);
    assert!(world.a.qp.send_cq.poll().is_none());
    refuse(&mut world, PSN + 1, 1);
    let cqe = world.a.qp.send_cq.poll().expect("an error");
    assert_eq!(cqe.error_word().syndrome(), Syndrome::TRANSPORT_RETRY);
}

/// While the requester waits for a receive, another refusal for want of one is no try.
#[test]
fn a_refusal_that_comes_twice_is_one_try() {
    let mut world = World::connected(Connection {
        rnr_retry: 1,
        ..Connection::default()
    });
    let local = world.a.region(&[1; 8]);
    let target = world.b.region(&[0; 8]);
    world.a.qp.post(Wqe::<1>::send(local.all()).signalled());
    let_a_work(&mut world);
    world.keep_in_the_air(1, 0);
    let refusal = Header {
        detail: Refusal::ReceiverNotReady as u8,
        length: RNR_NS,
        ..response(&world, Opcode::Refuse, PSN)
    };
    for _ in 0..2 {
        world.inject(refusal, Buffer::new(0));
        let_a_work(&mut world);
    }
    world.b.qp.post_receive(&[target.all()]);
    world.settle();
    assert!(!world.a.qp.send_cq.poll().unwrap().tail().is_error());
    assert_eq!(target.buffer.bytes(), [1; 8]);
}

/// That the peer found no receive is no progress: it gives no tries back.
#[test]
fn a_refusal_for_want_of_a_receive_gives_no_tries_back() {
    let mut world = World::connected(Connection {
        retry_count: 1,
        rnr_retry: 7,
        ack_timeout_ns: 0,
        ..Connection::default()
    });
    let local = world.a.region(&[1; 8]);
    world.a.qp.post(Wqe::<1>::send(local.all()).signalled());
    let_a_work(&mut world);
    let refuse = |world: &mut World, refusal| {
        let refusal = Header {
            detail: refusal as u8,
            length: RNR_NS,
            ..response(world, Opcode::Refuse, PSN)
        };
        world.inject(refusal, Buffer::new(0));
        let_a_work(world);
        world.now += u64::from(RNR_NS);
        let_a_work(world);
    };
    refuse(&mut world, Refusal::Sequence);
    refuse(&mut world, Refusal::ReceiverNotReady);
    assert!(world.a.qp.send_cq.poll().is_none());
    refuse(&mut world, Refusal::Sequence);
    let cqe = world.a.qp.send_cq.poll().expect("an error");
    assert_eq!(cqe.error_word().syndrome(), Syndrome::TRANSPORT_RETRY);
}

/// A packet that was missed and comes before anybody was told is acknowledged and no longer asked for.
#[test]
fn what_is_no_longer_missed_is_not_asked_for() {
    let mut world = World::new();
    let local = world.a.region(&[1; 8]);
    let target = world.b.region(&[0; 8]);
    let all = PacketFlags::FIRST | PacketFlags::LAST | PacketFlags::ACKNOWLEDGE;
    let ahead = Header {
        psn: PSN + 1,
        ..request(&world, Opcode::Write, all, &target)
    };
    world.inject(ahead, Buffer::filled(&[3; 8]));
    let write = Wqe::<1>::write(local.all(), target.remote(0));
    world.a.qp.post(write.signalled());
    world.settle();
    assert!(!world.a.qp.send_cq.poll().unwrap().tail().is_error());
    assert_eq!(target.buffer.bytes(), [1; 8]);
    for (node, what) in [(&world.a, "asked"), (&world.b, "sent")] {
        let status = node.engine.query_queue_pair(node.qp.number).unwrap();
        let counters = status.counters;
        assert_eq!(
            (counters.retries, counters.duplicates),
            (0, 0),
            "{what} again"
        );
    }
}

/// 10.3.1: no memory goes out of a queue pair that was put into error.
#[test]
fn a_queue_pair_in_error_by_command_answers_no_more() {
    const LENGTH: usize = 150 * MTU;
    let mut world = World::new();
    let target = world.a.region(&vec![0; LENGTH]);
    let source = world.b.region(&vec![7; LENGTH]);
    let read = Wqe::<1>::read(target.all(), source.remote(0));
    world.a.qp.post(read.signalled());
    let_a_work(&mut world);
    world.b.engine.step(world.now);
    let under_way = world.in_the_air();
    assert!((1..LENGTH / MTU).contains(&under_way), "some of the answer");
    let qp = world.b.qp.number;
    let error = Transition::Error;
    world.b.engine.modify_queue_pair(qp, error).unwrap();
    (0..10).for_each(|_| {
        world.b.engine.step(world.now);
    });
    assert_eq!(world.in_the_air(), under_way);
    world.run_for(20 * TIMEOUT_NS);
    let cqe = world.a.qp.send_cq.poll().expect("no answer ever");
    assert_eq!(cqe.error_word().syndrome(), Syndrome::TRANSPORT_RETRY);
}

/// However many answers come behind one that is missing: that one is asked for once, which is a retry.
#[test]
fn a_missing_answer_is_asked_for_once() {
    const LENGTH: usize = 20 * MTU;
    for (retry_count, arrives) in [(1, true), (0, false)] {
        let connection = Connection {
            retry_count,
            ..Connection::default()
        };
        // The third packet of the first answer is lost.
        let mut answers = 0;
        let faults = Box::new(move |header: &Header| {
            answers += u32::from(header.opcode == Opcode::ReadResponse as u8);
            match answers {
                3 => Fate::Drop,
                _ => Fate::Pass,
            }
        });
        let mut world = World::with(Shape::default(), connection, [clean(), faults]);
        let target = world.a.region(&vec![0; LENGTH]);
        let source = world.b.region(&vec![7; LENGTH]);
        let read = Wqe::<1>::read(target.all(), source.remote(0));
        world.a.qp.post(read.signalled());
        world.settle();
        let cqe = world.a.qp.send_cq.poll().expect("a completion");
        let status = world.a.engine.query_queue_pair(world.a.qp.number);
        assert_eq!(status.unwrap().counters.retries, u64::from(retry_count));
        if arrives {
            assert!(!cqe.tail().is_error());
            assert_eq!(target.buffer.bytes(), vec![7; LENGTH]);
        } else {
            assert_eq!(cqe.error_word().syndrome(), Syndrome::TRANSPORT_RETRY);
        }
    }
}

/// A wire without packets for them (RoCE): the WQE fails here, after those before it, and nothing reaches the peer.
#[test]
fn extended_atomics_fail_where_the_wire_has_no_packets_for_them() {
    type Post = fn(&mut Qp, Local, Remote) -> WqeIndex;
    const ALL: u64 = u64::MAX;
    fn swap(qp: &mut Qp, to: (Local, Remote), compare_mask: u64, mask: u64) -> WqeIndex {
        let compare = Masked {
            value: 3,
            mask: compare_mask,
        };
        let swap = Masked { value: 4, mask };
        qp.post(Wqe::<2>::masked_compare_swap_u64(to.0, to.1, compare, swap).signalled())
    }
    fn add(qp: &mut Qp, to: (Local, Remote), boundary: u64) -> WqeIndex {
        qp.post(Wqe::<1>::masked_fetch_add_u64(to.0, to.1, 1, boundary).signalled())
    }
    let atomics: [(Post, bool); 9] = [
        (
            |qp, at, to| qp.post(Wqe::<1>::fetch_add(at, to, 1).signalled()),
            false,
        ),
        (
            |qp, at, to| qp.post(Wqe::<1>::compare_swap(at, to, 1, 2).signalled()),
            false,
        ),
        (|qp, at, to| add(qp, (at, to), 0), false),
        (|qp, at, to| add(qp, (at, to), 1 << 31), true),
        (|qp, at, to| swap(qp, (at, to), ALL, ALL), false),
        (|qp, at, to| swap(qp, (at, to), ALL, 0xff), true),
        (|qp, at, to| swap(qp, (at, to), 0xff, ALL), true),
        (
            |qp, at, to| {
                let half = Local { length: 4, ..at };
                qp.post(Wqe::<1>::masked_fetch_add_u32(half, to, 1, 0).signalled())
            },
            true,
        ),
        (
            |qp, at, to| {
                let half = Local { length: 4, ..at };
                let [compare, swap] = [3, 4].map(|value| Masked {
                    value,
                    mask: u32::MAX,
                });
                qp.post(Wqe::<1>::masked_compare_swap_u32(half, to, compare, swap).signalled())
            },
            true,
        ),
    ];
    for (post, is_extended) in atomics {
        for extended_atomics in [true, false] {
            let shape = Shape {
                extended_atomics,
                ..Shape::default()
            };
            let mut world = World::with(shape, Connection::default(), [clean(), clean()]);
            let here = world.a.region(&[0; 16]);
            let there = world.b.region(&[0; 16]);
            let before = Wqe::<1>::write(here.local(8, 8), there.remote(8));
            world.a.qp.write(before.signalled());
            post(&mut world.a.qp, here.local(0, 8), there.remote(0));
            world.settle();
            let cqes = world.a.qp.send_cq.drain();
            let [first, second] = cqes.try_into().expect("two completions");
            assert!(!first.tail().is_error());
            let fails = is_extended && !extended_atomics;
            assert_eq!(second.tail().is_error(), fails);
            if fails {
                let syndrome = second.error_word().syndrome();
                assert_eq!(syndrome, Syndrome::LOCAL_QP_OPERATION);
                assert_eq!(there.buffer.bytes(), [0; 16]);
            }
        }
    }
}

/// RoCE's packets do not name their source queue pair: it is that of the connection. A packet of another transport is
/// none of a queue pair's (9.6.1).
#[test]
fn a_packet_may_leave_its_source_out_and_must_have_the_transport_of_its_queue_pair() {
    for transport in [
        Transport::ReliableConnection,
        Transport::UnreliableConnection,
    ] {
        let shape = Shape {
            options: QueuePairOptions {
                transport,
                ..QueuePairOptions::default()
            },
            ..Shape::default()
        };
        let mut world = World::with(shape, Connection::default(), [clean(), clean()]);
        let there = world.b.region(&[0; 8]);
        let whole = PacketFlags::FIRST | PacketFlags::LAST;
        let good = Header {
            destination: 1,
            source: 0,
            destination_qp: world.b.qp.number.get(),
            source_qp: Header::UNKNOWN_QP,
            psn: Connection::default().psn,
            opcode: Opcode::Write as u8,
            flags: match transport {
                Transport::UnreliableConnection => whole | PacketFlags::UNRELIABLE,
                _ => whole,
            }
            .bits(),
            address: there.buffer.address(),
            rkey: there.keys.remote.0,
            length: 8,
            ..Header::default()
        };
        let wrong = [
            Header { source: 7, ..good },
            Header {
                flags: good.flags ^ PacketFlags::UNRELIABLE.bits(),
                ..good
            },
        ];
        for (header, arrives) in wrong
            .map(|header| (header, false))
            .into_iter()
            .chain([(good, true)])
        {
            world.inject(header, Buffer::filled(&[9; 8]));
            world.settle();
            assert_eq!(there.buffer.bytes() == [9; 8], arrives, "{transport:?}");
        }
    }
}
