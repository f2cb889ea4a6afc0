//! The syndrome of an AETH: acknowledged, not ready, or refused.

use core::fmt;

/// The syndrome byte of an [`Aeth`](crate::Aeth): what it says in bits 6:5, and a value in 4:0 (IBTA volume 1, 9.7.5.2).
#[derive(
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    zerocopy::FromBytes,
    zerocopy::IntoBytes,
    zerocopy::Immutable,
    zerocopy::KnownLayout,
    zerocopy::Unaligned,
)]
#[repr(transparent)]
pub struct AethSyndrome(pub u8);

impl AethSyndrome {
    /// What the syndrome says, or `None` where its value is reserved.
    #[inline]
    pub const fn response(self) -> Option<Response> {
        let value = self.0 & 0x1f;
        match self.0 >> 5 {
            0 => Some(Response::Ack(Credits(value))),
            1 => Some(Response::ReceiverNotReady(RnrTimer(value))),
            3 => match NakCode::from_number(value) {
                Some(code) => Some(Response::Nak(code)),
                None => None,
            },
            _ => None,
        }
    }
}

impl fmt::Debug for AethSyndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AethSyndrome({:#04x})", self.0)
    }
}

/// What a responder says in an AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Response {
    /// All packets up to and including the PSN have arrived.
    Ack(Credits),
    /// No receive WQE is posted: the requester waits, and sends again (RNR NAK).
    ReceiverNotReady(RnrTimer),
    /// The packet with the PSN is refused.
    Nak(NakCode),
}

impl Response {
    /// The syndrome that says this.
    #[inline]
    pub const fn syndrome(self) -> AethSyndrome {
        AethSyndrome(match self {
            Self::Ack(credits) => credits.0,
            Self::ReceiverNotReady(timer) => 0x20 | timer.0,
            Self::Nak(code) => 0x60 | code as u8,
        })
    }
}

/// Why a packet is refused (IBTA volume 1, 9.7.5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum NakCode {
    /// PSN sequence error: a packet before this one is missing.
    SequenceError = 0,
    /// Invalid request.
    InvalidRequest = 1,
    /// Remote access error.
    RemoteAccessError = 2,
    /// Remote operational error.
    RemoteOperationalError = 3,
    /// Invalid RD request.
    InvalidRdRequest = 4,
}

impl NakCode {
    /// The code with this number, or `None` where the number is reserved.
    #[inline]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::SequenceError,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccessError,
            3 => Self::RemoteOperationalError,
            4 => Self::InvalidRdRequest,
            _ => return None,
        })
    }
}

/// How many receive WQEs a responder has, as a code of 5 bits (IBTA volume 1, 9.7.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credits(u8);

/// The numbers of receive WQEs that have a code: codes 0 to 30.
const CREDITS: [u16; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

impl Credits {
    /// The acknowledgement says nothing about receive WQEs.
    pub const INVALID: Self = Self(0x1f);

    /// The credits with this code, or `None` where it has more than 5 bits.
    #[inline]
    pub const fn new(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    /// The largest number with a code that does not exceed `count`.
    pub fn from_count(count: u32) -> Self {
        Self(CREDITS.partition_point(|&credits| u32::from(credits) <= count) as u8 - 1)
    }

    /// The code, 0 to 31.
    #[inline]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The number of receive WQEs, or `None` for [`INVALID`](Self::INVALID).
    pub fn count(self) -> Option<u32> {
        CREDITS
            .get(usize::from(self.0))
            .map(|&credits| credits.into())
    }
}

/// How long a requester waits after an RNR NAK, as a code of 5 bits (IBTA volume 1, 9.7.5.2.8, table 45).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

/// The times of codes 1 to 31, then that of code 0, in units of 10 microseconds. They ascend.
const RNR_TIMES: [u32; 32] = [
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152, 65536,
];

/// The nanoseconds in a unit of [`RNR_TIMES`].
const RNR_UNIT: u64 = 10_000;

impl RnrTimer {
    /// The timer with this code, or `None` where it has more than 5 bits.
    #[inline]
    pub const fn new(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    /// The shortest time with a code that is not below `nanoseconds`, or the longest, 655.36 ms.
    pub fn from_nanoseconds(nanoseconds: u64) -> Self {
        let shorter = RNR_TIMES.partition_point(|&time| u64::from(time) * RNR_UNIT < nanoseconds);
        Self((shorter.min(31) + 1) as u8 & 0x1f)
    }

    /// The code, 0 to 31.
    #[inline]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time in nanoseconds.
    #[inline]
    pub const fn nanoseconds(self) -> u64 {
        RNR_TIMES[(self.0.wrapping_sub(1) & 0x1f) as usize] as u64 * RNR_UNIT
    }
}
