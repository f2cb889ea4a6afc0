//! The kernels that the examples and the tests launch.
//!
//! Each takes one structure of plain values and writes what became of it where the host reads it, so that
//! the same source runs on a CPU grid and, compiled to PTX, on a GPU.
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, asm_experimental_arch))]

#[cfg(feature = "all")]
pub mod active;
pub mod bandwidth;
#[cfg(feature = "all")]
pub mod bare;
#[cfg(feature = "all")]
pub mod checksum;
#[cfg(feature = "all")]
pub mod collectives;
#[cfg(feature = "all")]
pub mod completions;
pub mod demo;
#[cfg(feature = "all")]
pub mod experts;
#[cfg(feature = "all")]
pub mod gaspi;
#[cfg(feature = "all")]
pub mod inbound;
#[cfg(feature = "all")]
pub mod ladder;
#[cfg(feature = "all")]
pub mod launched;
#[cfg(feature = "all")]
pub mod litmus;
pub mod outcome;
pub mod pingpong;
#[cfg(feature = "all")]
pub mod place;
#[cfg(feature = "all")]
pub mod posting;
#[cfg(feature = "all")]
pub mod proxy;
#[cfg(feature = "all")]
pub mod put;
#[cfg(feature = "all")]
pub mod rate;
#[cfg(feature = "all")]
pub mod send_pingpong;
pub mod sharing;
pub mod soft_nic;
#[cfg(feature = "all")]
pub mod suite;
#[cfg(feature = "all")]
pub mod trigger;

/// The kernel in the README, compiled as it stands there.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct Readme;
