//! Patterns between ranks, which are threads of one process with NICs and jobs of their own.
#![cfg(all(feature = "ranks", not(loom)))]

mod active;
mod cpnet;
mod exchange;
mod experts;
mod killed;
mod loss;
mod proxy;
mod rejoin;
mod team;
mod trigger;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use warpbell::Deadline;
use warpbell_host_init::soft::SoftOptions;
use warpbell_host_init::world::ranks::{Config, Environment, Rendezvous, Root};
use warpbell_host_init::world::{WireKind, WorldOptions};
use warpbell_host_init::{Access, MemoryRegion, Nic, Node, QueuePairConfig, Timers, World};
use warpbell_soft_hca::engine::fault::{Fate, Pattern, Rates, Seeded};
use warpbell_soft_hca::engine::packet::Header;
use warpbell_soft_hca::shell::{Faults, HcaOptions};

const WIRES: [WireKind; 2] = [WireKind::SharedMemory, WireKind::RoceV2];
const ALL: Access = Access::all();
const PATIENCE: Duration = Duration::from_secs(300);
const LIMIT: Deadline = Deadline::after_ms(300_000);

/// Of 1,000 packets of a bad wire.
const RATES: Rates = Rates {
    drop: 5,
    delay: 20,
    duplicate: 20,
    longest_delay: 20,
};

/// Queue pairs that take nobody for dead on a machine that has other work.
fn patient() -> QueuePairConfig {
    QueuePairConfig {
        send_depth: 16,
        timers: Timers {
            acknowledge_timeout: 18,
            ..Timers::default()
        },
        ..QueuePairConfig::granting(ALL)
    }
}

/// How a rank enters a job of so many, over this wire. Each job has a port of its own, at a loopback address that no other
/// process has.
struct Entrance {
    port: u16,
    size: u32,
    wire: WireKind,
    /// Counts packets that the wire loses, of which it delays and doubles some as well; a good wire without it.
    lost: Option<Arc<AtomicU64>>,
}

impl Entrance {
    fn new(port: u16, size: u32, wire: WireKind) -> Self {
        Self {
            port,
            size,
            wire,
            lost: None,
        }
    }

    /// Where its rank 0 listens.
    fn root(&self) -> Root {
        let [_, b, c, d] = std::process::id().to_be_bytes();
        Root::Tcp {
            host: format!("127.{}.{c}.{d}", 64 + b % 64),
            port: self.port,
        }
    }

    /// Enters it with this number; a second time, if the process before has ended and the others take it in.
    fn enter(&self, rank: u32) -> World {
        let config = Config {
            rank,
            size: self.size,
            local_rank: None,
            root: self.root(),
            ..Config::read(&Environment::default()).unwrap()
        };
        let ranks = Rendezvous::join(&config, PATIENCE).unwrap();
        let options = WorldOptions {
            wire: Some(self.wire),
            ..WorldOptions::new(PATIENCE)
        };
        World::with(ranks, &self.node(rank), &options).unwrap()
    }

    fn node(&self, rank: u32) -> Node {
        let Some(lost) = self.lost.clone() else {
            return Node::cpu();
        };
        let mut fates = Seeded::new(rank.into(), RATES);
        let faults = Faults::new(move |header: &Header| {
            let fate = fates.fate(header);
            lost.fetch_add((fate == Fate::Drop).into(), Ordering::Relaxed);
            fate
        });
        let hca = HcaOptions {
            faults: Some(faults),
            ..HcaOptions::default()
        };
        let nic = Nic::Soft(SoftOptions {
            hca,
            ..SoftOptions::default()
        });
        Node::cpu().with_nic(nic).unwrap()
    }

    /// What each rank comes to.
    fn all<R: Send>(&self, part: impl Fn(World) -> R + Sync) -> Vec<R> {
        self.these(0..self.size, part)
    }

    /// What these ranks come to.
    fn these<R: Send>(
        &self,
        ranks: impl IntoIterator<Item = u32>,
        part: impl Fn(World) -> R + Sync,
    ) -> Vec<R> {
        let rank = |rank| part(self.enter(rank));
        thread::scope(|scope| {
            let rank = &rank;
            let threads: Vec<_> = (ranks.into_iter())
                .map(|number| scope.spawn(move || rank(number)))
                .collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        })
    }
}

/// What each rank of a job comes to.
fn job<R: Send>(port: u16, size: u32, wire: WireKind, part: impl Fn(World) -> R + Sync) -> Vec<R> {
    Entrance::new(port, size, wire).all(part)
}

/// A region of this rank, filled with one byte.
fn region(world: &World, bytes: usize, fill: u8) -> MemoryRegion {
    let region = world.domain().allocate(bytes, ALL).unwrap();
    region.write(0, &vec![fill; bytes]).unwrap();
    region
}
