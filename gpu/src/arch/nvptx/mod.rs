//! A GPU: PTX instructions of exactly the wanted order and scope.
//!
//! An address of global memory is the same number in the generic address space and in the global one (PTX ISA, "Generic
//! Addressing"), so that instructions that name the global space take a pointer as it is.

pub mod address;
mod blocks;
mod clock;
mod fences;
mod in_any_memory;
mod in_block;
mod meeting;
mod scratch;
mod tuned;
mod words;

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
