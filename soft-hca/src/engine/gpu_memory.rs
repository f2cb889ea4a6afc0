//! The memory of a GPU, and host memory that is mapped there.
//!
//! Order is made by PTX fences of the reach that is needed. A release fence lasts until the stores
//! before it can be seen, so there is one only where there are stores to wait for; an acquire
//! fence empties the L1 cache, so there is one only where something new was found.

use core::arch::asm;
use core::cell::Cell;
use core::ptr;
use core::sync::atomic::AtomicU32;

use super::memory::Small;
use super::{Memory, Reach};

/// Memory in a GPU's global address space.
#[derive(Clone, Debug)]
pub struct GpuMemory {
    reach: Reach,
    /// Something was stored since the last release fence.
    unordered: Cell<bool>,
}

impl GpuMemory {
    /// Memory whose users are within `reach`.
    pub const fn new(reach: Reach) -> Self {
        Self {
            reach,
            unordered: Cell::new(false),
        }
    }
}

/// An address of the global address space.
#[inline(always)]
fn global(address: u64) -> u64 {
    let global: u64;
    // SAFETY: converts an address and touches no memory.
    unsafe {
        asm!(
            "cvta.to.global.u64 {global}, {address};",
            global = out(reg64) global,
            address = in(reg64) address,
            options(pure, nomem, preserves_flags, nostack),
        );
    }
    global
}

/// The same instruction for both reaches: `$before` and `$after` stand on both sides of the scope.
macro_rules! by_reach {
    ($reach:expr, $before:expr, $after:expr, $($operand:tt)*) => {
        match $reach {
            Reach::Gpu => asm!(concat!($before, ".gpu", $after), $($operand)*),
            Reach::System => asm!(concat!($before, ".sys", $after), $($operand)*),
        }
    };
}

/// The names of the one-sided fences, which there are from sm_90 on.
#[cfg(target_feature = "sm_90")]
macro_rules! one_sided {
    (release) => {
        "fence.release"
    };
    (acquire) => {
        "fence.acquire"
    };
}
#[cfg(not(target_feature = "sm_90"))]
macro_rules! one_sided {
    ($side:ident) => {
        "fence.acq_rel"
    };
}

/// Relaxed accesses to a word of one width.
macro_rules! word {
    ($load:ident, $store:ident, $word:ty, $reg:ident, $type:literal) => {
        /// # Safety
        /// `address` is readable, and aligned to the word's width.
        #[inline(always)]
        unsafe fn $load(&self, address: u64) -> $word {
            let value: $word;
            // SAFETY: the caller's promise.
            unsafe {
                by_reach!(self.reach, "ld.relaxed", concat!(".global.", $type, " {value}, [{address}];"),
                    value = out($reg) value, address = in(reg64) global(address),
                    options(preserves_flags, nostack));
            }
            value
        }

        /// # Safety
        /// `address` is writable, and aligned to the word's width.
        #[inline(always)]
        unsafe fn $store(&self, address: u64, value: $word) {
            // SAFETY: the caller's promise.
            unsafe {
                by_reach!(self.reach, "st.relaxed", concat!(".global.", $type, " [{address}], {value};"),
                    address = in(reg64) global(address), value = in($reg) value,
                    options(preserves_flags, nostack));
            }
        }
    };
}

impl GpuMemory {
    word!(load16, store16, u16, reg16, "u16");
    word!(load32, store32, u32, reg32, "u32");
    word!(load64, store64, u64, reg64, "u64");

    /// Every earlier store before every later one.
    #[inline(always)]
    fn fence_release(&self) {
        if !self.unordered.replace(false) {
            return;
        }
        // SAFETY: a fence has no precondition.
        unsafe {
            by_reach!(
                self.reach,
                one_sided!(release),
                ";",
                options(preserves_flags, nostack)
            )
        }
    }

