//! The oracle `c/card.c`: what rdma-core's headers say of what `host-init` calls to drive a card.

use crate::facts::{self, Facts, RawFact};

mod oracle {
    use super::RawFact;

    unsafe extern "C" {
        pub static card_layouts: RawFact;
        pub static card_values: RawFact;
    }
}

/// Sizes and offsets.
pub fn layouts() -> Facts {
    // SAFETY: the oracle's table ends with a row without a name, and its names are literals.
    unsafe { facts::read(&raw const oracle::card_layouts) }
}

/// Enum values and constants.
pub fn values() -> Facts {
    // SAFETY: as above.
    unsafe { facts::read(&raw const oracle::card_values) }
}
