//! What travels between two HCAs: a header, and where its payload lies.
//!
//! The header holds what IBTA volume 1 has in the base transport header (9.2) and the extended ones (9.3), in another form.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The address of one HCA on its wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireAddress(pub u32);

/// A packet's opcode, as [`Header::opcode`] carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// Part of a SEND.
    Send = 1,
    /// Part of an RDMA WRITE.
    Write = 2,
    /// An RDMA READ, all of it or what is left of it.
    ReadRequest = 3,
    /// An atomic operation.
    Atomic = 4,
    /// Part of the answer to an RDMA READ.
    ReadResponse = 5,
    /// The answer to an atomic operation: the value found, in `operands[0]`.
    AtomicResponse = 6,
    /// All packets up to and including `psn` are done.
    Acknowledge = 7,
    /// The packet `psn` was refused for the reason in `detail`, a [`Refusal`].
    Refuse = 8,
    /// A SEND of a datagram queue pair. The global route header is in `address` (its first 8 bytes, native-endian) and
    /// `operands` (the two GIDs), its [`RouteHeader`] in `detail`, the Q_Key in `rkey`.
    Datagram = 9,
}

impl Opcode {
    /// The opcode with this number, if there is one.
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Send,
            2 => Self::Write,
            3 => Self::ReadRequest,
            4 => Self::Atomic,
            5 => Self::ReadResponse,
            6 => Self::AtomicResponse,
            7 => Self::Acknowledge,
            8 => Self::Refuse,
            9 => Self::Datagram,
            _ => return None,
        })
    }

    /// Whether the requester sends it: such a payload lies in memory that the requester's WQE
    /// lends until it completes.
    pub const fn is_request(self) -> bool {
        matches!(
            self,
            Self::Send | Self::Write | Self::ReadRequest | Self::Atomic | Self::Datagram
        )
    }
}

/// Why a responder refuses a packet: the NAK codes (IBTA volume 1, 9.7.5.2.2), and RNR (9.7.5.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// A packet before this one is missing.
    Sequence = 1,
    /// Misaligned atomic, receive too small, or an operation that the responder does not know.
    InvalidRequest = 2,
    /// The remote key, its PD, the range or the access right does not fit (9.7.5.2.4).
    RemoteAccess = 3,
    /// The responder could not do its part, for example its receive WQE names a bad lkey.
    RemoteOperation = 4,
    /// No receive WQE is posted; `length` holds the nanoseconds to wait.
    ReceiverNotReady = 5,
}

impl Refusal {
    /// The refusal with this number, if there is one.
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Sequence,
            2 => Self::InvalidRequest,
            3 => Self::RemoteAccess,
            4 => Self::RemoteOperation,
            5 => Self::ReceiverNotReady,
            _ => return None,
        })
    }
}

bitflags::bitflags! {
    /// What else a packet's header says.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PacketFlags: u8 {
        /// The first packet of its message.
        const FIRST = 1 << 0;
        /// The last packet of its message.
        const LAST = 1 << 1;
        /// The requester wants to hear about this packet.
        const ACKNOWLEDGE = 1 << 2;
        /// The completion at the responder is a solicited event.
        const SOLICITED = 1 << 3;
        /// `immediate` holds immediate data, big-endian value as the WQE had it.
        const IMMEDIATE = 1 << 4;
        /// `immediate` holds the rkey to invalidate.
        const INVALIDATE = 1 << 5;
        /// The requester is an unreliable connection.
        const UNRELIABLE = 1 << 6;
    }
}

