//! What the examples have in common: two ends, memory that is checked, kernels that are launched,
//! measurements, and how all of it is shown.

pub mod active;
pub mod bandwidth;
pub mod bare;
pub mod cause;
pub mod demo;
pub mod error;
pub mod gaspi;
pub mod inbound;
pub mod interrupt;
pub mod ladder;
pub mod latency;
pub mod launch;
pub mod machine;
pub mod memory;
pub mod origin;
pub mod place;
pub mod plot;
pub mod proxy;
pub mod ptx;
pub mod screen;
pub mod setting;
pub mod setup;
pub mod statistics;
pub mod strangers;
pub mod trigger;

pub use error::Error;
