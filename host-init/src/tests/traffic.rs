//! Bytes that move, and what happens when they cannot.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_wqe::{
    Completion, CompletionError, Immediate, Remote, RemoteKey, Syndrome, VendorCode, Wqe, WqeIndex,
};
use warpbell_soft_hca::engine::fault::{Rates, Seeded};
use warpbell_soft_hca::shell::{Driver, Faults, HcaOptions};

use super::hand::{Hand, wait};
use super::{ALL, PATIENT, by_hand, bytes_of, region, resident, threaded};
use crate::soft::{Drive, SoftOptions};
use crate::state::{Endpoint, ErrorPlace};
use crate::{
    Device, Error, MemoryRegion, Nic, Placement, ProtectionDomain, QueuePair, QueuePairConfig,
    State, Timers, connect,
};
use warpbell::SendDoorbell;

/// Two devices, each with a domain, a queue pair and a region; not connected.
struct Ends {
    devices: [Device; 2],
    domains: [ProtectionDomain; 2],
    pairs: [QueuePair; 2],
    regions: [MemoryRegion; 2],
    /// The time in nanoseconds of devices that stand still by themselves.
    clock: Option<Cell<u64>>,
}

const BYTES: usize = 256 * 1024;

/// Quick to give up: 1 ms, twice.
const HASTY: Timers = Timers {
    acknowledge_timeout: 8,
    retry_count: 1,
    rnr_retry: 1,
    rnr_timer: 1,
};

fn config() -> QueuePairConfig {
    QueuePairConfig {
        send_depth: 16,
        timers: PATIENT,
        ..QueuePairConfig::granting(ALL)
    }
}

impl Ends {
    /// Devices that a thread drives.
    fn driven(devices: [Device; 2], config: &QueuePairConfig) -> Self {
        Self::new(devices, None, config)
    }

    /// Devices that go on with `step` alone, and their clock with them, so that
    /// no load on the machine lets a timer run out.
    fn by_hand(config: &QueuePairConfig) -> Self {
        Self::new([by_hand(), by_hand()], Some(Cell::new(0)), config)
    }

    /// Both on one device, whose engine is a kernel.
    fn resident(config: &QueuePairConfig) -> Self {
        let device = resident();
        Self::driven([device.clone(), device], config)
    }

    fn new(devices: [Device; 2], clock: Option<Cell<u64>>, config: &QueuePairConfig) -> Self {
        let domains = [0, 1].map(|end: usize| devices[end].protection_domain().unwrap());
        let pairs = [0, 1].map(|end: usize| domains[end].queue_pair(config).unwrap());
        let regions = [0, 1].map(|end: usize| region(&domains[end], BYTES, end as u8 + 1, ALL));
        Self {
            devices,
            domains,
            pairs,
            regions,
            clock,
        }
    }

    fn connect(&mut self) {
        let [one, other] = &mut self.pairs;
        connect(one, other).unwrap();
    }

    /// Resets both ends and connects them again.
    fn renew(&mut self) {
        for pair in &mut self.pairs {
            pair.reset().unwrap();
        }
        self.connect();
    }

    /// A microsecond of devices that stand still by themselves.
    fn step(&self) {
        if let Some(clock) = &self.clock {
            clock.set(clock.get() + 1_000);
            for device in &self.devices {
                // A device that was killed stays behind.
                let _ = device.soft_hca().unwrap().step_at(clock.get());
            }
        }
    }

    fn remote(&self, end: usize, offset: usize, bytes: u32) -> Remote {
        self.regions[end].remote().at(offset, bytes).unwrap()
    }

    /// A signalled write of all but 64 bytes at either side, from end 0 to end 1.
    fn write(&self) -> Wqe<1> {
        let bytes = (BYTES - 128) as u32;
        let local = self.regions[0].local(64, bytes).unwrap();
        Wqe::write(local, self.remote(1, 64, bytes)).signalled()
    }

    fn completion(&self, hand: &mut Hand<'_>) -> Completion {
        wait("a send completion", || self.step(), || hand.poll())
    }

    fn error(&self, hand: &mut Hand<'_>) -> CompletionError {
        match self.completion(hand) {
            Completion::Error(error) => error,
            other => panic!("expected an error, got {other:?}"),
        }
    }

    /// The next completion is that of the work request with this index, and good.
    #[track_caller]
    fn expect_success(&self, hand: &mut Hand<'_>, index: WqeIndex) {
        match self.completion(hand) {
            Completion::Requester(done) => assert_eq!(done.wqe_index, index),
            other => panic!("expected success, got {other:?}"),
        }
    }

