//! Writes between two software HCAs that know each other by their IP addresses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{Deadline, Exclusive, SendQueue, Thread, Ticket};
use warpbell_bench::Error;
use warpbell_bench::samples::Samples;
use warpbell_host_init::soft::{Drive, SoftOptions};
use warpbell_host_init::state::{Endpoint, Gid};
use warpbell_host_init::{Access, Nic, ProtectionDomain, QueuePair, QueuePairConfig, Timers};
use warpbell_hw_tests::arena::Arena;
use warpbell_hw_tests::here;
use warpbell_hw_tests::sides::ALL_ACCESS;
use warpbell_soft_hca::engine::fault::{Rates, Seeded};
use warpbell_soft_hca::shell::{Driver, Faults, HcaOptions, RoceOptions, SoftHca, gid};

use super::place::Place;

/// Blocks of the queue, and writes under one doorbell. Two groups are under way.
const DEPTH: u32 = 128;
const GROUP: u32 = 32;
/// Round trips in a repetition.
const ROUNDS: u32 = 2000;
/// How long a stream is measured: some acknowledgement timeouts, should packets be lost.
const LAP: Duration = Duration::from_millis(100);
/// The code of an acknowledgement timeout of 8.4 ms.
const TIMEOUT: u8 = 11;
const NOW: Deadline = Deadline::PASSED;

type Queue<'a> = SendQueue<'a, Exclusive, Thread>;

/// An end: an HCA that listens.
struct End {
    place: Place,
    domain: ProtectionDomain,
    address: SocketAddr,
}

impl End {
    fn new(place: &Place, drive: Drive, loss: Option<u32>) -> Result<Self, Error> {
        let faults = loss.map(|drop| {
            let rates = Rates {
                drop,
                delay: 0,
                duplicate: 0,
                longest_delay: 1,
            };
            Faults::new(Seeded::new(1, rates))
        });
        let options = SoftOptions {
            drive,
            hca: HcaOptions {
                faults,
                ..HcaOptions::default()
            },
            ..SoftOptions::default()
        };
        let domain = here::node().with_nic(Nic::Soft(options))?.domain()?;
        let options = RoceOptions {
            address: place.address(),
            ..RoceOptions::at(place.address().ip())
        };
        let address = place.inside(|| hca(&domain).listen(options))??;
        Ok(Self {
            place: place.clone(),
            domain,
            address,
        })
    }

    fn queue_pair(&self) -> Result<QueuePair, Error> {
        let config = QueuePairConfig {
            send_depth: DEPTH,
            receive_depth: 0,
            timers: Timers {
                acknowledge_timeout: TIMEOUT,
                ..Timers::default()
            },
            ..QueuePairConfig::granting(Access::REMOTE_WRITE)
        };
        Ok(self.domain.queue_pair(&config)?)
    }

    /// Connects a queue pair of this end to one of the other.
    fn connect(&self, own: &mut QueuePair, other: &Self, peer: Endpoint) -> Result<(), Error> {
        let reach = || hca(&self.domain).reach(other.address);
        let name = self.place.inside(reach)??;
        let peer = Endpoint {
            gid: Gid(gid::of(name)),
            ..peer
        };
        Ok(own.connect(&peer)?)
    }
}

fn hca(domain: &ProtectionDomain) -> &SoftHca {
    domain.device().soft_hca().expect("a software HCA")
}

/// What the other end's thread does while nothing comes.
#[derive(Clone, Copy)]
pub enum Far {
    /// It spins for a while.
    Awake,
    /// It sleeps.
    Sleeps,
}

/// Two ends, of which the first writes. This thread drives it; the other has a thread of its own.
pub struct Rig {
    queue_pair: QueuePair,
    _peer: QueuePair,
    source: Arena,
    target: Arena,
    near: End,
    _far: End,
}

impl Rig {
    /// Of a thousand packets, `loss` get lost.
    pub fn new([near, far]: &[Place; 2], thread: Far, loss: Option<u32>) -> Result<Self, Error> {
        let driver = match thread {
            Far::Awake => Driver::spawn(),
            Far::Sleeps => Driver::spawn_beside_spinners(),
        }?;
        let near = End::new(near, Drive::ByHand, loss)?;
        let far = End::new(far, Drive::Shared(Arc::new(driver)), loss)?;
        let [mut queue_pair, mut peer] = [near.queue_pair()?, far.queue_pair()?];
        let ends = [queue_pair.endpoint(), peer.endpoint()];
        near.connect(&mut queue_pair, &far, ends[1])?;
        far.connect(&mut peer, &near, ends[0])?;
        Ok(Self {
            queue_pair,
            _peer: peer,
            source: arena(&near, 1),
            target: arena(&far, 2),
            near,
            _far: far,
        })
    }

    fn queue(&self) -> Queue<'_> {
        let handle = self.queue_pair.send_queue().expect("a send queue");
        handle.open().expect("an open queue")
    }

    fn write(&self, bytes: u32) -> (Local, Remote) {
        (self.source.local(0, bytes), self.target.remote(0))
    }

    /// Posts writes under one doorbell, of which only the last is signalled.
    fn post(&self, queue: &mut Queue<'_>, count: u32, (local, remote): (Local, Remote)) -> Ticket {
        let mut batch = queue.batch(count, NOW).expect("room");
        for _ in 1..count {
            let _ = batch.post(Wqe::write(local, remote)).expect("room");
        }
        batch
            .post(Wqe::write(local, remote).signalled())
            .expect("room")
    }

    fn step_until(&self, queue: &mut Queue<'_>, ticket: Ticket) -> Result<(), Error> {
        while !queue.is_done(ticket).expect("no error") {
            hca(&self.near.domain).step()?;
        }
        Ok(())
    }

    /// Microseconds from the post of a write of 8 bytes to its completion: the median of many.
    pub fn round_trip(&self) -> Result<f64, Error> {
        let mut queue = self.queue();
        let mut laps = Samples::default();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let ticket = self.post(&mut queue, 1, self.write(8));
            self.step_until(&mut queue, ticket)?;
            laps.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(laps.median())
    }

    /// Million writes of this size that are done in a second.
    pub fn rate(&self, bytes: u32) -> Result<f64, Error> {
        let mut queue = self.queue();
        let write = self.write(bytes);
        let start = Instant::now();
        let mut done = 0;
        let mut under_way = self.post(&mut queue, GROUP, write);
        while start.elapsed() < LAP {
            let next = self.post(&mut queue, GROUP, write);
            self.step_until(&mut queue, under_way)?;
            under_way = next;
            done += GROUP;
        }
        let seconds = start.elapsed().as_secs_f64();
        self.step_until(&mut queue, under_way)?;
        Ok(f64::from(done) / seconds / 1e6)
    }
}

fn arena(end: &End, seed: u64) -> Arena {
    Arena::new(&end.domain, super::LARGE as usize, ALL_ACCESS, seed)
}
