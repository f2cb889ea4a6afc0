//! `mlx5-wqe` and the engine of `soft-hca` against libmlx5 itself: what it posts, what it polls, and how it rings.
//!
//! Each test runs itself again with `warpbell-preload` under it, which shows libibverbs a device: without an engine,
//! but in `whole`.

mod device;
mod engine;
mod polling;
mod posting;
mod receiving;
mod whole;
