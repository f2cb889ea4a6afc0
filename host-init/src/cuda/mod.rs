//! NVIDIA GPUs: kernels in PTX, memory that they reach, and a watch over both.
//!
//! The driver's library is loaded when the first [`Gpu`] is opened, so that every program builds and starts
//! without it; what is missing is an error in one line.
//!
//! Feature `cust` takes and gives what a program of [cust](https://docs.rs/cust/0.3.2)'s has open:
//! `Gpu::from_cust` its context, `Module::from_cust` its kernels, `Module::start_on` and `Module::launched_on` its
//! streams, `Buffer::from_cust` its buffers; `Gpu::cust_context`, `Gpu::cust_stream`, `Module::cust`,
//! `Buffer::into_cust` and `Buffer::device_pointer` go the other way. The example `cust` shows all of it. Such a
//! program links with the driver's library, as cust does, and does not start without it.
//!
//! ```no_run
//! use warpbell_host_init::cuda::Ptx;
//! use warpbell_host_init::{Gpu, Kernels};
//!
//! let text = std::fs::read_to_string("kernels.ptx").expect("PTX");
//! // SAFETY: it was compiled from the kernels of this program.
//! let ptx = unsafe { Ptx::from_text(&text)? };
//! let kernels = Kernels::load(Gpu::open(0)?, &[ptx])?;
//! # Ok::<(), warpbell_host_init::Error>(())
//! ```

mod built;
#[cfg(feature = "mlx5")]
mod card;
#[cfg(feature = "cust")]
mod cust;
mod driver;
mod error;
mod gpu;
mod graph;
mod in_order;
mod l2;
mod module;
mod order;
mod peer;
mod pool;
mod run;
mod running;
mod sys;
mod under_way;

pub use built::Built;
#[cfg(feature = "mlx5")]
pub(crate) use card::MappedRegister;
#[cfg(feature = "cust")]
pub(crate) use cust::Foreign;
#[cfg(feature = "cust")]
pub use cust::{CustMemory, Parameters};
pub use error::GpuError;
pub use gpu::Gpu;
pub(crate) use gpu::Kind;
pub use graph::DeviceRuntime;
pub use module::{ComputeCapability, Module, Ptx};
pub use order::InboundOrder;
pub use running::Running;

pub use crate::launch::Watch;
