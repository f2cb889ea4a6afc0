//! Where kernels run: on which GPU, or on the CPU.

use core::fmt;

#[cfg(target_arch = "nvptx64")]
use crate::arch::{Reach, load_relaxed64};

/// The variable of a PTX module that says on which GPU it is loaded: 8 bytes, a [`Processor`]'s number, 0 at first.
pub const SYMBOL: &str = "WARPBELL_PROCESSOR";

/// Where the threads run that may open a queue: the atomics by which they share it reach no further.
///
/// `repr(transparent)`, 4 bytes, in a handle and in the variable [`SYMBOL`].
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Processor(u32);

impl Processor {
    /// Not known: goes with every processor. Whoever makes such a handle, or loads such a module, sees to the rest.
    pub const UNKNOWN: Self = Self(0);
    /// The CPU.
    pub const CPU: Self = Self(u32::MAX);

    /// The GPU that the CUDA driver numbers so.
    pub const fn gpu(ordinal: u32) -> Self {
        Self(ordinal.wrapping_add(1))
    }

    /// Its number: 0 for [`UNKNOWN`](Self::UNKNOWN), 2^32 - 1 for the CPU, else a GPU's ordinal and 1.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Where the caller runs.
    #[inline(always)]
    pub fn here() -> Self {
        #[cfg(target_arch = "nvptx64")]
        // SAFETY: a static of a module lies in global memory.
        return Self(unsafe { load_relaxed64(&WARPBELL_PROCESSOR, Reach::Gpu) } as u32);
        #[cfg(not(target_arch = "nvptx64"))]
        Self::CPU
    }

    /// Whether threads of the processor `here` may open what is for this one.
    #[inline(always)]
    pub fn admits(self, here: Self) -> bool {
        (self == here) | (self == Self::UNKNOWN) | (here == Self::UNKNOWN)
    }
}

impl fmt::Display for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::UNKNOWN => f.write_str("an unknown processor"),
            Self::CPU => f.write_str("the CPU"),
            Self(number) => write!(f, "GPU {}", number - 1),
        }
    }
}

impl fmt::Debug for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The host writes it before the first launch.
#[cfg(target_arch = "nvptx64")]
#[unsafe(no_mangle)]
static WARPBELL_PROCESSOR: crate::arch::Word64 = crate::arch::Word64::new(0);
