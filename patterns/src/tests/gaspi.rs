//! GASPI programs: ranks that are connected, segments that are known to all, numbers that are refused.

use std::time::Duration;

use crate::gaspi::{Error as Refused, GASPI_BLOCK, GASPI_TEST, GaspiHandle};
use warpbell::{Exclusive, GpuShared, Thread};

use super::{resident, threaded};
use crate::Error;
use crate::gaspi::host::{Gaspi, GaspiConfig, GaspiError};
use warpbell_host_init::soft::SoftOptions;
use warpbell_host_init::{Device, Error as StartError, ProtectionDomain, QueuePairConfig};

const BYTES: usize = 1000;

fn config() -> GaspiConfig {
    GaspiConfig {
        queues: 2,
        segments: 3,
        notifications: 16,
        block_limit: Duration::from_secs(300),
        queue_pair: QueuePairConfig {
            send_depth: 16,
            ..QueuePairConfig::granting(warpbell_host_init::Access::all())
        },
        ..GaspiConfig::default()
    }
}

fn domains(devices: &[Device]) -> Vec<ProtectionDomain> {
    devices
        .iter()
        .map(|device| device.protection_domain().unwrap())
        .collect()
}

/// Writes a greeting with its notification to a rank.
fn greet(from: GaspiHandle<'_>, queue: u32, to: u32) -> Result<(), Refused> {
    let gaspi = from.open()?;
    let own = gaspi.proc_rank();
    let mut queue = gaspi.queue::<Exclusive, Thread>(queue, to)?;
    // Into the place that is this rank's at the other one.
    let place = 100 + 8 * u64::from(own);
    queue.write_notify(0, 0, 0, place, 8, own, own + 1, GASPI_BLOCK)?;
    queue.wait(GASPI_BLOCK)
}

/// Every rank writes to every rank, perhaps to itself, and reads it back.
fn all_to_all(devices: &[Device], to_self: bool) {
    let config = GaspiConfig {
        to_self,
        ..config()
    };
    let domains = domains(devices);
    let mut gaspi = Gaspi::new(&domains, &config).unwrap();
    gaspi.segment_create(0, BYTES).unwrap();
    let ranks = gaspi.ranks();
    assert_eq!(ranks as usize, devices.len());
    for rank in 0..ranks {
        let greeting = 0xab00 + u64::from(rank);
        gaspi
            .segment_write(rank, 0, 0, &greeting.to_le_bytes())
            .unwrap();
        let pairs = (ranks - u32::from(!to_self)) * config.queues;
        assert_eq!(gaspi.queue_pairs(rank).unwrap().count(), pairs as usize);
    }
    for from in 0..ranks {
        for to in 0..ranks {
            let greeted = greet(gaspi.handle(from).unwrap(), (from + to) % 2, to);
            match from == to && !to_self {
                true => assert_eq!(greeted, Err(Refused::NotConnected { rank: to })),
                false => assert_eq!(greeted, Ok(())),
            }
        }
    }
    for rank in 0..ranks {
        let here = gaspi.handle(rank).unwrap().open().unwrap();
        let mut expected = vec![0; BYTES];
        expected[..8].copy_from_slice(&(0xab00 + u64::from(rank)).to_le_bytes());
        for from in 0..ranks {
            if from == rank && !to_self {
                continue;
            }
            let first = here.notify_waitsome::<Thread>(0, 0, 16, GASPI_BLOCK);
            assert_eq!(first, Ok(from));
            assert_eq!(here.notify_reset::<Thread>(0, from), Ok(from + 1));
            let place = 100 + 8 * from as usize;
            let greeting = 0xab00 + u64::from(from);
            expected[place..place + 8].copy_from_slice(&greeting.to_le_bytes());
        }
        let none = here.notify_waitsome::<Thread>(0, 0, 16, GASPI_TEST);
        assert_eq!(none, Err(Refused::Timeout));
        let mut found = vec![0; BYTES];
        gaspi.segment_read(rank, 0, 0, &mut found).unwrap();
        assert_eq!(found, expected, "rank {rank}");
        // Reads the next rank's greeting back.
        let next = (rank + 1) % ranks;
        if next != rank {
            let mut queue = here.queue::<GpuShared, Thread>(1, next).unwrap();
            queue.read(0, 900, 0, 0, 8, GASPI_BLOCK).unwrap();
            queue.wait(GASPI_BLOCK).unwrap();
            let mut back = [0; 8];
            gaspi.segment_read(rank, 0, 900, &mut back).unwrap();
            assert_eq!(u64::from_le_bytes(back), 0xab00 + u64::from(next));
        }
        here.wait::<Exclusive, Thread>(0, GASPI_BLOCK).unwrap();
    }
}

#[test]
fn every_rank_reaches_every_rank() {
    all_to_all(&[threaded(), threaded(), threaded()], true);
    all_to_all(&[threaded(), threaded()], false);
    let shared = threaded();
    all_to_all(&[shared.clone(), shared.clone(), shared], true);
}

#[test]
fn every_rank_reaches_every_rank_through_a_kernel() {
    let device = resident();
    all_to_all(&[device.clone(), device.clone(), device], true);
}

