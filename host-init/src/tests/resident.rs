//! A software HCA whose engine is a kernel, on a CPU's grid.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use mlx5_wqe::{Completion, Syndrome, Wqe};
use warpbell_kernels::soft_nic::soft_nic;
use warpbell_soft_hca::engine::CommandError;
use warpbell_soft_hca::shell::HcaError;
use warpbell_soft_hca_gpu::Lender;
use warpbell_soft_hca_gpu::resident::{
    ArgumentParts, Arguments, ClientError, Refused, Resident, Round, TableSizes,
};

use super::hand::{Hand, wait};
use super::{ALL, bytes_of, region, threaded};
use crate::soft::{EngineLanes, SoftGpuOptions};
use crate::{
    Access, Buffer, Device, Entry, Error, Kernels, MemoryRegion, Nic, ProtectionDomain, QueuePair,
    QueuePairConfig, connect, entry,
};

pub fn options() -> SoftGpuOptions {
    SoftGpuOptions::new(entry!(soft_nic), Kernels::default())
}

fn open(options: SoftGpuOptions) -> Device {
    Device::open(Nic::SoftGpu(options)).unwrap()
}

/// What the way to the engine has found, if that is the error.
fn client_error(error: &HcaError) -> Option<&ClientError> {
    match error {
        HcaError::Resident(error) => error.downcast_ref(),
        _ => None,
    }
}

/// A device whose engines run as a kernel.
pub fn resident() -> Device {
    open(SoftGpuOptions {
        engines: 2,
        ..options()
    })
}

/// Why a device cannot be opened whose engine is this kernel, which ends. On a busy machine it may not have ended within
/// the limit: then once more, with a longer one.
fn refused(kernel: Entry<fn(Arguments)>) -> HcaError {
    let limits = [500, 5_000, 50_000].map(Duration::from_millis).into_iter();
    let mut errors = limits.map(|limit| refused_within(kernel, limit));
    let is_late =
        |error: &HcaError| matches!(client_error(error), Some(ClientError::Deadline { .. }));
    errors.find(|error| !is_late(error)).expect("it has ended")
}

