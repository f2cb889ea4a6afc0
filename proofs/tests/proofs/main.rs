//! What nobody here wrote, against what is written here: headers, libmlx5, the provider `mlx5` on it, and programs.
//!
//! Tests that need the device run themselves again with `warpbell-preload` under them.

#[cfg(rdma_core_headers)]
mod card;
mod facts;
#[cfg(kernel_headers)]
mod kernel;
#[cfg(rdma_core_headers)]
mod libmlx5;
mod meeting;
#[cfg(rdma_core_headers)]
mod mlx5dv;
#[cfg(kernel_headers)]
mod prm;
#[cfg(any(kernel_headers, rdma_core_headers))]
mod values;

#[cfg(not(rdma_core_headers))]
#[test]
#[ignore = "libibverbs-dev is not installed"]
fn rdma_core_headers() {}

#[cfg(not(kernel_headers))]
#[test]
#[ignore = "linux-headers-*-common is not installed"]
fn kernel_headers() {}
