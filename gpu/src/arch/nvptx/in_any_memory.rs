//! Words that may lie in any memory, by their generic addresses.

use core::arch::asm;

use super::{Word32, Word64};
use crate::WordExt;

/// A load by one instruction.
macro_rules! load {
    ($word:expr, $instruction:literal, $value:ty, $reg:ident, $type:literal) => {{
        let value: $value;
        // SAFETY: a reference is readable and aligned.
        unsafe {
            asm!(concat!($instruction, ".", $type, " {value}, [{address}];"),
                value = out($reg) value, address = in(reg64) $word.as_ptr(),
                options(preserves_flags, nostack));
        }
        value
    }};
}

/// A store by one instruction.
macro_rules! store {
    ($word:expr, $value:expr, $instruction:literal, $reg:ident, $type:literal) => {
        // SAFETY: an atomic may be written through a shared reference; it is aligned.
        unsafe {
            asm!(concat!($instruction, ".", $type, " [{address}], {value};"),
                address = in(reg64) $word.as_ptr(), value = in($reg) $value,
                options(preserves_flags, nostack));
        }
    };
}

/// The loads and stores of a word of one width.
macro_rules! word {
    ($word:ty, $value:ty, $reg:ident, $type:literal) => {
        impl WordExt for $word {
            type Value = $value;

            #[inline(always)]
            fn load_relaxed(&self) -> $value {
                load!(self, "ld.relaxed.sys", $value, $reg, $type)
            }

            #[inline(always)]
            fn load_acquire(&self) -> $value {
                load!(self, "ld.acquire.sys", $value, $reg, $type)
            }

            #[inline(always)]
            fn store_relaxed(&self, value: $value) {
                store!(self, value, "st.relaxed.sys", $reg, $type);
            }

            #[inline(always)]
            fn store_release(&self, value: $value) {
                store!(self, value, "st.release.sys", $reg, $type);
            }
        }
    };
}

word!(Word32, u32, reg32, "b32");
word!(Word64, u64, reg64, "b64");
