//! The engine's access to the memory that queues and payloads live in.

mod watched;

use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use mlx5_wqe::QpNumber;
use warpbell_gpu::trace;

/// The memory of the queues' owner, by address.
///
/// Addresses mean what the owner of the queues means by them. Like a card's DMA, the engine reads
/// and writes memory that other threads use at the same time; order comes from the doorbell, the
/// doorbell record and the CQE's last eight bytes, which are accessed through the atomic methods.
///
/// # Safety
///
/// *Implementation safety.* Each method must access exactly the bytes that it names, and the
/// atomic methods must be single-copy atomic with the order that they name.
pub unsafe trait Memory {
    /// Copies `length` bytes. Where the ranges overlap, the destination ends up with bytes of
    /// either.
    ///
    /// Others may look at either range meanwhile, through atomics, and find old bytes or new ones.
    ///
    /// A copy of 1, 2, 4 or 8 bytes to an address aligned to that size ends in one atomic store
    /// with release order, so that whoever polls those bytes sees all of them, and all that was
    /// copied before. The source may have any alignment: inline data lie anywhere in a WQE.
    ///
    /// A copy of up to [`INLINE`] bytes comes behind all that was copied before. Of inline data, which begin 4 bytes behind a
    /// multiple of 16, to a multiple of 8 each word of 4 is one store or part of one, in no order among themselves: they may
    /// tell for themselves whether they came.
    ///
    /// # Safety
    ///
    /// `source` must be readable and `destination` writable for `length` bytes.
    unsafe fn copy(&self, source: u64, destination: u64, length: usize);

    /// What this thread has found before whatever it reads from now on, provided that who stored it had
    /// stored that before.
    fn acquire(&self);

    /// What this thread, and others that it has met, stored before whatever it stores from now on.
    fn release(&self);

    /// Reads `bytes.len()` bytes, which nobody writes meanwhile.
    ///
    /// # Safety
    ///
    /// `address` must be readable for `bytes.len()` bytes.
    unsafe fn read(&self, address: u64, bytes: &mut [u8]);

    /// Reads the 64 bytes of a block, which nobody writes meanwhile, as native-endian words.
    ///
    /// # Safety
    ///
    /// `address` must be readable for 64 bytes and aligned to 64.
    unsafe fn read_block(&self, address: u64) -> [u64; 8];

    /// Stores a native-endian u64, in no order with other accesses.
    ///
    /// # Safety
    ///
    /// `address` must be writable for 8 bytes and aligned to 8.
    unsafe fn write_u64(&self, address: u64, value: u64);

    /// Writes `bytes`, in no particular order. Others may look meanwhile, as with
    /// [`copy`](Self::copy).
    ///
    /// # Safety
    ///
    /// `address` must be writable for `bytes.len()` bytes.
    unsafe fn write(&self, address: u64, bytes: &[u8]);

    /// Looks at a native-endian u64, in no order with other accesses.
    ///
    /// # Safety
    ///
    /// `address` must be readable for 8 bytes and aligned to 8.
    unsafe fn peek_u64(&self, address: u64) -> u64;

    /// Looks at a native-endian u32, in no order with other accesses.
    ///
    /// # Safety
    ///
    /// `address` must be readable for 4 bytes and aligned to 4.
    unsafe fn peek_u32(&self, address: u64) -> u32;

    /// Says that the line at an address, whatever lies there, will soon be read. A hint, without effect by default.
    #[inline]
    fn prefetch(&self, _address: u64) {}

    /// Says that all that was copied or written before shall be in its place now, because somebody's READ, or a
    /// message to a peer, takes data out of this memory. Without effect where stores go to their place at once.
    #[inline]
    fn settle(&self) {}

    /// The time for [`record_at`](Self::record_at): 0 where nothing is recorded.
    #[inline(always)]
    fn now(&self) -> u64 {
        0
    }

    /// Says what the engine did to a queue pair, for a trace. Whoever records nothing, as it is here, pays nothing.
    ///
    /// What others see is recorded with a time before they can: the engine's thread may pause behind each instruction,
    /// and an event must not seem later than what followed from it.
    #[inline(always)]
    fn record_at(&self, _ticks: u64, _kind: trace::Kind, _qpn: QpNumber, _value: u32) {}

    /// Says so with the time of now.
    #[inline(always)]
    fn record(&self, kind: trace::Kind, qpn: QpNumber, value: u32) {
        self.record_at(self.now(), kind, qpn, value);
    }

