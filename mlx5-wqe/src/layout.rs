//! The one form in which the crate declares what lies in memory.

/// Asserts, at compile time, a structure's size and the offset of each of its fields, in bytes.
macro_rules! assert_layout {
    ($type:ty, $size:literal, { $($field:ident: $offset:literal),* $(,)? }) => {
        const _: () = {
            assert!(core::mem::size_of::<$type>() == $size);
            $(assert!(core::mem::offset_of!($type, $field) == $offset);)*
        };
    };
}
pub(crate) use assert_layout;

/// Declares structures as they lie in memory: the source, the size in bytes, and the offset of each field in
/// bytes. All three are in the documentation or asserted at compile time.
///
/// There are four kinds. `octoword` is a segment of 16 bytes, and `octowords` is a segment of several times 16;
/// both convert to [`Octoword`](crate::Octoword)s. `cqe` is aligned to its 64 bytes. `plain` is anything else.
/// All but `cqe` may lie at any address, so that a ring's bytes can be read in place wherever they came from.
macro_rules! layouts {
    ($(
        $(#[$doc:meta])*
        $kind:ident $name:ident = $source:literal, $bytes:literal {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $offset:literal;)*
        }
    )*) => {$(
        layouts! { @structure $kind
            $(#[$doc])*
            #[doc = concat!("\n\nSource: ", $source, "; ", $bytes, " bytes.")]
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type,)*
            }
        }

        $crate::layout::assert_layout!($name, $bytes, { $($field: $offset),* });

        layouts! { @conversions $kind $name, $bytes }
    )*};

    (@structure cqe $structure:item) => {
        #[repr(C, align(64))]
        $structure
    };
    (@structure $other:ident $structure:item) => {
        #[derive(Default, zerocopy::Unaligned)]
        #[repr(C)]
        $structure
    };

    (@conversions octoword $name:ident, $bytes:literal) => {
        impl $name {
            /// The segment as it is stored.
            #[inline(always)]
            pub const fn to_octoword(self) -> $crate::Octoword {
                zerocopy::transmute!(self)
            }

            /// The segment that 16 stored bytes are.
            #[inline(always)]
            pub const fn from_octoword(octoword: $crate::Octoword) -> Self {
                zerocopy::transmute!(octoword)
            }
        }
    };
    (@conversions octowords $name:ident, $bytes:literal) => {
        impl $name {
            /// The segment as it is stored.
            #[inline(always)]
            pub const fn to_octowords(self) -> [$crate::Octoword; $bytes / 16] {
                zerocopy::transmute!(self)
            }
        }
    };
    (@conversions $other:ident $name:ident, $bytes:literal) => {};
}
pub(crate) use layouts;
