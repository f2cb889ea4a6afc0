//! Against packets of Linux's soft-RoCE (`rdma_rxe`, Linux 6.1), recorded between two machines: for the same operation
//! this HCA sends the same bytes, but for the CRC, which covers the IP addresses.

use mlx5_wqe::{Remote, RemoteKey, Wqe};
use warpbell_roce::{BthOpcode, Extended, Packet, from_ethernet};
use warpbell_soft_hca::engine::Transport;

use super::world::{ADDRESSES, Node, PATIENCE, Stranger, front};

/// The path MTU of the recording.
const MTU: u32 = 1024;
const CRC: usize = 4;

/// The packets of the recording, from the BTH on: a pcap file, little-endian. Behind 24 bytes, a record has a header of
/// 16 bytes, of which bytes 8 to 11 are the length of the frame.
fn recorded() -> Vec<&'static [u8]> {
    let mut rest = &include_bytes!("../../../../roce/tests/data/rxe_packets.pcap")[24..];
    let mut packets = Vec::new();
    while let Some((header, after)) = rest.split_first_chunk::<16>() {
        let length = u32::from_le_bytes(header[8..12].try_into().unwrap());
        let (frame, after) = after.split_at(length as usize);
        packets.push(from_ethernet(frame).unwrap().1);
        rest = after;
    }
    packets
}

/// The first packets of the recording with these opcodes, one after the other.
fn packets<const N: usize>(opcodes: [BthOpcode; N]) -> [&'static [u8]; N] {
    let all = recorded();
    let mut windows = all.windows(N);
    let found = windows.find(|window| {
        window
            .iter()
            .zip(opcodes)
            .all(|(packet, opcode)| packet[0] == opcode.0)
    });
    found.expect("such packets").try_into().unwrap()
}

fn parse(packet: &[u8]) -> Packet<'_> {
    Packet::parse(packet).unwrap()
}

/// An HCA whose peer is a stranger with the queue pair and PSN of a recorded packet.
fn scene(first: &[u8]) -> (Node, Stranger) {
    let node = Node::new(ADDRESSES[0][0], Transport::ReliableConnection);
    let stranger = Stranger::new(ADDRESSES[0][1]);
    let packet = parse(first);
    let bth = packet.headers.bth();
    stranger.meet(&node, bth.destination_qp.get(), MTU, bth.psn.get());
    (node, stranger)
}

fn without_crc(packet: &[u8]) -> &[u8] {
    &packet[..packet.len() - CRC]
}

/// The HCA sends these packets.
#[track_caller]
fn expect(node: &Node, stranger: &Stranger, expected: &[&[u8]]) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while (node.hca.roce_counters().unwrap().sent as usize) < expected.len() {
        node.hca.step().unwrap();
        assert!(std::time::Instant::now() < deadline, "nothing is sent");
    }
    // The system numbers the packets of one call from 0. They have one length, but for the last, which may be shorter.
    let (mut identification, mut length) = (0, 0);
    for expected in expected {
        let packet = stranger.receive();
        assert_eq!(without_crc(&packet), without_crc(expected));
        if packet.len() > length {
            (identification, length) = (0, packet.len());
        }
        let front = front(node.address, stranger.address, identification, packet.len());
        assert!(front.verify(&[&packet]));
        identification += 1;
        if packet.len() < length {
            length = 0;
        }
    }
    for _ in 0..50 {
        node.hca.step().unwrap();
    }
    let sent = node.hca.roce_counters().unwrap().sent as usize;
    assert_eq!(sent, expected.len(), "no packet too many");
}

/// The remote memory that a recorded packet names.
fn remote(packet: &[u8]) -> Remote {
    let (address, key) = match *parse(packet).headers.extended() {
        Extended::Reth { reth } => (reth.virtual_address, reth.remote_key),
        Extended::Atomic { atomic } => (atomic.virtual_address, atomic.remote_key),
        other => panic!("{other:?} names no memory"),
    };
    Remote {
        address: address.get(),
        key: RemoteKey(key.get()),
    }
}

