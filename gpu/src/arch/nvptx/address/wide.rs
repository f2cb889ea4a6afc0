//! Single accesses of a byte, of 16 bytes and of 64, to addresses of the global address space.

use core::arch::asm;
use core::ptr;

/// Loads a byte.
///
/// # Safety
/// The [contract of an address](super).
#[inline(always)]
pub unsafe fn load8(address: u64) -> u8 {
    // SAFETY: the caller's promise. Volatile, because others may write the byte meanwhile.
    unsafe { ptr::with_exposed_provenance::<u8>(address as usize).read_volatile() }
}

/// Stores a byte.
///
/// # Safety
/// The [contract of an address](super).
#[inline(always)]
pub unsafe fn store8(address: u64, value: u8) {
    // SAFETY: the caller's promise. Volatile, because others may read the byte meanwhile.
    unsafe { ptr::with_exposed_provenance_mut::<u8>(address as usize).write_volatile(value) }
}

/// Copies 16 bytes in one load and one store.
///
/// # Safety
/// The [contract of an address](super), for 16 bytes at both.
#[inline(always)]
pub unsafe fn copy16(source: u64, destination: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "{{ .reg .b64 a, b;",
            "ld.global.v2.b64 {{a, b}}, [{source}];",
            "st.global.v2.b64 [{destination}], {{a, b}}; }}",
            source = in(reg64) source,
            destination = in(reg64) destination,
            options(preserves_flags, nostack),
        );
    }
}

/// Copies 64 bytes, all loads before the stores, so that they take the time of one.
///
/// # Safety
/// The [contract of an address](super), for 64 bytes at both; both are aligned to 16.
#[inline(always)]
pub unsafe fn copy64(source: u64, destination: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "{{ .reg .b64 a, b, c, d, e, f, g, h;",
            "ld.global.v2.b64 {{a, b}}, [{source}];",
            "ld.global.v2.b64 {{c, d}}, [{source}+16];",
            "ld.global.v2.b64 {{e, f}}, [{source}+32];",
            "ld.global.v2.b64 {{g, h}}, [{source}+48];",
            "st.global.v2.b64 [{destination}], {{a, b}};",
            "st.global.v2.b64 [{destination}+16], {{c, d}};",
            "st.global.v2.b64 [{destination}+32], {{e, f}};",
            "st.global.v2.b64 [{destination}+48], {{g, h}}; }}",
            source = in(reg64) source,
            destination = in(reg64) destination,
            options(preserves_flags, nostack),
        );
    }
}

/// Blocks of 16 bytes that [`copy_blocks`] has on their way at a time.
pub const BLOCKS: u32 = 8;

/// Copies up to [`BLOCKS`] blocks of 16 bytes, each `stride` bytes behind the one before and none of them `left` bytes
/// behind the first or more: all loads before the stores, so that they take the time of one.
///
/// # Safety
/// The [contract of an address](super), for each of these blocks at both.
#[inline(always)]
pub unsafe fn copy_blocks(source: u64, destination: u64, left: u32, stride: u32) {
    /// The instructions for each of the blocks: which are there is asked for the loads and [again](crate::tuned) for the
    /// stores.
    macro_rules! blocks {
        ($($low:literal $high:literal)*) => {
            // SAFETY: the caller's promise.
            unsafe {
                asm!(
                    "{{ .reg .pred there; .reg .b64 from, to, stride; .reg .b32 at;",
                    $(concat!(".reg .b64 ", $low, ", ", $high, ";"),)*
                    "cvt.u64.u32 stride, {stride}; mov.b64 from, {source}; mov.b32 at, 0;",
                    $(
                        "setp.lt.u32 there, at, {left};",
                        concat!("@there ld.global.v2.b64 {{", $low, ", ", $high, "}}, [from];"),
                        "add.s64 from, from, stride; add.s32 at, at, {stride};",
                    )*
                    "mov.b64 to, {destination}; mov.b32 at, 0;",
                    $(
                        "setp.lt.u32 there, at, {left};",
                        concat!("@there st.global.v2.b64 [to], {{", $low, ", ", $high, "}};"),
                        "add.s64 to, to, stride; add.s32 at, at, {stride};",
                    )*
                    "}}",
                    source = in(reg64) source,
                    destination = in(reg64) destination,
                    left = in(reg32) left,
                    stride = in(reg32) stride,
                    options(preserves_flags, nostack),
                );
            }
        };
    }
    blocks!("a0" "b0" "a1" "b1" "a2" "b2" "a3" "b3" "a4" "b4" "a5" "b5" "a6" "b6" "a7" "b7");
}

/// 16 bytes in one load.
///
/// # Safety
/// The [contract of an address](super).
#[inline(always)]
pub unsafe fn load128(address: u64) -> [u64; 2] {
    let (low, high): (u64, u64);
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "ld.global.v2.b64 {{{low}, {high}}}, [{address}];",
            low = out(reg64) low,
            high = out(reg64) high,
            address = in(reg64) address,
            options(preserves_flags, nostack),
        );
    }
    [low, high]
}

/// 16 bytes in one store.
///
/// # Safety
/// The [contract of an address](super).
#[inline(always)]
pub unsafe fn store128(address: u64, [low, high]: [u64; 2]) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "st.global.v2.b64 [{address}], {{{low}, {high}}};",
            low = in(reg64) low,
            high = in(reg64) high,
            address = in(reg64) address,
            options(preserves_flags, nostack),
        );
    }
}

/// 64 bytes in four loads that take the time of one.
///
/// # Safety
/// The [contract of an address](super), for 64 bytes; it is aligned to 16.
#[inline(always)]
pub unsafe fn load512(address: u64) -> [u64; 8] {
    let (a, b, c, d, e, f, g, h): (u64, u64, u64, u64, u64, u64, u64, u64);
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "ld.global.v2.b64 {{{a}, {b}}}, [{address}];",
            "ld.global.v2.b64 {{{c}, {d}}}, [{address}+16];",
            "ld.global.v2.b64 {{{e}, {f}}}, [{address}+32];",
            "ld.global.v2.b64 {{{g}, {h}}}, [{address}+48];",
            a = out(reg64) a,
            b = out(reg64) b,
            c = out(reg64) c,
            d = out(reg64) d,
            e = out(reg64) e,
            f = out(reg64) f,
            g = out(reg64) g,
            h = out(reg64) h,
            address = in(reg64) address,
            options(preserves_flags, nostack),
        );
    }
    [a, b, c, d, e, f, g, h]
}