    /// Writes from end 0 to end 1 and checks every byte, canaries included.
    fn check_write(&self) {
        let mut hand = Hand::new(&self.pairs[0]);
        let index = hand.post(self.write());
        self.expect_success(&mut hand, index);
        let expected = [&[2; 64][..], &[1; BYTES - 128], &[2; 64]].concat();
        assert!(bytes_of(&self.regions[1]) == expected);
    }
}

fn soft(options: SoftOptions) -> Device {
    Device::open(Nic::Soft(options)).unwrap()
}

#[test]
fn a_write_arrives_however_the_devices_are_driven() {
    let driver = Arc::new(Driver::spawn().unwrap());
    let shared = || {
        soft(SoftOptions {
            drive: Drive::Shared(driver.clone()),
            ..SoftOptions::default()
        })
    };
    let alone = threaded();
    for mut ends in [
        Ends::by_hand(&config()),
        Ends::driven([threaded(), threaded()], &config()),
        Ends::driven([shared(), shared()], &config()),
        Ends::driven([alone.clone(), alone], &config()),
        Ends::resident(&config()),
    ] {
        ends.connect();
        ends.check_write();
    }
}

/// Nothing but an endpoint goes from one to the other, as between processes.
#[test]
fn a_device_that_is_reachable_finds_others_by_their_gids() {
    let options = || SoftOptions {
        reachable: true,
        ..SoftOptions::default()
    };
    let reachable = || soft(options());
    for _ in 0..2 {
        // Either may have the higher address, and both make the wire as they connect.
        let mut ends = Ends::driven([reachable(), reachable()], &config());
        let endpoints = [0, 1].map(|end: usize| ends.pairs[end].endpoint());
        for (pair, other) in ends.pairs.iter_mut().zip(endpoints.iter().rev()) {
            pair.connect(other).unwrap();
        }
        ends.check_write();

        let [mut one, other] = ends.pairs;
        one.reset().unwrap();
        let silent = threaded();
        let gone = reachable().gid();
        for gid in [silent.gid(), gone] {
            let endpoint = Endpoint {
                gid,
                ..other.endpoint()
            };
            let error = one.connect(&endpoint).unwrap_err();
            assert_matches!(error => Error::Unreachable { gid: named } if named == gid);
            one.reset().unwrap();
        }
    }
}

#[test]
fn reads_atomics_and_sends_work_too() {
    for mut ends in [Ends::by_hand(&config()), Ends::resident(&config())] {
        ends.connect();
        let (mut hand, mut other) = (Hand::new(&ends.pairs[0]), Hand::new(&ends.pairs[1]));
        let here = ends.regions[0].local(0, 100).unwrap();
        let index = hand.post(Wqe::read(here, ends.remote(1, 0, 100)).signalled());
        ends.expect_success(&mut hand, index);
        assert_eq!(
            bytes_of(&ends.regions[0])[..101],
            [&[2; 100][..], &[1]].concat()
        );

        let result = ends.regions[0].local(128, 8).unwrap();
        let index = hand.post(Wqe::fetch_add(result, ends.remote(1, 128, 8), 1).signalled());
        ends.expect_success(&mut hand, index);
        let mut found = [0; 8];
        ends.regions[0].read(128, &mut found).unwrap();
        assert_eq!(found, [2; 8]);
        ends.regions[1].read(128, &mut found).unwrap();
        assert_eq!(u64::from_ne_bytes(found), u64::from_ne_bytes([2; 8]) + 1);

        other.post_receive(ends.regions[1].local(1000, 50).unwrap());
        let local = ends.regions[0].local(200, 50).unwrap();
        let index = hand.post(Wqe::send_immediate(local, Immediate(77)).signalled());
        ends.expect_success(&mut hand, index);
        match wait("a receive", || ends.step(), || other.poll_receive()) {
            Completion::Responder(arrived) => {
                assert_eq!(arrived.byte_count, 50);
                assert_eq!(arrived.kind.immediate(), Some(Immediate(77)));
            }
            other => panic!("expected an arrival, got {other:?}"),
        }
        assert_eq!(
            bytes_of(&ends.regions[1])[999..1051],
            [&[2][..], &[1; 50], &[2]].concat()
        );
    }
}

#[test]
fn a_ring_wraps_many_times() {
    let config = QueuePairConfig {
        send_depth: 4,
        ..config()
    };
    for mut ends in [Ends::by_hand(&config), Ends::resident(&config)] {
        ends.connect();
        let mut hand = Hand::new(&ends.pairs[0]);
        for round in 0..100u64 {
            ends.regions[0].write(0, &round.to_ne_bytes()).unwrap();
            let local = ends.regions[0].local(0, 8).unwrap();
            let index = hand.post(Wqe::write(local, ends.remote(1, 8, 8)).signalled());
            ends.expect_success(&mut hand, index);
            let mut found = [0; 8];
            ends.regions[1].read(8, &mut found).unwrap();
            assert_eq!(u64::from_ne_bytes(found), round);
        }
    }
}