/// Why a device cannot be opened whose engine is this kernel, with this limit for each answer.
fn refused_within(kernel: Entry<fn(Arguments)>, limit: Duration) -> HcaError {
    let options = SoftGpuOptions {
        kernel,
        limit,
        ..options()
    };
    match Device::open(Nic::SoftGpu(options)) {
        Err(Error::Soft { source, .. }) => source,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_kernel_that_breaks_off_says_why() {
    #[warpbell::kernel]
    fn broken(_: Arguments) {
        panic!("deliberate");
    }
    let error = refused(entry!(broken));
    assert_matches!(&error => HcaError::Panicked(why) if why.contains("deliberate"));
}

#[test]
fn a_kernel_that_returns_without_a_word_is_noticed() {
    #[warpbell::kernel]
    fn silent(_: Arguments) {}
    let error = refused(entry!(silent));
    assert_matches!(&error => HcaError::Panicked(why) if why.contains("without a word"));
}

#[test]
fn a_kernel_that_does_not_start_is_a_deadline() {
    static OVER: AtomicU32 = AtomicU32::new(0);
    #[warpbell::kernel]
    fn deaf(_: Arguments) {
        while OVER.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
    }
    let limit = Duration::from_millis(5);
    let error = refused_within(entry!(deaf), limit);
    OVER.store(1, Ordering::Release);
    assert_matches!(
        client_error(&error) => Some(ClientError::Deadline { limit: found, alive: false }) if *found == limit
    );
}

#[test]
fn a_kernel_that_refuses_says_why() {
    #[warpbell::kernel]
    fn without_tables(arguments: Arguments) {
        let parts = ArgumentParts {
            tables: std::ptr::null_mut(),
            ..*arguments.parts()
        };
        // SAFETY: tables that are not there are refused.
        soft_nic(unsafe { Arguments::new(parts) });
    }
    let error = refused(entry!(without_tables));
    let needed = TableSizes::default().bytes(1) as u32;
    let expected = ClientError::Refused(Refused::TooSmall { needed });
    assert_matches!(client_error(&error) => Some(found) if *found == expected);
}

/// The kernel ends with the device, before the memory that it uses is freed.
#[test]
fn the_kernel_ends_with_the_last_object_of_its_device() {
    static ENDED: AtomicU32 = AtomicU32::new(0);
    #[warpbell::kernel]
    fn counted(arguments: Arguments) {
        soft_nic(arguments);
        ENDED.fetch_add(1, Ordering::Relaxed);
    }
    let device = open(SoftGpuOptions {
        kernel: entry!(counted),
        ..options()
    });
    let memory = region(&device.protection_domain().unwrap(), 64, 1, ALL);
    drop(device);
    assert_eq!(ENDED.load(Ordering::Relaxed), 0);
    drop(memory);
    assert_eq!(ENDED.load(Ordering::Relaxed), 1);
}

/// An engine whose kernel is over uses nothing any more, so that everything can be freed.
#[test]
fn what_is_left_of_a_kernel_that_broke_off_can_be_dropped() {
    #[warpbell::kernel]
    fn short(arguments: Arguments) {
        // SAFETY: the arguments are whole.
        let mut engine =
            unsafe { Resident::start(&arguments, 0, Lender::alone()) }.expect("good arguments");
        // A domain and a region: two commands.
        for round in 0.. {
            if engine.round(round * 1_000_000) == Round::Ended {
                return;
            }
            std::thread::yield_now();
            if SHORT_LIVED.load(Ordering::Acquire) == 1 {
                panic!("deliberate");
            }
        }
    }
    static SHORT_LIVED: AtomicU32 = AtomicU32::new(0);
    let device = open(SoftGpuOptions {
        kernel: entry!(short),
        limit: Duration::from_secs(5),
        ..options()
    });
    let domain = device.protection_domain().unwrap();
    let memory = region(&domain, 64, 1, ALL);
    SHORT_LIVED.store(1, Ordering::Release);
    let config = QueuePairConfig::granting(ALL);
    let error = domain.queue_pair(&config).unwrap_err();
    assert_matches!(
        &error => Error::Soft { source: HcaError::Panicked(why), .. } if why.contains("deliberate")
    );
    assert!(memory.deregister().unwrap().is_some());
}

#[test]
fn a_full_table_is_named_and_everything_can_be_made_again() {
    let device = open(SoftGpuOptions {
        tables: TableSizes {
            protection_domains: 1,
            regions: 1,
            completion_queues: 3,
            queue_pairs: 2,
        },
        ..options()
    });
    let full = |error: Error| {
        assert_matches!(
            error => Error::Soft { source: HcaError::Command(CommandError::TableFull), .. }
        );
    };
    let domain = device.protection_domain().unwrap();
    full(device.protection_domain().unwrap_err());
    for _ in 0..3 {
        let _memory = region(&domain, 64, 1, ALL);
        let buffer = Buffer::new(64).unwrap();
        full(domain.register(buffer, Access::empty()).unwrap_err());
        let config = QueuePairConfig::granting(ALL);
        let _pair = domain.queue_pair(&config).unwrap();
        // One completion queue is left of the two that it needs, and is given back.
        full(domain.queue_pair(&config).unwrap_err());
    }
}

#[test]
fn there_is_no_wire_to_another_device() {
    let domains =
        [resident(), resident(), threaded()].map(|device| device.protection_domain().unwrap());
    let config = QueuePairConfig::granting(ALL);
    let mut pairs = domains
        .each_ref()
        .map(|domain| domain.queue_pair(&config).unwrap());
    assert!(domains[0].device().soft_hca().is_none());
    let [one, two, three] = &mut pairs;
    for other in [two, three] {
        let gid = other.device().gid();
        let error = connect(one, other).unwrap_err();
        assert_matches!(error => Error::Unreachable { gid: found } if found == gid);
        one.to_init().unwrap();
        let error = one.to_ready_to_receive(&other.endpoint()).unwrap_err();
        assert_matches!(error => Error::Unreachable { gid: found } if found == gid);
        one.reset().unwrap();
    }
}

/// The engine registers the memory after the host has given up on it: nobody else gets it.
#[test]
fn memory_is_kept_for_an_engine_that_is_late() {
    const RUNNING: u32 = 0;
    const TO_STALL: u32 = 1;
    const STALLED: u32 = 2;
    static STATE: AtomicU32 = AtomicU32::new(RUNNING);
    #[warpbell::kernel]
    fn stalling(arguments: Arguments) {
        // SAFETY: as in the kernel of the library.
        let Ok(mut engine) = (unsafe { Resident::start(&arguments, 0, Lender::alone()) }) else {
            return;
        };
        for now in 0.. {
            while STATE.load(Ordering::Acquire) != RUNNING {
                // Only now does the host ask: a round under way would serve it.
                let _ =
                    STATE.compare_exchange(TO_STALL, STALLED, Ordering::AcqRel, Ordering::Relaxed);
                std::thread::yield_now();
            }
            if engine.round(now * 1_000) == Round::Ended {
                return;
            }
        }
    }
    let device = open(SoftGpuOptions {
        limit: Duration::from_secs(1),
        ..SoftGpuOptions::new(entry!(stalling), Kernels::default())
    });
    let domain = device.protection_domain().unwrap();
    let buffer = || Buffer::new(1 << 16).unwrap();
    let given = buffer();
    let address = given.as_ptr();
    STATE.store(TO_STALL, Ordering::Release);
    let give_up = Instant::now() + Duration::from_secs(300);
    while STATE.load(Ordering::Acquire) != STALLED {
        assert!(Instant::now() < give_up, "the engine does not run");
        std::thread::yield_now();
    }
    let refused = domain.register(given, ALL).unwrap_err();
    let others: Vec<_> = (0..16).map(|_| buffer()).collect();
    let config = QueuePairConfig::granting(ALL);
    let unmade = domain.queue_pair(&config).unwrap_err();
    STATE.store(RUNNING, Ordering::Release);
    for error in [refused, unmade] {
        assert!(error.is_uncertain(), "{error}");
    }
    assert!(others.iter().all(|other| other.as_ptr() != address));
    // It is only late.
    assert!(domain.register(buffer(), ALL).is_ok());
}

/// Both ends of some connections, on a device whose kernel has several engines.
struct Connections {
    domains: [ProtectionDomain; 2],
    regions: [MemoryRegion; 2],
    pairs: Vec<[QueuePair; 2]>,
}

impl Connections {
    fn new(count: usize, engines: u32) -> Self {
        Self::with(count, engines, EngineLanes::One)
    }

    fn with(count: usize, engines: u32, lanes: EngineLanes) -> Self {
        let device = open(SoftGpuOptions {
            engines,
            lanes,
            ..options()
        });
        let domains = [(); 2].map(|()| device.protection_domain().unwrap());
        let regions = [0, 1].map(|end: usize| region(&domains[end], 256, end as u8, ALL));
        let config = QueuePairConfig::granting(ALL);
        let pair = || {
            let mut ends = domains
                .each_ref()
                .map(|domain| domain.queue_pair(&config).unwrap());
            let [one, other] = &mut ends;
            connect(one, other).unwrap();
            ends
        };
        Self {
            pairs: (0..count).map(|_| pair()).collect(),
            domains,
            regions,
        }
    }

    /// Writes a value of its own through each connection, none of which was used before.
    fn check_all(&self) {
        let [_, target] = &self.regions;
        for pair in 0..self.pairs.len() {
            let value = 0x1234_5678_0000 + pair as u64;
            let remote = target.remote().at(8 * pair, 8).unwrap();
            let mut hand = Hand::new(&self.pairs[pair][0]);
            good(run(&mut hand, Wqe::write_value(value, remote)));
            let mut found = [0; 8];
            target.read(8 * pair, &mut found).unwrap();
            assert_eq!(u64::from_ne_bytes(found), value);
        }
    }
}

/// What becomes of a work request.
fn run(hand: &mut Hand<'_>, wqe: Wqe<1>) -> Completion {
    hand.post(wqe.signalled());
    wait("a completion", || (), || hand.poll())
}

fn good(completion: Completion) {
    assert_matches!(completion => Completion::Requester(_));
}

#[test]
fn engines_share_the_connections() {
    check_sharing(Connections::new(5, 3));
}

#[test]
fn engines_of_a_warp_each_share_the_connections() {
    check_sharing(Connections::with(5, 2, EngineLanes::Warp));
}

fn check_sharing(mut connections: Connections) {
    connections.check_all();
    // New ends find each other, whichever engines the old ones had.
    for pair in [3, 0] {
        let [one, other] = &mut connections.pairs[pair];
        one.reset().unwrap();
        other.reset().unwrap();
        connect(one, other).unwrap();
    }
    connections.pairs.remove(1);
    for [one, other] in &mut connections.pairs {
        // A queue pair that was used starts anew.
        one.reset().unwrap();
        other.reset().unwrap();
        connect(other, one).unwrap();
    }
    connections.check_all();
}

/// The receiver of one connection takes a key away, which the other connection, of another engine, used.
#[test]
fn a_key_that_one_engine_takes_away_opens_nothing_at_another() {
    let connections = Connections::new(2, 2);
    let spare = region(&connections.domains[1], 64, 7, ALL);
    let write = |value: u64| Wqe::write_value(value, spare.remote().at(0, 8).unwrap());
    let [mut one, mut other] = [0, 1].map(|pair: usize| Hand::new(&connections.pairs[pair][0]));
    good(run(&mut other, write(1)));
    let mut receiver = Hand::new(&connections.pairs[0][1]);
    receiver.post_receive(connections.regions[1].local(0, 64).unwrap());
    let local = connections.regions[0].local(0, 8).unwrap();
    let key = spare.remote().at(0, 8).unwrap().key;
    good(run(&mut one, Wqe::send_invalidate(local, key)));
    match run(&mut other, write(2)) {
        Completion::Error(error) => assert_eq!(error.syndrome, Syndrome::REMOTE_ACCESS),
        other => panic!("{other:?}"),
    }
    let mut found = [0; 8];
    spare.read(0, &mut found).unwrap();
    assert_eq!(u64::from_ne_bytes(found), 1);
}

/// A warp executes up to 32 writes side by side, and nobody can tell: what overlaps ends up as the last one has it,
/// whatever the sizes, and there is a completion for each that asked for it.
#[test]
fn a_warp_s_writes_are_in_order() {
    const SPAN: u64 = 256;
    let connections = Connections::with(1, 1, EngineLanes::Warp);
    let [source, target] = &connections.regions;
    let content: Vec<u8> = (0..SPAN).map(|byte| byte as u8 ^ 0x5a).collect();
    source.write(0, &content).unwrap();
    let mut expected = bytes_of(target);
    let mut hand = Hand::new(&connections.pairs[0][0]);
    let mut random = 1u64;
    let mut next = |below: u64| {
        // Knuth's MMIX generator: its high bits are good enough.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for _ in 0..40 {
        let mut signalled = Vec::new();
        for write in 0..12 {
            let length = [1, 2, 4, 8, 16, 48, 64, 100][next(8) as usize];
            // Aligned, or not.
            let place = |at: u64, step: u64| (at / step * step).min(SPAN - length) as usize;
            let step = [1, 4, 16][next(3) as usize];
            let (from, to) = (place(next(SPAN), step), place(next(SPAN), step));
            let length = length as usize;
            let wqe = match next(4) {
                0 => {
                    let value = next(u64::MAX);
                    let to = to.min(SPAN as usize - 8);
                    expected[to..to + 8].copy_from_slice(&value.to_ne_bytes());
                    Wqe::write_value(value, target.remote().at(to, 8).unwrap())
                }
                _ => {
                    expected[to..to + length].copy_from_slice(&content[from..from + length]);
                    let (local, remote) = (source.local(from, length as u32), target.remote());
                    Wqe::write(local.unwrap(), remote.at(to, length as u32).unwrap())
                }
            };
            match write == 11 || next(3) == 0 {
                true => signalled.push(hand.post(wqe.signalled())),
                false => _ = hand.post(wqe),
            }
        }
        for index in signalled {
            match wait("a completion", || (), || hand.poll()) {
                Completion::Requester(done) => assert_eq!(done.wqe_index, index),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(bytes_of(target), expected);
    }
}
