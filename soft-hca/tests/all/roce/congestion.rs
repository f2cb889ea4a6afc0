//! Congestion on the way: marks, notifications, and a sender that goes on all the same.

use mlx5_wqe::Wqe;
use rustix::net::sockopt;
use warpbell_soft_hca::engine::Transport;
use warpbell_soft_hca::shell::RoceOptions;

use super::relay::Fates;
use super::world::{ADDRESSES, MTU, Node, Stranger, Way, World};
use crate::engine::world::pattern;

/// The packet that A17.9.3 has: opcode 0x81, the default partition, BECN, queue pair 0x11, and 16 bytes of zero.
const NOTIFICATION: [u8; 28] = {
    let mut bytes = [0; 28];
    bytes[0] = 0x81;
    (bytes[2], bytes[3]) = (0xff, 0xff);
    bytes[4] = 0x40;
    bytes[7] = 0x11;
    bytes
};

/// A marked packet of RC, which does not say who sent it, is answered once the HCA has sent something back.
#[test]
fn a_marked_packet_is_answered_by_a_notification() {
    for [ours, theirs] in ADDRESSES {
        for congestion_control in [true, false] {
            let node = Node::listening(
                RoceOptions {
                    address: ours,
                    congestion_control,
                    ..RoceOptions::at(ours.ip())
                },
                Transport::ReliableConnection,
            );
            let stranger = Stranger::new(theirs);
            stranger.meet(&node, 0x11, MTU, 9);
            match theirs.is_ipv4() {
                true => sockopt::set_ip_tos(&stranger.socket, 3).unwrap(),
                false => sockopt::set_ipv6_tclass(&stranger.socket, 3).unwrap(),
            }
            let packet = stranger.duplicate(&node, 8);
            stranger.send(&node, &packet);
            let acknowledgement = stranger.answer(&node);
            assert_eq!(acknowledgement[0], 0x11);
            stranger.send(&node, &packet);
            let first = stranger.answer(&node);
            let counters = node.hca.roce_counters().unwrap();
            assert_eq!((counters.received, counters.marked), (2, 2));
            assert_eq!(counters.notifications_sent, u64::from(congestion_control));
            if congestion_control {
                assert_eq!(first[..28], NOTIFICATION);
                assert_eq!(first, stranger.sealed_by(&node, &NOTIFICATION));
            } else {
                assert_eq!(first, acknowledgement);
            }
        }
    }
}

#[test]
fn a_sender_that_is_notified_goes_on() {
    let mut world = World::through(
        Way::of(ADDRESSES[1]),
        Fates {
            marked: 1000,
            ..Fates::default()
        },
    );
    let data = pattern(1 << 20, 3);
    let source = world.a.region(&data);
    let target = world.b.region(&vec![0; data.len()]);
    for _ in 0..3 {
        let write = Wqe::<1>::write(source.all(), target.remote(0)).signalled();
        world.a.qp.post(write);
        assert!(!world.sent().tail().is_error());
    }
    assert_eq!(target.buffer.bytes(), data);
    let [a, b] = [&world.a, &world.b].map(|node| node.hca.roce_counters().unwrap());
    assert!(b.marked > 256 && b.notifications_sent > 0, "{b:?}");
    assert!(a.notifications_received > 0, "{a:?}");
    assert!(a.notifications_received <= b.notifications_sent);
}
