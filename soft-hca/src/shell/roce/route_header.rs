//! The global route header that a datagram arrives with, as Linux and mlx5 cards deliver it (annex A17).

use std::net::IpAddr;
use std::prelude::v1::*;
use std::vec;

use quinn_udp::EcnCodepoint;
use warpbell_roce::{Ip, UdpIp};

use crate::engine::packet::{Header, RouteHeader};

/// Bytes of a global route header.
const LENGTH: usize = 40;
/// The protocol number of UDP.
pub(super) const UDP: u8 = 17;
/// A socket does not say how far a datagram has come. Linux's senders start with this.
const HOPS: u8 = 64;

/// Puts the route header into the header of a datagram that came behind these headers. Of IPv6 it is the IP header; of
/// IPv4 20 bytes of zero and the IP header.
pub(super) fn set(header: &mut Header, front: &UdpIp, ecn: Option<EcnCodepoint>) {
    let ip = ip_header(front, ecn.map_or(0, |ecn| ecn as u8));
    let mut bytes = [0; LENGTH];
    bytes[LENGTH - ip.len()..].copy_from_slice(&ip);
    let mut words = bytes.chunks_exact(8).map(|chunk| {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    });
    header.address = words.next().unwrap_or_default();
    for (operand, word) in header.operands.iter_mut().zip(words) {
        *operand = word;
    }
    let kind = match front.ip {
        Ip::V4 { .. } => RouteHeader::Ipv4,
        Ip::V6 { .. } => RouteHeader::Ipv6,
    };
    header.detail = kind as u8;
}

/// An IP header: what the CRC covers, the traffic class, and the rest as most senders have it.
pub(super) fn ip_header(front: &UdpIp, traffic_class: u8) -> Vec<u8> {
    match front.ip {
        Ip::V4 {
            source,
            destination,
            identification,
            flags_and_offset,
        } => {
            let mut header = vec![0x45, traffic_class];
            header.extend(front.udp_length.wrapping_add(20).to_be_bytes());
            header.extend(identification.to_be_bytes());
            header.extend(flags_and_offset.to_be_bytes());
            header.extend([HOPS, UDP, 0, 0]);
            header.extend(source.octets());
            header.extend(destination.octets());
            let checksum = checksum(&[&header]);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            header
        }
        Ip::V6 {
            source,
            destination,
        } => {
            let mut header = vec![0x60 | traffic_class >> 4, traffic_class << 4, 0, 0];
            header.extend(front.udp_length.to_be_bytes());
            header.extend([UDP, HOPS]);
            header.extend(source.octets());
            header.extend(destination.octets());
            header
        }
    }
}

/// The GID of an IP address: that of IPv4 is mapped into IPv6 (annex A17).
pub(super) fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The Internet's checksum over these bytes (RFC 1071), of which all but the last have an even length. At most 64 KiB.
pub(super) fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let word = |bytes: &[u8]| u32::from(bytes[0]) << 8 | bytes.get(1).map_or(0, |&low| low.into());
    let sum: u32 = words.map(word).sum();
    // A carry, and perhaps one of that.
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell_roce::from_ip;

    /// A packet of Linux's soft-RoCE.
    const RXE: [u8; 48] = [
        0x45, 0, 0, 0x30, 0x5a, 0xee, 0x40, 0, 0x40, 0x11, 0xcb, 0x1e, 10, 77, 0, 11, 10, 77, 0,
        12, 0xc1, 0x21, 0x12, 0xb7, 0, 0x1c, 0, 0, 0x11, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0xc9,
        0x12, 0xa3, 0x1f, 0, 0, 1, 0xc0, 0xf4, 0xbc, 0xe1,
    ];

    fn bytes(header: &Header) -> Vec<u8> {
        let words = [header.address].into_iter().chain(header.operands);
        words.flat_map(u64::to_ne_bytes).collect()
    }

    #[test]
    fn an_ipv4_header_is_linux_s_behind_20_bytes_of_zero() {
        let (front, _) = from_ip(&RXE).unwrap();
        let mut header = Header::default();
        set(&mut header, &front, None);
        assert_eq!(bytes(&header), [&[0; 20][..], &RXE[..20]].concat());
    }

    #[test]
    fn an_ipv6_header_is_the_packet_s() {
        let front = UdpIp {
            ip: Ip::V6 {
                source: "fe80::1:2".parse().unwrap(),
                destination: "2001:db8::3".parse().unwrap(),
            },
            source_port: 1,
            destination_port: 2,
            udp_length: 0x1234,
        };
        let mut header = Header::default();
        set(&mut header, &front, Some(EcnCodepoint::Ce));
        let bytes = bytes(&header);
        // Version 6, traffic class 3, no flow label (RFC 8200, 3).
        assert_eq!(bytes[..8], [0x60, 0x30, 0, 0, 0x12, 0x34, 17, 64]);
        assert_eq!(bytes[8..10], [0xfe, 0x80]);
        assert_eq!(bytes[20..26], [0, 1, 0, 2, 0x20, 1]);
        assert_eq!(bytes[39], 3);
    }
}
