//! Patterns between ranks, which are threads of one process with NICs and jobs of their own.
#![cfg(all(feature = "ranks", not(loom)))]

mod active;
mod cpnet;
mod proxy;
mod rejoin;
mod team;
mod trigger;

use std::thread;
use std::time::Duration;

use warpbell::Deadline;
use warpbell_host_init::world::ranks::{Config, Environment, Rendezvous, Root};
use warpbell_host_init::world::{WireKind, WorldOptions};
use warpbell_host_init::{Access, MemoryRegion, Node, QueuePairConfig, Timers, World};

const WIRES: [WireKind; 2] = [WireKind::SharedMemory, WireKind::RoceV2];
const ALL: Access = Access::all();
const PATIENCE: Duration = Duration::from_secs(300);
const LIMIT: Deadline = Deadline::after_ms(300_000);

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
#[derive(Clone, Copy)]
struct Entrance<'a> {
    port: u16,
    size: u32,
    wire: WireKind,
    node: &'a Node,
}

impl Entrance<'_> {
    /// Enters it with this number; a second time, if the process before has ended and the others take it in.
    fn enter(&self, rank: u32) -> World {
        let [_, b, c, d] = std::process::id().to_be_bytes();
        let config = Config {
            rank,
            size: self.size,
            local_rank: None,
            root: Root::Tcp {
                host: format!("127.{}.{c}.{d}", 64 + b % 64),
                port: self.port,
            },
            ..Config::read(&Environment::default()).unwrap()
        };
        let ranks = Rendezvous::join(&config, PATIENCE).unwrap();
        let options = WorldOptions {
            wire: Some(self.wire),
            ..WorldOptions::new(PATIENCE)
        };
        World::with(ranks, self.node, &options).unwrap()
    }

    /// What each rank comes to.
    fn all<R: Send>(&self, part: impl Fn(World) -> R + Sync) -> Vec<R> {
        let rank = |rank| part(self.enter(rank));
        thread::scope(|scope| {
            let rank = &rank;
            let threads: Vec<_> = (0..self.size)
                .map(|number| scope.spawn(move || rank(number)))
                .collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        })
    }
}

/// What each rank of a job comes to.
fn job<R: Send>(port: u16, size: u32, wire: WireKind, part: impl Fn(World) -> R + Sync) -> Vec<R> {
    let node = &Node::cpu();
    let entrance = Entrance {
        port,
        size,
        wire,
        node,
    };
    entrance.all(part)
}

/// A region of this rank, filled with one byte.
fn region(world: &World, bytes: usize, fill: u8) -> MemoryRegion {
    let region = world.domain().allocate(bytes, ALL).unwrap();
    region.write(0, &vec![fill; bytes]).unwrap();
    region
}
