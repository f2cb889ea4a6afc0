//! Networking from inside a kernel.
#![no_std]
