#![doc = include_str!("../README.md")]
#![no_std]

#[cfg(feature = "std")]
extern crate std;

pub mod engine;
pub mod resident;
#[cfg(feature = "std")]
pub mod shell;
