//! How long a call may take.

use warpbell::Deadline;

/// A time-out in milliseconds, [`GASPI_BLOCK`] or [`GASPI_TEST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeout(u64);

/// Waits until the call is done. Nothing here waits for ever: after the time that the host set for this
/// (`GaspiConfig::block_limit`) the call gives up with [`Error::Timeout`](super::Error::Timeout), too.
pub const GASPI_BLOCK: Timeout = Timeout(u64::MAX);

/// Does what can be done at once.
pub const GASPI_TEST: Timeout = Timeout(0);

impl Timeout {
    /// So many milliseconds.
    pub const fn ms(milliseconds: u32) -> Self {
        Self(milliseconds as u64)
    }

    /// The same as a deadline, where blocking ends after `block_ms`.
    #[inline(always)]
    pub(super) fn deadline(self, block_ms: u32) -> Deadline {
        match self {
            GASPI_TEST => Deadline::PASSED,
            GASPI_BLOCK => Deadline::after_ms(block_ms as u64),
            Self(milliseconds) => Deadline::after_ms(milliseconds),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn test_looks_once_and_block_ends_when_the_host_says() {
        assert_eq!(GASPI_TEST.deadline(7), Deadline::PASSED);
        assert_eq!(GASPI_BLOCK.deadline(7), Deadline::after_ms(7));
        assert_eq!(Timeout::ms(10).deadline(7), Deadline::after_ms(10));
        let longest = Timeout::ms(u32::MAX);
        assert_ne!(longest, GASPI_BLOCK);
        assert_eq!(longest.deadline(7), Deadline::after_ms(u32::MAX.into()));
        assert_eq!(Timeout::ms(0), GASPI_TEST);
    }
}
