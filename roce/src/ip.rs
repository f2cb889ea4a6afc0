//! The IP and UDP headers in front of a packet, as far as RoCE v2 looks at them.

use core::net::{Ipv4Addr, Ipv6Addr};

use zerocopy::FromBytes;
use zerocopy::big_endian::U16;

/// The UDP destination port of RoCE v2.
pub const UDP_PORT: u16 = 4791;

/// *Don't fragment*, as [`Ip::V4`]'s `flags_and_offset` has it.
pub const DONT_FRAGMENT: u16 = 0x4000;

/// The IP header's fields that the invariant CRC covers; those that follow from other fields are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ip {
    /// An IPv4 header without options (A17.3.1.1).
    V4 {
        /// Where the packet comes from.
        source: Ipv4Addr,
        /// Where the packet goes to.
        destination: Ipv4Addr,
        /// The identification. The CRC covers it, so the sender must know what its network stack writes here.
        identification: u16,
        /// Flags in bits 15:13, fragment offset in 12:0. RoCE v2 has [`DONT_FRAGMENT`] alone.
        flags_and_offset: u16,
    },
    /// An IPv6 header without extension headers (A17.3.1.2).
    V6 {
        /// Where the packet comes from.
        source: Ipv6Addr,
        /// Where the packet goes to.
        destination: Ipv6Addr,
    },
}

/// The fields of the IP and UDP headers that the invariant CRC covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UdpIp {
    /// The IP header.
    pub ip: Ip,
    /// The UDP source port.
    pub source_port: u16,
    /// The UDP destination port, as a rule [`UDP_PORT`].
    pub destination_port: u16,
    /// The UDP header's length field: the bytes of the UDP header, which are 8, and of the packet behind it.
    pub udp_length: u16,
}

/// Declares the headers of IP and UDP, with their sizes in bytes.
macro_rules! headers {
    ($($name:ident = $bytes:literal { $($field:ident: $type:ty,)* })*) => {$(
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
        #[derive(zerocopy::KnownLayout, zerocopy::Unaligned)]
        #[repr(C)]
        pub(crate) struct $name {
            $(pub(crate) $field: $type,)*
        }

        const _: () = assert!(size_of::<$name>() == $bytes);
    )*};
}

headers! {
    // RFC 791, 3.1.
    Ipv4Header = 20 {
        version_ihl: u8,
        type_of_service: u8,
        total_length: U16,
        identification: U16,
        flags_and_offset: U16,
        time_to_live: u8,
        protocol: u8,
        checksum: U16,
        source: [u8; 4],
        destination: [u8; 4],
    }

    // RFC 8200, 3.
    Ipv6Header = 40 {
        version_class_flow: [u8; 4],
        payload_length: U16,
        next_header: u8,
        hop_limit: u8,
        source: [u8; 16],
        destination: [u8; 16],
    }

    // RFC 768.
    UdpHeader = 8 {
        source_port: U16,
        destination_port: U16,
        length: U16,
        checksum: U16,
    }
}

/// The protocol number of UDP.
pub(crate) const UDP: u8 = 17;

/// Why bytes are no frame with a UDP datagram that RoCE v2 could be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The bytes end inside of a header, or before the length that a header gives.
    #[error("the frame is cut off")]
    CutOff,
    /// An Ethernet type that is neither IPv4 nor IPv6.
    #[error("Ethernet type {0:#06x} is neither IPv4 nor IPv6")]
    EtherType(u16),
    /// An IP version that is neither 4 nor 6.
    #[error("IP version {0} is neither 4 nor 6")]
    Version(u8),
    /// An IPv4 header whose length is not 5 words.
    #[error("an IPv4 header of {0} words; RoCE v2 has 5")]
    HeaderLength(u8),
    /// A fragment of a datagram.
    #[error("a fragment of an IPv4 datagram")]
    Fragment,
    /// An IP protocol, or next header, that is not UDP.
    #[error("IP protocol {0} is not UDP")]
    Protocol(u8),
    /// The lengths of the IP and UDP headers do not agree.
    #[error("{ip} bytes behind the IP header, but UDP length {udp}")]
    Length {
        /// The bytes behind the IP header, from its length field.
        ip: u16,
        /// The UDP header's length field.
        udp: u16,
    },
}

/// Takes an Ethernet frame with up to two VLAN tags apart, into the fields that the invariant CRC covers and the UDP
/// payload. Bytes behind the IP packet are dropped. The UDP ports may be any.
///
/// # Errors
/// Whatever keeps the frame from being a UDP datagram that RoCE v2 allows.
pub fn from_ethernet(frame: &[u8]) -> Result<(UdpIp, &[u8]), FrameError> {
    /// Both addresses.
    const ADDRESSES: usize = 12;
    let mut rest = frame.get(ADDRESSES..).ok_or(FrameError::CutOff)?;
    let mut tags = 2;
    loop {
        let (ether_type, after) = header::<U16>(rest)?;
        rest = match ether_type.get() {
            0x0800 | 0x86dd => return from_ip(after),
            0x8100 | 0x88a8 if tags > 0 => after.get(2..).ok_or(FrameError::CutOff)?,
            other => return Err(FrameError::EtherType(other)),
        };
        tags -= 1;
    }
}

/// Takes an IP packet apart, into the fields that the invariant CRC covers and the UDP payload. Bytes behind the IP
/// packet are dropped. The UDP ports may be any.
///
/// # Errors
/// Whatever keeps the packet from being a UDP datagram that RoCE v2 allows.
pub fn from_ip(packet: &[u8]) -> Result<(UdpIp, &[u8]), FrameError> {
    let version = packet.first().ok_or(FrameError::CutOff)? >> 4;
    let (ip, protocol, length, rest) = match version {
        4 => {
            let (header, rest) = header::<Ipv4Header>(packet)?;
            if header.version_ihl & 0x0f != 5 {
                return Err(FrameError::HeaderLength(header.version_ihl & 0x0f));
            }
            let flags_and_offset = header.flags_and_offset.get();
            // More fragments, or an offset.
            if flags_and_offset & 0x3fff != 0 {
                return Err(FrameError::Fragment);
            }
            let ip = Ip::V4 {
                source: header.source.into(),
                destination: header.destination.into(),
                identification: header.identification.get(),
                flags_and_offset,
            };
            let length = header.total_length.get().checked_sub(20);
            let length = length.ok_or(FrameError::CutOff)?;
            (ip, header.protocol, length, rest)
        }
        6 => {
            let (header, rest) = header::<Ipv6Header>(packet)?;
            let ip = Ip::V6 {
                source: header.source.into(),
                destination: header.destination.into(),
            };
            (ip, header.next_header, header.payload_length.get(), rest)
        }
        other => return Err(FrameError::Version(other)),
    };
    if protocol != UDP {
        return Err(FrameError::Protocol(protocol));
    }
    let rest = rest.get(..length.into()).ok_or(FrameError::CutOff)?;
    let (udp, payload) = header::<UdpHeader>(rest)?;
    if udp.length.get() != length {
        let udp = udp.length.get();
        return Err(FrameError::Length { ip: length, udp });
    }
    let headers = UdpIp {
        ip,
        source_port: udp.source_port.get(),
        destination_port: udp.destination_port.get(),
        udp_length: length,
    };
    Ok((headers, payload))
}

/// Takes a header from the front of `bytes`.
fn header<T: FromBytes + zerocopy::KnownLayout + zerocopy::Immutable + zerocopy::Unaligned>(
    bytes: &[u8],
) -> Result<(&T, &[u8]), FrameError> {
    T::ref_from_prefix(bytes).map_err(|_| FrameError::CutOff)
}
