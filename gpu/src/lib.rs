//! What a GPU thread has: its place in the grid, its warp and its block, shared memory, fences and a clock.
//!
//! A kernel written with these modules runs on a GPU and on a CPU from the same source. On a GPU the functions are
//! instructions. On a CPU they call the [`Hooks`](cpu::Hooks) of a CPU grid, such as `warpbell-cpu-grid`'s.
//!
//! | module | what it has |
//! |---|---|
//! | [`thread`] | place in the grid, barriers, fences, clock; cuda_std's paths |
//! | [`warp`] | votes and shuffles of a warp's lanes; cuda_std's paths |
//! | [`block`] | what all threads of a block do together |
//! | [`shared`] | memory that the threads of a block share |
//! | [`WordExt`] | loads and stores of words that others use at the same time |
//! | [`Deadline`] | waiting loops that end |
//! | [`trace`] | events of queues and NICs, with time stamps |
//! | [`mod@panic`], [`processor`] | what host and kernel exchange through a module's variables |
//! | [`arch`] | words, ring blocks, fences and doorbells, for libraries such as `warpbell`; mostly unsafe |
//! | [`tuned`] | what we know about compiler and assembler |
//! | `cpu` | the hooks of a CPU grid; not on a GPU |
//!
//! `warpbell` re-exports the modules that a kernel uses.
//!
//! ```
//! use warpbell_gpu::{block, thread, warp};
//!
//! // Outside of a grid a thread of the CPU is a grid of one thread.
//! assert_eq!((thread::index(), block::size(), warp::lane_id()), (0, 1, 0));
//! thread::sync_threads();
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

pub mod arch;
pub mod block;
#[cfg(not(target_arch = "nvptx64"))]
pub mod cpu;
mod deadline;
pub mod panic;
pub mod processor;
pub mod shared;
pub mod thread;
pub mod trace;
pub mod tuned;
pub mod warp;
mod word;

pub use deadline::{Deadline, Wait};
pub use processor::Processor;
pub use word::WordExt;
