//! What the benchmarks have in common, among themselves and with the applications of `papers`: series of measurements,
//! their figures, plots and origins. [`run`] has what they run on.
//!
//! The command is `bench`: `cargo run --release -p warpbell-bench -- --help`, or `cargo xtask bench`.

pub mod active;
pub mod bare;
pub mod cause;
pub mod energy;
pub mod error;
pub mod experts;
pub mod filter;
pub mod gaspi;
pub mod host_queue;
pub mod inbound;
pub mod ladder;
pub mod nodes;
pub mod origin;
pub mod parse;
pub mod party;
pub mod plot;
pub mod proxy;
pub mod put;
pub mod run;
pub mod samples;
pub mod setting;
pub mod strangers;
pub mod svg;
pub mod trigger;

pub use error::Error;