/// The header of a packet: plain bytes, so that shared memory can carry it. Native-endian.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct Header {
    /// The HCA it goes to, a [`WireAddress`].
    pub destination: u32,
    /// The HCA it comes from, a [`WireAddress`].
    pub source: u32,
    /// The queue pair it goes to.
    pub destination_qp: u32,
    /// The queue pair it comes from, or [`UNKNOWN_QP`](Self::UNKNOWN_QP).
    pub source_qp: u32,
    /// The packet sequence number, 24 bits.
    pub psn: u32,
    /// An [`Opcode`].
    pub opcode: u8,
    /// [`PacketFlags`].
    pub flags: u8,
    /// Of a refusal the [`Refusal`]; of an atomic its [`AtomicKind`](mlx5_wqe::decode::AtomicKind); of a datagram its
    /// [`RouteHeader`].
    pub detail: u8,
    /// Of an atomic its width in bytes, 4 or 8.
    pub width: u8,
    /// The remote address, in the first packet of a WRITE, in a READ request and in an atomic.
    pub address: u64,
    /// The remote key that belongs to `address`.
    pub rkey: u32,
    /// The bytes of the whole message (WRITE, first packet), or still to be read (READ request).
    pub length: u32,
    /// Immediate data or the rkey to invalidate, in the last packet, as `flags` say.
    pub immediate: u32,
    /// Of an answer how many messages the responder has completed up to it, modulo 2²⁴ (IBTA volume 1, 9.7.7.1).
    pub msn: u32,
    /// Of an atomic: swap or add, compare, swap mask or field boundary, compare mask.
    pub operands: [u64; 4],
}

const _: () = assert!(size_of::<Header>() == 80);

impl Header {
    /// The source of a packet that does not name the queue pair which it comes from: the one at the other end of the
    /// connection. No queue pair has this number.
    pub const UNKNOWN_QP: u32 = u32::MAX;

    /// The flags; bits without a name are dropped.
    #[inline]
    pub fn flags(&self) -> PacketFlags {
        PacketFlags::from_bits_truncate(self.flags)
    }
}

/// What a datagram's global route header is, by the numbers of a CQE (`MLX5_CQE_ROCE_L3_HEADER_TYPE_*` of Linux).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RouteHeader {
    /// That of InfiniBand.
    Grh = 0,
    /// An IPv6 header.
    Ipv6 = 1,
    /// An IPv4 header behind 20 bytes of zero.
    Ipv4 = 2,
}

/// A stretch of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range {
    /// Its first byte, an address of the [`Memory`](super::Memory).
    pub address: u64,
    /// Its length in bytes.
    pub length: u64,
}

impl Range {
    /// Whether the two have a byte in common.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.address < other.address.saturating_add(other.length)
            && other.address < self.address.saturating_add(self.length)
    }
}

/// The ranges that a received packet's payload may consist of.
pub const RECEIVE_RANGES: usize = 4;

/// Where a received packet's payload lies: up to [`RECEIVE_RANGES`] ranges, in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Payload {
    ranges: [Range; RECEIVE_RANGES],
    count: u8,
}

impl Payload {
    #[inline]
    fn new(ranges: &[Range]) -> Option<Self> {
        let mut payload = Self::default();
        payload
            .ranges
            .get_mut(..ranges.len())?
            .iter_mut()
            .zip(ranges)
            .for_each(|(to, from)| *to = *from);
        payload.count = ranges.len() as u8;
        Some(payload)
    }
}

impl core::ops::Deref for Payload {
    type Target = [Range];

    #[inline]
    fn deref(&self) -> &[Range] {
        &self.ranges[..usize::from(self.count).min(RECEIVE_RANGES)]
    }
}

/// A packet as a wire hands it to an engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packet {
    /// The header.
    pub header: Header,
    /// Where the payload lies.
    pub payload: Payload,
}

impl Packet {
    /// A packet with its payload in these ranges, unless they are too many.
    #[inline]
    pub fn new(header: &Header, payload: &[Range]) -> Option<Self> {
        let payload = Payload::new(payload)?;
        let header = *header;
        Some(Self { header, payload })
    }

    /// The payload's length in bytes.
    #[inline]
    pub fn payload_length(&self) -> u64 {
        payload_length(&self.payload)
    }
}

/// The length of a payload in bytes.
#[inline]
pub(super) fn payload_length(payload: &[Range]) -> u64 {
    payload.iter().map(|range| range.length).sum()
}
