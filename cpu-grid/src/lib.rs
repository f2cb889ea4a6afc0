//! Runs a kernel's grid on a CPU.
//!
//! A kernel written with `warpbell` finds its place and meets the other threads through
//! [`warpbell_gpu::thread`], [`warpbell_gpu::warp`] and [`warpbell_gpu::block`]. On a GPU these are instructions;
//! here they are functions of a grid whose warps are threads of the operating system and whose lanes are
//! coroutines of their warp's thread. They mean the same, so that the same source runs in both worlds.
//!
//! ```
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use warpbell_gpu::{block, thread, warp};
//! use warpbell_cpu_grid::{Grid, Options, launch};
//!
//! let odd = AtomicU32::new(0);
//! let dim = Grid { blocks: 2, threads_per_block: 100 };
//! launch(dim, Options::default(), || {
//!     let (_rank, count) = block::rank_and_count(thread::index_1d() % 2 == 1);
//!     if block::thread_index() == 0 {
//!         odd.fetch_add(count, Ordering::Relaxed);
//!     }
//!     warp::sync();
//! })?;
//! assert_eq!(odd.into_inner(), 100);
//! # Ok::<(), warpbell_cpu_grid::LaunchError>(())
//! ```
//!
//! # What a GPU would only hang on
//!
//! | in the kernel | here |
//! |---|---|
//! | lanes of a mask come to different operations, or one has exited | [`LaunchError::Diverged`], with each lane and where it waits |
//! | threads of a block come to different operations | [`LaunchError::Diverged`] |
//! | a panic | [`LaunchError::Panicked`], with block, warp, lane and message |
//! | a wait for something that never comes | [`LaunchError::TimedOut`], with the lanes that wait |
//!
//! A lane that needs more than its stack ends the process, after a line with its block, warp and lane.
//!
//! # Interleavings
//!
//! A lane runs until it meets others or takes a turn of a waiting loop ([`warpbell_gpu::Wait`], or
//! [`warpbell_gpu::thread::nanosleep`]); then [`LaneOrder`] says which lane of the warp is next. Within a warp
//! the order repeats with its seed. Between warps the operating system decides. When all lanes of a warp
//! only wait, the thread gives its core up, and sleeps where the wait is long, so that a NIC in software
//! on the same core gets on.
//!
//! A waiting loop that takes no such turn keeps its core, and the other lanes of its warp wait for it: on
//! a GPU they would run. It is also the one thing that a failed launch cannot stop, unless it reads the
//! clock: [`launch`] says what that means.
//!
//! # Limits
//!
//! One dimension; up to [`MAX_WARPS`] warps at once, all blocks running; 256 KiB of stack for each lane.
//! A kernel cannot launch a grid. Outside of a launch, after the first one, a thread is a grid of one
//! thread, and its clock is the real one.

mod block;
mod error;
mod lane;
mod launch;
mod order;
mod overflow;
mod shared;
mod stacks;
mod warp;

pub use error::{Doing, LaneReport, LaunchError};
pub use launch::{Grid, MAX_WARPS, Options, launch};
pub use order::LaneOrder;
