//! Start-up: from nothing to the handle that a kernel receives.
//!
//! A [`Node`] says where kernels run and which NIC they use: CPU threads with a NIC of software, or a GPU with a card.
//! It opens the NIC, runs kernels, and gives memory that host and kernels share. In a [`ProtectionDomain`] memory is
//! registered and queue pairs are made; two queue pairs are connected with [`ProtectionDomain::connected`] inside one
//! process, or through a [`Peer`] between two. After that the host is out of the way: the kernel works with the
//! [`SendQueueHandle`](warpbell::SendQueueHandle) and [`ReceiveQueueHandle`](warpbell::ReceiveQueueHandle) that the
//! queue pair gives. [`Node`] has an example of all of it.
//!
//! # Features
//!
//! | feature | what it compiles |
//! |---|---|
//! | `soft` | NICs of software |
//! | `mlx5` | mlx5 cards, through libmlx5, which is loaded at run time |
//! | `cuda` | GPUs, through the driver's library, which is loaded at run time |
//! | `clap` | [`NodeArgs`]: the options of a command line that choose a node |
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

mod active;
#[cfg(feature = "clap")]
mod args;
mod batching;
mod buffer;
mod config;
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
mod gaspi;
mod inbound;
mod launch;
mod memory;
#[cfg(feature = "mlx5")]
mod mlx5;
mod node;
mod one_path;
mod outstanding;
mod peer;
mod placement;
mod proxy;
mod queue_memory;
mod queue_pair;
mod shared;
mod shared_bytes;
#[cfg(feature = "soft")]
mod soft;
#[cfg(feature = "soft")]
mod soft_gpu;
mod state;
mod stop;
#[cfg(test)]
mod tests;
mod trigger;

pub use active::{ActiveConfig, ActiveError, ActiveMessages};
#[cfg(feature = "clap")]
pub use args::{NodeArgs, NodeError, Programs};
pub use batching::Batching;
pub use buffer::{BUFFER_ALIGNMENT, Buffer};
pub use config::{Completions, QueuePairConfig, Timers};
#[cfg(feature = "cuda")]
pub use cuda::InboundOrder;
pub use cuda::{Gpu, GpuError};
pub use device::{Device, Limits, Nic};
pub use domain::ProtectionDomain;
pub use error::Error;
pub use frame::{ExchangeError, LARGEST_MESSAGE};
pub use gaspi::{Gaspi, GaspiConfig, GaspiError, MAX_RANKS};
pub use inbound::{Flush, Flushing};
pub use launch::Launch;
pub use memory::{Access, MemoryRegion, RemoteMemory};
#[cfg(feature = "mlx5")]
pub use mlx5::{CardCounters, CardEvent, GidChoice, Link, Mlx5Error, Mlx5Options};
pub use node::{Kernels, Node};
pub use outstanding::{AwaitedReceive, Outstanding};
pub use peer::{Listener, Peer, Users};
pub use placement::Placement;
pub use proxy::{MAX_PROXY_THREADS, Proxied, ProxiedQueue, Proxy, ProxyError};
pub use queue_pair::{QueuePair, connect};
pub use shared::Shared;
#[cfg(feature = "soft")]
pub use soft::{Drive, SoftOptions};
#[cfg(feature = "soft")]
pub use soft_gpu::{ENGINE_THREADS, EngineLanes, SoftGpuOptions};
pub use state::{CardPort, Endpoint, ErrorPlace, Gid, GidType, NicError, State};
pub use stop::StopWord;
pub use trigger::{TriggerError, Triggers};
pub use warpbell::{Entry, SendDoorbell, Symbol};
pub use warpbell_cpu_grid::Grid;
