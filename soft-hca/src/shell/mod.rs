//! What a software HCA needs on a host: its tables, a clock, a thread, and the
//! wires to other HCAs, inside the process, between processes and between machines.
//!
//! # Wires
//!
//! | to | made by | payload | packet | when the peer is gone |
//! |---|---|---|---|---|
//! | the HCA itself | always there | lent | 64 KiB | |
//! | an HCA of this process | [`SoftHca::link`] | lent | 64 KiB | packets are lost |
//! | an HCA of another process | [`offer`], [`accept`], [`SoftHca::attach`]; [`Peers`] by the other's address | copied | 8 KiB | packets are lost |
//! | an HCA of any machine | [`SoftHca::listen`], [`SoftHca::reach`] ([`roce`]) | copied | 256 bytes to 4 KiB | packets are lost |
//!
//! A lent payload is not copied until the receiving engine copies it to its
//! destination. When a queue pair dies or memory is deregistered, payloads under
//! way are taken back: packets not yet looked at are dropped, and the call waits
//! for one that a peer has in hand, at most for one step of that peer. So memory
//! can be freed as soon as its deregistration returns, and work requests' memory
//! as soon as they have completed, whatever is under way.
//!
//! A packet that is lost, for whatever reason, is noticed by the sender's
//! acknowledgement timer: a peer that is gone ends in "transport retry counter
//! exceeded" after `retry_count` repetitions.
//!
//! Between processes the packets lie in a sealed piece of shared memory, with a
//! versioned header. Nothing that the other process writes there is trusted: a
//! counter, a length or an address that cannot be cuts the wire.
//!
//! Between machines the packets are those of RoCE v2, in UDP datagrams. What is no such packet, or has a wrong CRC or
//! partition key, is counted and dropped.
//!
//! # Faults on purpose
//!
//! [`HcaOptions::faults`] loses, delays and doubles packets;
//! [`HcaOptions::late_stores`] has payloads show late and in any order;
//! [`SoftHca::kill`] is a loss of power; the engine's commands
//! [`fail_send`](crate::engine::Engine::fail_send) and
//! [`overrun_completion_queue`](crate::engine::Engine::overrun_completion_queue)
//! are reached through [`SoftHca::command`].
//!
//! # A watch
//!
//! [`HcaOptions::watch`] tells of requests that a NIC, or the memory behind it, may be slow with.
//!
//! # A trace
//!
//! [`HcaOptions::trace`] keeps doorbells, WQEs read, packets and CQEs, with time stamps.

mod bell;
mod driver;
mod hca;
mod links;
mod local_link;
mod memory;
mod peers;
mod ring;
pub mod roce;
mod segment;
mod shared;
mod shared_link;
mod stream;
mod trace;
mod watch;
mod wire;

pub use crate::engine::gid;
pub use driver::{Driver, STOP_TIMEOUT};
pub use hca::{Events, HcaError, HcaOptions, HostEngine, SoftHca};
pub use memory::{HostMemory, LateStores};
pub use peers::Peers;
#[cfg(fuzzing)]
pub use peers::{Wish, understand};
pub use roce::{RoceCounters, RoceError, RoceOptions};
pub use segment::SegmentError;
pub use shared_link::{SharedLink, accept, offer};
pub use trace::{HcaEvents, HcaTrace};
pub use watch::{Advice, RequestWatch, WatchLimits};
pub use wire::{Faults, HostWire};