#[test]
fn segments_come_and_go() {
    let device = threaded();
    let domains = domains(&[device.clone(), device]);
    let mut gaspi = Gaspi::new(&domains, &config()).unwrap();
    let known = |gaspi: &Gaspi, segment, rank| {
        let here = gaspi.handle(0).unwrap().open().unwrap();
        here.segment_size(segment, rank)
    };
    let missing = Err(Refused::InvalidSegment { segment: 2 });
    assert_eq!(known(&gaspi, 2, 1), missing);
    gaspi.segment_create(2, 77).unwrap();
    gaspi.segment_create(0, 200).unwrap();
    assert_eq!((known(&gaspi, 2, 0), known(&gaspi, 2, 1)), (Ok(77), Ok(77)));
    greet(gaspi.handle(0).unwrap(), 0, 1).unwrap();
    let told = |gaspi: &Gaspi| {
        let there = gaspi.handle(1).unwrap().open().unwrap();
        there.notify_waitsome::<Thread>(0, 0, 16, GASPI_TEST)
    };
    assert_eq!(told(&gaspi), Ok(0));
    gaspi.segment_delete(0).unwrap();
    gaspi.segment_create(0, 99).unwrap();
    assert_eq!(told(&gaspi), Err(Refused::Timeout), "of the segment before");
    let again = gaspi.segment_create(2, 77);
    assert_matches!(again => Err(Error::Gaspi(GaspiError::SegmentExists { segment: 2 })));
    gaspi.segment_delete(2).unwrap();
    assert_eq!(
        (known(&gaspi, 2, 1), known(&gaspi, 0, 1)),
        (missing, Ok(99))
    );
    // A deleted segment leaves no region behind: the device has room for this many.
    for _ in 0..SoftOptions::default().hca.regions {
        gaspi.segment_create(2, 8).unwrap();
        gaspi.segment_delete(2).unwrap();
    }
    for result in [
        gaspi.segment_delete(2),
        gaspi.segment_create(3, 77),
        gaspi.segment_read(0, 1, 0, &mut []),
        gaspi.segment_write(0, u32::MAX, 0, &[]),
    ] {
        let error = result.unwrap_err();
        assert_matches!(error => Error::Gaspi(GaspiError::NoSuchSegment { limit: 3, .. }));
    }
    assert_matches!(
        gaspi.segment_create(1, 0) => Err(Error::Start(StartError::BadSize { bytes: 0, .. }))
    );
    assert_matches!(
        gaspi.segment_create(1, usize::MAX) => Err(Error::Start(StartError::BadSize { .. }))
    );
    // Not a byte more.
    assert_matches!(
        gaspi.segment_write(1, 0, 98, &[1, 2]) =>
            Err(Error::Start(StartError::OutOfRange { len: 99, .. }))
    );
    assert_matches!(
        gaspi.segment_read(1, 0, 99, &mut [0]) => Err(Error::Start(StartError::OutOfRange { .. }))
    );
    assert!(matches!(
        gaspi.segment_read(2, 0, 0, &mut []),
        Err(Error::Gaspi(GaspiError::NoSuchRank { rank: 2, ranks: 2 }))
    ));
}

#[test]
fn a_purged_queue_works_again() {
    let device = threaded();
    let domains = domains(&[device.clone(), device.clone(), device]);
    let config = GaspiConfig {
        to_self: true,
        ..config()
    };
    let mut gaspi = Gaspi::new(&domains, &config).unwrap();
    gaspi.segment_create(0, BYTES).unwrap();
    for (from, to) in [(0, 2), (1, 1)] {
        gaspi.break_connection(1, from, to);
        let error = greet(gaspi.handle(from).unwrap(), 1, to).unwrap_err();
        assert_matches!(error => Refused::Failed(_));
        // Neither its other queue nor its other ranks know of it.
        greet(gaspi.handle(from).unwrap(), 0, to).unwrap();
        greet(gaspi.handle(from).unwrap(), 1, (to + 1) % 3).unwrap();
        gaspi.queue_purge(1, from).unwrap();
        greet(gaspi.handle(from).unwrap(), 1, to).unwrap();
        greet(gaspi.handle(to).unwrap(), 1, from).unwrap();
    }
    assert_matches!(
        gaspi.queue_purge(2, 0) =>
            Err(Error::Gaspi(GaspiError::NoSuchQueue { queue: 2, queues: 2 }))
    );
    assert_matches!(
        gaspi.queue_purge(0, 3) => Err(Error::Gaspi(GaspiError::NoSuchRank { rank: 3, ranks: 3 }))
    );
}

#[test]
fn numbers_that_make_no_program_are_refused() {
    let domain = threaded().protection_domain().unwrap();
    let refused = |ranks: usize, config: &GaspiConfig| {
        let domains = vec![domain.clone(); ranks];
        match Gaspi::new(&domains, config) {
            Err(Error::Gaspi(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    for ranks in [0, 1025] {
        let error = GaspiError::Ranks { ranks, limit: 1024 };
        assert_eq!(refused(ranks, &config()), error);
    }
    for depth in [1, 2] {
        let mut config = config();
        config.queue_pair.send_depth = depth;
        assert_eq!(refused(2, &config), GaspiError::TooShallow { depth });
    }
    let with = |change: fn(&mut GaspiConfig)| {
        let mut config = config();
        change(&mut config);
        match refused(2, &config) {
            GaspiError::Number { what, value, .. } => (what, value),
            other => panic!("{other}"),
        }
    };
    assert_eq!(with(|config| config.queues = 0), ("queues of a rank", 0));
    assert_eq!(
        with(|config| config.queues = 1025),
        ("queues of a rank", 1025)
    );
    assert_eq!(
        with(|config| config.segments = 0),
        ("places for segments", 0)
    );
    assert_eq!(
        with(|config| config.notifications = (1 << 20) + 1),
        ("notifications of a segment", (1 << 20) + 1)
    );
    // Those of the queues are refused as ever.
    let mut config = config();
    config.queue_pair.send_depth = 24;
    let gaspi = Gaspi::new(&vec![domain.clone(); 2], &config);
    assert_matches!(gaspi => Err(Error::Start(StartError::DepthNotPowerOfTwo { .. })));
}
