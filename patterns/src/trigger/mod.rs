//! Triggered operations: prepared ahead, sent by a trigger.
//!
//! As GPU-TN proposes (LeBeane et al. 2017): an *operation* is made before it is wanted, and registered under a *tag*
//! with a *threshold*. A kernel whose data is ready triggers the tag, and nothing else; each trigger adds 1 to the tag's
//! *counter*, and once that has reached the threshold the operation goes. Triggers that come before their operation is
//! registered are kept. Each tag has a queue pair of its own, in whose ring the operation's WQEs lie; record and
//! doorbell are held back until then, and are written by whose trigger (or registration) was the last that was missing.
//! An operation may also go once another tag's is done, which the NIC sees to by itself: the host registers it so, and
//! kernels only wait for it.
//!
//! The host makes the tags (module `host`, `Triggers`), registers before a launch, and hands kernels a [`TriggerHandle`].
//! Kernels trigger, and may register, too. In a table of another kind, of which kernels get a [`JointHandle`], the host
//! registers while kernels run. With a [`TriggerHandle`]:
//!
//! ```no_run
//! use warpbell_patterns::trigger::{Error, TriggerHandle};
//! use warpbell::{Block, Deadline, Thread, block, thread};
//!
//! fn kernel(triggers: TriggerHandle<'_>) -> Result<(), Error> {
//!     let triggers = triggers.open()?;
//!     // ... each thread stores its part of the data ...
//!     // Work-item level: an operation for each thread, thresholds of 1.
//!     triggers.trigger::<Thread>(thread::index())?;
//!     // Work-group level: an operation for each block, thresholds of 1. All threads call, one triggers.
//!     triggers.trigger::<Block>(block::index())?;
//!     // Kernel level: one operation, whose threshold is the number of blocks.
//!     triggers.trigger::<Block>(0)?;
//!     // Where there is work to do before, the tag's word may come meanwhile.
//!     let look = triggers.look::<Block>(0)?;
//!     // ... the work ...
//!     look.trigger();
//!     // ... more work; then, where the data is to be overwritten:
//!     triggers.wait::<Block>(0, Deadline::after_ms(100))
//! }
//! ```
//!
//! | file | job |
//! |---|---|
//! | `counter` | counter, threshold and index in one word |
//! | `entry` | a tag: its word, its queue |
//! | `handle` | the ABI: what the host hands over, and how it is opened |
//! | `table` | the calls |
//! | `look` | a tag that was looked at before the work that its trigger ends |
//! | `own` | a tag that one thread, warp or block has to itself |
//! | `queue` | where a tag's queue lies |
//! | `joint` | tags under which the host registers while kernels run |
//! | `error` | what is wrong |

mod counter;
mod entry;
mod error;
mod handle;
#[cfg(feature = "host")]
pub mod host;
mod joint;
mod look;
mod own;
mod queue;
mod table;

pub use counter::{Counter, MAX_THRESHOLD};
pub use entry::TriggerEntry;
pub use error::Error;
pub use handle::TriggerHandle;
#[cfg(not(target_arch = "nvptx64"))]
pub use joint::Ringer;
pub use joint::{JointHandle, JointTag, JointTicket, JointTriggers};
pub use look::Look;
pub use own::OwnTag;
pub use queue::TagQueue;
pub use table::Triggers;

/// Number of a tag, from 0.
pub type Tag = u32;
