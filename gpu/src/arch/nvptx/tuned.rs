//! What keeps compiler and assembler from rewriting a value: see [`tuned`](crate::tuned).

use core::arch::asm;

/// The value, as one that the assembler cannot work out again.
#[inline(always)]
pub(crate) fn kept(value: u64) -> u64 {
    let kept: u64;
    // SAFETY: reads a special register.
    unsafe {
        asm!(
            "{{",
            ".reg .b64 %zero;",
            "mov.u64 %zero, %clock64;",
            "shr.u64 %zero, %zero, 63;",
            "xor.b64 {kept}, {value}, %zero;",
            "}}",
            kept = out(reg64) kept,
            value = in(reg64) value,
            options(preserves_flags, nostack),
        );
    }
    kept
}

/// The value, of which the compiler knows nothing but that it has 32 bits.
#[inline(always)]
pub(crate) fn narrow(value: u32) -> u32 {
    let same: u32;
    // SAFETY: touches no memory.
    unsafe {
        asm!("mov.b32 {same}, {value};", same = out(reg32) same, value = in(reg32) value,
            options(nomem, preserves_flags, nostack));
    }
    same
}

/// Whether the compiler knows the predicate. All threads that come to this call bring the same one then.
#[inline(always)]
pub(crate) fn is_known(predicate: bool) -> bool {
    // SAFETY: asks nothing of the caller.
    unsafe { is_constant(predicate) }
}

#[allow(improper_ctypes, reason = "LLVM's intrinsics return i1")]
unsafe extern "C" {
    #[link_name = "llvm.is.constant.i1"]
    fn is_constant(predicate: bool) -> bool;
}
