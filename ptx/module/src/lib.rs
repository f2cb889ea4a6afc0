//! The kernels as one PTX module: a library that exports them all and tells the host of a panic.
#![no_std]

extern crate warpbell_kernels as _;
extern crate warpbell_paper_kernels as _;

warpbell::panic_handler!();
