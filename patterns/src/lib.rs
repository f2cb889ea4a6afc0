//! Patterns of communication, built of the posts and polls of [`warpbell`].
//!
//! Each module has the half that kernels call. With the feature `host` its module `host` has the half that makes the
//! memory, the queues and the handle before a kernel starts.
//!
//! | module | pattern |
//! |---|---|
//! | [`gaspi`] | segments, one-sided reads and writes, notifications, as GASPI 17.1 has them |
//! | [`trigger`] | operations that a host prepares and a kernel's threads trigger |
//! | [`active`] | messages that start tasks in a kernel at the target |
//! | [`proxy`] | a CPU thread that hands kernels' work requests to the NIC |
//! | [`cpnet`] | ComP-Net's calls by their names: a symmetric heap, and puts through a proxy |
//! | [`team`] | collective calls and puts among the members of a team, from a warp, a block or a grid |
//! | [`experts`] | expert-parallel exchange: tokens to their experts, and the weighted sum of what comes back |
//! | [`inbound`] | ways to see that data from the network is complete |
//! | [`number`] | the numbers that collectives add up, and 8-bit floats |
// Its tests collect in vectors.
#![cfg_attr(not(any(feature = "host", test)), no_std)]

#[cfg(all(test, feature = "host"))]
#[macro_use]
mod assert_matches;

pub mod active;
pub mod cpnet;
#[cfg(feature = "host")]
mod error;
pub mod experts;
pub mod gaspi;
pub mod inbound;
pub mod number;
pub mod proxy;
pub mod team;
#[cfg(all(test, feature = "host"))]
mod tests;
mod together;
pub mod trigger;
mod words;

#[cfg(feature = "host")]
pub use error::Error;
