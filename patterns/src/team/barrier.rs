//! All members wait for each other.

use super::link::{Call, shape};
use super::{Error, Extent, Team};
use warpbell::Deadline;

impl<X: Extent> Team<'_, X> {
    /// Waits until all members that are not masked have come here.
    ///
    /// What the extent's threads have put before is at each of them then, if it was put to it: a grid's blocks each say so on
    /// their own channel, behind their own puts. A member that does not come is masked.
    ///
    /// # Errors
    /// [`Error::Late`], [`Error::Disagrees`], [`Error::Failed`], [`Error::Blocks`].
    #[inline(always)]
    pub fn barrier(&mut self, limit: Deadline) -> Result<(), Error> {
        let limit = limit.fixed();
        self.enter(limit)?;
        let shape = shape(Call::Barrier, [X::units().into(), 0, 0]);
        let verdict = self.assemble(shape, true, limit);
        self.settle(verdict, limit)
    }
}
