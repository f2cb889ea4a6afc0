//! Packets of Linux's soft-RoCE (`rdma_rxe`, Linux 6.1), recorded between two machines.

use std::collections::BTreeMap;

use warpbell_roce::{Headers, Ip, Packet, UDP_PORT, from_ethernet, from_ip};

use crate::{build, bytes_of};

/// The Ethernet frames of the recording: a pcap file, little-endian. Behind 24 bytes, a record has a header of 16 bytes,
/// of which bytes 8 to 11 are the length of the frame.
fn frames() -> Vec<&'static [u8]> {
    let mut rest = &include_bytes!("../data/rxe_packets.pcap")[24..];
    let mut frames = Vec::new();
    while let Some((header, after)) = rest.split_first_chunk::<16>() {
        let length = u32::from_le_bytes(header[8..12].try_into().expect("4 bytes"));
        let (frame, after) = after.split_at(length as usize);
        frames.push(frame);
        rest = after;
    }
    frames
}

#[test]
fn every_packet_decodes_and_encodes_to_the_same_bytes() {
    let mut counts = BTreeMap::new();
    for frame in frames() {
        let (udp, bytes) = from_ethernet(frame).expect("a frame");
        assert_eq!(udp.destination_port, UDP_PORT);
        assert!(udp.verify(&[bytes]));
        let packet = Packet::parse(bytes).expect("a packet");
        assert_eq!(bytes_of(&packet), bytes);

        let Packet {
            headers, payload, ..
        } = packet;
        let again = Headers::new(*headers.bth(), *headers.extended(), payload.len());
        assert_eq!(
            build(&again.expect("headers that fit"), payload, &udp),
            bytes
        );
        assert_eq!(udp.icrc(&[&bytes[..bytes.len() - 4]]), packet.trailer.crc());
        *counts.entry(headers.bth().opcode.0).or_insert(0) += 1;
    }
    // Counted with scapy.
    let expected = [0, 1, 2, 6, 7, 8, 12, 16, 17, 18, 20].map(|opcode| (opcode, 6));
    assert_eq!(counts, BTreeMap::from(expected));
}

#[test]
fn the_crc_covers_every_byte_that_no_router_changes() {
    let frame = frames()[0];
    // Type of service, time to live, checksums of IP and UDP, and byte 4 of the BTH.
    let variant = [1, 8, 10, 11, 26, 27, 32];
    let packet = &frame[14..];
    for at in 0..packet.len() {
        let mut packet = packet.to_vec();
        packet[at] ^= 0x04;
        let intact = from_ip(&packet).is_ok_and(|(udp, bytes)| udp.verify(&[bytes]));
        assert_eq!(intact, variant.contains(&at), "byte {at}");
    }
}

/// As a UDP socket receives them: the identification is gone.
#[test]
fn the_crc_is_right_whatever_the_identification_and_wrong_for_other_changes() {
    for frame in frames() {
        let (mut udp, bytes) = from_ethernet(frame).expect("a frame");
        for change in [0, 1, 0x8000, 0xffff] {
            let Ip::V4 { identification, .. } = &mut udp.ip else {
                panic!("rxe's recording is of IPv4");
            };
            *identification ^= change;
            assert!(udp.verify_unidentified(&[bytes]));
        }
        let mut packet = bytes.to_vec();
        for bit in (0..8 * packet.len()).filter(|bit| bit / 8 != 4) {
            packet[bit / 8] ^= 1 << (bit % 8);
            assert!(!udp.verify_unidentified(&[&packet]), "bit {bit}");
            packet[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
