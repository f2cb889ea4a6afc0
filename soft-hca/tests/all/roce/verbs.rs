//! Every verb that RoCE has packets for, over IPv4 and IPv6.

use mlx5_wqe::segment::{Data, RemoteAddress};
use mlx5_wqe::{AddressVector, CqeOpcode, Immediate, Opcode, Wqe};
use warpbell_soft_hca::engine::Transport;
use warpbell_soft_hca::shell::Driver;
use zerocopy::byteorder::big_endian::U32;

use super::world::{ADDRESSES, MTU, Q_KEY, Way, World};
use crate::engine::world::pattern;

/// Around one packet, and long.
const LENGTHS: [usize; 4] = [1, MTU as usize, MTU as usize + 1, 1 << 20];
/// The packets of a long message go through the PSN's wrap.
const PSN: u32 = 0xff_fffd;

fn worlds(transport: Transport) -> impl Iterator<Item = World> {
    ADDRESSES.into_iter().map(move |addresses| {
        World::new(Way {
            transport,
            psn: PSN,
            ..Way::of(addresses)
        })
    })
}

#[test]
fn messages_of_reliable_connections_arrive_whole() {
    for mut world in worlds(Transport::ReliableConnection) {
        for (round, length) in LENGTHS.into_iter().enumerate() {
            let data = pattern(length, round as u8);
            let source = world.a.region(&data);
            let [written, with_immediate, received, received_with] =
                [(); 4].map(|()| world.b.region(&vec![0; length]));
            let back = world.a.region(&vec![0; length]);
            let all = source.all();
            world.b.qp.post_receive(&[]);
            world.b.qp.post_receive(&[received.all()]);
            world.b.qp.post_receive(&[received_with.all()]);
            let qp = &mut world.a.qp;
            qp.write(Wqe::<1>::write(all, written.remote(0)).signalled());
            qp.write(
                Wqe::<1>::write_immediate(all, with_immediate.remote(0), Immediate(0x1234_5678))
                    .signalled(),
            );
            qp.write(Wqe::<1>::send(all).signalled());
            qp.write(Wqe::<1>::send_immediate(all, Immediate(0x9abc_def0)).signalled());
            let read = Wqe::<1>::read(back.all(), written.remote(0));
            qp.post(read.signalled());
            for _ in 0..5 {
                assert!(!world.sent().tail().is_error(), "{length} bytes");
            }
            for region in [written, with_immediate, received, received_with, back] {
                assert!(region.buffer.bytes() == data, "{length} bytes");
            }
            for (opcode, immediate) in [
                (CqeOpcode::RESPONDER_WRITE_IMMEDIATE, Some(0x1234_5678)),
                (CqeOpcode::RESPONDER_SEND, None),
                (CqeOpcode::RESPONDER_SEND_IMMEDIATE, Some(0x9abc_def0)),
            ] {
                let cqe = world.received();
                assert_eq!(cqe.tail().cqe_opcode(), opcode);
                assert_eq!(cqe.byte_count.get() as usize, length);
                if let Some(immediate) = immediate {
                    assert_eq!(cqe.immediate.get(), immediate);
                }
            }
        }
        world.rest();
        assert!(world.b.qp.receive_cq.poll().is_none(), "once each");
        world.check();
    }
}

#[test]
fn messages_without_bytes_arrive() {
    for mut world in worlds(Transport::ReliableConnection) {
        let target = world.b.region(&[0; 8]);
        world.b.qp.post_receive(&[]);
        world.b.qp.post_receive(&[]);
        let qp = &mut world.a.qp;
        qp.write(Wqe::<1>::send_empty().signalled());
        let write = Wqe::<1>::write_immediate_only(target.remote(0), Immediate(1));
        qp.write(write.signalled());
        let nothing = [RemoteAddress::new(target.remote(0)).to_octoword()];
        let read = Wqe::<1>::from_segments(Opcode::RDMA_READ, 0, 0, &nothing, 0);
        qp.post(read.unwrap().signalled());
        for _ in 0..3 {
            assert!(!world.sent().tail().is_error());
        }
        for _ in 0..2 {
            assert_eq!(world.received().byte_count.get(), 0);
        }
        world.check();
    }
}

