//! Send and receive queues, generic over who shares them and who calls.
//!
//! | file | job |
//! |---|---|
//! | `sharing` | who else uses the queue |
//! | `ledger` | what a kind of sharing does, for the queues alone |
//! | `exclusive`, `shared` | the two ledgers: indices in registers, and in shared words |
//! | `traced` | a ledger around one of them, which records what the queue does |
//! | `openings` | who has a queue open |
//! | `scope` | who calls together: a thread, a warp, a block |
//! | `lanes` | which lanes of a warp post to a shared queue at the same time |
//! | `ring` | index arithmetic and limits, without memory |
//! | `producer` | room, reservation, turn: what send and receive queues have in common |
//! | `doorbell` | the one place with fences, doorbell record and doorbell |
//! | `completion` | reading CQEs, collapsed and ordinary |
//! | `common` | one completion queue for many send queues |
//! | `send`, `batch`, `receive` | the queues that a kernel uses |
//! | `group` | the WQEs that are posted together: whose, whether sound, into the ring |
//! | `segmented` | large READs and WRITEs in segments |
//! | `ready` | a ring that is filled once, whose WQEs are patched |
//! | `held` | WQEs that are stored now and published later, without a view of the queue |

mod batch;
mod common;
pub(crate) mod completion;
mod doorbell;
mod exclusive;
mod group;
pub mod held;
mod lanes;
mod ledger;
mod openings;
mod producer;
mod ready;
mod receive;
mod ring;
mod scope;
mod segmented;
mod send;
mod shared;
mod sharing;
mod traced;

pub use batch::Batch;
pub use common::{CompletionMember, CompletionQueue};
pub use exclusive::Exclusive;
pub use ready::Ready;
pub use receive::{ReceiveQueue, Received};
pub use ring::Ring;
pub use scope::{Block, Scope, Thread, Warp};
pub use send::{SendQueue, Ticket};
pub use sharing::{BlockShared, GpuShared, Sharing};
pub use traced::Traced;
