//! Start-up: from nothing to the handle that a kernel receives.
//!
//! A [`Node`] says where kernels run and which NIC they use: CPU threads with a NIC of software, or a GPU with a card.
//! It opens the NIC, runs kernels, and gives memory that host and kernels share. In a [`ProtectionDomain`] memory is
//! registered and queue pairs are made; two queue pairs are connected with [`ProtectionDomain::connected`] inside one
//! process, or through a [`Peer`] between two. After that the host is out of the way: the kernel works with the
//! [`SendQueueHandle`](warpbell::SendQueueHandle) and [`ReceiveQueueHandle`](warpbell::ReceiveQueueHandle) that the
//! queue pair gives. [`Node`] has an example of all of it.
//!
//! # After an error
//!
//! A work request that fails takes its queue pair to [`State::Error`]: all later
//! ones are flushed. [`QueuePair::first_error`] says what a kernel saw first,
//! [`QueuePair::nic_error`] what the device did, also at an end that no completion
//! tells. To use
//! the queue pair again, call [`QueuePair::reset`] at both ends and connect them
//! anew; the borrow checker sees to it that no kernel still holds a handle.

mod active;
#[cfg(feature = "clap")]
mod args;
mod batching;
mod buffer;
mod config;
pub mod cuda;
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
mod soft;
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
pub use cuda::{Gpu, GpuError, InboundOrder};
pub use device::{Device, Limits, Nic};
pub use domain::ProtectionDomain;
pub use error::Error;
pub use frame::{ExchangeError, LARGEST_MESSAGE};
pub use gaspi::{Gaspi, GaspiConfig, GaspiError, MAX_RANKS};
pub use inbound::{Flush, Flushing};
pub use launch::Launch;
pub use memory::{Access, MemoryRegion, RemoteMemory};
pub use mlx5::{
    CardCounters, CardEvent, CardPort, GidChoice, GidType, Link, Mlx5Error, Mlx5Options,
};
pub use node::{Kernels, Node};
pub use outstanding::{AwaitedReceive, Outstanding};
pub use peer::{Listener, Peer, Users};
pub use placement::Placement;
pub use proxy::{MAX_PROXY_THREADS, Proxied, ProxiedQueue, Proxy, ProxyError};
pub use queue_pair::{QueuePair, connect};
pub use shared::Shared;
pub use soft::{Drive, SoftOptions};
pub use soft_gpu::{ENGINE_THREADS, EngineLanes, SoftGpuOptions};
pub use state::{Endpoint, ErrorPlace, Gid, NicError, State};
pub use stop::StopWord;
pub use trigger::{TriggerError, Triggers};
pub use warpbell::{Entry, SendDoorbell, Symbol};
pub use warpbell_cpu_grid::Grid;