#[test]
fn atomics_run_once_and_give_what_was_there() {
    for mut world in worlds(Transport::ReliableConnection) {
        let result = world.a.region(&[0; 24]);
        let target = world.b.region(&7u64.to_ne_bytes());
        let qp = &mut world.a.qp;
        let to = target.remote(0);
        qp.write(Wqe::<1>::fetch_add(result.local(0, 8), to, 5).signalled());
        qp.write(Wqe::<1>::compare_swap(result.local(8, 8), to, 12, 0x1122_3344_5566).signalled());
        qp.post(Wqe::<1>::compare_swap(result.local(16, 8), to, 12, 1).signalled());
        for _ in 0..3 {
            assert!(!world.sent().tail().is_error());
        }
        assert_eq!(result.buffer.u64_at(0), 7);
        assert_eq!(result.buffer.u64_at(8), 12);
        assert_eq!(result.buffer.u64_at(16), 0x1122_3344_5566);
        assert_eq!(target.buffer.u64_at(0), 0x1122_3344_5566);
        world.check();
    }
}

/// There is no packet for it: the WQE fails here, and nothing is sent.
#[test]
fn an_atomic_of_4_bytes_fails() {
    for mut world in worlds(Transport::ReliableConnection) {
        let result = world.a.region(&[0; 4]);
        let target = world.b.region(&[0; 4]);
        let add = Wqe::<1>::masked_fetch_add_u32(result.all(), target.remote(0), 1, 0);
        world.a.qp.post(add.signalled());
        let cqe = world.sent();
        assert!(cqe.tail().is_error());
        let syndrome = cqe.error_word().syndrome();
        assert_eq!(syndrome, mlx5_wqe::Syndrome::LOCAL_QP_OPERATION);
        assert_eq!(world.a.hca.roce_counters().unwrap().sent, 0);
    }
}

/// A gather list of many segments makes packets as long as the path MTU, as other RDMA devices demand.
#[test]
fn a_gather_list_is_cut_at_the_path_mtu() {
    for mut world in worlds(Transport::ReliableConnection) {
        let data = pattern(6000, 3);
        let source = world.a.region(&data);
        let target = world.b.region(&[0; 6000]);
        let parts: Vec<_> = (0..12).map(|at| source.local(500 * at, 500)).collect();
        let write = Wqe::<4>::write_gather(&parts, target.remote(0)).unwrap();
        world.a.qp.post(write.signalled());
        assert!(!world.sent().tail().is_error());
        assert!(target.buffer.bytes() == data);
        assert_eq!(world.a.hca.roce_counters().unwrap().sent, 2);
        world.check();
    }
}

#[test]
fn messages_of_unreliable_connections_arrive_whole() {
    for mut world in worlds(Transport::UnreliableConnection) {
        for (round, length) in LENGTHS.into_iter().enumerate() {
            let data = pattern(length, round as u8);
            let source = world.a.region(&data);
            let [written, received] = [(); 2].map(|()| world.b.region(&vec![0; length]));
            world.b.qp.post_receive(&[received.all()]);
            world.b.qp.post_receive(&[]);
            let qp = &mut world.a.qp;
            qp.write(Wqe::<1>::send(source.all()).signalled());
            let immediate = Immediate(length as u32);
            qp.post(Wqe::<1>::write_immediate(
                source.all(),
                written.remote(0),
                immediate,
            ));
            assert!(!world.sent().tail().is_error());
            let cqe = world.received();
            assert_eq!(cqe.tail().cqe_opcode(), CqeOpcode::RESPONDER_SEND);
            assert_eq!(cqe.byte_count.get() as usize, length);
            let cqe = world.received();
            assert_eq!(
                cqe.tail().cqe_opcode(),
                CqeOpcode::RESPONDER_WRITE_IMMEDIATE
            );
            assert_eq!(cqe.immediate.get() as usize, length);
            assert!(received.buffer.bytes() == data && written.buffer.bytes() == data);
        }
        // Nobody answers.
        assert_eq!(world.b.hca.roce_counters().unwrap().sent, 0);
        world.check();
    }
}

