//! The kernels on CPU grids.

#[path = "../../../../kernels/tests/all/guarded.rs"]
mod guarded;
mod outside;
