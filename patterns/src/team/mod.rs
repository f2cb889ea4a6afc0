//! Teams: members of a job whose kernels exchange data by collective calls and by puts, on channels of their own.
//!
//! A team has some of a job's ranks. Each member has a *window*, registered memory of the same size at all members: its
//! first bytes are the callers', the rest is the team's. Calls name bytes by their offset in it. Each member has so many
//! *channels*, each with a queue to each other member: a warp or a block opens one, a grid one for each of its blocks
//! ([`Extent`]).
//!
//! ```no_run
//! use warpbell::{Block, Deadline};
//! use warpbell_patterns::team::{Error, TeamHandle};
//!
//! /// Gives 4 KiB to the next member, once all are here, and waits for those of the one before.
//! fn ring(handle: TeamHandle<'_>) -> Result<(), Error> {
//!     let limit = Deadline::after_ms(1000);
//!     let mut team = handle.open::<Block>(0)?;
//!     team.barrier(limit)?;
//!     let next = (team.rank() + 1) % team.ranks();
//!     let mut peer = team.peer(next)?;
//!     peer.put_signal(0, 4096, 4096, (8192, 1), limit)?;
//!     peer.flush(limit)?; // the first 4 KiB may be overwritten
//!     drop(peer);
//!     let came = team.signal(8192)?.wait_together::<Block>(1, limit);
//!     came.map(drop).map_err(|_| Error::Incomplete)
//! }
//! ```
//!
//! All members call a collective alike:
//!
//! ```no_run
//! use warpbell::Deadline;
//! use warpbell_patterns::team::{Algorithm, Error, Grid, TeamHandle};
//!
//! /// Adds up 256 floats of all members, in place, with other work while they are under way.
//! fn add_up(handle: TeamHandle<'_>) -> Result<(), Error> {
//!     let limit = Deadline::after_ms(1000);
//!     let mut team = handle.open::<Grid>(0)?;
//!     let begun = team.begin_all_reduce::<f32>(Algorithm::Ring, 0, 0, 256, limit)?;
//!     // Work that touches none of them.
//!     begun.finish(limit)
//! }
//! ```
//!
//! A function that posts is inlined on a GPU alone, where a queue must not lie in local memory. On a CPU a call
//! without optimisation would not fit into a lane's stack.
//!
//! | file | job |
//! |---|---|
//! | `handle` | what the host hands over |
//! | `layout` | where things lie in a window |
//! | `extent` | which threads make calls together |
//! | `open` | an open channel, and how each call begins and ends |
//! | `state` | what a member keeps of a channel |
//! | `link` | what a thread posts to another member, and waits for from there |
//! | `peer` | one-sided requests: put, signal, add, get, flush |
//! | `barrier` | all wait for each other |
//! | `exchange` | broadcast, all-gather, all-to-all |
//! | `vary` | all-to-all with a count for each pair of members |
//! | `reduce` | all-reduce and reduce-scatter |
//! | `plan` | which words of a call are whose, and why none is overwritten too early |
//! | `local` | what threads copy and add in their own window |
//! | `error` | why a call did not succeed |

mod barrier;
mod error;
mod exchange;
mod extent;
mod handle;
#[cfg(feature = "host")]
pub mod host;
mod layout;
mod link;
mod local;
mod open;
mod peer;
mod plan;
mod reduce;
mod state;
mod vary;

pub use error::Error;
pub use exchange::Exchanging;
pub use extent::{Extent, Grid};
pub use handle::{TeamHandle, TeamParts};
pub use layout::Layout;
pub use open::Team;
pub use peer::Peer;
pub use plan::Algorithm;
pub use reduce::Reducing;
pub use state::ChannelState;
