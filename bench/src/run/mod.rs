//! What a program of the laboratory stands on: two ends, memory that is checked, kernels that are launched, how results
//! are shown, and how a run ends.

pub mod error;
pub mod interrupt;
pub mod latency;
pub mod launch;
pub mod machine;
pub mod place;
pub mod screen;

pub use error::Error;
pub use warpbell_stage::{Error as StageError, bandwidth, memory, ptx, setup, statistics};
