//! Networking from inside a kernel.
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

#[allow(dead_code, reason = "the queues use it")]
pub(crate) mod arch;
pub mod block;
#[cfg(not(target_arch = "nvptx64"))]
pub mod cpu;
pub mod deadline;
pub mod thread;
pub mod warp;
