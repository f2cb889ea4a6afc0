//! What we know about compiler and assembler, and functions that hide a value from them.
//!
//! # Which GPUs
//!
//! - From sm_90 on, a build needs PTX 8.6 (`-Ctarget-feature=+ptx86`). Only there is a release fence that leaves the
//!   SM's L1 cache alone.
//! - Older GPUs (sm_70 or later, PTX 8.2) have only the fence that both acquires and releases. ptxas 13.0 assembles a
//!   one-sided fence for such a GPU into illegal instructions, without a message. ptxas 13.5 refuses it.
//!
//! # The compiler
//!
//! - **Meetings are intrinsics.** Barriers, votes and shuffles are LLVM's intrinsics, because only they are marked
//!   convergent. The compiler may move inline assembly into a branch, where a part of the lanes would meet alone.
//! - **A known predicate.** The compiler makes no copy of a convergent call for the threads of a branch. So all threads
//!   that come to [`is_known`] and get `true` bring the same predicate, and need not meet to agree on it.
//! - **Narrow comparisons.** The compiler compares 32 bits that it knows to be a part of 64 bits as 64 bits, in two
//!   steps. A value from [`narrow`] is compared in one.
//! - **A lane's number is assembly**, and no `pure` one. Where the compiler knows that two readings give the same, as it
//!   does of LLVM's intrinsic, it makes copies of code for lanes that lead and lanes that do not: a post then takes up to
//!   22 registers more.
//! - **Range checks.** The compiler does not know the range of what comes from assembly. A lane's number is masked with
//!   31, and checks of an index fold away.
//! - **No `pure` assembly.** Rust-CUDA's compiler gives it an attribute that LLVM refuses.
//! - **A shared array is never inlined.** Its assembly declares the memory, so each inlined copy would declare an array
//!   of its own. [`shared_array!`](crate::shared_array) puts a function around it.
//! - **No common closure.** A closure that two calls share is not inlined, and what it captures then lies in local
//!   memory.
//!
//! # The assembler
//!
//! - **Values are computed again.** The parameters of a kernel lie in constant memory. Whatever follows from them, the
//!   assembler computes again at each use. [`thread::kept`](crate::thread::kept) mixes a value with the top bit of a
//!   clock. This bit is 0, but the assembler does not know so, and keeps the result in a register.
//! - **Uniform additions.** If the assembler knows that all lanes add the same value to a word, it makes one addition of
//!   them, behind a vote and ahead of two shuffles. A lone thread then takes 60 cycles more. `fetch_add_relaxed64` hides
//!   the value, so that each lane adds by itself.
//! - **Masks are constants.** If a mask is no constant, the assembler asks all lanes before each meeting, which takes
//!   longer than the meeting. So a meeting of the whole warp names all 32 lanes. Lanes that the warp has not are no
//!   threads, and nobody waits for them (PTX ISA, `vote.sync`, `shfl.sync`; CUDA C++ programming guide, `__syncwarp`).
//! - **Predicates for jumps.** If a predicate is known before a loop, the assembler switches instructions off in place of
//!   a jump, and those cost time, too. A predicate from [`narrow`] is asked again, and jumps.
//! - **Few predicates.** There are fewer predicates than blocks that a copy has under way. So the copy compares for its
//!   loads, and again for its stores.

#[cfg(target_arch = "nvptx64")]
use crate::arch;

/// The value, of which a GPU's compiler knows nothing but that it has 32 bits.
#[inline(always)]
pub fn narrow(value: u32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    return arch::narrow(value);
    #[cfg(not(target_arch = "nvptx64"))]
    value
}

/// Whether a GPU's compiler knows the predicate: `true` only where all threads that come here bring the same one. On a
/// CPU `false`.
#[inline(always)]
pub fn is_known(predicate: bool) -> bool {
    #[cfg(target_arch = "nvptx64")]
    return arch::is_known(predicate);
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let _ = predicate;
        false
    }
}
