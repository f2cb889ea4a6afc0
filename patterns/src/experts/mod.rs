//! Expert-parallel exchange: tokens go to experts that lie at other members, and what these make of them comes back.
//!
//! Each member of a team has as many *experts*, and some *tokens*, rows of bf16. A token chooses up to k experts, each with
//! a weight. A round has four halves, which all threads of a grid call:
//!
//! | call | what it does |
//! |---|---|
//! | `dispatch_begin` | gives each choice a slot at its expert, and puts the row there |
//! | `dispatch_finish` | waits until all members have said how many rows came from them |
//! | `combine_begin` | puts the experts' outputs back to the tokens' owners |
//! | `combine_finish` | waits for them, and sums them up with their weights |
//!
//! Between `begin` and `finish` the grid may compute, or end: another grid goes on with the round. `dispatch` and `combine`
//! are both halves. No host takes part, and nothing is a barrier of all members.
//!
//! Kernels whose network a host drives may use the same [`Layout`] and words, and [`quantise`].
//!
//! ```no_run
//! use warpbell::{Block, Deadline, Scope};
//! use warpbell_patterns::experts::{Error, ExpertsHandle};
//!
//! /// A round of 128 tokens, whose experts give back what they get, in bf16.
//! fn layer(handle: ExpertsHandle<'_>) -> Result<u32, Error> {
//!     let limit = Deadline::after_ms(1000);
//!     let mut experts = handle.open()?;
//!     experts.dispatch(128, limit)?;
//!     for local in 0..experts.shape().local {
//!         for source in 0..experts.shape().ranks {
//!             let received = experts.received(local, source);
//!             for slot in 0..received.count() {
//!                 let (Some(from), Some(to)) = (received.row(slot), received.output(slot)) else {
//!                     continue;
//!                 };
//!                 let mut word = u64::from(Block::rank());
//!                 while let Some(value) = from.load(word) {
//!                     to.store(word, value);
//!                     word += u64::from(Block::size());
//!                 }
//!             }
//!         }
//!     }
//!     experts.combine(limit) // the results, and how many members are masked
//! }
//! ```
//!
//! # Two modes
//!
//! The set-up chooses one, and the calls are the same.
//!
//! | mode | opened by | a token travels | its outputs travel back |
//! |---|---|---|---|
//! | [`Mode::LowLatency`] | `open` | to each of its experts | from each of its experts |
//! | [`Mode::Throughput`] | `open_packed` | once to each member that has experts of it | as one sum from each of these members |
//!
//! The throughput mode sends up to 32 tokens in one message. Its sums are rounded to bf16 twice: by the member that has the
//! experts, and by the token's owner.
//!
//! # Nothing is overwritten too early
//!
//! A member begins a round once it has finished what it called of the one before. So a count of round r says that its
//! sender reads nothing of round r - 1 any more.
//!
//! - **Rows and counts that come in** have two places, by the round's parity. A member sends those of round r + 2 only to
//!   members from which it has heard a count of round r + 1: others are masked. They have finished round r.
//! - **Pieces**, as rows travel in the throughput mode, have two places as well, and their sums have one, as outputs.
//! - **Outputs that come back** have one place. An expert's member sends those of round r + 1 only to members from which it
//!   has heard a count of round r + 1, and these have finished round r.
//! - **Rows that are sent** are read by the NIC until their requests are complete, for which `finish` waits.
//! - **A member that was masked because it came late** may still send. No row, count or flag has two writers, and each
//!   count and flag says its round: nothing of a late round is taken for this one's, and no other member's is touched.
//!
//! | file | job |
//! |---|---|
//! | `shape` | the numbers of an exchange |
//! | `layout` | where things lie in a window |
//! | `word` | what words say: choices, counts, places, headers |
//! | `handle` | what the host hands over |
//! | `open` | an exchange that a grid has open |
//! | `route` | which token goes to which slot; values in fp8 |
//! | `send` | what a half of a round sends |
//! | `post` | requests of a warp, up to 32 under one doorbell |
//! | `dispatch` | tokens to their experts |
//! | `received` | what has come to an expert |
//! | `packed` | the steps of the throughput mode |
//! | `way` | the modes as types |
//! | `combine` | outputs back to the tokens' owners, and their sum |
//! | `error` | why a call did not succeed |

mod combine;
mod dispatch;
mod error;
mod handle;
#[cfg(feature = "host")]
pub mod host;
mod layout;
mod open;
mod packed;
mod post;
mod received;
mod route;
mod send;
mod shape;
mod way;
mod word;

pub use combine::{NO_ROW, sum_rows};
pub use error::Error;
pub use handle::ExpertsHandle;
pub use layout::Layout;
pub use open::Experts;
pub use received::Received;
pub use route::quantise;
pub use shape::{Format, Mode, Overflow, Shape};
pub use way::{LowLatency, Throughput, Way};
pub use word::{Choice, Count, Header, Place};
