//! GASPI from inside a kernel: segments by id, one-sided reads and writes, notifications.
//!
//! The calls are those of the GASPI specification 17.1 (GPI-2 is its implementation), with its terms: a
//! process of the program is a *rank*, its registered memory lies in *segments*, requests go through *queues*,
//! and a *notification* is a number that one rank gives another behind its data. The host makes ranks, queues
//! and segments (`warpbell-host-init`, `Gaspi`) and hands each rank's kernels a [`GaspiHandle`].
//!
//! | GASPI | here |
//! |---|---|
//! | `gaspi_proc_rank`, `gaspi_proc_num` | [`Gaspi::proc_rank`], [`Gaspi::proc_num`] |
//! | `gaspi_segment_ptr`, `gaspi_segment_size` | [`Gaspi::segment_ptr`], [`Gaspi::segment_size`] |
//! | rank and queue of a call | [`Gaspi::queue`] gives a [`Queue`], which is a queue's part for one rank |
//! | `gaspi_write`, `gaspi_read` | [`Queue::write`], [`Queue::read`] |
//! | `gaspi_notify`, `gaspi_write_notify` | [`Queue::notify`], [`Queue::write_notify`] |
//! | `gaspi_wait` | [`Queue::wait`] for one rank, [`Gaspi::wait`] for all |
//! | `gaspi_notify_waitsome` | [`Gaspi::notify_waitsome`] |
//! | `gaspi_notify_reset` | [`Gaspi::notify_reset`] |
//! | `GASPI_BLOCK`, `GASPI_TEST`, milliseconds | [`GASPI_BLOCK`], [`GASPI_TEST`], [`Timeout::ms`] |
//! | `GASPI_SUCCESS`, others | `Ok`, and [`Error`] with its [`Return`] |
//!
//! Each call has a scope: [`Thread`](warpbell::Thread), or all threads of a [`Warp`](warpbell::Warp) or a
//! [`Block`](warpbell::Block) together, at the same point and with the same arguments. They make one request,
//! and all get its result. What they stored before comes before the request; what it brought, or told of, may
//! be read by all of them after.
//!
//! ```no_run
//! use warpbell_patterns::gaspi::{Error, GASPI_BLOCK, GaspiHandle, Notification};
//! use warpbell::{Block, Exclusive};
//!
//! /// Gives 4 KiB of segment 0 to the next rank, and waits for the previous one's.
//! fn ring(handle: GaspiHandle<'_>) -> Result<Notification, Error> {
//!     let gaspi = handle.open()?;
//!     let next = (gaspi.proc_rank() + 1) % gaspi.proc_num();
//!     let mut queue = gaspi.queue::<Exclusive, Block>(0, next)?;
//!     queue.write_notify(0, 0, 0, 4096, 4096, 7, 1, GASPI_BLOCK)?;
//!     let first = gaspi.notify_waitsome::<Block>(0, 7, 1, GASPI_BLOCK)?;
//!     let value = gaspi.notify_reset::<Block>(0, first)?;
//!     queue.wait(GASPI_BLOCK)?; // the 4 KiB at offset 0 may be used again
//!     Ok(value)
//! }
//! ```
//!
//! | file | job |
//! |---|---|
//! | `handle` | the ABI: what the host hands over, and how it is opened |
//! | `segment` | where a rank's segments and notifications lie, and what is refused |
//! | `process` | this rank: its segments, its notifications |
//! | `queue` | requests to one rank |
//! | `error` | return values, and what is wrong |
//! | `timeout` | time-outs |

mod error;
mod handle;
#[cfg(feature = "host")]
pub mod host;
mod process;
mod queue;
mod segment;
mod timeout;

pub use error::{Error, Return};
pub use handle::{GaspiHandle, GaspiParts};
pub use process::Gaspi;
pub use queue::Queue;
pub use segment::{NotificationEntry, SegmentEntry};
pub use timeout::{GASPI_BLOCK, GASPI_TEST, Timeout};

/// Number of a process, from 0.
pub type Rank = u32;
/// Number of a segment, from 0.
pub type SegmentId = u32;
/// Number of a queue, from 0.
pub type QueueId = u32;
/// Bytes from the beginning of a segment.
pub type Offset = u64;
/// Bytes.
pub type Size = u64;
/// Number of a notification within its segment, from 0.
pub type NotificationId = u32;
/// What a notification says; 0 is none.
pub type Notification = u32;
