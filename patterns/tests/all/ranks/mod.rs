//! Patterns between ranks, which are threads of one process with NICs and jobs of their own.
#![cfg(all(feature = "ranks", not(loom)))]

mod active;
mod cpnet;
mod proxy;
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

/// What each rank of a job over this wire comes to. Each job has a port of its own, at a loopback address that no other
/// process has.
fn job<R: Send>(port: u16, size: u32, wire: WireKind, part: impl Fn(World) -> R + Sync) -> Vec<R> {
    let [_, b, c, d] = std::process::id().to_be_bytes();
    let host = format!("127.{}.{c}.{d}", 64 + b % 64);
    let alone = Config::read(&Environment::default()).unwrap();
    let rank = |rank| {
        let config = Config {
            rank,
            size,
            local_rank: None,
            root: Root::Tcp {
                host: host.clone(),
                port,
            },
            ..alone.clone()
        };
        let ranks = Rendezvous::join(&config, PATIENCE).unwrap();
        let options = WorldOptions {
            wire: Some(wire),
            ..WorldOptions::new(PATIENCE)
        };
        part(World::with(ranks, &Node::cpu(), &options).unwrap())
    };
    thread::scope(|scope| {
        let rank = &rank;
        let threads: Vec<_> = (0..size)
            .map(|number| scope.spawn(move || rank(number)))
            .collect();
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// A region of this rank, filled with one byte.
fn region(world: &World, bytes: usize, fill: u8) -> MemoryRegion {
    let region = world.domain().allocate(bytes, ALL).unwrap();
    region.write(0, &vec![fill; bytes]).unwrap();
    region
}