#[test]
fn after_an_error_both_ends_are_reset_and_used_again() {
    for mut ends in [Ends::by_hand(&config()), Ends::resident(&config())] {
        ends.connect();
        for _ in 0..3 {
            let before = ends.pairs.each_ref().map(QueuePair::endpoint);
            let mut hand = Hand::new(&ends.pairs[0]);
            let good = ends.regions[0].local(0, 8).unwrap();
            let wrong = Remote {
                key: RemoteKey(0xdead_0000),
                ..ends.remote(1, 0, 8)
            };
            let index = hand.post(Wqe::write(good, wrong).signalled());
            let error = ends.error(&mut hand);
            assert_eq!(
                (error.syndrome, error.wqe_index),
                (Syndrome::REMOTE_ACCESS, index)
            );
            // Both devices know; only one end was to blame for a WQE.
            let places = [ErrorPlace::Send(index), ErrorPlace::Elsewhere];
            for (pair, place) in ends.pairs.iter().zip(places) {
                let error = pair.nic_error().unwrap().unwrap();
                let expected = (Syndrome::REMOTE_ACCESS, place);
                assert_eq!((error.syndrome, error.place), expected);
            }
            // Whatever comes after is flushed.
            hand.post(ends.write());
            assert_eq!(ends.error(&mut hand).syndrome, Syndrome::FLUSHED);
            assert_eq!(ends.pairs[0].state().unwrap(), State::Error);
            assert!(bytes_of(&ends.regions[1]).iter().all(|byte| *byte == 2));

            for pair in &mut ends.pairs {
                pair.reset().unwrap();
                assert_eq!(pair.state().unwrap(), State::Reset);
                assert_eq!(pair.nic_error().unwrap(), None);
            }
            for (before, pair) in before.iter().zip(&ends.pairs) {
                // Equal by chance once in 2^24 times.
                assert!(before.qpn != pair.endpoint().qpn && before.psn != pair.endpoint().psn);
            }
            ends.connect();
            ends.check_write();
            ends.regions[1].write(0, &vec![2; BYTES]).unwrap();
            ends.renew();
        }
    }
}

#[test]
fn a_peer_that_was_killed_ends_in_a_retry_error() {
    let config = QueuePairConfig {
        timers: HASTY,
        ..config()
    };
    for mut ends in [
        Ends::by_hand(&config),
        Ends::driven([threaded(), threaded()], &config),
    ] {
        ends.connect();
        ends.devices[1].soft_hca().unwrap().kill();
        let mut hand = Hand::new(&ends.pairs[0]);
        hand.post(ends.write());
        assert_eq!(ends.error(&mut hand).syndrome, Syndrome::TRANSPORT_RETRY);
        assert_eq!(ends.pairs[0].state().unwrap(), State::Error);
    }
}

#[test]
fn memory_can_go_while_packets_name_it() {
    let mut ends = Ends::by_hand(&QueuePairConfig {
        timers: HASTY,
        ..config()
    });
    ends.connect();
    let mut memory = vec![7u8; 4096].into_boxed_slice();
    let start = NonNull::new(memory.as_mut_ptr()).unwrap();
    // SAFETY: the memory is touched again only after the region is gone.
    let lent = unsafe {
        ends.domains[0]
            .register_raw(Placement::Host, start, 4096, ALL)
            .unwrap()
    };
    let mut hand = Hand::new(&ends.pairs[0]);
    hand.post(Wqe::write(lent.local(0, 4096).unwrap(), ends.remote(1, 0, 4096)).signalled());
    // The sender has sent; the receiver has not looked yet.
    for _ in 0..4 {
        ends.devices[0].soft_hca().unwrap().step_at(0).unwrap();
    }
    assert_eq!(lent.deregister().unwrap().map(|_| ()), None);
    memory.fill(9);
    // The retry finds no region: the work request fails, and not one byte of
    // either content has arrived.
    let error = ends.error(&mut hand);
    assert_eq!(
        (error.syndrome, error.vendor),
        (Syndrome::LOCAL_PROTECTION, VendorCode::LOCAL_KEY)
    );
    assert!(bytes_of(&ends.regions[1]).iter().all(|byte| *byte == 2));
}

