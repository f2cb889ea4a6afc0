//! The one place with assembly, MMIO and fences: the same functions for each world.
//!
//! | file | world |
//! |---|---|
//! | `nvptx.rs` | a GPU: PTX instructions of exactly the wanted order and scope |
//! | `cpu.rs` | a CPU: core atomics |
//! | `loom.rs` | the model checker loom: its atomics |
//!
//! On a GPU every word and block lies in global memory (or host memory mapped there), never in shared or
//! local memory: the instructions name that address space.

#[cfg(all(not(loom), not(target_arch = "nvptx64")))]
#[path = "cpu.rs"]
mod world;
#[cfg(loom)]
#[path = "loom.rs"]
mod world;
#[cfg(all(not(loom), target_arch = "nvptx64"))]
#[path = "nvptx.rs"]
mod world;

pub use world::*;

/// How far an ordering or an atomic operation reaches; on a CPU all three are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The threads of one block (`.cta`).
    Block,
    /// The threads of one GPU (`.gpu`).
    Gpu,
    /// The GPU, the CPU and the NIC (`.sys`).
    System,
}
