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
//! | `error` | why a call did not succeed |

mod barrier;
mod error;
mod extent;
mod handle;
#[cfg(feature = "host")]
pub mod host;
mod layout;
mod link;
mod open;
mod peer;
mod state;

pub use error::Error;
pub use extent::{Extent, Grid};
pub use handle::{TeamHandle, TeamParts};
pub use layout::Layout;
pub use open::Team;
pub use peer::Peer;
pub use state::ChannelState;
