//! Start-up: from nothing to the handle that a kernel receives.
//!
//! A [`Device`] is opened from a [`Nic`], which says what kind of card it is: one of
//! software, or an mlx5 card. In
//! a [`ProtectionDomain`] memory is registered and queue pairs are made; two
//! queue pairs are connected with [`connect`] inside one process, or through a
//! [`Peer`] between two. After that the host is out of the way: the kernel works
//! with the [`SendQueueHandle`](warpbell::SendQueueHandle) and
//! [`ReceiveQueueHandle`](warpbell::ReceiveQueueHandle) that the queue pair gives.
//!
//! Two devices in one process, without any hardware:
//!
//! ```
//! use warpbell_host_init::{
//!     Access, Buffer, Device, Error, Nic, QueuePairConfig, SoftOptions, connect,
//! };
//!
//! fn main() -> Result<(), Error> {
//!     let ours = Device::open(Nic::Soft(SoftOptions::default()))?;
//!     let theirs = Device::open(Nic::Soft(SoftOptions::default()))?;
//!     let (our_domain, their_domain) = (ours.protection_domain()?, theirs.protection_domain()?);
//!
//!     let source = our_domain.register(Buffer::new(4096)?, Access::LOCAL_WRITE)?;
//!     let target = their_domain
//!         .register(Buffer::new(4096)?, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//!     source.write(0, b"from a kernel")?;
//!
//!     let config = QueuePairConfig { send_depth: 64, ..QueuePairConfig::default() };
//!     let mut our_end = our_domain.queue_pair(&config)?;
//!     let mut their_end = their_domain.queue_pair(&config)?;
//!     connect(&mut our_end, &mut their_end)?;
//!
//!     // For the kernel: where to post, what to send, where to write it.
//!     let queue = our_end.send_queue()?;
//!     let local = source.local(0, 13)?;
//!     let remote = target.remote().at(0, 13)?;
//!     # let _ = (queue, local, remote);
//!     Ok(())
//! }
//! ```
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
pub use launch::{Grid, Launch};
pub use memory::{Access, MemoryRegion, RemoteMemory};
pub use mlx5::{
    CardCounters, CardEvent, CardPort, GidChoice, GidType, Link, Mlx5Error, Mlx5Options,
};
pub use outstanding::{AwaitedReceive, Outstanding};
pub use peer::{Listener, Peer, Users};
pub use placement::Placement;
pub use proxy::{MAX_PROXY_THREADS, Proxied, ProxiedQueue, Proxy, ProxyError};
pub use queue_pair::{QueuePair, connect};
pub use shared::Shared;
pub use soft::{Drive, SoftOptions};
pub use soft_gpu::{ENGINE_THREADS, EngineLanes, EngineOn, SoftGpuOptions};
pub use state::{Endpoint, ErrorPlace, Gid, NicError, State};
pub use stop::StopWord;
pub use trigger::{TriggerError, Triggers};
pub use warpbell::{Entry, SendDoorbell, Symbol};
