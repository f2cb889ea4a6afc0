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
#![cfg_attr(
    target_arch = "nvptx64",
    feature(asm_experimental_arch, link_llvm_intrinsics, stdarch_nvptx)
)]
#![cfg_attr(
    target_arch = "nvptx64",
    allow(
        internal_features,
        reason = "only LLVM's intrinsics for barriers are convergent"
    )
)]

pub mod active;
mod arch;
pub mod block;
#[cfg(not(target_arch = "nvptx64"))]
pub mod cpu;
mod deadline;
#[cfg(not(target_arch = "nvptx64"))]
mod entry;
mod error;
pub mod gaspi;
mod handle;
pub mod inbound;
pub mod panic;
pub mod processor;
pub mod proxy;
mod queue;
pub mod shared;
mod signal;
mod state;
mod stop;
pub mod thread;
mod together;
pub mod trigger;
pub mod warp;

pub use arch::{Block as RingBlock, Segment as RingSegment, Word32, Word64};
#[cfg(loom)]
pub use arch::{LeftOut, leave_out};
pub use deadline::{Deadline, Wait};
#[cfg(not(target_arch = "nvptx64"))]
pub use entry::{Entry, Stem, Symbol};
pub use error::{Cause, OpenError, PostError, QueueError, WaitError};
pub use handle::{
    ABI_VERSION, CompletionKind, CompletionParts, CompletionSlot, DoorbellPage, FenceReach,
    MAX_DEPTH, ReceiveParts, ReceiveQueueHandle, SendDoorbell, SendParts, SendQueueHandle,
};
pub use mlx5_wqe as wqe;
pub use processor::Processor;
pub use queue::{
    Batch, Block, BlockShared, Doorbell, EarlyAndAfter, Exclusive, GpuShared, Now, Ready,
    ReceiveQueue, Received, Ring, Scope, SendQueue, Sharing, Thread, Ticket, Warp,
};
pub use signal::Signal;
pub use state::{Progress, QueueState};
pub use stop::Stop;
pub use warpbell_macros::kernel;
