//! A packet: headers, payload, trailer.

use core::ops::Deref;

use zerocopy::{FromBytes, IntoBytes};

use crate::extended::{Extended, Form};
use crate::headers::{AtomicEth, Bth};
use crate::opcode::{BthOpcode, Shape};

/// The size of the longest headers in bytes: those of an atomic operation.
pub const MAX_HEADERS: usize = size_of::<Bth>() + size_of::<AtomicEth>();

const _: () = {
    let mut index = 0;
    while index < Form::ALL.len() {
        assert!(size_of::<Bth>() + Form::ALL[index].length() <= MAX_HEADERS);
        index += 1;
    }
};

/// The size of the longest trailer in bytes: a pad of 3, and the CRC.
pub const MAX_TRAILER: usize = 3 + CRC;

/// The size of the invariant CRC in bytes.
const CRC: usize = 4;

/// Why headers make no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// This crate does not know the opcode.
    #[error("unknown {0}")]
    UnknownOpcode(BthOpcode),
    /// The BTH has another transport version than 0.
    #[error("transport version {0} is not 0")]
    TransportVersion(u8),
    /// The opcode wants other extended headers.
    #[error("{opcode} has the extended headers {:?}, not {:?}", .expected.headers(), .found.headers())]
    Extended {
        /// The opcode.
        opcode: BthOpcode,
        /// The headers that belong to it.
        expected: Form,
        /// The headers that were given.
        found: Form,
    },
    /// The opcode allows no payload.
    #[error("{0} has no payload")]
    Payload(BthOpcode),
}

/// Why bytes are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// The bytes end before the headers and the CRC do.
    #[error("{length} bytes are too short for a packet, which has {least} or more")]
    TooShort {
        /// The bytes that are there.
        length: usize,
        /// The bytes of headers and CRC, as far as they are known.
        least: usize,
    },
    /// This crate does not know the opcode.
    #[error("unknown {0}")]
    UnknownOpcode(BthOpcode),
    /// The transport version is not 0.
    #[error("transport version {0} is not 0")]
    TransportVersion(u8),
    /// The length of the packet is not a multiple of 4.
    #[error("a packet of {0} bytes is no multiple of 4")]
    Unaligned(usize),
    /// There is no payload, but a pad.
    #[error("a pad of {pad} bytes is longer than the {length} bytes that it ends")]
    PadTooLong {
        /// The pad count.
        pad: usize,
        /// The bytes of payload and pad.
        length: usize,
    },
    /// Bytes follow headers that allow no payload.
    #[error("{opcode} has no payload, but {length} bytes follow its headers")]
    Payload {
        /// The opcode.
        opcode: BthOpcode,
        /// The bytes of payload and pad.
        length: usize,
    },
}

/// The headers of a packet: a BTH, and the extended headers that its opcode asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    bth: Bth,
    shape: Shape,
    extended: Extended,
}

impl Headers {
    /// The headers of a packet with `payload_length` bytes of payload, from which the pad count follows.
    ///
    /// # Errors
    /// The opcode is unknown, or does not fit the extended headers or the payload; or the transport version is not 0.
    #[inline]
    pub fn new(bth: Bth, extended: Extended, payload_length: usize) -> Result<Self, BuildError> {
        let opcode = bth.opcode;
        let shape = opcode.shape().ok_or(BuildError::UnknownOpcode(opcode))?;
        if bth.transport_version() != 0 {
            return Err(BuildError::TransportVersion(bth.transport_version()));
        }
        let (expected, found) = (shape.form, extended.form());
        if expected != found {
            return Err(BuildError::Extended {
                opcode,
                expected,
                found,
            });
        }
        if payload_length > 0 && !shape.kind.may_have_payload() {
            return Err(BuildError::Payload(opcode));
        }
        Ok(Self {
            bth: bth.padded_for(payload_length),
            shape,
            extended,
        })
    }

    /// The base transport header.
    #[inline]
    pub const fn bth(&self) -> &Bth {
        &self.bth
    }

    /// What the opcode says.
    #[inline]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// The extended headers.
    #[inline]
    pub const fn extended(&self) -> &Extended {
        &self.extended
    }

    /// The size in bytes, [`MAX_HEADERS`] at most.
    #[inline]
    pub const fn length(&self) -> usize {
        size_of::<Bth>() + self.shape.form.length()
    }

