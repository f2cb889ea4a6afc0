//! Index arithmetic against a queue written plainly: 10 million operations over
//! all depths, with the 16-bit index wrapping many times.
#![cfg(not(loom))]

use std::collections::VecDeque;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell::Ring;
use warpbell::wqe::WqeIndex;

/// A posted WQE: first block, blocks, signalled.
type Posted = (u64, u32, bool);

/// Ring, and what a queue and its NIC know.
struct Model {
    ring: Ring,
    reserved: u64,
    consumed: u64,
    under_way: VecDeque<Posted>,
    /// The newest CQE of a collapsed completion queue.
    newest: Option<WqeIndex>,
}

impl Model {
    fn new(log2: u8, start: u64) -> Self {
        Self {
            ring: Ring::new(log2),
            reserved: start,
            consumed: start,
            under_way: VecDeque::new(),
            newest: None,
        }
    }

    /// Posts a group of `count` WQEs of `blocks` blocks, its last one signalled
    /// if `signalled`; polls first where there is no room.
    fn post(
        &mut self,
        count: u32,
        blocks: u32,
        signalled: bool,
        nic: &mut impl FnMut(usize) -> usize,
    ) {
        let total = count * blocks;
        while !self.ring.has_room(self.reserved, self.consumed, total) {
            let stuck = self.consumed;
            // A full queue must always empty: some WQE under way is signalled,
            // and the NIC gets to it sooner or later.
            assert!(
                self.newest
                    .is_some_and(|newest| self.ring.completed(stuck, newest) != stuck)
                    || self.under_way.iter().any(|&(_, _, signalled)| signalled),
                "a full queue of depth {} that nothing will ever empty",
                self.ring.depth()
            );
            let done = nic(self.under_way.len());
            self.complete(done);
            self.poll();
        }
        for rank in 0..count {
            let start = self.reserved + (rank * blocks) as u64;
            let signalled = self.ring.must_signal(start, blocks) || signalled && rank + 1 == count;
            self.under_way.push_back((start, blocks, signalled));
        }
        self.reserved += total as u64;
        // No block of the ring belongs to two WQEs that the NIC may still read.
        let oldest = self.under_way[0].0;
        assert!(self.reserved - oldest <= self.ring.depth() as u64);
    }

    /// The NIC completes the oldest `count` WQEs.
    fn complete(&mut self, count: usize) {
        for (start, _, signalled) in self.under_way.drain(..count) {
            if signalled {
                self.newest = Some(WqeIndex(start as u16));
            }
        }
    }

    fn poll(&mut self) {
        if let Some(newest) = self.newest {
            self.consumed = self.ring.completed(self.consumed, newest);
        }
        // Never more than the truth: what is under way is not yet free.
        let oldest = self
            .under_way
            .front()
            .map_or(self.reserved, |first| first.0);
        assert!(self.consumed <= oldest);
        assert!(self.reserved - self.consumed <= self.ring.depth() as u64);
    }
}

#[test]
fn ten_million_operations() {
    let per_depth = if cfg!(miri) { 40 } else { 10_000_000 / 16 };
    // Depths 1 to 32,768.
    for log2 in (0..=15).step_by(if cfg!(miri) { 5 } else { 1 }) {
        let mut random = SmallRng::seed_from_u64(log2 as u64);
        let mut nic_random = SmallRng::seed_from_u64(100 + log2 as u64);
        let mut nic = |under_way: usize| nic_random.random_range(0..=under_way.min(64));
        let mut model = Model::new(log2, 0);
        let (group, wqe) = (model.ring.group_limit(), model.ring.wqe_limit().min(16));
        for _ in 0..per_depth {
            let blocks = random.random_range(1..=wqe);
            let count = random.random_range(1..=(group / blocks).clamp(1, 32));
            model.post(count, blocks, random.random_bool(0.1), &mut nic);
            if random.random_bool(0.3) {
                let done = nic(model.under_way.len());
                model.complete(done);
                model.poll();
            }
        }
        assert!(model.reserved > 65_536 || cfg!(miri));
    }
}

/// Every position of a WQE against the definition: does it cover a multiple?
#[test]
fn must_signal_by_definition() {
    // Depths up to 256; under miri up to 16.
    for log2 in 0..=if cfg!(miri) { 4 } else { 8 } {
        let ring = Ring::new(log2);
        let interval = (ring.depth() / 4).max(1) as u64;
        for start in 0..2 * ring.depth() as u64 {
            for blocks in 1..=ring.wqe_limit() {
                let covers = (start..start + blocks as u64).any(|block| block % interval == 0);
                assert_eq!(ring.must_signal(start, blocks), covers, "{start} {blocks}");
            }
        }
    }
}

#[test]
fn slots_and_indices_wrap() {
    for log2 in 0..=15 {
        let ring = Ring::new(log2);
        for block in [
            0,
            1,
            32_767,
            32_768,
            65_535,
            65_536,
            65_537,
            u32::MAX as u64 + 7,
        ] {
            assert_eq!(ring.slot(block) as u64, block % (1 << log2));
            assert_eq!(ring.index(block).0 as u64, block % 65_536);
        }
    }
}