/// A command may step the engine, too: a packet that it then has in hand goes back with it.
#[test]
fn memory_can_go_after_a_command_that_stepped() {
    let mut ends = Ends::by_hand(&config());
    ends.connect();
    let mut hand = Hand::new(&ends.pairs[0]);
    // More than a step takes from the wire, so that it ends with a packet in hand.
    for _ in 0..8 {
        hand.post(ends.write());
    }
    for _ in 0..4 {
        ends.devices[0].soft_hca().unwrap().step_at(0).unwrap();
    }
    let there = ends.devices[1].soft_hca().unwrap();
    assert!(there.command(|engine| engine.step(0)).unwrap() > 0);
    let (done, finished) = std::sync::mpsc::channel();
    let [source, _] = ends.regions;
    std::thread::spawn(move || done.send(source.deregister()));
    let gone = finished.recv_timeout(std::time::Duration::from_secs(300));
    // Ends the wait, should there be one.
    there.step_at(0).unwrap();
    gone.expect("nobody has the memory in hand").unwrap();
}

#[test]
fn a_buffer_comes_back_as_it_was() {
    let domain = by_hand().protection_domain().unwrap();
    let lent = region(&domain, 100, 42, ALL);
    let buffer = lent.deregister().unwrap();
    let buffer = buffer.expect("the buffer that was given");
    let mut bytes = [0; 100];
    buffer.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [42; 100]);
}

#[test]
fn lost_delayed_and_doubled_packets_change_nothing() {
    let rates = Rates {
        drop: 100,
        delay: 100,
        duplicate: 100,
        longest_delay: 20,
    };
    let faulty = |seed| {
        let faults = Some(Faults::new(Seeded::new(seed, rates)));
        let hca = HcaOptions {
            faults,
            ..HcaOptions::default()
        };
        soft(SoftOptions {
            drive: Drive::ByHand,
            hca,
            ..SoftOptions::default()
        })
    };
    // 33 µs, longer than most delays and not than all.
    let patient = Timers {
        acknowledge_timeout: 3,
        ..Timers::default()
    };
    let config = QueuePairConfig {
        timers: patient,
        ..config()
    };
    let mut ends = Ends::new([faulty(1), faulty(2)], Some(Cell::new(0)), &config);
    ends.connect();
    for _ in 0..20 {
        ends.regions[1].write(0, &vec![2; BYTES]).unwrap();
        ends.check_write();
        ends.renew();
    }
}

#[test]
fn a_fault_strikes_the_work_request_that_it_was_meant_for() {
    let mut ends = Ends::by_hand(&config());
    ends.connect();
    let qpn = mlx5_wqe::QpNumber::new(ends.pairs[0].qpn()).unwrap();
    let hca = ends.devices[0].soft_hca().unwrap();
    hca.command(|engine| {
        engine.fail_send(qpn, 2, Syndrome::LOCAL_PROTECTION, VendorCode::LOCAL_KEY)
    })
    .unwrap()
    .unwrap();
    let mut hand = Hand::new(&ends.pairs[0]);
    let indices = [0; 3].map(|_| hand.post(ends.write()));
    for index in &indices[..2] {
        ends.expect_success(&mut hand, *index);
    }
    let error = ends.error(&mut hand);
    assert_eq!(error.wqe_index, indices[2]);
    let cause = (Syndrome::LOCAL_PROTECTION, VendorCode::LOCAL_KEY);
    assert_eq!((error.syndrome, error.vendor), cause);
}

/// A watchdog names the oldest request without a completion, and nothing before or after it.
#[test]
fn the_oldest_request_under_way_is_named() {
    for send_doorbell in [SendDoorbell::WithRecord, SendDoorbell::WithoutRecord] {
        let mut ends = Ends::by_hand(&QueuePairConfig {
            send_doorbell,
            ..config()
        });
        ends.connect();
        let pair = &ends.pairs[0];
        assert_eq!(pair.outstanding(), None);
        let mut hand = Hand::new(pair);
        let before = pair.mark();
        hand.post(ends.write());
        hand.post(ends.write());
        assert_ne!(pair.mark(), before);
        let request = pair.outstanding().unwrap();
        assert_eq!(request.qpn, pair.qpn());
        assert_eq!(request.opcode, mlx5_wqe::Opcode::RDMA_WRITE);
        assert_eq!((request.wqe.0, request.posted.0), (0, 2));
        ends.completion(&mut hand);
        ends.completion(&mut hand);
        assert_eq!(pair.outstanding(), None);
    }
}

/// Without a doorbell record, on each kind of software HCA: the doorbell alone says how far WQEs are posted.
#[test]
fn without_a_doorbell_record() {
    let config = QueuePairConfig {
        send_doorbell: SendDoorbell::WithoutRecord,
        ..config()
    };
    let threads = Ends::driven([threaded(), threaded()], &config);
    for mut ends in [Ends::by_hand(&config), threads, Ends::resident(&config)] {
        ends.connect();
        for _ in 0..2 {
            ends.check_write();
            for (region, fill) in ends.regions.iter().zip([1, 2]) {
                region.write(0, &vec![fill; BYTES]).unwrap();
            }
            ends.renew();
        }
    }
}
