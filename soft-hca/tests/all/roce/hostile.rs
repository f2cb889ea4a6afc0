//! Datagrams that are no good packets: counted, and nothing else.

use std::net::SocketAddr;

use proptest::prelude::*;
use warpbell_roce::{
    Bth, BthFlags, BthOpcode, CnpBody, Extended, Headers, MAX_HEADERS, Psn, Qpn, Reth,
};
use warpbell_soft_hca::engine::{QueuePairState, Transport};
use warpbell_soft_hca::shell::RoceCounters;

use super::world::{ADDRESSES, MTU, Node, PATIENCE, Stranger};
use crate::engine::world::Region;

const PSN: u32 = 9;

/// An HCA, a stranger that is its peer, and memory there.
struct Scene {
    node: Node,
    stranger: Stranger,
    target: Region,
}

impl Scene {
    fn new([ours, theirs]: [SocketAddr; 2]) -> Self {
        let node = Node::new(ours, Transport::ReliableConnection);
        let stranger = Stranger::new(theirs);
        stranger.meet(&node, 0x11, MTU, PSN);
        let target = node.region(&[0; 64]);
        Self {
            node,
            stranger,
            target,
        }
    }

    /// The BTH and RETH of a good write.
    fn write(&self) -> (Bth, Extended) {
        let qpn = Qpn::new(self.node.qp.number.get()).unwrap();
        let psn = Psn::from_low_bits(PSN);
        let bth = Bth::new(BthOpcode::RC_WRITE_ONLY, qpn, psn, BthFlags::ACK_REQUEST);
        let reth = Reth {
            virtual_address: self.target.buffer.address().into(),
            remote_key: self.target.keys.remote.0.into(),
            length: 8.into(),
        };
        (bth, Extended::Reth { reth })
    }

    fn packet(&self, (bth, extended): (Bth, Extended), payload: &[u8]) -> Vec<u8> {
        let headers = Headers::new(bth, extended, payload.len()).unwrap();
        let mut scratch = [0; MAX_HEADERS];
        let bytes = [headers.write(&mut scratch), payload].concat();
        self.stranger.seal(&self.node, &bytes)
    }

    fn counters(&self) -> RoceCounters {
        self.node.hca.roce_counters().unwrap()
    }

    /// Has the HCA take one more datagram.
    fn take(&self) -> RoceCounters {
        let before = self.counters().arrived();
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            self.node.hca.step().unwrap();
            let counters = self.counters();
            if counters.arrived() > before {
                return counters;
            }
            assert!(std::time::Instant::now() < deadline, "nothing is counted");
        }
    }

    fn is_untouched(&self) -> bool {
        self.target.buffer.bytes() == [0; 64]
    }

    fn state(&self) -> QueuePairState {
        let number = self.node.qp.number;
        let status = self
            .node
            .hca
            .command(|engine| engine.query_queue_pair(number));
        status.unwrap().unwrap().state
    }
}

#[test]
fn what_is_no_good_packet_is_counted_by_name() {
    for addresses in ADDRESSES {
        let scene = Scene::new(addresses);
        let (bth, extended) = scene.write();
        let good = scene.packet((bth, extended), &[7; 8]);
        let mut expected = RoceCounters::default();

        let mut damaged = good.clone();
        damaged[30] ^= 1;
        scene.stranger.send(&scene.node, &damaged);
        expected.wrong_crc += 1;
        assert_eq!(scene.take(), expected);

        let other = Bth {
            partition_key: 0xfffe.into(),
            ..bth
        };
        let other = scene.packet((other, extended), &[7; 8]);
        scene.stranger.send(&scene.node, &other);
        expected.wrong_partition_key += 1;
        assert_eq!(scene.take(), expected);

        scene.stranger.send(&scene.node, b"no packet of RoCE's");
        expected.malformed += 1;
        assert_eq!(scene.take(), expected);

        let (qpn, psn) = (bth.destination_qp, bth.psn);
        let cnp = Bth::new(BthOpcode::CNP, qpn, psn, BthFlags::BECN);
        let body = CnpBody::default();
        let cnp = scene.packet((cnp, Extended::Cnp { body }), &[]);
        scene.stranger.send(&scene.node, &cnp);
        expected.notifications_received += 1;
        assert_eq!(scene.take(), expected);

        if addresses[0].is_ipv4() {
            let stranger = Stranger::new("127.0.0.3:0".parse().unwrap());
            stranger.send(&scene.node, &good);
            expected.unknown_source += 1;
            assert_eq!(scene.take(), expected);
        }

        assert!(scene.is_untouched());
        assert_eq!(scene.state(), QueuePairState::ReadyToSend);
        // And the real thing, so that the above was dropped for its reason.
        scene.stranger.send(&scene.node, &good);
        expected.received += 1;
        expected.sent += 1;
        assert_eq!(scene.take(), expected);
        assert_eq!(
            scene.target.buffer.bytes()[..9],
            [7, 7, 7, 7, 7, 7, 7, 7, 0]
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Packets whose CRC is right, to a queue pair that there is, with any opcode, near the expected PSN, and with any words
    /// behind: without a key they touch nothing, and the HCA lives on.
    #[test]
    fn any_packet_with_a_right_crc_is_harmless_without_a_key(
        packets in prop::collection::vec(
            (prop_oneof![0..0x18u8, any::<u8>()], prop_oneof![Just(0), any::<u8>()], -2..3i32, any::<bool>(), prop::collection::vec(any::<[u8; 4]>(), 0..12)),
            8,
        ),
    ) {
        let scene = Scene::new(ADDRESSES[0]);
        let qpn = scene.node.qp.number.get().to_be_bytes();
        for (opcode, bits, ahead, asks, rest) in packets {
            let psn = PSN.wrapping_add_signed(ahead) as u8;
            let bth = [opcode, bits, 0xff, 0xff, 0, qpn[1], qpn[2], qpn[3], u8::from(asks) << 7, 0, 0, psn];
            let packet = scene.stranger.seal(&scene.node, &[&bth[..], rest.as_flattened()].concat());
            scene.stranger.send(&scene.node, &packet);
            let counters = scene.take();
            prop_assert_eq!((counters.wrong_crc, counters.unknown_source), (0, 0));
        }
        prop_assert!(scene.is_untouched());
        scene.target.buffer.check_canaries();
    }

    /// Any bytes, and any change of a good packet, do nothing. Over IPv6, whose CRC misses no such change but that of the
    /// byte that routers may change.
    #[test]
    fn any_datagram_is_harmless(
        datagrams in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..200), 8),
        changes in prop::collection::vec((0..48usize, 1u8..), 8),
    ) {
        let scene = Scene::new(ADDRESSES[1]);
        let good = scene.packet(scene.write(), &[7; 8]);
        prop_assert_eq!(good.len(), 40);
        for datagram in datagrams {
            scene.stranger.send(&scene.node, &datagram);
            scene.take();
        }
        for (at, xor) in changes.into_iter().filter(|(at, _)| *at < 40 && *at != 4) {
            let mut changed = good.clone();
            changed[at] ^= xor;
            scene.stranger.send(&scene.node, &changed);
            scene.take();
        }
        prop_assert_eq!(scene.counters().received, 0);
        prop_assert!(scene.is_untouched());
        prop_assert_eq!(scene.state(), QueuePairState::ReadyToSend);
    }
}
