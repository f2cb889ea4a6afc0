//! How many requests to put under one doorbell.

use std::fmt;

use crate::{Placement, QueuePair};

/// Who reads a ring, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// A card, over PCIe.
    Card,
    /// A software HCA's engine that the host's CPU runs.
    Host,
    /// A software HCA's engine that a GPU runs.
    Gpu,
}

/// How many requests to put under one doorbell, by where ring and reader lie, and why: what kernels take as a number.
/// `docs/how-to/tuning.md` has the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batching {
    /// Requests of one block, at least 1, and a quarter of the ring at most: the NIC works on some while the next are
    /// stored.
    pub requests: u32,
    /// Why so many.
    pub reason: &'static str,
}

impl fmt::Display for Batching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.requests, self.reason)
    }
}

impl Batching {
    /// For a ring of this depth that lies there.
    pub(crate) fn of(reader: Reader, ring: Ring, depth: u32) -> Self {
        let (requests, reason) = match (ring, reader) {
            (Ring::OfHost, Reader::Host | Reader::Gpu) => (
                8,
                "the CPU rings for next to nothing, and an engine idles while a long batch is stored",
            ),
            (Ring::OfHost, Reader::Card) => (
                16,
                "a doorbell crosses PCIe; beside a SmartNIC that reads the host's ring slowly choose 1, or more than 48",
            ),
            (Ring::Pinned, _) => (
                32,
                "a GPU waits for two fences and the bus with each doorbell",
            ),
            (Ring::Gpu, Reader::Gpu | Reader::Host) => (
                32,
                "a GPU waits for two fences with each doorbell, and 32 lanes of the engine execute what rang together",
            ),
            (Ring::Gpu, Reader::Card) => (
                64,
                "a GPU waits for two fences with each doorbell, and the card reads a ring beyond the bus slowly",
            ),
        };
        Self {
            requests: requests.min(depth / 4).max(1),
            reason,
        }
    }
}

/// Where a ring lies, which says who stores to it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    /// For threads of the CPU, in host memory but where they asked for other.
    OfHost,
    /// In host memory, for kernels of a GPU.
    Pinned,
    /// In a GPU's memory.
    Gpu,
}

impl Ring {
    /// Of a ring that lies there, and whose users have their own words there: on a GPU, or beside a thread of the host.
    fn new(ring: Placement, states: Placement) -> Self {
        match (ring, states) {
            (_, Placement::Host) => Self::OfHost,
            (Placement::Gpu(_), _) => Self::Gpu,
            _ => Self::Pinned,
        }
    }
}

impl QueuePair {
    /// How many requests a kernel should put under one doorbell of the send queue
    /// ([`SendQueue::batch`](warpbell::SendQueue::batch)), where it has so many at hand.
    pub fn advised_batch(&self) -> Batching {
        let reader = self.device().provider().reader();
        let config = self.config();
        let ring = Ring::new(config.placement, config.state_placement);
        Batching::of(reader, ring, 1 << config.send_depth_log2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dear_doorbells_ask_for_more_requests() {
        let advice = |ring, reader| Batching::of(reader, ring, 1024).requests;
        let own = advice(Ring::OfHost, Reader::Host);
        let over_the_bus = advice(Ring::OfHost, Reader::Card);
        let fences = advice(Ring::Pinned, Reader::Host);
        let far_ring = advice(Ring::Gpu, Reader::Card);
        assert!(own < over_the_bus && over_the_bus < fences && fences < far_ring);
        // As many as an engine has lanes.
        assert_eq!(advice(Ring::Gpu, Reader::Gpu), 32);
    }

    #[test]
    fn a_quarter_of_the_ring_is_the_most() {
        for reader in [Reader::Card, Reader::Host, Reader::Gpu] {
            for ring in [Ring::OfHost, Ring::Pinned, Ring::Gpu] {
                for depth_log2 in 0..15 {
                    let depth = 1 << depth_log2;
                    let requests = Batching::of(reader, ring, depth).requests;
                    assert!((1..=(depth / 4).max(1)).contains(&requests), "{depth}");
                }
            }
        }
        assert_eq!(Batching::of(Reader::Host, Ring::Pinned, 64).requests, 16);
    }
}
