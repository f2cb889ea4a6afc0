#![doc = include_str!("../README.md")]
#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(asm_experimental_arch))]

#[cfg(feature = "std")]
extern crate std;

pub mod engine;
pub mod resident;
#[cfg(feature = "std")]
pub mod shell;
