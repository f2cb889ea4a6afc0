//! How a kernel knows that data which a peer wrote is there, and may read it.
//!
//! | by | call | relies on |
//! |---|---|---|
//! | a receive's completion, also of a write with immediate | [`ReceiveQueue::receive`](warpbell::ReceiveQueue::receive) | memory shows what the NIC wrote in the NIC's order |
//! | a word that is written behind the data | [`Signal::wait_together`](warpbell::Signal::wait_together), [`notify_waitsome`](crate::gaspi::Gaspi::notify_waitsome) | the same |
//! | a word to which every writer adds behind its data | [`Signal::wait_together`](warpbell::Signal::wait_together) | the same |
//! | one of these, then a READ of one's own memory | [`Flush::flush`] | a READ finds what was written before it |
//! | a sequence number in every piece of the data | [`Cells::wait`] with [`Sequence`] | a piece comes whole |
//! | a checksum over every piece of the data | [`Cells::wait`] with [`Checksum`] | nothing but 2^-32 |
//!
//! Each of these calls orders the reads behind it: what it vouches for may be read afterwards, by all threads of its
//! scope; after [`Signal::wait`](warpbell::Signal::wait) by the one that called it. `docs/inbound.md` says which of them holds
//! where, and what it costs.

mod cells;
mod flush;
#[cfg(feature = "host")]
pub mod host;
mod seal;

pub use cells::{Arrived, Cells};
pub use flush::{Flush, FlushHandle};
pub use seal::{Checksum, Seal, Sequence};
