//! Numbers of 24 bits, as they lie in headers.

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// 24 bits, in network byte order.
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
        #[derive(zerocopy::KnownLayout, zerocopy::Unaligned)]
        #[repr(transparent)]
        pub struct $name([u8; 3]);

        impl $name {
            /// The largest.
            pub const MAX: Self = Self([0xff; 3]);

            /// The number, or `None` where it has more than 24 bits.
            #[inline]
            pub const fn new(number: u32) -> Option<Self> {
                if number >> 24 == 0 { Some(Self::from_low_bits(number)) } else { None }
            }

            /// The number in the low 24 bits.
            #[inline]
            pub const fn from_low_bits(number: u32) -> Self {
                let [_, bytes @ ..] = number.to_be_bytes();
                Self(bytes)
            }

            /// The number.
            #[inline]
            pub const fn get(self) -> u32 {
                let [high, middle, low] = self.0;
                u32::from_be_bytes([0, high, middle, low])
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!(stringify!($name), "({:#08x})"), self.get())
            }
        }
    )*};
}

numbers! {
    /// The number of a queue pair (QPN).
    Qpn;
    /// A packet sequence number (PSN).
    Psn;
    /// A message sequence number (MSN): how many messages a responder has completed, modulo 2^24.
    Msn;
}
