//! Words that the threads of one block share.

use super::Word32;
use core::arch::asm;

/// Loads a word that the threads of one block share, in no order with other accesses; the SM's cache will do. The word
/// may lie in any memory.
#[inline(always)]
pub fn load_in_block(word: &Word32) -> u32 {
    let value: u32;
    // SAFETY: a reference is readable and aligned.
    unsafe {
        asm!("ld.relaxed.cta.u32 {value}, [{address}];",
            value = out(reg32) value, address = in(reg64) word.as_ptr(),
            options(preserves_flags, nostack));
    }
    value
}

/// Stores a word that the threads of one block share, in no order with other accesses. The word may lie in any memory.
#[inline(always)]
pub fn store_in_block(word: &Word32, value: u32) {
    // SAFETY: an atomic may be written through a shared reference; it is aligned.
    unsafe {
        asm!("st.relaxed.cta.u32 [{address}], {value};",
            address = in(reg64) word.as_ptr(), value = in(reg32) value,
            options(preserves_flags, nostack));
    }
}
