//! The global route header that a datagram arrives with, as Linux and mlx5 cards deliver it (annex A17).

use std::net::IpAddr;

use crate::engine::packet::Header;

/// Bytes of a global route header.
const LENGTH: usize = 40;
/// The protocol number of UDP.
const UDP: u8 = 17;
/// A socket does not say how far a datagram has come. Linux's senders start with this.
const HOPS: u8 = 64;

/// Puts the route header into the header of a datagram whose UDP header says `udp_length`. Of IPv6 it is the IP header;
/// of IPv4 20 bytes of zero and the IP header, with its checksum.
pub(super) fn set(header: &mut Header, source: IpAddr, destination: IpAddr, udp_length: u16) {
    let bytes = bytes(source, destination, udp_length);
    let mut words = bytes.chunks_exact(8).map(|chunk| {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        u64::from_ne_bytes(word)
    });
    header.address = words.next().unwrap_or_default();
    for (operand, word) in header.operands.iter_mut().zip(words) {
        *operand = word;
    }
}

fn bytes(source: IpAddr, destination: IpAddr, udp_length: u16) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = &mut bytes[LENGTH - 20..];
            header[0] = 0x45;
            header[2..4].copy_from_slice(&udp_length.wrapping_add(20).to_be_bytes());
            // Don't fragment.
            header[6] = 0x40;
            header[8] = HOPS;
            header[9] = UDP;
            header[12..16].copy_from_slice(&source.octets());
            header[16..20].copy_from_slice(&destination.octets());
            let checksum = checksum(header);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        (source, destination) => {
            bytes[0] = 0x60;
            bytes[4..6].copy_from_slice(&udp_length.to_be_bytes());
            bytes[6] = UDP;
            bytes[7] = HOPS;
            bytes[8..24].copy_from_slice(&gid(source));
            bytes[24..40].copy_from_slice(&gid(destination));
        }
    }
    bytes
}

/// The GID of an IP address: that of IPv4 is mapped into IPv6 (annex A17).
pub(super) fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The checksum of an IPv4 header (RFC 791, 3.1).
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    // Twenty bytes: one carry, and perhaps one of that.
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The IP header of a packet of Linux's soft-RoCE, but for its identification.
    #[test]
    fn an_ipv4_header_has_a_checksum_that_linux_believes() {
        let [source, destination] = [[10, 77, 0, 11], [10, 77, 0, 12]].map(IpAddr::from);
        let bytes = bytes(source, destination, 0x1c);
        let identification = 0x5aee_u32;
        let expected = [
            0x45, 0, 0, 0x30, 0, 0, 0x40, 0, 0x40, 0x11, 0xcb, 0x1e, 10, 77, 0, 11, 10, 77, 0, 12,
        ];
        assert_eq!(bytes[..20], [0; 20]);
        assert_eq!(bytes[20..30], expected[..10]);
        assert_eq!(bytes[32..], expected[12..]);
        // A sum of ones' complements: without the identification, so much more.
        let checksum = u32::from(bytes[30]) << 8 | u32::from(bytes[31]);
        let with = checksum + 0xffff - identification;
        assert_eq!((with & 0xffff) + (with >> 16), 0xcb1e);
    }

    #[test]
    fn an_ipv6_header_is_the_packet_s() {
        let source: IpAddr = "fe80::1:2".parse().unwrap();
        let destination: IpAddr = "2001:db8::3".parse().unwrap();
        let bytes = bytes(source, destination, 0x1234);
        assert_eq!(bytes[..8], [0x60, 0, 0, 0, 0x12, 0x34, 17, 64]);
        assert_eq!(bytes[8..10], [0xfe, 0x80]);
        assert_eq!(bytes[20..26], [0, 1, 0, 2, 0x20, 1]);
        assert_eq!(bytes[39], 3);
    }
}
