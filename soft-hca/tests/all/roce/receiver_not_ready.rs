//! RNR NAKs: a receiver that has no receive WQE says how long to wait, and a sender waits for so long.

use std::time::Instant;

use mlx5_wqe::Wqe;
use warpbell_roce::RnrTimer;
use warpbell_soft_hca::engine::Transport;
use warpbell_soft_hca::engine::command::rnr_timer_ns;

use super::world::{ADDRESSES, MTU, Node, PATIENCE, Stranger};

/// Microseconds by code, from table 45 of the InfiniBand specification (volume 1, 9.7.5.2.8).
const TIMES_US: [u32; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840,
    5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840,
    245_760, 327_680, 491_520,
];
const PSN: u32 = 9;

/// The number, the syndrome and the PSN of an acknowledgement.
fn aeth(packet: &[u8]) -> (u8, u8, u8) {
    (packet[0], packet[12], packet[11])
}

#[test]
fn codes_mean_the_times_of_the_specification() {
    for (code, us) in (0..).zip(TIMES_US) {
        let timer = RnrTimer::new(code).unwrap();
        assert_eq!(timer.nanoseconds(), u64::from(us) * 1000, "code {code}");
        assert_eq!(rnr_timer_ns(code), us * 1000, "code {code}");
        // A time in between takes the next code.
        let ns = u64::from(us) * 1000;
        assert_eq!(RnrTimer::from_nanoseconds(ns - 1), timer);
        assert_eq!(RnrTimer::from_nanoseconds(ns), timer);
    }
}

#[test]
fn a_receiver_without_receives_names_its_timer() {
    let mut node = Node::new(ADDRESSES[0][0], Transport::ReliableConnection);
    let stranger = Stranger::new(ADDRESSES[0][1]);
    stranger.meet(&node, 0x11, MTU, PSN);
    // A send only, which asks for an acknowledgement.
    let send = stranger.duplicate(&node, PSN as u8);
    for code in 0..32 {
        let set = node
            .hca
            .command(|engine| engine.set_min_rnr_timer(node.qp.number, rnr_timer_ns(code)));
        set.unwrap().unwrap();
        stranger.send(&node, &send);
        let answer = stranger.answer(&node);
        assert_eq!(aeth(&answer), (0x11, 0x20 | code, PSN as u8));
    }
    node.qp.post_receive(&[]);
    stranger.send(&node, &send);
    let answer = stranger.answer(&node);
    assert_eq!(aeth(&answer), (0x11, 0x1f, PSN as u8));
}

/// With a retry count of 7, as often as the receiver likes.
#[test]
fn a_sender_waits_for_as_long_as_it_is_told() {
    let mut node = Node::new(ADDRESSES[0][0], Transport::ReliableConnection);
    let stranger = Stranger::new(ADDRESSES[0][1]);
    stranger.meet(&node, 0x11, MTU, PSN);
    stranger.socket.set_nonblocking(true).unwrap();
    let source = node.region(&[7; 8]);
    node.qp.post(Wqe::<1>::send(source.all()).signalled());
    let qpn = node.qp.number.get().to_be_bytes();
    let answer = |syndrome: u8, psn: u8, msn: u8| {
        let bth = [0x11, 0, 0xff, 0xff, 0, qpn[1], qpn[2], qpn[3], 0, 0, 0, psn];
        stranger.seal(&node, &[&bth[..], &[syndrome, 0, 0, msn]].concat())
    };
    // A clock of its own, so that nobody waits.
    let mut now = 1;
    let sent = || {
        let mut bytes = [0; 64];
        let length = stranger.socket.recv(&mut bytes).ok()?;
        Some((bytes[0], bytes[11], length))
    };
    let step = |now: u64| node.hca.step_at(now).unwrap();
    let first = loop {
        step(now);
        if let Some(first) = sent() {
            break first;
        }
    };
    assert_eq!(first, (0x04, first.1, 12 + 8 + 4));
    for (code, us) in (0..).zip(TIMES_US) {
        let received = node.hca.roce_counters().unwrap().received;
        stranger.send(&node, &answer(0x20 | code, first.1, 0));
        let deadline = Instant::now() + PATIENCE;
        while node.hca.roce_counters().unwrap().received == received {
            step(now);
            assert!(Instant::now() < deadline, "it does not hear");
        }
        now += u64::from(us) * 1000 - 1;
        for _ in 0..10 {
            step(now);
        }
        assert_eq!(sent(), None, "code {code}: too early");
        now += 1;
        for _ in 0..10 {
            step(now);
        }
        assert_eq!(sent(), Some(first), "code {code}");
    }
    stranger.send(&node, &answer(0x1f, first.1, 1));
    let deadline = Instant::now() + PATIENCE;
    let cqe = loop {
        step(now);
        if let Some(cqe) = node.qp.send_cq.poll() {
            break cqe;
        }
        assert!(Instant::now() < deadline, "it is not done");
    };
    assert!(!cqe.tail().is_error());
}
