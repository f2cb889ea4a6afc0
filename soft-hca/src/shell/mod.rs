//! What a software HCA needs on a host: its tables, a clock, a thread, and the
//! wires to other HCAs, inside the process and between processes.

mod driver;
mod hca;
mod links;
mod ring;
mod segment;
mod shared;
mod shared_link;
mod wire;

pub use driver::{Driver, STOP_TIMEOUT};
pub use hca::{HcaError, HcaOptions, HostEngine, SoftHca};
pub use segment::SegmentError;
pub use shared_link::{SharedLink, accept, offer};
pub use wire::{Faults, HostWire};