#[test]
fn a_send_is_rxe_s() {
    use BthOpcode as Op;
    let expected = packets([Op::RC_SEND_FIRST, Op::RC_SEND_MIDDLE, Op::RC_SEND_LAST]);
    let (mut node, stranger) = scene(expected[0]);
    let data = expected.map(|packet| parse(packet).payload).concat();
    let source = node.region(&data);
    node.qp.post(Wqe::<1>::send(source.all()));
    expect(&node, &stranger, &expected);
}

#[test]
fn a_write_is_rxe_s() {
    use BthOpcode as Op;
    let middle = Op::RC_WRITE_MIDDLE;
    let expected = packets([Op::RC_WRITE_FIRST, middle, middle, Op::RC_WRITE_LAST]);
    let (mut node, stranger) = scene(expected[0]);
    let data = expected.map(|packet| parse(packet).payload).concat();
    let source = node.region(&data);
    node.qp
        .post(Wqe::<1>::write(source.all(), remote(expected[0])));
    expect(&node, &stranger, &expected);
}

#[test]
fn a_read_and_its_response_are_rxe_s() {
    let [request, response] =
        packets([BthOpcode::RC_READ_REQUEST, BthOpcode::RC_READ_RESPONSE_ONLY]);
    let (mut node, stranger) = scene(request);
    let data = parse(response).payload;
    let back = node.region(&vec![0; data.len()]);
    node.qp.post(Wqe::<1>::read(back.all(), remote(request)));
    expect(&node, &stranger, &[request]);
    // The HCA of the other side, with the same bytes in its memory.
    let (node, stranger) = scene(response);
    let there = node.region(data);
    ask(&node, &stranger, request, Some(there.remote(0)));
    expect(&node, &stranger, &[response]);
}

#[test]
fn an_atomic_and_its_response_are_rxe_s() {
    let [request, response] = packets([BthOpcode::RC_FETCH_ADD, BthOpcode::RC_ATOMIC_ACKNOWLEDGE]);
    let (mut node, stranger) = scene(request);
    let Extended::Atomic { atomic } = *parse(request).headers.extended() else {
        panic!("no atomic");
    };
    let result = node.region(&[0; 8]);
    let add = Wqe::<1>::fetch_add(result.all(), remote(request), atomic.swap_or_add.get());
    node.qp.post(add);
    expect(&node, &stranger, &[request]);
    let (node, stranger) = scene(response);
    let Extended::AtomicAck { atomic_ack, .. } = *parse(response).headers.extended() else {
        panic!("no atomic");
    };
    let there = node.region(&atomic_ack.original.get().to_ne_bytes());
    ask(&node, &stranger, request, Some(there.remote(0)));
    expect(&node, &stranger, &[response]);
}

#[test]
fn an_acknowledgement_is_rxe_s() {
    use BthOpcode as Op;
    let [first, middle, last, acknowledgement] = packets([
        Op::RC_SEND_FIRST,
        Op::RC_SEND_MIDDLE,
        Op::RC_SEND_LAST,
        Op::RC_ACKNOWLEDGE,
    ]);
    let (mut node, stranger) = scene(first);
    let target = node.region(&[0; 4096]);
    node.qp.post_receive(&[target.all()]);
    for request in [first, middle, last] {
        ask(&node, &stranger, request, None);
    }
    expect(&node, &stranger, &[acknowledgement]);
    let data = [first, middle, last]
        .map(|packet| parse(packet).payload)
        .concat();
    assert!(target.buffer.bytes()[..data.len()] == data);
}

/// Sends a recorded request to this HCA's queue pair and memory.
fn ask(node: &Node, stranger: &Stranger, request: &[u8], memory: Option<Remote>) {
    let mut bytes = without_crc(request).to_vec();
    bytes[5..8].copy_from_slice(&node.qp.number.get().to_be_bytes()[1..]);
    if let Some(Remote { address, key }) = memory {
        bytes[12..20].copy_from_slice(&address.to_be_bytes());
        bytes[20..24].copy_from_slice(&key.0.to_be_bytes());
    }
    stranger.send(node, &stranger.seal(node, &bytes));
}
