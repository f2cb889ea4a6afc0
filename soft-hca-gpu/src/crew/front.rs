//! The WQE that a lane expects the next ring to tell of.

use warpbell_soft_hca::engine::loan::Loan;

/// Where the oldest WQE that is not executed lies, and what says that it is posted: kept by who listens for its ring, so
/// that nothing has to be looked up once it comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Front {
    /// Address of its first block.
    pub(super) block: u64,
    /// Address of the queue's half of the doorbell record. That of the block, if the doorbell tells the producer index:
    /// there is always something to load, and nothing to ask before.
    pub(super) record: u64,
    /// The producer index that tells of this WQE alone.
    pub(super) next: u16,
}

impl Front {
    /// That of no loan.
    pub(super) const NOWHERE: Self = Self {
        block: 0,
        record: 0,
        next: 0,
    };

    #[inline(always)]
    pub(super) fn of(loan: &Loan) -> Self {
        let block = loan.ring.block(loan.tail);
        Self {
            block,
            record: loan.record.unwrap_or(block),
            next: loan.tail.wrapping_add(1),
        }
    }
}
