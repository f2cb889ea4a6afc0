//! Words, ring blocks, fences and doorbells: the same functions for each world.
//!
//! A library that drives a device from a kernel is made of these, as `warpbell` is. A kernel itself needs none of them.
//!
//! | file | world |
//! |---|---|
//! | `nvptx/` | a GPU: PTX instructions of exactly the wanted order and scope |
//! | `cpu.rs` | a CPU: core atomics |
//! | `loom.rs` | the model checker loom: its atomics |
//!
//! Functions for the lanes of a warp that come to one place together (`active_mask`, `match_any`, `lanes_below`,
//! `sync_warp`, `shuffle`) are there on a GPU only: on a CPU no two lanes run at the same time.
//!
//! So is the module `address`: accesses by address and of any width, for a NIC in software, to which memory is numbers.
//!
//! # The contract of a word
//!
//! On a GPU the instructions name the global address space. So every word and every block must lie in global memory, or
//! in host memory that is mapped there. It must not lie in shared memory or on a thread's stack (local memory): the
//! instruction would access some other memory in its place.
//!
//! On a CPU every word will do.

#[cfg(all(not(loom), not(target_arch = "nvptx64")))]
#[path = "cpu.rs"]
mod world;
#[cfg(loom)]
#[path = "loom.rs"]
mod world;
#[cfg(all(not(loom), target_arch = "nvptx64"))]
#[path = "nvptx/mod.rs"]
mod world;

pub use world::*;

/// How far an ordering or an atomic operation reaches; on a CPU all three are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The threads of one block (`.cta`).
    Block,
    /// The threads of one GPU (`.gpu`).
    Gpu,
    /// The GPU, the CPU and the NIC (`.sys`).
    System,
}

/// Gives a crate safe functions for accesses to words, of the same names as this module's.
///
/// The crate promises the contract of a word for every word that it passes to them, and says beside the call why it
/// holds: for example because each word lies behind a pointer of a structure whose constructor is an `unsafe fn` that
/// asks for it. The functions are the crate's own (`pub(crate)`), so that nobody else can break the promise.
#[macro_export]
macro_rules! word_accesses {
    ($($(#[$doc:meta])* $name:ident($word:ty $(, $argument:ident: $of:ty)*) $(-> $result:ty)?;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name(
            word: &$word $(, $argument: $of)*, reach: $crate::arch::Reach
        ) $(-> $result)? {
            // SAFETY: the word lies in global memory, as the crate promises beside the macro's call.
            unsafe { $crate::arch::$name(word $(, $argument)*, reach) }
        }
    )*};
}
