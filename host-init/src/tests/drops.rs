//! Regions, queue pairs and devices that are dropped while other threads post and poll on them.
//!
//! `WARPBELL_DROPS` says how many objects are dropped. Under AddressSanitizer and ThreadSanitizer
//! (`cargo xtask test --only sanitizers`), each access to freed memory shows.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use mlx5_wqe::{Completion, Syndrome, Wqe};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell_soft_hca::shell::{Driver, HcaOptions};

use super::hand::{Hand, wait};
use super::{ALL, PATIENT, region, threaded};
use crate::soft::{Drive, SoftOptions};
use crate::{Completions, Device, MemoryRegion, Nic, QueuePairConfig, Timers, connect};

/// How many objects are dropped unless the environment says otherwise: some 25 devices among them.
const DROPS: u64 = 2_000;
/// Threads that post and poll, each on queue pairs of its own.
const POSTERS: u64 = 4;
const MOST_BYTES: usize = 40_000;
const DEPTH: u32 = 16;

/// Something that another thread is to free.
type Victim = Box<dyn Any + Send>;

/// What dies while work requests are under way.
struct Deaths {
    target: bool,
    source: bool,
    /// The peer's queue pair.
    peer: bool,
    /// The poster's queue pair.
    own: bool,
    /// The peer's device, which nobody else has.
    device: bool,
    /// That device loses its power instead.
    power: bool,
}

impl Deaths {
    fn draw(rng: &mut SmallRng) -> Self {
        let device = rng.random_bool(0.05);
        Self {
            target: rng.random_bool(0.4),
            source: rng.random_bool(0.2),
            peer: device || rng.random_bool(0.2),
            own: rng.random_bool(0.3),
            device,
            power: device && rng.random(),
        }
    }

    fn any(&self) -> bool {
        self.target || self.source || self.peer || self.own
    }

    fn config(&self) -> QueuePairConfig {
        QueuePairConfig {
            send_depth: DEPTH,
            send_completions: Completions::ORDINARY,
            timers: match (self.peer, self.target || self.source) {
                // A millisecond, twice: nobody is there to answer.
                (true, _) => Timers {
                    acknowledge_timeout: 8,
                    retry_count: 1,
                    ..Timers::default()
                },
                // 67 ms, three times: packets with bytes of a dropped region are lost, and a responder that has found
                // an error no longer answers.
                (false, true) => Timers {
                    acknowledge_timeout: 14,
                    retry_count: 2,
                    ..Timers::default()
                },
                (false, false) => PATIENT,
            },
            ..QueuePairConfig::granting(ALL)
        }
    }
}

/// A device for one queue pair.
fn small(drive: Drive) -> Device {
    let hca = HcaOptions {
        protection_domains: 1,
        regions: 2,
        completion_queues: 2,
        queue_pairs: 1,
        ..HcaOptions::default()
    };
    let options = SoftOptions {
        drive,
        hca,
        ..SoftOptions::default()
    };
    Device::open(Nic::Soft(options)).unwrap()
}

/// A work request of any kind, on any bytes of both regions.
fn request(rng: &mut SmallRng, source: &MemoryRegion, target: &MemoryRegion) -> Wqe<1> {
    let most = source.len().min(target.len());
    let bytes = rng.random_range(8..=most);
    let offset = rng.random_range(0..=most - bytes) & !7;
    let local = |bytes: usize| source.local(offset, bytes as u32).unwrap();
    let remote = |bytes: usize| target.remote().at(offset, bytes as u32).unwrap();
    match rng.random_range(0..3) {
        0 => Wqe::write(local(bytes), remote(bytes)).signalled(),
        1 => Wqe::read(local(bytes), remote(bytes)).signalled(),
        _ => Wqe::fetch_add(local(8), remote(8), 1).signalled(),
    }
}

/// Posts, drops the victims meanwhile, and learns how each work request ended. Returns how many objects were dropped.
fn life(
    rng: &mut SmallRng,
    shared: &[Device; 2],
    driver: &Arc<Driver>,
    dropper: &Sender<Victim>,
) -> u64 {
    let deaths = Deaths::draw(rng);
    let [near, far] = shared;
    let far = match (deaths.device, rng.random()) {
        (true, true) => small(Drive::Thread),
        (true, false) => small(Drive::Shared(driver.clone())),
        (false, _) => far.clone(),
    };
    let domains = [near, &far].map(|device| device.protection_domain().unwrap());
    let config = deaths.config();
    let [mut own, mut peer] = [0, 1].map(|end: usize| domains[end].queue_pair(&config).unwrap());
    let [source, target] = [0, 1].map(|end: usize| {
        let bytes = rng.random_range(8..=MOST_BYTES);
        region(&domains[end], bytes, 1, ALL)
    });
    connect(&mut own, &mut peer).unwrap();
    let mut hand = Hand::new(&own);
    let posted: Vec<_> = (0..rng.random_range(1..DEPTH))
        .map(|_| hand.post(request(rng, &source, &target)))
        .collect();
    for _ in 0..rng.random_range(0..2_000) {
        std::hint::spin_loop();
    }

    let mut victims: Vec<Victim> = Vec::new();
    let mut kept: Vec<Victim> = Vec::new();
    let mut doom = |dies: bool, victim: Victim| match dies {
        true => victims.push(victim),
        false => kept.push(victim),
    };
    doom(deaths.target, Box::new(target));
    doom(deaths.source, Box::new(source));
    doom(deaths.peer, Box::new(peer));
    if deaths.device {
        if deaths.power {
            far.soft_hca().unwrap().kill();
        }
        doom(true, Box::new(far));
    }
    while !victims.is_empty() {
        let victim = victims.swap_remove(rng.random_range(0..victims.len()));
        match rng.random() {
            true => drop(victim),
            false => dropper.send(victim).unwrap(),
        }
    }

    if !deaths.own {
        let mut failed = false;
        for index in posted {
            match wait("a completion", || (), || hand.poll()) {
                Completion::Requester(done) => {
                    assert_eq!(done.wqe_index, index);
                    assert!(!failed, "a work request succeeded behind one that failed");
                }
                Completion::Error(error) => {
                    assert_eq!(error.wqe_index, index);
                    assert!(deaths.any(), "nothing was dropped, and yet: {error:?}");
                    assert_eq!(failed, error.syndrome == Syndrome::FLUSHED, "{error:?}");
                    failed = true;
                }
                other => panic!("expected the end of a work request, got {other:?}"),
            }
        }
        assert!(hand.poll().is_none(), "a completion of nothing");
    }
    // Two regions, two queue pairs, and perhaps a device.
    4 + u64::from(deaths.device)
}

#[test]
fn what_is_dropped_under_traffic_is_used_no_more_and_nothing_gets_lost() {
    let drops = std::env::var("WARPBELL_DROPS").map_or(DROPS, |drops| drops.parse().unwrap());
    let shared = [threaded(), threaded()];
    let driver = Arc::new(Driver::spawn().unwrap());
    let (dropper, victims) = channel::<Victim>();
    let dropped = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(move || victims.into_iter().for_each(drop));
        for seed in 0..POSTERS {
            let (dropper, driver, shared, dropped) = (dropper.clone(), &driver, &shared, &dropped);
            scope.spawn(move || {
                let mut rng = SmallRng::seed_from_u64(seed);
                while dropped.load(Ordering::Relaxed) < drops {
                    let more = life(&mut rng, shared, driver, &dropper);
                    dropped.fetch_add(more, Ordering::Relaxed);
                }
            });
        }
        drop(dropper);
    });
}
