//! Memory that the threads of a block share; the macro [`shared_array!`](crate::shared_array) has cuda_std's
//! path and meaning.

#[cfg(not(target_arch = "nvptx64"))]
use core::alloc::Layout;

#[cfg(target_arch = "nvptx64")]
use crate::arch;
#[cfg(not(target_arch = "nvptx64"))]
use crate::cpu;

/// Bytes of shared memory that a kernel's arrays have together, on every GPU.
pub const LIMIT_BYTES: usize = 48 * 1024;

/// An array in the block's shared memory: `shared_array![u32; 64]` is a `*mut u32` to room for 64 of them, the
/// same for every thread of the block, and other memory in every block.
///
/// It holds anything at first. Each place in the source is an array of its own; the same place gives the same
/// array however often a thread comes there. All arrays of a kernel have [`LIMIT_BYTES`](crate::shared::LIMIT_BYTES)
/// together. On a CPU it wants a grid, such as `warpbell-cpu-grid`'s; a caller outside of any panics.
///
/// The pointer is used as one that other threads use too: what one thread wrote is another's only after
/// [`sync_threads`](crate::thread::sync_threads).
///
/// ```
/// use warpbell_gpu::{shared_array, thread};
///
/// /// Turns the 64 words at `words` round, with a block of 64 threads.
/// pub unsafe fn reverse(words: *mut u32) {
///     let shared = shared_array![u32; 64];
///     let own = thread::thread_idx_x() as usize;
///     unsafe {
///         *shared.add(own) = *words.add(own);
///         thread::sync_threads();
///         *words.add(own) = *shared.add(63 - own);
///     }
/// }
/// ```
#[macro_export]
macro_rules! shared_array {
    ($element:ty; $length:expr) => {{
        // Never inlined: see the module `tuned`.
        #[inline(never)]
        fn shared_array() -> *mut $element {
            /// Its address tells this place from every other one.
            static PLACE: u8 = 0;
            $crate::shared::array::<
                $element,
                { $length },
                { ::core::line!() },
                { ::core::column!() },
            >(&PLACE)
        }
        shared_array()
    }};
}

/// What [`shared_array!`](crate::shared_array) stands for: the array of a place, which has a function of its
/// own around it that is never inlined.
#[doc(hidden)]
#[inline(always)]
pub fn array<T, const LENGTH: usize, const LINE: u32, const COLUMN: u32>(
    place: &'static u8,
) -> *mut T {
    const { assert!(size_of::<[T; LENGTH]>() > 0, "an empty array") };
    const {
        assert!(
            size_of::<[T; LENGTH]>() <= LIMIT_BYTES,
            "more than a block has"
        )
    };
    #[cfg(target_arch = "nvptx64")]
    {
        let _ = place;
        arch::shared_array::<T, LENGTH, LINE, COLUMN>()
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        (cpu::hooks().shared)(place, Layout::new::<[T; LENGTH]>()).cast()
    }
}
