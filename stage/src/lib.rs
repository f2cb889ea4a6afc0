//! What the demo and the benchmarks stand on: two connected ends, memory that is checked, kernels that are launched, the
//! PTX for a GPU, latency and bandwidth, and lines on a terminal.

pub mod bandwidth;
pub mod error;
pub mod latency;
pub mod launch;
pub mod memory;
pub mod place;
pub mod ptx;
pub mod random;
pub mod screen;
pub mod setup;
pub mod statistics;

pub use error::Error;
