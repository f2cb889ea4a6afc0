//! Ranks that fail, and those that come back.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{World, WorldError};
use crate::Error;

impl World {
    /// The ranks that take part, this one included, in order. At first all.
    pub fn ranks(&self) -> impl Iterator<Item = u32> + use<> {
        self.bootstrap.ranks().into_iter()
    }

    /// Whether the next step would fail, because a rank has failed or another one shrinks. Does not wait: a program can look
    /// while its kernels run.
    ///
    /// # Errors
    /// [`Error::World`], which names the rank.
    pub fn check(&mut self) -> Result<(), Error> {
        Ok(self.bootstrap.check().map_err(WorldError::from)?)
    }

    /// The ranks that have failed, as far as this rank knows, and those that do not take part. Does not wait.
    pub fn failed(&mut self) -> BTreeSet<u32> {
        self.bootstrap.failed()
    }

    /// Goes on with the ranks that are left: those that call this within `timeout` after the first one. Returns the ranks
    /// that it leaves out. Steps fail no more for their sake, and wait for them no more.
    ///
    /// Queue pairs between ranks that are left stay as they are. Drop those to ranks that are left out before you trust the
    /// memory that they grant: such a rank may only have been late, and may still write.
    ///
    /// A rank that has no error to begin with may call this, too: the current or next step of the others ends in an error,
    /// so that they call it as well. If all do in time, nobody is left out.
    ///
    /// # Errors
    /// [`Error::World`] if rank 0 is gone or late: it serves all others, and the job ends. The same on a rank that the
    /// others have left out.
    pub fn shrink(&mut self, timeout: Duration) -> Result<BTreeSet<u32>, Error> {
        let before: BTreeSet<u32> = self.ranks().collect();
        let shrunk = self.bootstrap.shrink(timeout);
        shrunk.map_err(WorldError::from)?;
        let after: BTreeSet<u32> = self.ranks().collect();
        self.links.peers.retain(|rank, _| after.contains(rank));
        Ok(&before - &after)
    }

    /// Takes a new process in, which the launcher, or whoever, has started with the number of a rank that is left out. All
    /// ranks that take part call this; the new process waits in [`World::from_env`] meanwhile.
    ///
    /// If several ranks are left out, all take them in one after the other, in the order of their numbers. A new process
    /// does the same for those behind it, which [`failed`](Self::failed) names, before it makes other calls.
    ///
    /// The new process has a NIC, memory and queue pairs of its own. Nobody has a queue pair with it until all call
    /// [`connect`](Self::connect).
    ///
    /// # Errors
    /// [`RanksError::NotBack`](super::ranks::RanksError::NotBack) on all ranks if it does not come within `timeout`: they
    /// go on without it, and may try again. Otherwise as [`World::from_env`].
    pub fn take_in(&mut self, rank: u32, timeout: Duration) -> Result<(), Error> {
        let taken_in = self.bootstrap.take_in(rank, timeout);
        taken_in.map_err(WorldError::from)?;
        let renewed = self.links.renew(&mut *self.bootstrap, self.timeout);
        self.checked(renewed)
    }

    /// Whether this process came in the place of a rank that failed, and was taken in.
    pub fn has_returned(&self) -> bool {
        self.bootstrap.has_returned()
    }
}
