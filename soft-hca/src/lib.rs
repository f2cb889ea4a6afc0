//! A software mlx5 host channel adapter.
//!
//! [`engine`] is the adapter itself: it takes the producer index from the doorbell record, walks
//! the send queue, checks every WQE, moves the bytes and writes completions. It is `no_std`, takes
//! memory, time and table storage from outside, and advances only when [`engine::Engine::step`] is
//! called, so that a thread, a test or a block of a GPU can drive it.
//!
//! [`resident`] is what a kernel needs to run it on a GPU: arguments, tables, and a mailbox through
//! which the host gives commands.
//!
//! [`shell`] (feature `std`, on by default) makes it a device on a host: [`shell::SoftHca`] with
//! tables, a clock and wires to other HCAs, and [`shell::Driver`], a thread that drives them.
#![no_std]

#[cfg(feature = "std")]
extern crate std;

pub mod engine;
pub mod resident;
#[cfg(feature = "std")]
pub mod shell;
