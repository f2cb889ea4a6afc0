//! The provider `mlx5` of `host-init`: what it calls of rdma-core, against the headers; and what it does, on the device
//! of `warpbell-preload`, behind unmodified libibverbs and libmlx5.

#[cfg(not(rdma_core_headers))]
#[test]
#[ignore = "libibverbs-dev is not installed"]
fn card() {}

#[cfg(rdma_core_headers)]
#[path = "../../host-init/src/mlx5/bindings.rs"]
#[allow(dead_code, reason = "the tests do not call all of it")]
mod bindings;
#[cfg(rdma_core_headers)]
#[path = "card/commands.rs"]
mod commands;
#[cfg(rdma_core_headers)]
#[path = "card/gpu.rs"]
mod gpu;
#[cfg(rdma_core_headers)]
#[path = "card/headers.rs"]
mod headers;
#[cfg(rdma_core_headers)]
#[path = "card/opened.rs"]
mod opened;
#[cfg(rdma_core_headers)]
#[path = "card/provider.rs"]
mod provider;
#[cfg(rdma_core_headers)]
#[path = "card/shared_receive.rs"]
mod shared_receive;
