//! Loads and stores of words that others read or write at the same time.

/// Loads and stores of a [`Word32`](crate::arch::Word32) or [`Word64`](crate::arch::Word64) that the host, a NIC, or
/// another GPU reads or writes at the same time.
///
/// Each is one instruction, whole and for the whole system, whichever compiler builds the kernel. `load` and `store` of
/// core's atomics are the same with rustc. Rust-CUDA's compiler makes atomic read-modify-write operations of them, and
/// those write the word.
///
/// ```
/// use warpbell_gpu::WordExt;
/// use warpbell_gpu::arch::Word64;
///
/// let word = Word64::new(1);
/// word.store_relaxed(word.load_relaxed() + 1);
/// assert_eq!(word.load_acquire(), 2);
/// ```
pub trait WordExt {
    /// `u32` or `u64`.
    type Value;

    /// Loads the word, in no order with other accesses.
    fn load_relaxed(&self) -> Self::Value;

    /// Loads the word before every later access.
    fn load_acquire(&self) -> Self::Value;

    /// Stores the word, in no order with other accesses.
    fn store_relaxed(&self, value: Self::Value);

    /// Stores the word after every earlier access.
    fn store_release(&self, value: Self::Value);
}

/// By the atomics of core, or of loom.
#[cfg(not(target_arch = "nvptx64"))]
mod by_ordering {
    use core::sync::atomic::Ordering;

    use super::WordExt;
    use crate::arch::{Word32, Word64};

    macro_rules! word {
        ($word:ty, $value:ty) => {
            impl WordExt for $word {
                type Value = $value;

                #[inline(always)]
                fn load_relaxed(&self) -> $value {
                    self.load(Ordering::Relaxed)
                }

                #[inline(always)]
                fn load_acquire(&self) -> $value {
                    self.load(Ordering::Acquire)
                }

                #[inline(always)]
                fn store_relaxed(&self, value: $value) {
                    self.store(value, Ordering::Relaxed);
                }

                #[inline(always)]
                fn store_release(&self, value: $value) {
                    self.store(value, Ordering::Release);
                }
            }
        };
    }

    word!(Word32, u32);
    word!(Word64, u64);
}
