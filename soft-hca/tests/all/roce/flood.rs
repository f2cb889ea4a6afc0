//! Floods: whoever sends more than an HCA can take, and nothing good, does not keep it from its work.

use mlx5_wqe::Wqe;
use warpbell_soft_hca::engine::Transport;

use super::world::{ADDRESSES, Node, Stranger, Way, World};
use crate::engine::world::pattern;

/// Datagrams that lie in the socket before each step.
const FLOOD: usize = 1000;

/// Garbage from a peer's address and port, and a good packet now and then, for which a step goes on to look.
#[test]
fn a_flood_takes_a_bounded_share_of_each_step() {
    for [ours, theirs] in ADDRESSES {
        let node = Node::new(ours, Transport::ReliableConnection);
        let stranger = Stranger::new(theirs);
        stranger.meet(&node, 0x11, 4096, 9);
        let good = stranger.duplicate(&node, 8);
        for number in 0..FLOOD {
            stranger.send(&node, b"no packet of RoCE's");
            if number % 7 == 0 {
                stranger.send(&node, &good);
            }
        }
        let mut seen = 0;
        let mut steps = 0;
        while seen < FLOOD as u64 {
            node.hca.step().unwrap();
            let counters = node.hca.roce_counters().unwrap();
            assert!(counters.malformed - seen <= 256, "too much for one step");
            seen = counters.malformed;
            steps += 1;
            assert!(steps < 100_000, "the flood came in: {counters:?}");
        }
        assert!(steps >= FLOOD / 256);
    }
}

/// Two HCAs do their work while a third party floods both: with garbage, and with the packets of one of them.
#[test]
fn traffic_goes_on_in_a_flood() {
    let mut world = World::new(Way::of(ADDRESSES[0]));
    let flooder = Stranger::new("127.0.0.3:0".parse().unwrap());
    let data = pattern(100_000, 5);
    let source = world.a.region(&data);
    let target = world.b.region(&vec![0; data.len()]);
    let write = Wqe::<1>::write(source.all(), target.remote(0)).signalled();
    world.a.qp.post(write);
    // Of a write to queue pair B: from another address it is nobody's.
    let spoofed = [
        &[0x0a, 0, 0xff, 0xff, 0][..],
        &world.b.qp.number.get().to_be_bytes()[1..],
        &[0x80, 0, 0, 7],
        &target.buffer.address().to_be_bytes(),
        &target.keys.remote.0.to_be_bytes(),
        &[0, 0, 0, 4, 6, 6, 6, 6],
    ]
    .concat();
    let spoofed = flooder.seal(&world.b, &spoofed);
    let cqe = world.until(|world| {
        for _ in 0..100 {
            flooder.send(&world.a, b"no packet of RoCE's");
            flooder.send(&world.b, &spoofed);
        }
        world.a.qp.send_cq.poll()
    });
    assert!(!cqe.tail().is_error());
    assert_eq!(target.buffer.bytes(), data);
    for node in [&world.a, &world.b] {
        let counters = node.hca.roce_counters().unwrap();
        assert!(counters.unknown_source > 0, "{counters:?}");
        assert_eq!((counters.malformed, counters.wrong_crc), (0, 0));
    }
}
