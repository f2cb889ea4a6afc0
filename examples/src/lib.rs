//! What the examples have in common: two ends, memory that is checked, kernels that are launched,
//! measurements, and how all of it is shown.

pub mod active;
pub mod allreduce;
pub mod application;
pub mod bandwidth;
pub mod bare;
pub mod cpu_time;
pub mod daq;
pub mod demo;
pub mod distribution;
pub mod error;
pub mod gaspi;
pub mod generator;
pub mod halo;
pub mod inbound;
pub mod interrupt;
pub mod jacobi;
pub mod kv;
pub mod ladder;
pub mod latency;
pub mod launch;
pub mod machine;
pub mod matvec;
pub mod memory;
pub mod origin;
pub mod overlap;
pub mod place;
pub mod plot;
pub mod proxy;
pub mod ptx;
pub mod report;
pub mod rig;
pub mod screen;
pub mod serving;
pub mod setting;
pub mod setup;
pub mod statistics;
pub mod stencil;
pub mod strangers;
pub mod trigger;

pub use error::Error;
