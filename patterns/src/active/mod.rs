//! Active messages: a message that starts a task at the target.
//!
//! As XTQ proposes (LeBeane et al. 2016): an initiator puts a payload into a target's buffer and a *task* behind it into
//! a queue there, which names a function by its number, its arguments and where the answer goes; the target's kernel,
//! which runs all the time, sees the task and runs it. Functions and buffers are registered at the target under
//! *coordinated indices*, so that the initiator's kernel names no address of the target's.
//!
//! A *lane* joins one thread, warp or block of the initiator with one of the target. It has a ring of *slots* at the
//! target, a word for the *answer* to each at the initiator, and a queue pair. A slot is free again once its answer is
//! there: that is the completion signal and the back-pressure in one. The host makes the lanes (`warpbell-host-init`,
//! `ActiveMessages`), and hands the kernels at both ends their handles.
//!
//! ```no_run
//! use warpbell_patterns::active::{Error, InitiatorHandle, TargetHandle};
//! use warpbell::{Block, Deadline, Scope, Stop};
//!
//! const ADD: u32 = 0; // registered with two arguments
//!
//! /// A block of the initiator.
//! fn ask(handle: InitiatorHandle<'_>) -> Result<u32, Error> {
//!     let limit = Deadline::after_ms(100);
//!     let mut lane = handle.lane::<Block>(0)?;
//!     let sent = lane.send(ADD, 0, [40, 2], limit)?;
//!     lane.wait(sent, limit)
//! }
//!
//! /// A block of the target.
//! fn serve(handle: TargetHandle<'_>, stop: Stop<'_>) -> Result<(), Error> {
//!     let mut server = handle.serve::<Block>(0)?;
//!     // One of the block looks for all.
//!     while Block::broadcast(stop.requested().into()) == 0 {
//!         match server.next(Deadline::after_ms(1)) {
//!             Ok(task) => {
//!                 let result = match task.function() {
//!                     ADD => Ok((task.argument(0) + task.argument(1)) as u32),
//!                     _ => Err(0), // registered, and forgotten here
//!                 };
//!                 server.answer(task, result, Deadline::after_ms(100))?;
//!             }
//!             Err(Error::Timeout) => {}
//!             Err(error) => return Err(error),
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! | file | job |
//! |---|---|
//! | `slot` | a task's words on the wire |
//! | `words` | what they say; an answer's word |
//! | `table` | functions and buffers of the target |
//! | `handle` | the ABI: what the host hands over, and how it is opened |
//! | `lane` | the initiator's end |
//! | `reply` | what a task answers beside its value |
//! | `server` | the target's end |
//! | `launched` | a task that launches a kernel at the target, in place of one that a kernel takes which runs already |
//! | `error` | what is wrong |

mod error;
mod handle;
#[cfg(feature = "host")]
pub mod host;
mod lane;
mod launched;
mod reply;
mod server;
mod slot;
mod table;
mod words;

pub use error::Error;
pub use handle::{ActiveParts, InitiatorHandle, STATE_WORDS, TargetHandle};
pub use lane::{Lane, Payload, Sent};
pub use launched::{LaunchedTask, RECORD_WORDS};
pub use reply::Reply;
pub use server::{Server, Task};
pub use slot::SLOT_BYTES;
pub use table::{BufferEntry, FunctionEntry};
pub use words::{
    MAX_ARGUMENTS, MAX_BUFFER, MAX_FUNCTION, MAX_PAYLOAD, MAX_RESULT, MAX_SLOTS, answer_bytes,
};

/// Number of a function, from 0.
pub type Function = u32;
/// Number of a buffer of the target, from 0.
pub type Buffer = u32;