    /// Every earlier load before every later access.
    #[inline(always)]
    fn fence_acquire(&self) {
        // SAFETY: a fence has no precondition.
        unsafe {
            by_reach!(
                self.reach,
                one_sided!(acquire),
                ";",
                options(preserves_flags, nostack)
            )
        }
    }

    /// The word of 2, 4 or 8 bytes at an address of any alignment, as its width's low bytes.
    ///
    /// # Safety
    /// `address` is readable for `width` bytes.
    #[inline]
    unsafe fn load_word(&self, address: u64, width: usize) -> u64 {
        // SAFETY: the caller's promise; each load is aligned.
        unsafe {
            // A width is a power of two; a remainder would be some hundred instructions.
            match (width, address & (width as u64 - 1) == 0) {
                (8, true) => self.load64(address),
                (4, true) => self.load32(address).into(),
                (2, true) => self.load16(address).into(),
                (8, false) if address % 4 == 0 => {
                    let [low, high] = [0, 4].map(|at| u64::from(self.load32(address + at)));
                    low | high << 32
                }
                _ => load_bytes(address, width),
            }
        }
    }

    /// Copies what is not to be one store.
    ///
    /// # Safety
    /// As for [`Memory::copy`].
    unsafe fn copy_many(&self, mut source: u64, mut destination: u64, mut length: u64) {
        // SAFETY: the caller vouches for both ranges; each piece lies inside, and is aligned to its
        // width at both ends.
        unsafe {
            if (source ^ destination) % 16 == 0 {
                while destination % 16 != 0 && length > 0 {
                    store8(destination, load8(source));
                    (source, destination, length) = (source + 1, destination + 1, length - 1);
                }
                while length >= 64 {
                    copy64(source, destination);
                    (source, destination, length) = (source + 64, destination + 64, length - 64);
                }
                while length >= 16 {
                    copy16(source, destination);
                    (source, destination, length) = (source + 16, destination + 16, length - 16);
                }
            } else if (source ^ destination) % 4 == 0 {
                while destination % 4 != 0 && length > 0 {
                    store8(destination, load8(source));
                    (source, destination, length) = (source + 1, destination + 1, length - 1);
                }
                while length >= 4 {
                    self.store32(destination, self.load32(source));
                    (source, destination, length) = (source + 4, destination + 4, length - 4);
                }
            }
            for byte in 0..length {
                store8(destination + byte, load8(source + byte));
            }
        }
    }
}

/// Copies one of `parts` parts, as [`Memory::copy_part`]. Out of the way: its loops want registers that whoever copies
/// but a word has better use for.
///
/// # Safety
/// As for that.
#[inline(never)]
unsafe fn copy_part(
    reach: Reach,
    source: u64,
    destination: u64,
    length: u64,
    part: u32,
    parts: u32,
) {
    let memory = GpuMemory::new(reach);
    let (part, parts) = (u64::from(part), u64::from(parts));
    // The parts are interleaved, so that what a warp loads together lies together.
    // SAFETY: inside the caller's ranges, and aligned where the two are.
    unsafe {
        if (source | destination) % 16 == 0 {
            let whole = length & !15;
            let stride = 16 * parts;
            let mut at = 16 * part;
            // Four loads under way take the time of one.
            while at + 3 * stride < whole {
                let at_each = [0, 1, 2, 3].map(|part| at + part * stride);
                let [a, b, c, d] = at_each.map(|at| load128(source + at));
                let [to_a, to_b, to_c, to_d] = at_each.map(|at| destination + at);
                store128(to_a, a);
                store128(to_b, b);
                store128(to_c, c);
                store128(to_d, d);
                at += 4 * stride;
            }
            while at < whole {
                store128(destination + at, load128(source + at));
                at += stride;
            }
            let mut at = whole + part;
            while at < length {
                store8(destination + at, load8(source + at));
                at += parts;
            }
        } else if (source | destination) % 4 == 0 {
            let whole = length & !3;
            let mut at = 4 * part;
            while at < whole {
                memory.store32(destination + at, memory.load32(source + at));
                at += 4 * parts;
            }
            let mut at = whole + part;
            while at < length {
                store8(destination + at, load8(source + at));
                at += parts;
            }
        } else {
            let mut at = part;
            while at < length {
                store8(destination + at, load8(source + at));
                at += parts;
            }
        }
    }
}

