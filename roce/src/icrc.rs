//! The invariant CRC (ICRC), which covers what no router changes on a packet's way.

use crc32fast::Hasher;
use zerocopy::IntoBytes;
use zerocopy::big_endian::U16;

use crate::headers::Bth;
use crate::ip::{Ip, Ipv4Header, Ipv6Header, UDP, UdpHeader, UdpIp};
use crate::packet::Trailer;

/// The byte of a BTH that counts as 0xff: FECN, BECN and reserved bits.
const MASKED: usize = core::mem::offset_of!(Bth, fecn_becn);

/// An invariant CRC in progress (IBTA volume 1, 7.8.1; A17.3.3).
///
/// It starts with 8 bytes of 0xff and the IP and UDP headers, and goes on with the packet. Fields that change on the way
/// count as ones. A clone of a new `Icrc` is a start for every packet with the same headers in front: over IPv6, every
/// packet of one length between two ports.
///
/// The CRC is the usual one of 32 bits (IEEE 802.3). Its 4 bytes lie in the packet with the least significant one first.
#[derive(Clone, Debug)]
pub struct Icrc {
    hasher: Hasher,
    /// Bytes of the packet up to the masked one; `None` once it has passed.
    before_masked: Option<usize>,
}

impl Icrc {
    /// The CRC of the headers in front of a packet.
    #[inline]
    pub fn new(headers: &UdpIp) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(&[0xff; 8]);
        let length = U16::new(headers.udp_length);
        match headers.ip {
            Ip::V4 {
                source,
                destination,
                identification,
                flags_and_offset,
            } => {
                let header = Ipv4Header {
                    version_ihl: 0x45,
                    type_of_service: 0xff,
                    total_length: U16::new(headers.udp_length.wrapping_add(20)),
                    identification: U16::new(identification),
                    flags_and_offset: U16::new(flags_and_offset),
                    time_to_live: 0xff,
                    protocol: UDP,
                    checksum: U16::new(0xffff),
                    source: source.octets(),
                    destination: destination.octets(),
                };
                hasher.update(header.as_bytes());
            }
            Ip::V6 {
                source,
                destination,
            } => {
                let header = Ipv6Header {
                    version_class_flow: [0x6f, 0xff, 0xff, 0xff],
                    payload_length: length,
                    next_header: UDP,
                    hop_limit: 0xff,
                    source: source.octets(),
                    destination: destination.octets(),
                };
                hasher.update(header.as_bytes());
            }
        }
        let udp = UdpHeader {
            source_port: U16::new(headers.source_port),
            destination_port: U16::new(headers.destination_port),
            length,
            checksum: U16::new(0xffff),
        };
        hasher.update(udp.as_bytes());
        Self {
            hasher,
            before_masked: Some(MASKED),
        }
    }

    /// Takes the next bytes of the packet, from the BTH's first byte on. The packet may come in any pieces.
    #[inline]
    pub fn update(&mut self, mut bytes: &[u8]) {
        if let Some(before) = self.before_masked {
            if let Some((front, [_, rest @ ..])) = bytes.split_at_checked(before) {
                self.hasher.update(front);
                self.hasher.update(&[0xff]);
                self.before_masked = None;
                bytes = rest;
            } else {
                self.before_masked = Some(before - bytes.len());
            }
        }
        self.hasher.update(bytes);
    }

    /// The CRC of all bytes so far. Once the pad has passed, it is the packet's.
    #[inline]
    pub fn finish(self) -> u32 {
        self.hasher.finalize()
    }

    /// Once headers and payload have passed: the zero pad of a payload of `length` bytes, and the packet's CRC.
    #[inline]
    pub fn trailer(mut self, length: usize) -> Trailer {
        let pad = Trailer::new(length, 0);
        self.update(pad.pad());
        Trailer::new(length, self.finish())
    }

    /// Once the whole packet has passed, with its CRC: whether the CRC is right.
    #[inline]
    pub fn is_intact(self) -> bool {
        self.finish() == RESIDUE
    }
}

/// The CRC of any bytes and their CRC.
const RESIDUE: u32 = 0x2144_df1c;

impl UdpIp {
    /// The invariant CRC of a packet behind these headers: its bytes from the BTH up to the pad, in any pieces.
    #[inline]
    pub fn icrc(&self, pieces: &[&[u8]]) -> u32 {
        self.over(pieces).finish()
    }

    /// Whether a packet behind these headers has the right CRC: its bytes from the BTH up to the CRC, in any pieces.
    #[inline]
    pub fn verify(&self, pieces: &[&[u8]]) -> bool {
        self.over(pieces).is_intact()
    }

    /// As [`verify`](Self::verify), for receivers that do not see the IPv4 identification, such as UDP sockets: whether the
    /// CRC is right with the identification given, or with any other. Of damaged packets over IPv4 it takes one in 65,536
    /// for intact.
    #[inline]
    pub fn verify_unidentified(&self, pieces: &[&[u8]]) -> bool {
        let difference = self.over(pieces).finish() ^ RESIDUE;
        difference == 0 || matches!(self.ip, Ip::V4 { .. }) && self.is_of_identification(difference)
    }

    /// Whether two CRCs with this difference may be those of packets that differ in their identifications alone.
    ///
    /// The difference is then (CRCs are linear) that of the identifications, times x for each bit behind them and 32
    /// times more, modulo the CRC's polynomial. Divided by as many x it has 16 bits again.
    #[cold]
    fn is_of_identification(&self, difference: u32) -> bool {
        /// Bytes of an IPv4 header behind the identification, and those of the CRC.
        const BEHIND: u32 = 14 + 4;
        let mut bytes = u32::from(self.udp_length) + BEHIND;
        let mut quotient = difference;
        for power in INVERSE_POWERS {
            if bytes & 1 != 0 {
                quotient = times(quotient, power);
            }
            bytes >>= 1;
        }
        // The lowest powers of x are in the highest bits.
        quotient & 0xffff == 0
    }

    #[inline]
    fn over(&self, pieces: &[&[u8]]) -> Icrc {
        let mut icrc = Icrc::new(self);
        for piece in pieces {
            icrc.update(piece);
        }
        icrc
    }
}

/// The polynomial of the CRC (IEEE 802.3), without x^32; the lowest power of x in the highest bit, here and below.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// 1 divided by x^8, x^16, x^32 and so on, modulo the polynomial: for each bit of a number of bytes.
const INVERSE_POWERS: [u32; 17] = {
    let mut power = 1 << 31;
    let mut bit = 0;
    while bit < 8 {
        // What `times_x` does, the other way.
        power = match power >> 31 {
            0 => power << 1,
            _ => (power ^ POLYNOMIAL) << 1 | 1,
        };
        bit += 1;
    }
    let mut powers = [power; 17];
    let mut index = 1;
    while index < powers.len() {
        powers[index] = times(powers[index - 1], powers[index - 1]);
        index += 1;
    }
    powers
};

const fn times_x(value: u32) -> u32 {
    value >> 1 ^ (value & 1).wrapping_neg() & POLYNOMIAL
}

/// The product modulo the polynomial.
const fn times(mut one: u32, mut other: u32) -> u32 {
    let mut product = 0;
    while other != 0 {
        product ^= (other >> 31).wrapping_neg() & one;
        one = times_x(one);
        other <<= 1;
    }
    product
}
