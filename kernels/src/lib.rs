//! The kernels that the examples and the tests launch.
//!
//! Each takes one structure of plain values and writes what became of it where the host reads it, so that
//! the same source runs on a CPU grid and, compiled to PTX, on a GPU.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]

pub mod active;
pub mod bandwidth;
pub mod bare;
pub mod checksum;
pub mod demo;
pub mod gaspi;
pub mod inbound;
pub mod ladder;
pub mod litmus;
pub mod outcome;
pub mod pingpong;
pub mod place;
pub mod posting;
pub mod proxy;
pub mod rate;
pub mod send_pingpong;
pub mod sharing;
pub mod soft_nic;
pub mod suite;
pub mod trigger;

/// The kernel in the README, compiled as it stands there.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
