//! Loads and stores of words, and atomic operations on them.

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64};

use super::{by_reach, lanes_below};
use crate::arch::Reach;

/// A 32-bit word that others read or write at the same time.
pub type Word32 = AtomicU32;

/// A 64-bit word that others read or write at the same time.
pub type Word64 = AtomicU64;

/// A load of a word.
macro_rules! load {
    ($(#[$doc:meta])* $name:ident, $word:ty, $value:ty, $reg:ident, $before:literal, $after:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The [contract of a word](crate::arch).
        #[inline(always)]
        pub unsafe fn $name(word: &$word, reach: Reach) -> $value {
            let value: $value;
            // SAFETY: by the caller's promise the word is in global memory; an atomic word may be read while others write it.
            unsafe {
                by_reach!(reach, $before, concat!(".global.", $after, " {value}, [{word}];"),
                    value = out($reg) value, word = in(reg64) word.as_ptr(),
                    options(preserves_flags, nostack));
            }
            value
        }
    };
}

load!(
    /// Loads a word, in no order with other accesses.
    load_relaxed64, Word64, u64, reg64, "ld.relaxed", "b64"
);

load!(
    /// Loads a word before every later access.
    load_acquire64, Word64, u64, reg64, "ld.acquire", "b64"
);

/// A store of a word.
macro_rules! store {
    ($(#[$doc:meta])* $name:ident, $word:ty, $value:ty, $reg:ident, $before:literal, $after:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The [contract of a word](crate::arch).
        #[inline(always)]
        pub unsafe fn $name(word: &$word, value: $value, reach: Reach) {
            // SAFETY: by the caller's promise the word is in global memory; an atomic word may be written while others use it.
            unsafe {
                by_reach!(reach, $before, concat!(".global.", $after, " [{word}], {value};"),
                    word = in(reg64) word.as_ptr(), value = in($reg) value,
                    options(preserves_flags, nostack));
            }
        }
    };
}

store!(
    /// Stores a word, in no order with other accesses.
    store_relaxed32, Word32, u32, reg32, "st.relaxed", "b32"
);

store!(
    /// Stores a word, in no order with other accesses.
    store_relaxed64, Word64, u64, reg64, "st.relaxed", "b64"
);

store!(
    /// Stores a word after every earlier access.
    store_release64, Word64, u64, reg64, "st.release", "b64"
);

/// A compare-and-swap of a word.
macro_rules! compare_exchange {
    ($(#[$doc:meta])* $name:ident, $before:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The [contract of a word](crate::arch).
        #[inline(always)]
        pub unsafe fn $name(word: &Word64, old: u64, new: u64, reach: Reach) -> Result<u64, u64> {
            let found: u64;
            // SAFETY: by the caller's promise the word is in global memory; an atomic word may be written while others use it.
            unsafe {
                by_reach!(reach, $before, ".global.cas.b64 {found}, [{word}], {old}, {new};",
                    found = out(reg64) found, word = in(reg64) word.as_ptr(),
                    old = in(reg64) old, new = in(reg64) new,
                    options(preserves_flags, nostack));
            }
            if found == old { Ok(found) } else { Err(found) }
        }
    };
}

compare_exchange!(
    /// Replaces `old` by `new`, as acquire and release; `Err` holds the value that was there instead.
    compare_exchange64, "atom.acq_rel"
);

compare_exchange!(
    /// Replaces `old` by `new`, in no order with other accesses; `Err` holds the value that was there instead.
    compare_exchange_relaxed64, "atom.relaxed"
);

/// Stores `new` and returns the value from before, in one step and in no order with other accesses.
///
/// # Safety
/// The [contract of a word](crate::arch).
#[inline(always)]
pub unsafe fn exchange_relaxed64(word: &Word64, new: u64, reach: Reach) -> u64 {
    let found: u64;
    // SAFETY: by the caller's promise the word is in global memory; an atomic word may be written while others use it.
    unsafe {
        by_reach!(reach, "atom.relaxed", ".global.exch.b64 {found}, [{word}], {new};",
            found = out(reg64) found, word = in(reg64) word.as_ptr(),
            new = in(reg64) new,
            options(preserves_flags, nostack));
    }
    found
}

/// An addition to a word.
macro_rules! fetch_add {
    ($(#[$doc:meta])* $name:ident, $before:literal) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// The [contract of a word](crate::arch).
        #[inline(always)]
        pub unsafe fn $name(word: &Word64, value: u64, reach: Reach) -> u64 {
            let found: u64;
            // SAFETY: by the caller's promise the word is in global memory; an atomic word may be written while others use it.
            unsafe {
                by_reach!(reach, $before, ".global.add.u64 {found}, [{word}], {value};",
                    found = out(reg64) found, word = in(reg64) word.as_ptr(),
                    value = in(reg64) value,
                    options(preserves_flags, nostack));
            }
            found
        }
    };
}

fetch_add!(
    /// Adds, as acquire and release, and returns the value from before.
    fetch_add64, "atom.acq_rel"
);

/// Adds, in no order with other accesses, and returns the value from before. Each lane [adds by itself](crate::tuned).
///
/// # Safety
/// The [contract of a word](crate::arch).
#[inline(always)]
pub unsafe fn fetch_add_relaxed64(word: &Word64, value: u64, reach: Reach) -> u64 {
    // 0, as the assembler does not know: no lane is below another one and has the highest number.
    let zero = u64::from(lanes_below() >> 31);
    let found: u64;
    // SAFETY: by the caller's promise the word is in global memory; an atomic word may be written while others use it.
    unsafe {
        by_reach!(reach, "atom.relaxed", ".global.add.u64 {found}, [{word}], {value};",
            found = out(reg64) found, word = in(reg64) word.as_ptr(),
            value = in(reg64) value ^ zero,
            options(preserves_flags, nostack));
    }
    found
}

/// Stores to a doorbell register; orders nothing by itself.
///
/// # Safety
/// The [contract of a word](crate::arch).
#[inline(always)]
pub unsafe fn ring_doorbell(register: &Word64, value: u64) {
    // SAFETY: by the caller's promise the register's page is mapped into the global address space.
    unsafe {
        asm!(
            "st.mmio.relaxed.sys.global.u64 [{register}], {value};",
            register = in(reg64) register.as_ptr(),
            value = in(reg64) value,
            options(preserves_flags, nostack),
        );
    }
}
