//! A device with its domain, and two queue pairs connected.

use std::sync::Arc;

use warpbell::wqe::QpNumber;
use warpbell_host_init::{
    Access, Device, Drive, MemoryRegion, Nic, ProtectionDomain, QueuePair, QueuePairConfig,
    SoftOptions, connect,
};
use warpbell_soft_hca::engine::Counters;
use warpbell_soft_hca::shell::{Driver, Faults, HcaOptions, SoftHca};

use crate::arena::Arena;

/// What a peer may do in most tests: everything.
pub const ALL_ACCESS: Access = Access::all();

/// One side of a connection.
pub struct Node {
    /// The device.
    pub device: Device,
    /// Its domain.
    pub domain: ProtectionDomain,
}

/// Both sides: the kernels' own, and the peer.
pub struct Nodes {
    /// The side whose kernel posts.
    pub ours: Node,
    /// The other side.
    pub theirs: Node,
}

/// Two queue pairs, connected.
pub struct Pair {
    /// The kernels' own.
    pub ours: QueuePair,
    /// The peer's.
    pub theirs: QueuePair,
}

impl Node {
    fn soft(drive: Drive, faults: Option<Faults>) -> Self {
        let options = SoftOptions {
            drive,
            hca: HcaOptions {
                faults,
                ..HcaOptions::default()
            },
        };
        let device = Device::open(Nic::Soft(options)).expect("a software HCA");
        let domain = device.protection_domain().expect("a protection domain");
        Self { device, domain }
    }

    /// Memory of `bytes` random bytes between guards.
    pub fn arena(&self, bytes: usize, access: Access, seed: u64) -> Arena {
        Arena::new(&self.domain, bytes, access, seed)
    }

    /// What a queue pair of this node has done since it was reset.
    pub fn counters(&self, pair: &QueuePair) -> Counters {
        let qpn = QpNumber::from_low_bits(pair.qpn());
        self.hca()
            .command(|engine| engine.query_queue_pair(qpn))
            .expect("a running HCA")
            .expect("a queue pair")
            .counters
    }

    /// The software HCA behind the device.
    pub fn hca(&self) -> &SoftHca {
        self.device.soft_hca().expect("a software HCA")
    }
}

impl Nodes {
    /// Two software HCAs that one thread drives.
    pub fn soft() -> Self {
        Self::faulty(None, None)
    }

    /// The same, with faults on what each of them sends.
    pub fn faulty(ours: Option<Faults>, theirs: Option<Faults>) -> Self {
        let driver = Arc::new(Driver::spawn().expect("a thread"));
        Self {
            ours: Node::soft(Drive::Shared(driver.clone()), ours),
            theirs: Node::soft(Drive::Shared(driver), theirs),
        }
    }

    /// Two software HCAs that stand still but for [`step_until_idle`](Self::step_until_idle).
    pub fn by_hand() -> Self {
        Self {
            ours: Node::soft(Drive::ByHand, None),
            theirs: Node::soft(Drive::ByHand, None),
        }
    }

    /// Steps both HCAs until neither has anything to do.
    pub fn step_until_idle(&self) {
        let mut idle = 0;
        // More than one empty round: doorbells of idle queues are looked at in turn.
        while idle < 1000 {
            let done = [&self.ours, &self.theirs].map(|node| node.hca().step().expect("a step"));
            idle = if done == [0, 0] { idle + 1 } else { 0 };
        }
    }

    /// Two queue pairs, connected.
    pub fn pair(&self, config: &QueuePairConfig) -> Pair {
        let mut pair = Pair {
            ours: self.ours.domain.queue_pair(config).expect("a queue pair"),
            theirs: self.theirs.domain.queue_pair(config).expect("a queue pair"),
        };
        pair.connect();
        pair
    }
}

impl Pair {
    fn connect(&mut self) {
        connect(&mut self.ours, &mut self.theirs).expect("a connection");
    }

    /// Resets both ends and connects them again, as a user does after an error.
    pub fn renew(&mut self) {
        self.ours.reset().expect("a reset");
        self.theirs.reset().expect("a reset");
        self.connect();
    }
}

/// Regions of one address range: keys that may be taken away one by one.
pub fn spare_keys(node: &Node, arena: &Arena, count: usize) -> Vec<MemoryRegion> {
    (0..count)
        .map(|_| arena.register_again(&node.domain, ALL_ACCESS))
        .collect()
}
