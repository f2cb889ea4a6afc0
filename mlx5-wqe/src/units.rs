//! Numbers with their units.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A position in a send queue, in basic blocks of 64 bytes, modulo 2^16.
///
/// A ring of `depth` blocks keeps the block at slot `index & (depth - 1)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WqeIndex(pub u16);

impl WqeIndex {
    /// The index `blocks` further on, wrapping at 2^16.
    #[inline(always)]
    pub const fn advance(self, blocks: u16) -> Self {
        Self(self.0.wrapping_add(blocks))
    }

    /// How many blocks lie between `earlier` and this index, modulo 2^16.
    #[inline(always)]
    pub const fn distance_from(self, earlier: Self) -> u16 {
        self.0.wrapping_sub(earlier.0)
    }
}

impl fmt::Display for WqeIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:04x}", self.0)
    }
}

/// Defines a number of 24 bits.
macro_rules! number24 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u32);

        impl $name {
            /// The greatest number, 2^24 - 1.
            pub const MAX: Self = Self(0x00ff_ffff);

            /// The number, or `None` where it needs more than 24 bits.
            #[inline(always)]
            pub const fn new(number: u32) -> Option<Self> {
                if number <= Self::MAX.0 {
                    Some(Self(number))
                } else {
                    None
                }
            }

            /// The number in the low 24 bits of a field; the high 8 bits are something else's.
            #[inline(always)]
            pub const fn from_low_bits(field: u32) -> Self {
                Self(field & Self::MAX.0)
            }

            /// The number as an integer, below 2^24.
            #[inline(always)]
            pub const fn get(self) -> u32 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "0x{:06x}", self.0)
            }
        }
    };
}

number24! {
    /// A queue pair's number (24 bits).
    QpNumber
}
number24! {
    /// A completion queue's number (24 bits).
    CqNumber
}

/// A local key: names a registered memory region to this end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct LocalKey(pub u32);

impl LocalKey {
    /// The key that ends a list of receive segments (`MLX5_INVALID_LKEY`).
    pub const LIST_END: Self = Self(0x100);
}

/// A remote key: names a memory region that the other end registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct RemoteKey(pub u32);

impl fmt::Display for LocalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:08x}", self.0)
    }
}

impl fmt::Display for RemoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:08x}", self.0)
    }
}

/// The 32 bits that a write or send hands to the receiver's completion.
///
/// The value is in the host's order; on the wire and in a CQE it is big-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Immediate(pub u32);

/// Memory of this end: where it starts, how many bytes, and its key.
///
/// Its layout is fixed, so that a host hands it to a kernel of another compiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Local {
    /// Address of the first byte, as the memory was registered.
    pub address: u64,
    /// Bytes, 1 to [`Local::MAX_LENGTH`]. The card reads 0 as 2^31.
    pub length: u32,
    /// Key of the region.
    pub key: LocalKey,
}

impl Local {
    /// The longest segment, 2^31 - 1 bytes: bit 31 of the field marks inline data.
    pub const MAX_LENGTH: u32 = 0x7fff_ffff;

    /// `length` bytes of the same region, `offset` bytes behind the first. The card refuses what is not all in the region.
    #[inline(always)]
    #[must_use]
    pub const fn at(self, offset: u64, length: u32) -> Self {
        Self {
            address: self.address.wrapping_add(offset),
            length,
            key: self.key,
        }
    }
}

/// Memory of the other end: where it starts, and its key. The local side gives the length.
///
/// Its layout is fixed, so that a host hands it to a kernel of another compiler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Remote {
    /// Address of the first byte, as the other end registered it.
    pub address: u64,
    /// Key of the region.
    pub key: RemoteKey,
}

impl Remote {
    /// The place of the same region that is `offset` bytes behind the first. The other end's card refuses what is not in
    /// the region.
    #[inline(always)]
    #[must_use]
    pub const fn at(self, offset: u64) -> Self {
        Self {
            address: self.address.wrapping_add(offset),
            key: self.key,
        }
    }
}

/// 16 bytes of a WQE, as two native integers of the bytes as they lie in memory.
///
/// This is the unit in which a WQE is stored: one vector store each. WQE sizes (`ds`) count it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C, align(16))]
pub struct Octoword(pub [u64; 2]);

crate::layout::assert_layout!(Octoword, 16, {});

impl Octoword {
    /// Sixteen bytes of zero.
    pub const ZERO: Self = Self([0; 2]);

    /// From the bytes in memory order.
    #[inline(always)]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        zerocopy::transmute!(bytes)
    }

    /// The bytes in memory order.
    #[inline(always)]
    pub const fn to_bytes(self) -> [u8; 16] {
        zerocopy::transmute!(self)
    }
}

/// A basic block of a send queue (WQEBB): 64 bytes in four stores.
///
/// It is aligned to 16 bytes, not 64: it lives in registers, and the ring that it is stored to is
/// aligned by whoever allocates it.
pub type WqeBlock = [Octoword; 4];
