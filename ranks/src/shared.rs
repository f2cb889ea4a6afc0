//! A rank with several owners.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::{Bootstrap, RanksError};

/// A rank of which each owner makes calls in turn. A call that waits for other ranks keeps the other owners waiting.
impl<B: Bootstrap> Bootstrap for Arc<Mutex<B>> {
    fn rank(&self) -> u32 {
        locked(self).rank()
    }

    fn size(&self) -> u32 {
        locked(self).size()
    }

    fn local_rank(&self) -> u32 {
        locked(self).local_rank()
    }

    fn allgather(&mut self, bytes: &[u8], timeout: Duration) -> Result<Vec<Vec<u8>>, RanksError> {
        locked(self).allgather(bytes, timeout)
    }

    fn barrier(&mut self, timeout: Duration) -> Result<(), RanksError> {
        locked(self).barrier(timeout)
    }

    fn barrier_of(&mut self, ranks: &[u32], timeout: Duration) -> Result<(), RanksError> {
        locked(self).barrier_of(ranks, timeout)
    }

    fn abort(&mut self, reason: &str) {
        locked(self).abort(reason);
    }

    fn ranks(&self) -> Vec<u32> {
        locked(self).ranks()
    }

    fn check(&mut self) -> Result<(), RanksError> {
        locked(self).check()
    }

    fn failed(&mut self) -> BTreeSet<u32> {
        locked(self).failed()
    }

    fn shrink(&mut self, timeout: Duration) -> Result<(), RanksError> {
        locked(self).shrink(timeout)
    }

    fn take_in(&mut self, rank: u32, timeout: Duration) -> Result<(), RanksError> {
        locked(self).take_in(rank, timeout)
    }

    fn has_returned(&self) -> bool {
        locked(self).has_returned()
    }
}

/// A panic of another owner is no reason to refuse: calls themselves end in errors, not in panics.
fn locked<B>(shared: &Mutex<B>) -> MutexGuard<'_, B> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