/// # Safety
/// `address` is readable.
#[inline(always)]
unsafe fn load8(address: u64) -> u8 {
    // SAFETY: the caller's promise. Volatile, because others may write the byte meanwhile.
    unsafe { ptr::with_exposed_provenance::<u8>(address as usize).read_volatile() }
}

/// Loads a word byte by byte. Out of the way, because it is rare.
///
/// # Safety
/// `address` is readable for `width` bytes, up to 8.
#[inline(never)]
unsafe fn load_bytes(address: u64, width: usize) -> u64 {
    // SAFETY: the caller's promise.
    (0..width as u64).fold(0, |word, byte| {
        word | u64::from(unsafe { load8(address + byte) }) << (8 * byte)
    })
}

/// # Safety
/// `address` is writable.
#[inline(always)]
unsafe fn store8(address: u64, value: u8) {
    // SAFETY: the caller's promise. Volatile, because others may read the byte meanwhile.
    unsafe { ptr::with_exposed_provenance_mut::<u8>(address as usize).write_volatile(value) }
}

/// Copies 16 bytes in one load and one store.
///
/// # Safety
/// Both are aligned to 16; `source` is readable and `destination` writable for 16 bytes.
#[inline(always)]
unsafe fn copy16(source: u64, destination: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "{{ .reg .b64 a, b;",
            "ld.global.v2.b64 {{a, b}}, [{source}];",
            "st.global.v2.b64 [{destination}], {{a, b}}; }}",
            source = in(reg64) global(source),
            destination = in(reg64) global(destination),
            options(preserves_flags, nostack),
        );
    }
}

/// Copies 64 bytes, all loads before the stores, so that they take the time of one.
///
/// # Safety
/// Both are aligned to 16; `source` is readable and `destination` writable for 64 bytes.
#[inline(always)]
unsafe fn copy64(source: u64, destination: u64) {
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
            source = in(reg64) global(source),
            destination = in(reg64) global(destination),
            options(preserves_flags, nostack),
        );
    }
}

// SAFETY: every method accesses exactly the bytes named. Aligned accesses of up to 8 bytes are single-copy
// atomic on a GPU, and the fences give the stated order.
unsafe impl Memory for GpuMemory {
    #[inline]
    unsafe fn copy(&self, source: u64, destination: u64, length: usize) {
        // SAFETY: the caller vouches for both ranges.
        unsafe {
            match length {
                2 | 4 | 8 if destination & (length as u64 - 1) == 0 => {
                    let word = self.load_word(source, length);
                    // All earlier copies before this word, because who polls it goes on to read them.
                    self.fence_release();
                    match length {
                        8 => self.store64(destination, word),
                        4 => self.store32(destination, word as u32),
                        _ => self.store16(destination, word as u16),
                    }
                }
                1 => {
                    let byte = load8(source);
                    // As above.
                    self.fence_release();
                    store8(destination, byte);
                }
                _ => self.copy_many(source, destination, length as u64),
            }
        }
        self.unordered.set(true);
    }

    #[inline(always)]
    unsafe fn copy_part(&self, source: u64, destination: u64, length: u64, part: u32, parts: u32) {
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe { copy_part(self.reach, source, destination, length, part, parts) }
    }

    #[inline(always)]
    unsafe fn load_small(&self, source: u64, length: u64) -> Small {
        let mut data = Small::default();
        // SAFETY: the caller's promise; what is no word is aligned to 16.
        unsafe {
            match length as u32 {
                8 if source % 8 == 0 => data[0] = self.load64(source),
                1 => data[0] = load8(source).into(),
                width @ 0..=8 => data[0] = self.load_word(source, width as usize),
                length => {
                    [data[0], data[1]] = load128(source);
                    if length > 16 {
                        [data[2], data[3]] = load128(source + 16);
                    }
                    if length > 32 {
                        [data[4], data[5]] = load128(source + 32);
                    }
                    if length > 48 {
                        [data[6], data[7]] = load128(source + 48);
                    }
                }
            }
        }
        data
    }

