//! What kernels for Rust-CUDA use lies under the same paths here, with the same types: `kernels/rust-cuda`
//! compiles this file with cuda_std in the place of `warpbell`.

use warpbell::{shared_array, thread, warp};

/// The functions that both have, as their types.
pub fn paths() {
    let _coordinates: [fn() -> u32; 12] = [
        thread::thread_idx_x,
        thread::thread_idx_y,
        thread::thread_idx_z,
        thread::block_idx_x,
        thread::block_idx_y,
        thread::block_idx_z,
        thread::block_dim_x,
        thread::block_dim_y,
        thread::block_dim_z,
        thread::grid_dim_x,
        thread::grid_dim_y,
        thread::grid_dim_z,
    ];
    let _indices: [fn() -> u32; 2] = [thread::index, thread::index_1d];
    let _first: fn() -> bool = thread::first;
    let _barriers: [fn(u32) -> u32; 3] = [
        thread::sync_threads_count,
        thread::sync_threads_and,
        thread::sync_threads_or,
    ];
    let _barrier: fn() = thread::sync_threads;
    let _fences: [fn(); 3] = [
        thread::grid_fence,
        thread::device_fence,
        thread::system_fence,
    ];
    let _sleep: fn(u32) = thread::nanosleep;
    let _sizes: [fn() -> u32; 2] = [thread::warp_size, warp::lane_id];
    let _sync_warp: unsafe fn(u32) = warp::sync_warp;
    let _array: fn() -> *mut u32 = || shared_array![u32; 4];
}

#[test]
fn cuda_stds_names_have_its_types() {
    paths();
}