    /// Writes the headers to the front of `scratch`, and returns them.
    #[inline]
    pub fn write<'a>(&self, scratch: &'a mut [u8; MAX_HEADERS]) -> &'a [u8] {
        let (bth, mut rest) = scratch.split_at_mut(size_of::<Bth>());
        bth.copy_from_slice(self.bth.as_bytes());
        self.extended.write(|header| {
            // There is room: the longest headers fill `scratch`.
            if let Some((place, after)) =
                core::mem::take(&mut rest).split_at_mut_checked(header.len())
            {
                place.copy_from_slice(header);
                rest = after;
            }
        });
        &scratch[..self.length()]
    }
}

/// What follows a payload: a pad of up to 3 bytes, and the invariant CRC. It dereferences to its bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// The trailer is at the end.
    bytes: [u8; MAX_TRAILER],
    pad_count: u8,
}

impl Trailer {
    /// The trailer of a payload of `length` bytes, with a pad of zeros.
    #[inline]
    pub const fn new(length: usize, crc: u32) -> Self {
        let [a, b, c, d] = crc.to_le_bytes();
        Self {
            bytes: [0, 0, 0, a, b, c, d],
            pad_count: (length.wrapping_neg() & 3) as u8,
        }
    }

    /// The trailer that `bytes` are, if they are 4 to 7.
    #[inline]
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let pad_count = bytes.len().checked_sub(CRC)?;
        let mut trailer = Self {
            bytes: [0; MAX_TRAILER],
            pad_count: pad_count as u8,
        };
        let start = (MAX_TRAILER - CRC).checked_sub(pad_count)?;
        trailer.bytes[start..].copy_from_slice(bytes);
        Some(trailer)
    }

    /// The pad: as a rule zeros, but a packet that was received may have others.
    #[inline]
    pub fn pad(&self) -> &[u8] {
        let (pad, _) = self.split_at(self.len() - CRC);
        pad
    }

    /// The invariant CRC.
    #[inline]
    pub const fn crc(&self) -> u32 {
        let [_, _, _, a, b, c, d] = self.bytes;
        u32::from_le_bytes([a, b, c, d])
    }
}

impl Deref for Trailer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[MAX_TRAILER - CRC - usize::from(self.pad_count & 3)..]
    }
}

impl core::fmt::Debug for Trailer {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "Trailer {{ pad: {:?}, crc: {:#010x} }}",
            self.pad(),
            self.crc()
        )
    }
}

/// A packet that was received. Its payload stays where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The headers.
    pub headers: Headers,
    /// The payload, without its pad.
    pub payload: &'a [u8],
    /// Pad and CRC.
    pub trailer: Trailer,
}

impl<'a> Packet<'a> {
    /// Takes a packet apart: the payload of a UDP datagram. The CRC is not checked; [`UdpIp::verify`] does it.
    ///
    /// Headers, payload and trailer together are `bytes` again.
    ///
    /// [`UdpIp::verify`]: crate::UdpIp::verify
    ///
    /// # Errors
    /// The bytes are no packet, or this crate does not know its opcode.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let length = bytes.len();
        let too_short = |headers| ParseError::TooShort {
            length,
            least: headers + CRC,
        };
        let least = size_of::<Bth>();
        let (bth, rest) = Bth::read_from_prefix(bytes).map_err(|_| too_short(least))?;
        let opcode = bth.opcode;
        let shape = opcode.shape().ok_or(ParseError::UnknownOpcode(opcode))?;
        if bth.transport_version() != 0 {
            return Err(ParseError::TransportVersion(bth.transport_version()));
        }
        let least = least + shape.form.length();
        let (extended, rest) = Extended::read(shape.form, rest).ok_or_else(|| too_short(least))?;
        let padded = rest
            .len()
            .checked_sub(CRC)
            .ok_or_else(|| too_short(least))?;
        if padded % 4 != 0 {
            return Err(ParseError::Unaligned(length));
        }
        if padded > 0 && !shape.kind.may_have_payload() {
            return Err(ParseError::Payload {
                opcode,
                length: padded,
            });
        }
        let too_long = ParseError::PadTooLong {
            pad: bth.pad_count(),
            length: padded,
        };
        let end = padded.checked_sub(bth.pad_count()).ok_or(too_long)?;
        let (payload, trailer) = rest.split_at(end);
        let trailer = Trailer::from_bytes(trailer).ok_or(too_long)?;
        let headers = Headers {
            bth,
            shape,
            extended,
        };
        Ok(Self {
            headers,
            payload,
            trailer,
        })
    }
}