    #[inline(always)]
    unsafe fn store_small(&self, destination: u64, length: u64, data: &Small) {
        // SAFETY: as above.
        unsafe {
            match length as u32 {
                8 => self.store64(destination, data[0]),
                4 => self.store32(destination, data[0] as u32),
                2 => self.store16(destination, data[0] as u16),
                1 => store8(destination, data[0] as u8),
                length => {
                    store128(destination, [data[0], data[1]]);
                    if length > 16 {
                        store128(destination + 16, [data[2], data[3]]);
                    }
                    if length > 32 {
                        store128(destination + 32, [data[4], data[5]]);
                    }
                    if length > 48 {
                        store128(destination + 48, [data[6], data[7]]);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn acquire(&self) {
        self.fence_acquire();
    }

    #[inline(always)]
    fn release(&self) {
        self.unordered.set(true);
        self.fence_release();
    }

    #[inline]
    unsafe fn read(&self, address: u64, bytes: &mut [u8]) {
        let aligned = address % 16 == 0;
        let (blocks, rest) = bytes.as_chunks_mut::<64>();
        let mut at = address;
        // SAFETY: the caller vouches for the range.
        unsafe {
            for block in blocks {
                *block = match aligned {
                    true => zerocopy::transmute!(load512(at)),
                    false => core::array::from_fn(|byte| load8(at + byte as u64)),
                };
                at += 64;
            }
            let (words, rest) = rest.as_chunks_mut::<16>();
            for word in words {
                *word = match aligned {
                    true => zerocopy::transmute!(load128(at)),
                    false => core::array::from_fn(|byte| load8(at + byte as u64)),
                };
                at += 16;
            }
            for byte in rest {
                *byte = load8(at);
                at += 1;
            }
        }
    }

    #[inline]
    unsafe fn read_block(&self, address: u64) -> [u64; 8] {
        // SAFETY: the caller's promise.
        unsafe { load512(address) }
    }

    #[inline]
    unsafe fn write_u64(&self, address: u64, value: u64) {
        // SAFETY: the caller's promise.
        unsafe { self.store64(address, value) };
        self.unordered.set(true);
    }

    #[inline]
    unsafe fn write(&self, address: u64, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut at = address;
        // SAFETY: the caller vouches for the range; each store is aligned.
        unsafe {
            for word in words {
                if at % 8 == 0 {
                    self.store64(at, u64::from_ne_bytes(*word));
                } else {
                    for (byte, value) in word.iter().enumerate() {
                        store8(at + byte as u64, *value);
                    }
                }
                at += 8;
            }
            for byte in rest {
                store8(at, *byte);
                at += 1;
            }
        }
        self.unordered.set(true);
    }

    #[inline]
    unsafe fn peek_u64(&self, address: u64) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { self.load64(address) }
    }

    #[inline(always)]
    unsafe fn peek_u32(&self, address: u64) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.load32(address) }
    }

    #[inline]
    unsafe fn load_u32(&self, address: u64) -> u32 {
        // SAFETY: the caller's promise.
        let value = unsafe { self.load32(address) };
        // This word before what is read because of it: WQEs behind a record, CQEs before an index.
        self.fence_acquire();
        value
    }

    #[inline]
    unsafe fn load_u64(&self, address: u64) -> u64 {
        // SAFETY: the caller's promise.
        let value = unsafe { self.load64(address) };
        // This word before what is read because of it.
        self.fence_acquire();
        value
    }

    #[inline]
    unsafe fn store_u64(&self, address: u64, value: u64) {
        // Payload and the rest of a CQE before its last word, because who sees that word reads them.
        self.fence_release();
        // SAFETY: the caller's promise.
        unsafe { self.store64(address, value) };
        self.unordered.set(true);
    }

    #[inline]
    unsafe fn swap_u64(&self, address: u64, value: u64) -> u64 {
        let found: u64;
        // SAFETY: the caller's promise.
        unsafe {
            by_reach!(self.reach, "atom.relaxed", ".global.exch.b64 {found}, [{address}], {value};",
                found = out(reg64) found, address = in(reg64) global(address),
                value = in(reg64) value, options(preserves_flags, nostack));
        }
        // The doorbell before the record and the WQEs, which were written before it.
        self.fence_acquire();
        found
    }

    #[inline]
    unsafe fn compare_exchange_u32(
        &self,
        address: u64,
        current: u32,
        new: u32,
    ) -> Result<u32, u32> {
        let found: u32;
        // SAFETY: the caller's promise.
        unsafe {
            by_reach!(self.reach, "atom.acq_rel", ".global.cas.b32 {found}, [{address}], {current}, {new};",
                found = out(reg32) found, address = in(reg64) global(address),
                current = in(reg32) current, new = in(reg32) new,
                options(preserves_flags, nostack));
        }
        self.unordered.set(true);
        if found == current {
            Ok(found)
        } else {
            Err(found)
        }
    }

    #[inline]
    unsafe fn compare_exchange_u64(
        &self,
        address: u64,
        current: u64,
        new: u64,
    ) -> Result<u64, u64> {
        let found: u64;
        // SAFETY: the caller's promise.
        unsafe {
            by_reach!(self.reach, "atom.acq_rel", ".global.cas.b64 {found}, [{address}], {current}, {new};",
                found = out(reg64) found, address = in(reg64) global(address),
                current = in(reg64) current, new = in(reg64) new,
                options(preserves_flags, nostack));
        }
        self.unordered.set(true);
        if found == current {
            Ok(found)
        } else {
            Err(found)
        }
    }
}

/// Loads a word that the threads of one block share; the SM's cache will do.
#[inline(always)]
pub(super) fn load_in_block(word: &AtomicU32) -> u32 {
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
pub(super) fn store_in_block(word: &AtomicU32, value: u32) {
    // SAFETY: an atomic may be written through a shared reference; it is aligned.
    unsafe {
        asm!("st.relaxed.cta.u32 [{address}], {value};",
            address = in(reg64) word.as_ptr(), value = in(reg32) value,
            options(preserves_flags, nostack));
    }
}

/// Every earlier access before every later one, for the threads of the block.
#[inline(always)]
pub(super) fn fence_in_block() {
    // SAFETY: a fence has no precondition.
    unsafe {
        asm!("fence.acq_rel.cta;", options(preserves_flags, nostack));
    }
}

/// 16 bytes in one load.
///
/// # Safety
/// `address` is readable for 16 bytes and aligned to 16.
#[inline(always)]
unsafe fn load128(address: u64) -> [u64; 2] {
    let (low, high): (u64, u64);
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "ld.global.v2.b64 {{{low}, {high}}}, [{address}];",
            low = out(reg64) low,
            high = out(reg64) high,
            address = in(reg64) global(address),
            options(preserves_flags, nostack),
        );
    }
    [low, high]
}

/// 16 bytes in one store.
///
/// # Safety
/// `address` is writable for 16 bytes and aligned to 16.
#[inline(always)]
unsafe fn store128(address: u64, [low, high]: [u64; 2]) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(
            "st.global.v2.b64 [{address}], {{{low}, {high}}};",
            low = in(reg64) low,
            high = in(reg64) high,
            address = in(reg64) global(address),
            options(preserves_flags, nostack),
        );
    }
}

/// 64 bytes in four loads that take the time of one.
///
/// # Safety
/// `address` is readable for 64 bytes and aligned to 16.
#[inline(always)]
unsafe fn load512(address: u64) -> [u64; 8] {
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
            address = in(reg64) global(address),
            options(preserves_flags, nostack),
        );
    }
    [a, b, c, d, e, f, g, h]
}
