//! What travels between two HCAs: numbers, flags and ranges of a packet, against what their documentation says.

use warpbell_soft_hca::engine::packet::{Header, Opcode, Packet, PacketFlags, Range, Refusal};

/// The numbers on the wire, as their documentation gives them, and which of them a requester sends.
#[test]
fn a_number_is_one_opcode_or_none() {
    let known = [
        (1, Opcode::Send, true),
        (2, Opcode::Write, true),
        (3, Opcode::ReadRequest, true),
        (4, Opcode::Atomic, true),
        (5, Opcode::ReadResponse, false),
        (6, Opcode::AtomicResponse, false),
        (7, Opcode::Acknowledge, false),
        (8, Opcode::Refuse, false),
        (9, Opcode::Datagram, true),
    ];
    for number in 0..=u8::MAX {
        let entry = known.iter().find(|(known, ..)| *known == number);
        let opcode = Opcode::from_number(number);
        assert_eq!(opcode, entry.map(|(_, opcode, _)| *opcode));
        let is_request = opcode.map(Opcode::is_request);
        assert_eq!(is_request, entry.map(|(.., is_request)| *is_request));
    }
}

#[test]
fn a_number_is_one_refusal_or_none() {
    let known = [
        (1, Refusal::Sequence),
        (2, Refusal::InvalidRequest),
        (3, Refusal::RemoteAccess),
        (4, Refusal::RemoteOperation),
        (5, Refusal::ReceiverNotReady),
    ];
    for number in 0..=u8::MAX {
        let entry = known.iter().find(|(known, _)| *known == number);
        let refusal = Refusal::from_number(number);
        assert_eq!(refusal, entry.map(|(_, refusal)| *refusal));
    }
}

#[test]
fn flags_without_a_name_are_dropped() {
    let flags = |flags| Header {
        flags,
        ..Header::default()
    };
    assert_eq!(flags(0xff).flags().bits(), 0x7f);
    assert_eq!(
        flags(0x85).flags(),
        PacketFlags::FIRST | PacketFlags::ACKNOWLEDGE
    );
}

/// Every two ranges among eight bytes that have bytes at all.
#[test]
fn ranges_overlap_if_they_have_a_byte_in_common() {
    let ranges = || {
        (0..8).flat_map(|address| (1..=8 - address).map(move |length| Range { address, length }))
    };
    let bytes = |range: Range| range.address..range.address + range.length;
    for one in ranges() {
        for other in ranges() {
            let common = bytes(one).any(|byte| bytes(other).contains(&byte));
            assert_eq!(one.overlaps(&other), common, "{one:?} {other:?}");
        }
    }
}

#[test]
fn a_payload_has_up_to_four_ranges() {
    let ranges = [1, 20, 300, 4000, 50_000].map(|length| Range {
        address: length * 7,
        length,
    });
    let header = Header {
        psn: 9,
        ..Header::default()
    };
    for (count, length) in [(0, 0), (1, 1), (2, 21), (3, 321), (4, 4321)] {
        let packet = Packet::new(&header, &ranges[..count]).unwrap();
        assert_eq!(packet.header, header);
        assert_eq!(packet.payload[..], ranges[..count]);
        assert_eq!(packet.payload_length(), length);
    }
    assert!(Packet::new(&header, &ranges).is_none());
}
