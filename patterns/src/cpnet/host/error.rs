//! What is refused when ComP-Net is set up.

/// Why a step of ComP-Net's set-up was refused. Nothing of it has taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CpnetError {
    /// No work-groups or PEs, or too many.
    #[error("{what}: {value}; choose 1 to {limit}")]
    Number {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: usize,
        /// The most.
        limit: usize,
    },
    /// The symmetric heap has no such room.
    #[error("no {bytes} bytes in the symmetric heap, which has {left} left; choose a larger heap")]
    HeapFull {
        /// Bytes asked for.
        bytes: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// An allocation of no bytes.
    #[error("an allocation of the symmetric heap has at least 1 byte")]
    Empty,
}
