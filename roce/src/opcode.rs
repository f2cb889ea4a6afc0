//! The opcode of a BTH, and what it says about the packet.

use core::fmt;

use crate::extended::Form;

/// The transport service, bits 7:5 of an opcode (IBTA volume 1, 9.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Transport {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Unreliable datagram.
    Ud = 3,
    /// Congestion notification (A17.9.3), which belongs to no service.
    Cnp = 4,
}

/// What a packet is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// SEND.
    Send,
    /// RDMA WRITE.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// Positive or negative acknowledgement.
    Acknowledge,
    /// Response to an atomic operation.
    AtomicAcknowledge,
    /// Request to compare and swap 8 bytes.
    CompareSwap,
    /// Request to fetch and add 8 bytes.
    FetchAdd,
    /// Congestion notification packet (CNP).
    Cnp,
}

impl Kind {
    /// Whether a payload may follow the headers. It may also have no bytes.
    #[inline]
    pub const fn may_have_payload(self) -> bool {
        matches!(self, Self::Send | Self::Write | Self::ReadResponse)
    }
}

/// Where a packet is in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// The first of several packets.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several packets.
    Last,
    /// The message has one packet.
    Only,
}

impl Position {
    /// The position of a packet that is the first, the last, both or neither.
    #[inline]
    pub const fn new(first: bool, last: bool) -> Self {
        match (first, last) {
            (true, false) => Self::First,
            (false, false) => Self::Middle,
            (false, true) => Self::Last,
            (true, true) => Self::Only,
        }
    }

    /// Whether a message starts with this packet.
    #[inline]
    pub const fn is_first(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether a message ends with this packet.
    #[inline]
    pub const fn is_last(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// What an opcode says. No two opcodes say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// The transport service.
    pub transport: Transport,
    /// What the packet is a part of.
    pub kind: Kind,
    /// Where the packet is in its message.
    pub position: Position,
    /// The extended headers behind the BTH.
    pub form: Form,
}

/// Declares the opcodes, and both ways between an opcode and its shape.
macro_rules! opcodes {
    ($($name:ident = $number:literal: $transport:ident $kind:ident $position:ident $form:ident;)*) => {
        impl BthOpcode {
            $(
                #[doc = concat!(
                    stringify!($transport), ", ", stringify!($kind), ", ", stringify!($position), "; ",
                    "extended headers: [`Form::", stringify!($form), "`]."
                )]
                pub const $name: Self = Self($number);
            )*

            /// Every opcode that this crate knows, in ascending order.
            pub const KNOWN: &[Self] = &[$(Self::$name),*];

            /// What the opcode says, or `None` for an opcode that this crate does not know.
            #[inline]
            pub const fn shape(self) -> Option<Shape> {
                match self {
                    $(Self::$name => Some(Shape {
                        transport: Transport::$transport,
                        kind: Kind::$kind,
                        position: Position::$position,
                        form: Form::$form,
                    }),)*
                    _ => None,
                }
            }
        }

        impl Shape {
            /// The opcode that says this, or `None` where there is none, such as for a first packet with immediate
            /// data.
            #[inline]
            pub const fn opcode(self) -> Option<BthOpcode> {
                match self {
                    $(Self {
                        transport: Transport::$transport,
                        kind: Kind::$kind,
                        position: Position::$position,
                        form: Form::$form,
                    } => Some(BthOpcode::$name),)*
                    _ => None,
                }
            }
        }
    };
}

/// The first byte of a BTH: the transport service in bits 7:5, the operation in 4:0 (IBTA volume 1, 9.2.1, table 38).
///
/// `Display` prints what the opcode says, such as `RC RDMA WRITE last with immediate`, or its number.
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
pub struct BthOpcode(pub u8);

