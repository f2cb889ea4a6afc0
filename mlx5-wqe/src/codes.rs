//! The one form in which the crate declares the codes of a field.

/// Declares codes: numbers, some of which have a name. Unknown numbers survive.
///
/// `Display` prints the name, or the given words and the number. A type that is followed by
/// `.function: Type` has descriptions of that type instead, which the function returns; it has no `Display`.
macro_rules! codes {
    ($(
        $(#[$doc:meta])*
        $name:ident($number:ty), $unknown:literal {
            $($(#[$code_doc:meta])* $code:ident = $value:literal, $text:literal;)*
        }
    )*) => {$(
        $crate::codes::codes! {
            $(#[$doc])*
            $name($number).name: &'static str {
                $($(#[$code_doc])* $code = $value, $text;)*
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!($unknown, " {:#0width$x}"), self.0, width = Self::WIDTH),
                }
            }
        }
    )*};
    (
        $(#[$doc:meta])*
        $name:ident($number:ty).$describe:ident: $description:ty {
            $($(#[$code_doc:meta])* $code:ident = $value:literal, $known:expr;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $number);

        impl $name {
            $($(#[$code_doc])* pub const $code: Self = Self($value);)*

            /// Every code that this crate knows, in ascending order.
            pub const KNOWN: &[Self] = &[$(Self::$code),*];

            /// Characters of the number in hexadecimal digits.
            const WIDTH: usize = 2 + 2 * size_of::<$number>();

            /// What this crate knows of the code, or `None`.
            pub const fn $describe(self) -> Option<$description> {
                match self {
                    $(Self::$code => Some($known),)*
                    _ => None,
                }
            }
        }

        const _: () = {
            let mut next = 1;
            while next < $name::KNOWN.len() {
                assert!($name::KNOWN[next - 1].0 < $name::KNOWN[next].0);
                next += 1;
            }
        };

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!(stringify!($name), "({:#0width$x})"), self.0, width = Self::WIDTH)
            }
        }
    };
}
pub(crate) use codes;
