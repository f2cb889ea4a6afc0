//! Networking from inside a kernel.
//!
//! A kernel opens a queue from the handle that the host gave it, posts work
//! requests, and polls or waits for their completions, with no CPU on the way.
//! The same source runs on a GPU and on a CPU.
//!
//! ```no_run
//! use warpbell::wqe::{Local, Remote, Wqe};
//! use warpbell::{Deadline, Exclusive, SendQueueHandle, Thread, WaitError};
//!
//! fn kernel(queue: SendQueueHandle<'_>, local: Local, remote: Remote) -> Result<(), WaitError> {
//!     let mut queue = queue.open::<Exclusive>().expect("a good handle");
//!     let write = Wqe::write(local, remote).signalled();
//!     let ticket = queue.post(write, Deadline::after_ms(10)).expect("a good request");
//!     queue.wait(ticket, Deadline::after_ms(10))
//! }
//! ```
#![no_std]

mod choice;
#[cfg(not(target_arch = "nvptx64"))]
mod entry;
mod error;
mod fault;
mod handle;
mod parameters;
mod queue;
mod signal;
mod state;
mod stop;
mod words;

pub use choice::Choice;
#[cfg(not(target_arch = "nvptx64"))]
pub use entry::{Entry, Stem, Symbol};
pub use error::{Cause, OpenError, PostError, QueueError, WaitError};
pub use fault::Fault;
pub use handle::{
    ABI_VERSION, CompletionKind, CompletionParts, CompletionQueueHandle, CompletionQueueParts,
    CompletionSlot, DoorbellPage, FenceReach, MAX_DEPTH, ReceiveParts, ReceiveQueueHandle,
    SendDoorbell, SendParts, SendQueueHandle,
};
pub use mlx5_wqe as wqe;
pub use parameters::{Slice, Words};
pub use queue::{
    Batch, Block, BlockShared, CompletionMember, CompletionQueue, Exclusive, GpuShared, Ready,
    ReceiveQueue, Received, Ring, Scope, SendQueue, Sharing, Thread, Ticket, Traced, Warp, held,
};
pub use signal::Signal;
pub use state::{CompletionQueueState, Progress, QueueState, Strays};
pub use stop::Stop;
#[cfg(loom)]
pub use warpbell_gpu::arch::{LeftOut, leave_out};
pub use warpbell_gpu::arch::{RingBlock, RingSegment, Word32, Word64};
#[cfg(not(target_arch = "nvptx64"))]
pub use warpbell_gpu::cpu;
pub use warpbell_gpu::{
    Deadline, Processor, Wait, WordExt, block, panic, panic_handler, processor, shared,
    shared_array, thread, trace, warp,
};
pub use warpbell_macros::kernel;