opcodes! {
    RC_SEND_FIRST = 0x00: Rc Send First Bare;
    RC_SEND_MIDDLE = 0x01: Rc Send Middle Bare;
    RC_SEND_LAST = 0x02: Rc Send Last Bare;
    RC_SEND_LAST_IMMEDIATE = 0x03: Rc Send Last Immediate;
    RC_SEND_ONLY = 0x04: Rc Send Only Bare;
    RC_SEND_ONLY_IMMEDIATE = 0x05: Rc Send Only Immediate;
    RC_WRITE_FIRST = 0x06: Rc Write First Reth;
    RC_WRITE_MIDDLE = 0x07: Rc Write Middle Bare;
    RC_WRITE_LAST = 0x08: Rc Write Last Bare;
    RC_WRITE_LAST_IMMEDIATE = 0x09: Rc Write Last Immediate;
    RC_WRITE_ONLY = 0x0a: Rc Write Only Reth;
    RC_WRITE_ONLY_IMMEDIATE = 0x0b: Rc Write Only RethImmediate;
    RC_READ_REQUEST = 0x0c: Rc ReadRequest Only Reth;
    RC_READ_RESPONSE_FIRST = 0x0d: Rc ReadResponse First Aeth;
    RC_READ_RESPONSE_MIDDLE = 0x0e: Rc ReadResponse Middle Bare;
    RC_READ_RESPONSE_LAST = 0x0f: Rc ReadResponse Last Aeth;
    RC_READ_RESPONSE_ONLY = 0x10: Rc ReadResponse Only Aeth;
    RC_ACKNOWLEDGE = 0x11: Rc Acknowledge Only Aeth;
    RC_ATOMIC_ACKNOWLEDGE = 0x12: Rc AtomicAcknowledge Only AtomicAck;
    RC_COMPARE_SWAP = 0x13: Rc CompareSwap Only Atomic;
    RC_FETCH_ADD = 0x14: Rc FetchAdd Only Atomic;
    RC_SEND_LAST_INVALIDATE = 0x16: Rc Send Last Invalidate;
    RC_SEND_ONLY_INVALIDATE = 0x17: Rc Send Only Invalidate;

    UC_SEND_FIRST = 0x20: Uc Send First Bare;
    UC_SEND_MIDDLE = 0x21: Uc Send Middle Bare;
    UC_SEND_LAST = 0x22: Uc Send Last Bare;
    UC_SEND_LAST_IMMEDIATE = 0x23: Uc Send Last Immediate;
    UC_SEND_ONLY = 0x24: Uc Send Only Bare;
    UC_SEND_ONLY_IMMEDIATE = 0x25: Uc Send Only Immediate;
    UC_WRITE_FIRST = 0x26: Uc Write First Reth;
    UC_WRITE_MIDDLE = 0x27: Uc Write Middle Bare;
    UC_WRITE_LAST = 0x28: Uc Write Last Bare;
    UC_WRITE_LAST_IMMEDIATE = 0x29: Uc Write Last Immediate;
    UC_WRITE_ONLY = 0x2a: Uc Write Only Reth;
    UC_WRITE_ONLY_IMMEDIATE = 0x2b: Uc Write Only RethImmediate;

    UD_SEND_ONLY = 0x64: Ud Send Only Deth;
    UD_SEND_ONLY_IMMEDIATE = 0x65: Ud Send Only DethImmediate;

    CNP = 0x81: Cnp Cnp Only Cnp;
}

impl fmt::Display for BthOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(shape) = self.shape() else {
            return write!(f, "opcode {:#04x}", self.0);
        };
        f.write_str(match shape.transport {
            Transport::Rc => "RC ",
            Transport::Uc => "UC ",
            Transport::Ud => "UD ",
            Transport::Cnp => "",
        })?;
        f.write_str(match shape.kind {
            Kind::Send => "SEND",
            Kind::Write => "RDMA WRITE",
            Kind::ReadRequest => return f.write_str("RDMA READ request"),
            Kind::ReadResponse => "RDMA READ response",
            Kind::Acknowledge => return f.write_str("ACKNOWLEDGE"),
            Kind::AtomicAcknowledge => return f.write_str("ATOMIC ACKNOWLEDGE"),
            Kind::CompareSwap => return f.write_str("COMPARE SWAP"),
            Kind::FetchAdd => return f.write_str("FETCH ADD"),
            Kind::Cnp => return f.write_str("CNP"),
        })?;
        f.write_str(match shape.position {
            Position::First => " first",
            Position::Middle => " middle",
            Position::Last => " last",
            Position::Only => " only",
        })?;
        match shape.form {
            Form::Immediate | Form::RethImmediate | Form::DethImmediate => {
                f.write_str(" with immediate")
            }
            Form::Invalidate => f.write_str(" with invalidate"),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for BthOpcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BthOpcode({:#04x})", self.0)
    }
}
