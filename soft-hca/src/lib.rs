#![doc = include_str!("../README.md")]
#![no_std]

#[cfg(feature = "std")]
extern crate std;

pub mod engine;
#[cfg(feature = "std")]
pub mod shell;
