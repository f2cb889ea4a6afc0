//! NVIDIA GPUs: kernels in PTX, memory that they reach, and a watch over both.
//!
//! The driver's library is loaded when the first [`Gpu`] is opened, so that every program builds and starts
//! without it; what is missing is an error in one line.

mod driver;
mod error;
mod gpu;
mod module;
mod pool;
mod run;

pub use error::GpuError;
pub use gpu::Gpu;
pub(crate) use gpu::Kind;
pub use module::{ComputeCapability, Module, Ptx};
pub use run::{Running, Watch};
