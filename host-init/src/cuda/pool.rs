//! Memory in pieces from few large allocations of the driver, which are kept until the process ends: the
//! driver frees memory only while no kernel runs, and a persistent kernel always runs.

use std::collections::{BTreeMap, BTreeSet};

/// The free pieces, by address.
#[derive(Debug, Default)]
pub struct Pool {
    free: BTreeMap<u64, u64>,
    /// Where the driver's allocations begin. Two of them may lie side by side, but the driver refuses to clear or copy
    /// what lies in both.
    allocations: BTreeSet<u64>,
}

impl Pool {
    /// Notes an allocation of the driver that begins here, all of it taken.
    pub fn note(&mut self, start: u64) {
        self.allocations.insert(start);
    }

    /// Takes the first piece that is large enough.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let (&start, &found) = self.free.iter().find(|(_, found)| **found >= bytes)?;
        self.free.remove(&start);
        if found > bytes {
            self.free.insert(start + bytes, found - bytes);
        }
        Some(start)
    }

    /// Adds a piece, new or taken before, and joins it with its neighbours of the same allocation.
    pub fn give(&mut self, mut start: u64, mut bytes: u64) {
        if !self.allocations.contains(&(start + bytes))
            && let Some(behind) = self.free.remove(&(start + bytes))
        {
            bytes += behind;
        }
        if !self.allocations.contains(&start)
            && let Some((&before, &length)) = self.free.range(..start).next_back()
            && before + length == start
        {
            start = before;
            bytes += length;
        }
        self.free.insert(start, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GRANULE: u64 = 4096;

    proptest! {
        /// Pieces lie inside what was given and apart from each other; once all are back, all is one.
        #[test]
        fn pieces_are_apart_and_come_back(
            steps in proptest::collection::vec((1usize..40_000, 0usize..8, any::<bool>()), 1..100),
        ) {
            let (base, whole) = (1 << 20, 64 * GRANULE);
            let mut pool = Pool::default();
            pool.give(base, whole);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (bytes, which, back) in steps {
                if back && !taken.is_empty() {
                    let (start, bytes) = taken.swap_remove(which % taken.len());
                    pool.give(start, bytes);
                    continue;
                }
                let bytes = (bytes as u64).next_multiple_of(GRANULE);
                match pool.take(bytes) {
                    Some(start) => taken.push((start, bytes)),
                    None => prop_assert!(pool.free.values().all(|&free| free < bytes)),
                }
                let mut sorted = taken.clone();
                sorted.sort_unstable();
                let mut end = base;
                for (start, bytes) in sorted {
                    prop_assert!(start >= end && start % GRANULE == 0);
                    end = start + bytes;
                }
                prop_assert!(end <= base + whole);
                let used: u64 = taken.iter().map(|(_, bytes)| bytes).sum();
                prop_assert_eq!(used + pool.free.values().sum::<u64>(), whole);
            }
            for (start, bytes) in taken {
                pool.give(start, bytes);
            }
            prop_assert_eq!(pool.free, BTreeMap::from([(base, whole)]));
        }
    }

    #[test]
    fn no_piece_lies_in_two_allocations() {
        let whole = 4 * GRANULE;
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
            let mut pool = Pool::default();
            let starts = [1, 2, 3].map(|number| number * whole);
            for start in starts {
                pool.note(start);
            }
            for which in order {
                pool.give(starts[which] + GRANULE, whole - GRANULE);
                pool.give(starts[which], GRANULE);
            }
            assert_eq!(pool.free, starts.map(|start| (start, whole)).into());
            assert_eq!(pool.take(whole + GRANULE), None);
        }
    }
}
