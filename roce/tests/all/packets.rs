//! Any fields, any bytes, and every error.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use warpbell_roce::{
    Aeth, Bth, BthOpcode, BuildError, DONT_FRAGMENT, Extended, Form, Headers, Icrc, Ip, Kind,
    MAX_HEADERS, MAX_TRAILER, Msn, Packet, ParseError, Position, Shape, Transport, UDP_PORT, UdpIp,
};
use zerocopy::FromBytes;

use crate::{build, bytes_of};

/// Headers of any opcode with any fields, reserved ones too, and a payload that they allow.
fn parts() -> impl Strategy<Value = (Headers, Vec<u8>)> {
    let opcodes = prop::sample::select(BthOpcode::KNOWN);
    let payload = prop::collection::vec(any::<u8>(), 0..40);
    (opcodes, any::<[u8; MAX_HEADERS]>(), payload).prop_map(|(opcode, bytes, mut payload)| {
        let shape = opcode.shape().expect("a known opcode");
        if !shape.kind.may_have_payload() {
            payload.clear();
        }
        let (mut bth, rest) = Bth::read_from_prefix(&bytes).expect("bytes enough");
        bth.opcode = opcode;
        bth.se_m_pad_tver &= 0xf0;
        let (extended, _) = Extended::read(shape.form, rest).expect("bytes enough");
        let headers = Headers::new(bth, extended, payload.len()).expect("headers that fit");
        (headers, payload)
    })
}

fn udp_ip() -> impl Strategy<Value = UdpIp> {
    let v4 =
        any::<([u8; 4], [u8; 4], u16)>().prop_map(|(source, destination, identification)| Ip::V4 {
            source: Ipv4Addr::from(source),
            destination: Ipv4Addr::from(destination),
            identification,
            flags_and_offset: DONT_FRAGMENT,
        });
    let v6 = any::<([u8; 16], [u8; 16])>().prop_map(|(source, destination)| Ip::V6 {
        source: Ipv6Addr::from(source),
        destination: Ipv6Addr::from(destination),
    });
    (prop_oneof![v4, v6], any::<(u16, u16)>()).prop_map(|(ip, (source_port, udp_length))| UdpIp {
        ip,
        source_port,
        destination_port: UDP_PORT,
        udp_length,
    })
}

/// Bytes are a packet that consists of them, or there is an error.
fn same_or_error(bytes: &[u8]) -> Result<(), TestCaseError> {
    match Packet::parse(bytes) {
        Ok(packet) => {
            prop_assert_eq!(bytes_of(&packet), bytes);
            prop_assert!(packet.headers.length() <= MAX_HEADERS);
            prop_assert!(packet.trailer.len() <= MAX_TRAILER);
            prop_assert_eq!(packet.headers.bth().pad_count(), packet.trailer.pad().len());
        }
        Err(error) => prop_assert!(!error.to_string().is_empty()),
    }
    Ok(())
}

proptest! {
    #[test]
    fn what_is_built_is_parsed((headers, payload) in parts(), udp in udp_ip()) {
        let bytes = build(&headers, &payload, &udp);
        prop_assert_eq!(bytes.len() % 4, 0);
        prop_assert!(udp.verify(&[&bytes]));
        let packet = Packet::parse(&bytes).expect("a packet");
        prop_assert_eq!(packet.headers, headers);
        prop_assert_eq!(packet.payload, &payload[..]);
        prop_assert!(packet.trailer.pad().iter().all(|&byte| byte == 0));
    }

    #[test]
    fn any_bytes_are_a_packet_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        same_or_error(&bytes)?;
    }

    #[test]
    fn a_changed_packet_is_a_packet_or_an_error(
        (headers, payload) in parts(),
        udp in udp_ip(),
        changes in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..4),
        end in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = build(&headers, &payload, &udp);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if cut {
            bytes.truncate(end.index(bytes.len()));
        }
        same_or_error(&bytes)?;
    }

    #[test]
    fn the_crc_is_that_of_the_whole_however_it_comes(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        cuts in prop::collection::vec(0_usize..20, 0..20),
        udp in udp_ip(),
    ) {
        let mut pieces = Vec::new();
        let mut rest = &bytes[..];
        for cut in cuts {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        pieces.push(rest);
        let crc = udp.icrc(&[&bytes]);
        prop_assert_eq!(udp.icrc(&pieces), crc);
        let start = Icrc::new(&udp);
        let mut clone = start.clone();
        clone.update(&bytes);
        prop_assert_eq!(clone.finish(), crc);
        let crc = crc.to_le_bytes();
        if bytes.len() > 4 {
            pieces.push(&crc);
            prop_assert!(udp.verify(&pieces));
            pieces.push(&[0]);
            prop_assert!(!udp.verify(&pieces));
        }
    }
}

