//! The extended headers behind a BTH.

use zerocopy::{FromBytes, IntoBytes};

use crate::headers::{Aeth, AtomicAckEth, AtomicEth, CnpBody, Deth, Ieth, ImmDt, Reth};

/// Declares the combinations of extended headers, each with its headers in order.
macro_rules! forms {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $header:ident),* })*) => {
        /// Which extended headers follow a BTH.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Form {
            $($(#[$doc])* $name,)*
        }

        impl Form {
            /// Every combination.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The names of the headers, in order.
            pub const fn headers(self) -> &'static [&'static str] {
                match self {
                    $(Self::$name => &[$(stringify!($header)),*],)*
                }
            }

            /// The size of the headers together, in bytes.
            #[inline]
            pub const fn length(self) -> usize {
                match self {
                    $(Self::$name => 0 $(+ size_of::<$header>())*,)*
                }
            }
        }

        /// The extended headers of a packet.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Extended {
            $(
                $(#[$doc])*
                $name {
                    $(#[doc = concat!("The ", stringify!($header), ".")] $field: $header,)*
                },
            )*
        }

        impl Extended {
            /// Which headers they are.
            #[inline]
            pub const fn form(&self) -> Form {
                match self {
                    $(Self::$name { .. } => Form::$name,)*
                }
            }

            /// Takes the headers from the front of `bytes`, and returns them and the rest; `None` where the bytes are
            /// too few.
            #[inline]
            pub fn read(form: Form, bytes: &[u8]) -> Option<(Self, &[u8])> {
                Some(match form {
                    $(Form::$name => {
                        $(let ($field, bytes) = $header::read_from_prefix(bytes).ok()?;)*
                        (Self::$name { $($field),* }, bytes)
                    })*
                })
            }

            /// Calls `write` with the bytes of each header, in order.
            #[inline]
            pub(crate) fn write(&self, mut write: impl FnMut(&[u8])) {
                match self {
                    $(Self::$name { $($field),* } => {
                        $(write($field.as_bytes());)*
                    })*
                }
            }
        }
    };
}

forms! {
    /// None.
    Bare {}
    /// Immediate data.
    Immediate { immediate: ImmDt }
    /// The key to invalidate.
    Invalidate { ieth: Ieth }
    /// Remote memory.
    Reth { reth: Reth }
    /// Remote memory and immediate data.
    RethImmediate { reth: Reth, immediate: ImmDt }
    /// Acknowledgement.
    Aeth { aeth: Aeth }
    /// Acknowledgement of an atomic operation.
    AtomicAck { aeth: Aeth, atomic_ack: AtomicAckEth }
    /// Atomic operation.
    Atomic { atomic: AtomicEth }
    /// Datagram.
    Deth { deth: Deth }
    /// Datagram with immediate data.
    DethImmediate { deth: Deth, immediate: ImmDt }
    /// The reserved bytes of a congestion notification.
    Cnp { body: CnpBody }
}
