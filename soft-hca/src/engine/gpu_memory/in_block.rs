//! Words that the threads of one block share, and their order.

use core::arch::asm;
use core::sync::atomic::AtomicU32;

/// Loads a word that the threads of one block share; the SM's cache will do.
#[inline(always)]
pub(in super::super) fn load_in_block(word: &AtomicU32) -> u32 {
    let value: u32;
    // SAFETY: a reference is readable and aligned.
    unsafe {
        asm!("ld.relaxed.cta.u32 {value}, [{address}];",
            value = out(reg32) value, address = in(reg64) word.as_ptr(),
            options(preserves_flags, nostack));
    }
    value
}

/// Stores to such a word.
#[inline(always)]
pub(in super::super) fn store_in_block(word: &AtomicU32, value: u32) {
    // SAFETY: an atomic may be written through a shared reference; it is aligned.
    unsafe {
        asm!("st.relaxed.cta.u32 [{address}], {value};",
            address = in(reg64) word.as_ptr(), value = in(reg32) value,
            options(preserves_flags, nostack));
    }
}

/// Every earlier access before every later one, for the threads of the block.
#[inline(always)]
pub(in super::super) fn fence_in_block() {
    // SAFETY: a fence has no precondition.
    unsafe {
        asm!("fence.acq_rel.cta;", options(preserves_flags, nostack));
    }
}
