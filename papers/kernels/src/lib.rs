//! The kernels of the papers' applications.
//!
//! Each takes one structure of plain values and writes what became of it where the host reads it, so that the same source
//! runs on a CPU grid and, compiled to PTX, on a GPU. What they share with other kernels is in [`warpbell_kernels`].
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]

pub mod allreduce;
pub mod daq;
pub mod distribution;
pub mod generator;
pub mod jacobi;
pub mod kv;
pub mod matvec;
pub mod meeting;
pub mod network;
pub mod overlap;
pub mod path;
pub mod round_trip;
pub mod serving;
pub mod stencil;
