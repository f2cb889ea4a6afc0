//! Adds up the words of a buffer, for a receiver that wants to know what has arrived.
//!
//! It needs nothing but what Rust-CUDA offers under the same paths: `kernels/rust-cuda` compiles this very file
//! with cuda_std in the place of `warpbell`.

use warpbell::{kernel, shared_array, thread, warp};

/// Most threads of a block.
const THREADS: usize = 1024;
/// Threads of a warp.
const LANES: usize = 32;

/// What [`checksum`] works on.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Checksum {
    /// The words.
    pub words: *const u64,
    /// How many they are.
    pub count: u64,
    /// Takes the sum of each block's share, modulo 2^64, by the block's index.
    pub sums: *mut u64,
    /// Takes a 1 from each block once its sum is there, for a host that does not wait for the kernel's end.
    pub done: *mut u64,
}

// SAFETY: the pointers are for the kernel, whose caller vouches for them.
unsafe impl Sync for Checksum {}

/// Adds up a buffer with all threads of a grid of one dimension.
///
/// # Safety
/// `count` words can be read at `words`; each block has a word of its own at `sums` and one at `done`.
#[kernel]
pub unsafe fn checksum(p: Checksum) {
    let sums_of_threads = shared_array![u64; THREADS];
    let sums_of_warps = shared_array![u64; THREADS / LANES];
    let own = thread::thread_idx_x() as usize;
    let threads = thread::block_dim_x() as usize;

    let step = u64::from(thread::block_dim_x()) * u64::from(thread::grid_dim_x());
    let mut at = u64::from(thread::index_1d());
    let mut sum = 0u64;
    while at < p.count {
        // SAFETY: below the count.
        sum = sum.wrapping_add(unsafe { *p.words.add(at as usize) });
        at += step;
    }
    // SAFETY: a block has no more threads than the array has room for.
    unsafe { *sums_of_threads.add(own) = sum };
    // Every thread's sum before a warp's first lane adds them.
    thread::sync_threads();
    if warp::lane_id() == 0 {
        for other in own + 1..threads.min(own + LANES) {
            // SAFETY: a thread of this block, which has written its sum.
            sum = sum.wrapping_add(unsafe { *sums_of_threads.add(other) });
        }
        // SAFETY: a block has no more warps than the array has room for.
        unsafe { *sums_of_warps.add(own / LANES) = sum };
    }
    // Every warp's sum before the block's first thread adds them.
    thread::sync_threads();
    if own == 0 {
        for other in 1..threads.div_ceil(LANES) {
            // SAFETY: a warp of this block, whose first lane has written its sum.
            sum = sum.wrapping_add(unsafe { *sums_of_warps.add(other) });
        }
        let block = thread::block_idx_x() as usize;
        // SAFETY: the block's own word.
        unsafe { p.sums.add(block).write_volatile(sum) };
        // The sum before the word that says so, because the host may look at any time.
        thread::system_fence();
        // SAFETY: as above.
        unsafe { p.done.add(block).write_volatile(1) };
    }
}