    /// Loads a native-endian u32 with acquire order.
    ///
    /// # Safety
    ///
    /// `address` must be readable for 4 bytes and aligned to 4.
    unsafe fn load_u32(&self, address: u64) -> u32;

    /// Loads a native-endian u64 with acquire order.
    ///
    /// # Safety
    ///
    /// `address` must be readable for 8 bytes and aligned to 8.
    unsafe fn load_u64(&self, address: u64) -> u64;

    /// Stores a native-endian u64 with release order.
    ///
    /// # Safety
    ///
    /// `address` must be writable for 8 bytes and aligned to 8.
    unsafe fn store_u64(&self, address: u64, value: u64);

    /// Exchanges a native-endian u64, with acquire order.
    ///
    /// # Safety
    ///
    /// `address` must be readable and writable for 8 bytes and aligned to 8.
    unsafe fn swap_u64(&self, address: u64, value: u64) -> u64;

    /// Stores `new` if the u32 there is `current`; gives the value found, as `Err` if it differed.
    /// Acquire and release order.
    ///
    /// # Safety
    ///
    /// `address` must be readable and writable for 4 bytes and aligned to 4.
    unsafe fn compare_exchange_u32(&self, address: u64, current: u32, new: u32)
    -> Result<u32, u32>;

    /// Stores `new` if the u64 there is `current`; gives the value found, as `Err` if it differed.
    /// Acquire and release order.
    ///
    /// # Safety
    ///
    /// `address` must be readable and writable for 8 bytes and aligned to 8.
    unsafe fn compare_exchange_u64(&self, address: u64, current: u64, new: u64)
    -> Result<u64, u64>;
}

/// What a WQE of one block carries in itself, in bytes.
pub const INLINE: usize = 28;

/// Memory whose addresses are this program's own pointers.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectMemory;

/// The atomic of type `$atomic` at an address.
macro_rules! atomic_at {
    ($atomic:ty, $address:expr) => {
        // SAFETY: the caller vouches that the address is valid and aligned for this width; the
        // atomic is used only within this expression's statement.
        unsafe { <$atomic>::from_ptr(ptr::with_exposed_provenance_mut($address as usize)) }
    };
}

// SAFETY: every method accesses exactly the bytes named, and the atomic ones go through core's
// atomics with the stated order.
unsafe impl Memory for DirectMemory {
    #[inline]
    unsafe fn copy(&self, source: u64, destination: u64, length: usize) {
        let aligned = |address: u64| address & (length as u64).wrapping_sub(1) == 0;
        // Release, after all earlier copies: a poller that sees these bytes must see those.
        macro_rules! copy_word {
            ($atomic:ty, $word:ty) => {{
                let word = if aligned(source) {
                    atomic_at!($atomic, source).load(Ordering::Relaxed)
                } else {
                    // SAFETY: the caller vouches for the range; bytes of any alignment make a word.
                    unsafe {
                        ptr::with_exposed_provenance::<$word>(source as usize).read_unaligned()
                    }
                };
                atomic_at!($atomic, destination).store(word, Ordering::Release);
            }};
        }
        match length {
            1 => copy_word!(AtomicU8, u8),
            2 if aligned(destination) => copy_word!(AtomicU16, u16),
            4 if aligned(destination) => copy_word!(AtomicU32, u32),
            8 if aligned(destination) => copy_word!(AtomicU64, u64),
            _ => {
                if length <= INLINE {
                    // As above.
                    fence(Ordering::Release);
                }
                // SAFETY: the caller vouches for both ranges.
                unsafe { watched::copy(source, destination, length) }
            }
        }
    }

    #[inline]
    fn acquire(&self) {
        fence(Ordering::Acquire);
    }

    #[inline]
    fn release(&self) {
        fence(Ordering::Release);
    }

    #[inline]
    unsafe fn read(&self, address: u64, bytes: &mut [u8]) {
        // SAFETY: the caller vouches for the range; `bytes` is the engine's own.
        unsafe {
            ptr::copy_nonoverlapping(
                ptr::with_exposed_provenance::<u8>(address as usize),
                bytes.as_mut_ptr(),
                bytes.len(),
            );
        }
    }

    #[inline]
    unsafe fn read_block(&self, address: u64) -> [u64; 8] {
        // SAFETY: the caller vouches for the block.
        unsafe { ptr::with_exposed_provenance::<[u64; 8]>(address as usize).read() }
    }

