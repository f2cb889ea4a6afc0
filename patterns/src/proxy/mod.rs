//! A network processor between kernels and their NIC, for kernels that may not ring its doorbell.
//!
//! As in ComP-Net (LeBeane et al., PACT 2018), kernels hand work requests to a producer/consumer queue, and a
//! network processor, a thread of a CPU here, takes them out and gives them to the NIC. That queue has the form of a
//! send queue: a ring of whole WQEs, small payloads inline in them; a doorbell, which is a word of memory; a CQE,
//! which the network processor writes. So kernels use it through [`SendQueueHandle`](warpbell::SendQueueHandle) as they
//! use a queue of the NIC's own: with the same calls, and with the same instructions. The host chooses by the handle
//! that it gives.
//!
//! | ComP-Net's queue | here |
//! |---|---|
//! | 1a, 1b: the producer compares with its local read index, and updates it while the queue is full | the credit check: `consumed` in a register, the CQE where that is not enough |
//! | 2: fills an entry with metadata, or with a small payload | stores a WQE, perhaps with inline data |
//! | 3, 4: sets the status flag with a release marker, increments the local write index | a release fence, then the doorbell with the new producer index: one store for as many entries as it tells of |
//! | 5: checks the status | polls the CQE |
//! | 1, 2: the network processor polls the next entry with an acquire marker, reads it | [`Drain::turn`] loads the doorbell, with an acquire fence behind it, and copies the WQEs |
//! | 3: performs the operation, sets the status with a release marker | posts it, and hands on the NIC's CQE when it comes |
//! | 4a, 4b: updates global and local read index | the same CQE: its index says which entries are free |
//!
//! Where the NIC can read the kernels' ring, producer indices alone may be handed over: both queues have one ring then.
//!
//! What kernels see of a proxy that ended, or that refused an entry, is an error CQE, and so an error of the queue:
//! [`Fault::of`] names it.

#[cfg(not(target_arch = "nvptx64"))]
mod drain;
#[cfg(feature = "host")]
pub mod host;

#[cfg(not(target_arch = "nvptx64"))]
pub use drain::{Drain, Entry, Turn, Unfit};
pub use warpbell::Fault;
