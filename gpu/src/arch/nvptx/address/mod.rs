//! Accesses by address, for a library to which memory is numbers, such as a NIC in software. On a GPU only.
//!
//! Addresses are generic ones, as a pointer has them. Order between accesses comes from the [fences](super).
//!
//! # The contract of an address
//!
//! The bytes are readable for a load and writable for a store, and lie in global memory, or in host memory that is mapped
//! there. The address is a multiple of the access's width. Others may access the bytes at the same time.

mod wide;

use core::arch::asm;

use super::by_reach;
use crate::arch::Reach;
pub use wide::{BLOCKS, copy_blocks, copy16, copy64, load8, load128, load512, store8, store128};

/// Relaxed accesses to a word of one width.
macro_rules! word {
    ($load:ident, $store:ident, $word:ty, $reg:ident, $type:literal) => {
        /// Loads a word, in no order with other accesses.
        ///
        /// # Safety
        /// The [contract of an address](self).
        #[inline(always)]
        pub unsafe fn $load(address: u64, reach: Reach) -> $word {
            let value: $word;
            // SAFETY: the caller's promise.
            unsafe {
                by_reach!(reach, "ld.relaxed", concat!(".global.", $type, " {value}, [{address}];"),
                    value = out($reg) value, address = in(reg64) address,
                    options(preserves_flags, nostack));
            }
            value
        }

        /// Stores a word, in no order with other accesses.
        ///
        /// # Safety
        /// The [contract of an address](self).
        #[inline(always)]
        pub unsafe fn $store(address: u64, value: $word, reach: Reach) {
            // SAFETY: the caller's promise.
            unsafe {
                by_reach!(reach, "st.relaxed", concat!(".global.", $type, " [{address}], {value};"),
                    address = in(reg64) address, value = in($reg) value,
                    options(preserves_flags, nostack));
            }
        }
    };
}

word!(load16, store16, u16, reg16, "u16");
word!(load32, store32, u32, reg32, "u32");
word!(load64, store64, u64, reg64, "u64");

/// Stores `new` and returns the value from before, in one step and in no order with other accesses.
///
/// # Safety
/// The [contract of an address](self), for a load and a store.
#[inline(always)]
pub unsafe fn exchange64(address: u64, new: u64, reach: Reach) -> u64 {
    let found: u64;
    // SAFETY: the caller's promise.
    unsafe {
        by_reach!(reach, "atom.relaxed", ".global.exch.b64 {found}, [{address}], {new};",
            found = out(reg64) found, address = in(reg64) address,
            new = in(reg64) new, options(preserves_flags, nostack));
    }
    found
}

/// A compare-and-swap of a word of one width.
macro_rules! compare_exchange {
    ($name:ident, $word:ty, $reg:ident, $type:literal) => {
        /// Replaces `old` by `new`, as acquire and release; `Err` holds the value that was there instead.
        ///
        /// # Safety
        /// The [contract of an address](self), for a load and a store.
        #[inline(always)]
        pub unsafe fn $name(
            address: u64,
            old: $word,
            new: $word,
            reach: Reach,
        ) -> Result<$word, $word> {
            let found: $word;
            // SAFETY: the caller's promise.
            unsafe {
                by_reach!(reach, "atom.acq_rel", concat!(".global.cas.", $type, " {found}, [{address}], {old}, {new};"),
                    found = out($reg) found, address = in(reg64) address,
                    old = in($reg) old, new = in($reg) new,
                    options(preserves_flags, nostack));
            }
            if found == old { Ok(found) } else { Err(found) }
        }
    };
}

compare_exchange!(compare_exchange32, u32, reg32, "b32");
compare_exchange!(compare_exchange64, u64, reg64, "b64");