    #[inline]
    unsafe fn write_u64(&self, address: u64, value: u64) {
        atomic_at!(AtomicU64, address).store(value, Ordering::Relaxed);
    }

    #[inline]
    unsafe fn write(&self, address: u64, bytes: &[u8]) {
        // SAFETY: the caller vouches for the range.
        unsafe { watched::write(bytes, address) };
    }

    #[inline]
    unsafe fn peek_u64(&self, address: u64) -> u64 {
        atomic_at!(AtomicU64, address).load(Ordering::Relaxed)
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline]
    fn prefetch(&self, address: u64) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = ptr::without_provenance(address as usize);
        // SAFETY: a prefetch of any address reads nothing that the program could see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    }

    #[inline]
    unsafe fn peek_u32(&self, address: u64) -> u32 {
        atomic_at!(AtomicU32, address).load(Ordering::Relaxed)
    }

    #[inline]
    unsafe fn load_u32(&self, address: u64) -> u32 {
        atomic_at!(AtomicU32, address).load(Ordering::Acquire)
    }

    #[inline]
    unsafe fn load_u64(&self, address: u64) -> u64 {
        atomic_at!(AtomicU64, address).load(Ordering::Acquire)
    }

    #[inline]
    unsafe fn store_u64(&self, address: u64, value: u64) {
        atomic_at!(AtomicU64, address).store(value, Ordering::Release);
    }

    #[inline]
    unsafe fn swap_u64(&self, address: u64, value: u64) -> u64 {
        atomic_at!(AtomicU64, address).swap(value, Ordering::Acquire)
    }

    #[inline]
    unsafe fn compare_exchange_u32(
        &self,
        address: u64,
        current: u32,
        new: u32,
    ) -> Result<u32, u32> {
        atomic_at!(AtomicU32, address).compare_exchange(
            current,
            new,
            Ordering::AcqRel,
            Ordering::Acquire,
        )
    }

    #[inline]
    unsafe fn compare_exchange_u64(
        &self,
        address: u64,
        current: u64,
        new: u64,
    ) -> Result<u64, u64> {
        atomic_at!(AtomicU64, address).compare_exchange(
            current,
            new,
            Ordering::AcqRel,
            Ordering::Acquire,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::vec::Vec;

    /// The host may look at registered memory, and a kernel at a CQE, at any time: what they find
    /// is old or new, and miri must see no race.
    #[test]
    fn others_may_look_meanwhile() {
        let source: Vec<AtomicU64> = (0..7).map(|_| AtomicU64::new(u64::MAX)).collect();
        let target: Vec<AtomicU64> = (0..7).map(|_| AtomicU64::new(0)).collect();
        let start = |words: &[AtomicU64]| words.as_ptr().expose_provenance() as u64;
        let (from, to) = (start(&source), start(&target));
        thread::scope(|scope| {
            scope.spawn(|| {
                for word in &target {
                    let found = word.load(Ordering::Relaxed);
                    assert!(found == 0 || found == u64::MAX);
                }
            });
            // SAFETY: both are valid for 56 bytes.
            unsafe {
                DirectMemory.copy(from, to, 56);
                DirectMemory.write(to, &[0xff; 56]);
            }
        });
        assert!(
            target
                .iter()
                .all(|word| word.load(Ordering::Relaxed) == u64::MAX)
        );
    }

    /// Where a race would be, which miri sees: a copy of data, then of a word behind it.
    #[test]
    fn a_polled_word_comes_whole_and_after_the_data() {
        for shift in [0, 4] {
            // Inline data: 8 bytes at 36 of a WQE.
            let source = [42, u64::MAX, u64::MAX].map(AtomicU64::new);
            let (data, word) = (AtomicU64::new(0), AtomicU64::new(0));
            let address = |word: &AtomicU64| word.as_ptr().expose_provenance() as u64;
            let from = source.as_ptr().expose_provenance() as u64;
            let (data_at, word_at) = (address(&data), address(&word));
            thread::scope(|scope| {
                scope.spawn(|| {
                    // SAFETY: both ends are valid for 8 bytes.
                    unsafe {
                        DirectMemory.copy(from, data_at, 8);
                        DirectMemory.copy(from + 8 + shift, word_at, 8);
                    }
                });
                let found = loop {
                    let found = word.load(Ordering::Acquire);
                    if found != 0 {
                        break found;
                    }
                    thread::yield_now();
                };
                assert_eq!(found, u64::MAX);
                assert_eq!(data.load(Ordering::Relaxed), 42);
            });
        }
    }
}
