//! Both sides of connections, and two queue pairs connected.

use std::sync::Arc;

use warpbell::wqe::QpNumber;
use warpbell_host_init::soft::{Drive, SoftGpuOptions, SoftOptions};
use warpbell_host_init::{
    Access, CompletionQueue, Device, MemoryRegion, Nic, ProtectionDomain, QueuePair,
    QueuePairConfig, connect,
};
use warpbell_soft_hca::engine::Counters;
use warpbell_soft_hca::shell::{Driver, Faults, HcaOptions, LateStores, SoftHca};
use warpbell_soft_hca_gpu::MemoryScope;

use crate::arena::Arena;
use crate::here;

/// What a peer may do in most tests: everything.
pub const ALL_ACCESS: Access = Access::all();

/// One side of a connection.
pub struct Side {
    /// Where its memory and queues are.
    pub domain: ProtectionDomain,
}

/// Both sides: the kernels' own, and the peer.
pub struct Sides {
    /// The side whose kernel posts.
    pub ours: Side,
    /// The other side.
    pub theirs: Side,
}

/// Two queue pairs, connected.
pub struct Pair {
    /// The kernels' own.
    pub ours: QueuePair,
    /// The peer's.
    pub theirs: QueuePair,
}

/// Queue pairs of ours with one completion queue in common, connected with queue pairs of theirs.
pub struct Common {
    /// The completion queue.
    pub completions: CompletionQueue,
    /// The kernels' own.
    pub ours: Vec<QueuePair>,
    /// The peer's.
    pub theirs: Vec<QueuePair>,
}

impl Side {
    fn soft(drive: Drive, hca: HcaOptions) -> Self {
        let options = SoftOptions {
            drive,
            hca,
            ..SoftOptions::default()
        };
        let node = here::node().with_nic(Nic::Soft(options));
        let domain = node.and_then(|node| node.domain());
        Self {
            domain: domain.expect("a software HCA"),
        }
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        self.domain.device()
    }

    /// Memory of `bytes` random bytes between guards.
    pub fn arena(&self, bytes: usize, access: Access, seed: u64) -> Arena {
        Arena::new(&self.domain, bytes, access, seed)
    }

    /// A queue pair, where the kernels of this process reach it.
    pub fn queue_pair(&self, config: &QueuePairConfig) -> QueuePair {
        let config = QueuePairConfig {
            // What regions grant is what most tests are about.
            access: match config.access.is_empty() {
                true => ALL_ACCESS,
                false => config.access,
            },
            ..*config
        };
        self.domain.queue_pair(&config).expect("a queue pair")
    }

    /// What a queue pair of this side has done since it was reset; a NIC in a kernel does not tell.
    pub fn counters(&self, pair: &QueuePair) -> Option<Counters> {
        let qpn = QpNumber::from_low_bits(pair.qpn());
        let state = self
            .device()
            .soft_hca()?
            .command(|engine| engine.query_queue_pair(qpn));
        Some(
            state
                .expect("a running HCA")
                .expect("a queue pair")
                .counters,
        )
    }

    /// The software HCA behind the device, which a CPU thread drives or nobody.
    pub fn hca(&self) -> &SoftHca {
        self.device().soft_hca().expect("a software HCA")
    }
}

impl Sides {
    /// Both sides with what the command line chose: two software HCAs that one thread drives, one whose engine is a
    /// kernel, or a card.
    pub fn chosen() -> Self {
        Self::reaching(here::reach())
    }

    /// The same, where a NIC that is a kernel reaches so far.
    pub fn reaching(reach: MemoryScope) -> Self {
        let mut nic = here::node().nic().clone();
        if let Nic::SoftGpu(options) = &mut nic {
            *options = SoftGpuOptions {
                reach,
                ..options.clone()
            };
        }
        let ends = here::node().with_nic(nic).and_then(|node| node.ends());
        let [ours, theirs] = ends.unwrap_or_else(|error| panic!("no NIC: {error}"));
        Self {
            ours: Side { domain: ours },
            theirs: Side { domain: theirs },
        }
    }

    /// Two software HCAs that one thread drives, with faults on what each of them sends.
    pub fn faulty(ours: Option<Faults>, theirs: Option<Faults>) -> Self {
        let with = |faults| HcaOptions {
            faults,
            ..HcaOptions::default()
        };
        Self::driven([with(ours), with(theirs)])
    }

    /// Two software HCAs that one thread drives; what comes to the second one's memory shows late and in any order.
    pub fn unlucky(late_stores: LateStores) -> Self {
        let late = HcaOptions {
            late_stores: Some(late_stores),
            ..HcaOptions::default()
        };
        Self::driven([HcaOptions::default(), late])
    }

    fn driven([ours, theirs]: [HcaOptions; 2]) -> Self {
        let driver = Arc::new(Driver::spawn().expect("a thread"));
        Self {
            ours: Side::soft(Drive::Shared(driver.clone()), ours),
            theirs: Side::soft(Drive::Shared(driver), theirs),
        }
    }

    /// Two software HCAs that stand still but for [`step_until_idle`](Self::step_until_idle).
    pub fn by_hand() -> Self {
        Self {
            ours: Side::soft(Drive::ByHand, HcaOptions::default()),
            theirs: Side::soft(Drive::ByHand, HcaOptions::default()),
        }
    }

    /// Steps both HCAs until neither has anything to do.
    pub fn step_until_idle(&self) {
        let mut idle = 0;
        // More than one empty round: doorbells of idle queues are looked at in turn.
        while idle < 1000 {
            let done = [&self.ours, &self.theirs].map(|side| side.hca().step().expect("a step"));
            idle = if done == [0, 0] { idle + 1 } else { 0 };
        }
    }

    /// So many domains, alternately at both ends.
    pub fn domains(&self, count: usize) -> Vec<ProtectionDomain> {
        let ends = [&self.ours, &self.theirs];
        let domain = |number: usize| ends[number % 2].device().protection_domain();
        (0..count)
            .map(|number| domain(number).expect("a domain"))
            .collect()
    }

    /// Two queue pairs, connected.
    pub fn pair(&self, config: &QueuePairConfig) -> Pair {
        let mut pair = Pair {
            ours: self.ours.queue_pair(config),
            theirs: self.theirs.queue_pair(config),
        };
        pair.connect();
        pair
    }

    /// So many queue pairs with one completion queue in common, connected.
    pub fn common(&self, config: &QueuePairConfig, count: u32) -> Common {
        let config = QueuePairConfig {
            access: ALL_ACCESS,
            ..*config
        };
        let domain = &self.ours.domain;
        let made = domain.queue_pairs_with_common_completions(&config, count);
        let (completions, mut ours) = made.expect("queue pairs");
        let connected = |ours| {
            let mut theirs = self.theirs.queue_pair(&config);
            connect(ours, &mut theirs).expect("a connection");
            theirs
        };
        Common {
            theirs: ours.iter_mut().map(connected).collect(),
            completions,
            ours,
        }
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
pub fn spare_keys(side: &Side, arena: &Arena, count: usize) -> Vec<MemoryRegion> {
    (0..count)
        .map(|_| arena.register_again(&side.domain, ALL_ACCESS))
        .collect()
}
