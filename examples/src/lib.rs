//! The demo, and what it stands on: two ends, memory that is checked, kernels that are launched, and how all of it is
//! shown. The laboratory (`bench`, `papers`) stands on the same.

pub mod bandwidth;
pub mod demo;
pub mod error;
pub mod interrupt;
pub mod latency;
pub mod launch;
pub mod machine;
pub mod memory;
pub mod place;
pub mod ptx;
pub mod screen;
pub mod setup;
pub mod statistics;

pub use error::Error;
