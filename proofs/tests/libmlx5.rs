//! `mlx5-wqe` and the engine of `soft-hca` against libmlx5 itself: what it posts, what it polls, and how it rings.
//!
//! Each test runs itself again with `warpbell-preload` under it, which shows libibverbs a device: without an engine,
//! but in `whole`.

#[cfg(not(rdma_core_headers))]
#[test]
#[ignore = "libibverbs-dev is not installed"]
fn libmlx5() {}

#[cfg(rdma_core_headers)]
mod device;
#[cfg(rdma_core_headers)]
mod engine;
#[cfg(rdma_core_headers)]
mod polling;
#[cfg(rdma_core_headers)]
mod posting;
#[cfg(rdma_core_headers)]
mod receiving;
#[cfg(rdma_core_headers)]
mod whole;
