#![doc = include_str!("../README.md")]
#![no_std]

#[cfg(any(test, feature = "std"))]
extern crate std;

mod crew;
mod desk;
#[cfg(target_arch = "nvptx64")]
mod gpu_memory;
mod lanes;
mod lender;
mod memory;
pub mod resident;

pub use crew::{Crew, Served};
pub use desk::Desk;
pub use lanes::{Lanes, OneLane};
pub use lender::Lender;
pub use memory::{KernelMemory, LaneMemory, MemoryScope, Small};
