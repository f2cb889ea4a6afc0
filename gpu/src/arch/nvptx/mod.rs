//! A GPU: PTX instructions of exactly the wanted order and scope.

pub mod address;
mod blocks;
mod clock;
mod fences;
mod in_block;
mod meeting;
mod scratch;
mod tuned;
mod words;

use core::arch::asm;

pub use blocks::*;
pub(crate) use clock::*;
pub use fences::*;
pub use in_block::*;
pub use meeting::*;
pub(crate) use scratch::*;
pub(crate) use tuned::*;
pub use words::*;

/// The same instruction for each reach: `$before` and `$after` stand on both sides of the scope.
macro_rules! by_reach {
    ($reach:expr, $before:expr, $after:expr, $($operand:tt)*) => {
        match $reach {
            Reach::Block => asm!(concat!($before, ".cta", $after), $($operand)*),
            Reach::Gpu => asm!(concat!($before, ".gpu", $after), $($operand)*),
            Reach::System => asm!(concat!($before, ".sys", $after), $($operand)*),
        }
    };
}
use by_reach;

/// The address of a word in the global address space; a register's copy at most.
#[inline(always)]
fn global<T>(word: *const T) -> u64 {
    let address: u64;
    // SAFETY: converts an address and touches no memory.
    unsafe {
        asm!(
            "cvta.to.global.u64 {address}, {word};",
            address = out(reg64) address,
            word = in(reg64) word,
            options(pure, nomem, preserves_flags, nostack),
        );
    }
    address
}
