//! The provider `mlx5` of `host-init`: what it calls of rdma-core, against the headers; and what it does, on the device
//! of `warpbell-preload`, behind unmodified libibverbs and libmlx5.

#[path = "../../../../host-init/src/mlx5/bindings.rs"]
#[allow(dead_code, reason = "the tests do not call all of it")]
mod bindings;
mod commands;
#[path = "../../../../host-init/tests/all/fake/mod.rs"]
#[allow(dead_code, reason = "the tests need the driver alone")]
mod fake;
mod gpu;
mod headers;
mod opened;
mod provider;
mod shared_receive;
