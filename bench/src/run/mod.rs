//! What a program of the laboratory stands on: two ends, memory that is checked, kernels that are launched, how results
//! are shown, and how a run ends.

pub mod bandwidth;
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
