//! Start-up: from nothing to the handle that a kernel receives.
//!
//! A [`Node`] says where kernels run and which NIC they use: CPU threads with a NIC of software, or a GPU with a card.
//! It opens the NIC, runs kernels, and gives memory that host and kernels share. In a [`ProtectionDomain`] memory is
//! registered and queue pairs are made; two queue pairs are connected with [`ProtectionDomain::connected`] inside one
//! process, through a [`Peer`] between two, or in a [`World`] among the ranks of a job. After that the host is out of
//! the way: the kernel works with the [`SendQueueHandle`](warpbell::SendQueueHandle) and
//! [`ReceiveQueueHandle`](warpbell::ReceiveQueueHandle) that the queue pair gives. [`Node`] has an example of all of it.
//!
//! # Modules
//!
//! | module | what it has |
//! |---|---|
//! | [`peer`] | connections between two processes |
//! | [`world`] | connections among the processes of a job, on one machine or several |
//! | [`choice`] | what kernels that repeat choose |
//! | [`cores`] | threads that stay on a core |
//! | [`state`] | what a queue pair and its other end say of themselves |
//! | [`live`] | the queues of another process, for tools |
//! | [`queue_pair`] | what a queue pair waits for, and how posts are best cut |
//! | [`cuda`] | GPUs: modules, launches, graphs, a watch over kernels |
//! | [`mlx5`] | how a card is opened, and what it counts and reports |
//! | [`soft`] | how a NIC of software is opened |
//! | [`trace`] | what queues and NICs did, and when |
//! | [`args`] | what a program gives [`NodeArgs`] |
//!
//! # Features
//!
//! | feature | what it compiles |
//! |---|---|
//! | `soft` | NICs of software |
//! | `mlx5` | mlx5 cards, through libmlx5, which is loaded at run time |
//! | `cuda` | GPUs, through the driver's library, which is loaded at run time |
//! | `ranks` | [`World`]: the processes of a job, started by mpirun, srun, torchrun or `warpbell-launch` |
//! | `clap` | [`NodeArgs`]: the options of a command line that choose a node |
//! | `perfetto` | `trace::Recording::write_perfetto`: traces as files that Perfetto shows |
//! | `cust` | contexts, streams, modules and buffers of the crate cust |
//!
//! The first three are on by default.
//!
//! # After an error
//!
//! A work request that fails takes its queue pair to [`State::Error`]: all later
//! ones are flushed. [`QueuePair::first_error`] says what a kernel saw first,
//! [`QueuePair::nic_error`] what the device did, also at an end that no completion
//! tells. To use
//! the queue pair again, call [`QueuePair::reset`] at both ends and connect them
//! anew; the borrow checker sees to it that no kernel still holds a handle.
//!
#![cfg_attr(
    not(feature = "clap"),
    doc = "[`args`]: #features\n[`NodeArgs`]: #features"
)]
#![cfg_attr(
    not(feature = "ranks"),
    doc = "[`world`]: #features\n[`World`]: #features"
)]
#![cfg_attr(
    not(feature = "cuda"),
    allow(
        unreachable_code,
        unused_variables,
        clippy::drop_non_drop,
        reason = "what is done with a GPU needs one"
    )
)]
#![cfg_attr(
    not(all(feature = "soft", feature = "cuda", feature = "mlx5")),
    allow(dead_code, reason = "what only the features use that are off")
)]

#[cfg(not(any(feature = "soft", feature = "mlx5")))]
compile_error!("choose a NIC: feature `soft` or `mlx5`, or both");

#[cfg(feature = "clap")]
pub mod args;
#[cfg(test)]
#[macro_use]
mod assert_matches;
mod batching;
mod buffer;
pub mod choice;
mod completion_queue;
mod config;
pub mod cores;
#[cfg(feature = "cuda")]
pub mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
mod cuda;
mod device;
mod domain;
mod error;
mod frame;
#[cfg(fuzzing)]
pub mod fuzzing;
mod launch;
pub mod live;
mod memory;
#[cfg(feature = "mlx5")]
pub mod mlx5;
mod node;
mod one_path;
mod outstanding;
pub mod peer;
mod persisting;
mod placement;
mod queue_memory;
pub mod queue_pair;
mod send_ring;
mod shared;
mod shared_bytes;
#[cfg(feature = "soft")]
pub mod soft;
#[cfg(feature = "soft")]
mod soft_gpu;
pub mod state;
mod stop;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod trace;
#[cfg(feature = "ranks")]
pub mod world;

#[cfg(feature = "clap")]
pub use args::NodeArgs;
pub use buffer::Buffer;
pub use completion_queue::CompletionQueue;
pub use config::{Completions, QueuePairConfig, Timers};
pub use cuda::{Gpu, GpuError};
pub use device::{Device, Limits, Nic};
pub use domain::ProtectionDomain;
pub use error::Error;
pub use launch::Launch;
pub use memory::{Access, MemoryRegion, RemoteMemory};
pub use node::{Kernels, Node};
pub use peer::Peer;
pub use persisting::PersistingWindow;
pub use placement::Placement;
pub use queue_pair::{QueuePair, connect};
pub use shared::Shared;
pub use state::State;
pub use stop::StopWord;
pub use warpbell::Entry;
pub use warpbell_cpu_grid::Grid;
#[cfg(feature = "ranks")]
pub use world::World;
