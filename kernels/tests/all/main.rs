//! The kernels on CPU grids.

mod checksum;
mod guarded;
mod outside;