#[test]
fn a_datagram_arrives_behind_the_route_header_of_its_packet() {
    for mut world in worlds(Transport::Datagram) {
        let v4 = world.a.address.is_ipv4();
        let bytes = pattern(101, 1);
        let source = world.a.region(&bytes);
        let target = world.b.region(&[0xee; 200]);
        for (opcode, arrives, extra) in [
            (Opcode::SEND, CqeOpcode::RESPONDER_SEND, 0),
            (
                Opcode::SEND_IMMEDIATE,
                CqeOpcode::RESPONDER_SEND_IMMEDIATE,
                4,
            ),
        ] {
            world.b.qp.post_receive(&[target.all()]);
            let rgid = match world.b.address.ip() {
                std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                std::net::IpAddr::V6(ip) => ip.octets(),
            };
            let vector = AddressVector {
                rgid,
                hop_limit: 64,
                grh_gid_fl: U32::new(1 << 30),
                ..AddressVector::datagram(world.b.qp.number, Q_KEY)
            };
            let mut segments = vector.to_octowords().to_vec();
            segments.push(Data::new(source.all()).to_octoword());
            let wqe = Wqe::<8>::from_segments(opcode, 0, Immediate(0x55aa).0, &segments, 0);
            world.a.qp.post(wqe.unwrap().signalled());
            assert!(!world.sent().tail().is_error());
            let cqe = world.received();
            assert_eq!(cqe.tail().cqe_opcode(), arrives);
            assert_eq!(cqe.byte_count.get() as usize, 40 + bytes.len());
            assert_eq!(cqe.source_qpn(), world.a.qp.number);
            // The kind of the route header, where InfiniBand has the service level: Linux's mlx5_ib takes 2 for IPv4, 1 for IPv6.
            let kind = cqe.flags_rqpn.get() >> 24 & 0x3;
            assert_eq!(kind, if v4 { 2 } else { 1 });
            let stored = target.buffer.bytes();
            assert_eq!(stored[40..141], bytes);
            // UDP, BTH, DETH, immediate data, payload with its pad, CRC.
            let udp = 8 + 12 + 8 + extra + 104 + 4;
            // Both with the mark ECT(0), which says that switches may mark more (RFC 3168).
            if v4 {
                assert_eq!(stored[..20], [0; 20]);
                assert_eq!(stored[20..24], [0x45, 2, 0, udp + 20]);
                assert_eq!(stored[29], 17);
                assert_eq!(stored[32..40], [127, 0, 0, 1, 127, 0, 0, 2]);
            } else {
                assert_eq!(stored[..8], [0x60, 0x20, 0, 0, 0, udp, 17, 64]);
                let local = std::net::Ipv6Addr::LOCALHOST.octets();
                assert_eq!(stored[8..40], [local, local].concat());
            }
        }
        world.check();
    }
}

/// Threads that sleep until a packet comes.
#[test]
fn threads_that_drive_hcas_answer_each_other() {
    for mut world in worlds(Transport::ReliableConnection) {
        let drivers = [(); 2].map(|()| Driver::spawn().unwrap());
        drivers[0].drive(&world.a.hca);
        drivers[1].drive(&world.b.hca);
        let source = world.a.region(&pattern(10_000, 1));
        let target = world.b.region(&[0; 10_000]);
        for _ in 0..20 {
            let write = Wqe::<1>::write(source.all(), target.remote(0)).signalled();
            world.a.qp.post(write);
            let deadline = std::time::Instant::now() + super::world::PATIENCE;
            while world.a.qp.send_cq.poll().is_none() {
                assert!(std::time::Instant::now() < deadline, "nobody answers");
                std::thread::sleep(std::time::Duration::from_micros(500));
            }
        }
        assert!(target.buffer.bytes() == source.buffer.bytes());
    }
}
