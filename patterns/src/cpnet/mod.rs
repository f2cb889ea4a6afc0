//! ComP-Net's calls, by their names: a symmetric heap, and puts of each work-group through a queue of its own.
//!
//! The slides of LeBeane's thesis (2018) list a host and a GPU half. Here the functions have the same names, and stand
//! on a [proxy](crate::proxy): each work-group has a queue to each PE, which threads of a CPU serve. A PE is a process
//! of the job, or one of several in the same process. A work-group is a block, whose threads make each call together.
//!
//! | ComP-Net | here |
//! |---|---|
//! | `cpnet_init` | `host::cpnet_init` for a `World` (feature `ranks`); [`host::cpnet_init_all`] for PEs in one process |
//! | `cpnet_shmalloc` | [`host::cpnet_shmalloc`] |
//! | `cpnet_handle` of a launch | [`Cpnet::handle`](host::Cpnet::handle) |
//! | `cpnet_ctx_create`, `cpnet_ctx_destroy` | [`cpnet_ctx_create`], [`cpnet_ctx_destroy`] |
//! | `cpnet_shmem_char_p` | [`cpnet_shmem_char_p`] |
//! | `cpnet_shmem_char_wait_until` | [`cpnet_shmem_char_wait_until`] |
//!
//! The calls differ in three points: they return errors, each one that may wait takes a deadline, and
//! [`cpnet_ctx_destroy`] waits until all puts of the work-group are complete.
//!
//! ```no_run
//! use warpbell::{Deadline, block};
//! use warpbell_patterns::cpnet::*;
//!
//! /// Each work-group pings its counterpart at PE 1, and waits for the pong.
//! fn ping(handle: CpnetHandle<'_>, wg_buffer: Symmetric<'_>) -> Result<(), Error> {
//!     let limit = Deadline::after_ms(5000);
//!     let mut ctx = cpnet_ctx_create(handle)?;
//!     let own = wg_buffer.at(block::index().into())?;
//!     cpnet_shmem_char_p(&mut ctx, own, 1, 1, limit)?;
//!     cpnet_shmem_char_wait_until(own, 1, limit)?;
//!     cpnet_ctx_destroy(ctx, limit)
//! }
//! ```

mod ctx;
mod error;
mod handle;
mod heap;
#[cfg(feature = "host")]
pub mod host;

pub use ctx::{
    CpnetCtx, cpnet_ctx_create, cpnet_ctx_destroy, cpnet_shmem_char_p, cpnet_shmem_char_wait_until,
};
pub use error::Error;
pub use handle::CpnetHandle;
pub use heap::{Symmetric, SymmetricChar};

/// Number of a processing element, from 0: a rank.
pub type Pe = u32;