#[test]
fn opcodes_and_shapes_are_two_ways_to_say_the_same() {
    for number in 0..=u8::MAX {
        let opcode = BthOpcode(number);
        let shape = opcode.shape();
        assert_eq!(shape.is_some(), BthOpcode::KNOWN.contains(&opcode));
        let Some(shape) = shape else { continue };
        assert_eq!(shape.opcode(), Some(opcode));
        assert_eq!(shape.transport as u8, number >> 5);
        let Shape { position, .. } = shape;
        assert_eq!(
            position,
            Position::new(position.is_first(), position.is_last())
        );
    }
    let shape = Shape {
        transport: Transport::Rc,
        kind: Kind::Send,
        position: Position::First,
        form: Form::Immediate,
    };
    assert_eq!(shape.opcode(), None);
}

/// Reserved, of other transports, and beyond a transport's last.
#[test]
fn other_opcodes_are_unknown() {
    for number in [
        0x15, 0x18, 0x2c, 0x36, 0x40, 0x60, 0x63, 0x66, 0x80, 0x82, 0xa4, 0xff,
    ] {
        let opcode = BthOpcode(number);
        assert_eq!(opcode.shape(), None);
        let mut bytes = [0; 44];
        bytes[0] = number;
        assert_eq!(
            Packet::parse(&bytes),
            Err(ParseError::UnknownOpcode(opcode))
        );
    }
}

#[test]
fn a_pad_count_follows_the_last_length() {
    let mut bth = Bth {
        se_m_pad_tver: 0xcf,
        ..Default::default()
    };
    for (length, pad) in [(1, 3), (2, 2), (3, 1), (4, 0), (4093, 3), (0, 0)] {
        bth = bth.padded_for(length);
        assert_eq!(bth.pad_count(), pad);
        assert_eq!(bth.se_m_pad_tver & 0xcf, 0xcf);
    }
}

#[test]
fn forms_name_their_headers_in_order() {
    assert_eq!(Form::Bare.headers(), [""; 0]);
    assert_eq!(Form::RethImmediate.headers(), ["Reth", "ImmDt"]);
    assert_eq!(Form::AtomicAck.headers(), ["Aeth", "AtomicAckEth"]);
    assert_eq!(MAX_HEADERS, 40);
}

#[test]
fn every_parse_error_has_its_cause() {
    let parse = |bytes: &[u8]| Packet::parse(bytes).map(|_| ()).unwrap_err();
    let short = |length, least| ParseError::TooShort { length, least };
    assert_eq!(parse(&[]), short(0, 16));
    assert_eq!(parse(&[0; 11]), short(11, 16));
    assert_eq!(parse(&[0; 15]), short(15, 16));
    assert_eq!(parse(&[0x0c; 1]), short(1, 16));
    let with = |opcode, second, length| {
        let mut bytes = vec![0; length];
        bytes[0] = opcode;
        bytes[1] = second;
        parse(&bytes)
    };
    assert_eq!(with(0x0c, 0, 31), short(31, 32));
    assert_eq!(with(0x13, 0, 43), short(43, 44));
    assert_eq!(with(0x04, 0x01, 16), ParseError::TransportVersion(1));
    assert_eq!(with(0x04, 0, 18), ParseError::Unaligned(18));
    let pad = ParseError::PadTooLong { pad: 3, length: 0 };
    assert_eq!(with(0x04, 0x30, 16), pad);
    let payload = ParseError::Payload {
        opcode: BthOpcode::RC_ACKNOWLEDGE,
        length: 4,
    };
    assert_eq!(with(0x11, 0, 24), payload);
}

#[test]
fn every_build_error_has_its_cause() {
    let mut bth = Bth {
        opcode: BthOpcode(0x15),
        ..Default::default()
    };
    let unknown = Headers::new(bth, Extended::Bare {}, 0);
    assert_eq!(unknown, Err(BuildError::UnknownOpcode(BthOpcode(0x15))));
    bth.opcode = BthOpcode::RC_ACKNOWLEDGE;
    let error = Headers::new(bth, Extended::Bare {}, 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"RC ACKNOWLEDGE has the extended headers ["Aeth"], not []"#
    );
    let aeth = Aeth {
        msn: Msn::MAX,
        ..Default::default()
    };
    let payload = Headers::new(bth, Extended::Aeth { aeth }, 1);
    assert_eq!(payload, Err(BuildError::Payload(BthOpcode::RC_ACKNOWLEDGE)));
    bth.se_m_pad_tver = 0x0f;
    let version = Headers::new(bth, Extended::Aeth { aeth }, 0);
    assert_eq!(version, Err(BuildError::TransportVersion(15)));
}
