//! The check that every layout carries.

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
