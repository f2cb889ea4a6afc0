//! ComP-Net by its own names: PEs in one process ping each other, and every bad number is refused.
#![cfg(all(feature = "host", not(loom)))]

use warpbell::Deadline;
use warpbell_host_init::soft::{SoftGpuOptions, SoftOptions};
use warpbell_host_init::{
    Device, Error as StartError, Grid, Kernels, Launch, Nic, Node, Placement, ProtectionDomain,
    Shared, entry,
};
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::soft_nic::soft_nic;
use warpbell_kernels::suite::{CpnetPing, suite_cpnet_ping};
use warpbell_patterns::Error;
use warpbell_patterns::cpnet::host::{
    Cpnet, CpnetConfig, CpnetError, cpnet_init_all, cpnet_shmalloc,
};
use warpbell_patterns::cpnet::{
    Error as Refused, cpnet_ctx_create, cpnet_ctx_destroy, cpnet_shmem_char_p,
    cpnet_shmem_char_wait_until,
};
use warpbell_patterns::proxy::Fault;
use warpbell_patterns::proxy::host::Proxy;

const LIMIT: Deadline = Deadline::after_ms(300_000);

/// A device on a thread of its own.
fn threaded() -> Device {
    Device::open(Nic::Soft(SoftOptions::default())).unwrap()
}

/// A device whose engine runs as a kernel.
fn resident() -> Device {
    let options = SoftGpuOptions::new(entry!(soft_nic), Kernels::default());
    Device::open(Nic::SoftGpu(options)).unwrap()
}

fn pes(proxy: &Proxy, devices: &[Device], groups: usize) -> Vec<Cpnet> {
    let domain = |device: &Device| device.protection_domain().unwrap();
    let domains: Vec<ProtectionDomain> = devices.iter().map(domain).collect();
    cpnet_init_all(proxy, &domains, groups, &config()).unwrap()
}

fn config() -> CpnetConfig {
    CpnetConfig {
        heap_bytes: 100,
        ..CpnetConfig::default()
    }
}

/// The paper's example with this grid, between PEs with queues for so many work-groups. Gives what became of both
/// kernels.
fn ping(pes: &[Cpnet], grid: Grid, rounds: u32) -> [Result<(), Failure>; 2] {
    const CANARY: [u8; 8] = [0xa5; 8];
    let groups = grid.blocks as usize;
    let before: Vec<u8> = (0..grid.blocks)
        .map(|group| CpnetPing::value(group, 0))
        .collect();
    let allocate = |cpnet| {
        let [low, buffer, high] = [8, groups, 8].map(|bytes| cpnet_shmalloc(cpnet, bytes).unwrap());
        for (place, bytes) in [
            (low, &CANARY[..]),
            (buffer, &before[..]),
            (high, &CANARY[..]),
        ] {
            cpnet.write(place, bytes).unwrap();
        }
        [low, buffer, high]
    };
    let places: Vec<_> = pes.iter().map(allocate).collect();
    let outcomes = Shared::slice(Placement::Host, 2, |_| Outcome::new()).unwrap();
    let launches = [0, 1].map(|pe: usize| {
        let parameters = CpnetPing {
            cpnet: pes[pe].handle(),
            wg_buffer: places[pe][1],
            peer: 1 - pe as u32,
            initiates: u32::from(pe == 0),
            rounds,
            limit_us: 300_000_000,
            outcome: &outcomes[pe],
        };
        Launch::new(entry!(suite_cpnet_ping), grid, parameters)
    });
    Node::cpu().run(&launches, &[]).unwrap();
    let after: Vec<u8> = (0..grid.blocks)
        .map(|group| CpnetPing::value(group, rounds))
        .collect();
    for (cpnet, [low, buffer, high]) in pes.iter().zip(places) {
        let mut found = [vec![0; 8], vec![0; groups], vec![0; 8]];
        for (place, bytes) in [low, buffer, high].into_iter().zip(&mut found) {
            cpnet.read(place, bytes).unwrap();
        }
        assert_eq!(found, [&CANARY[..], &after, &CANARY], "PE {}", cpnet.pe());
    }
    [0, 1].map(|pe: usize| outcomes[pe].result())
}

#[test]
fn each_work_group_pings_its_counterpart() {
    let shared = resident();
    for devices in [[threaded(), threaded()], [shared.clone(), shared]] {
        let proxy = Proxy::start(2).unwrap();
        let pes = pes(&proxy, &devices, 3);
        // Past 256, where the byte begins anew.
        let rounds = 300;
        assert_eq!(ping(&pes, Grid::new(3, 2), rounds), [Ok(()); 2]);
        for cpnet in &pes {
            let posts = cpnet.queues().iter().map(|queue| queue.proxied().posts);
            // Each group has a queue to each of the two.
            let expected = [0, 1, 2].map(|_| match cpnet.pe() {
                0 => [0, u64::from(rounds)],
                _ => [u64::from(rounds), 0],
            });
            assert_eq!(posts.collect::<Vec<_>>(), expected.concat());
        }
    }
}

#[test]
fn a_put_goes_to_the_pe_that_it_names() {
    let proxy = Proxy::start(1).unwrap();
    let pes = pes(&proxy, &[threaded(), threaded(), threaded()], 1);
    let buffers = [0, 1, 2].map(|pe: usize| cpnet_shmalloc(&pes[pe], 3).unwrap());
    for cpnet in &pes {
        let own = cpnet.pe() as u8;
        let mut ctx = cpnet_ctx_create(cpnet.handle()).unwrap();
        for to in [1, 0, 2, 2, 1] {
            let place = buffers[usize::from(own)].at(own.into()).unwrap();
            cpnet_shmem_char_p(&mut ctx, place, 16 * own + to + 1, to.into(), LIMIT).unwrap();
        }
        cpnet_ctx_destroy(ctx, LIMIT).unwrap();
    }
    for cpnet in &pes {
        let buffer = buffers[cpnet.pe() as usize];
        for from in 0..3 {
            let value = 16 * from + cpnet.pe() as u8 + 1;
            let place = buffer.at(from.into()).unwrap();
            cpnet_shmem_char_wait_until(place, value, LIMIT).unwrap();
            assert_eq!(place.read(), value);
        }
    }
}

#[test]
fn bad_numbers_are_named() {
    let proxy = Proxy::start(1).unwrap();
    let pes = pes(&proxy, &[threaded(), threaded()], 2);
    let buffer = cpnet_shmalloc(&pes[0], 3).unwrap();
    assert_eq!(buffer.at(3).unwrap_err(), Refused::Outside { index: 3 });
    let far = u64::from(u32::MAX) + 9;
    assert_eq!(
        buffer.at(far).unwrap_err(),
        Refused::Outside { index: u32::MAX }
    );
    let mut ctx = cpnet_ctx_create(pes[0].handle()).unwrap();
    let first = buffer.at(0).unwrap();
    let put = cpnet_shmem_char_p(&mut ctx, first, 1, 2, LIMIT);
    assert_eq!(put, Err(Refused::NoPe { pe: 2 }));
    let in_use = cpnet_ctx_create(pes[0].handle()).err();
    assert_eq!(in_use, Some(Refused::InUse));
    let late = cpnet_shmem_char_wait_until(first, 1, Deadline::PASSED);
    assert_eq!(late, Err(Refused::Late));
    cpnet_ctx_destroy(ctx, LIMIT).unwrap();

    // A grid with a block too many.
    let more = Shared::new(Placement::Host, Outcome::new()).unwrap();
    let parameters = CpnetPing {
        cpnet: pes[0].handle(),
        wg_buffer: buffer,
        peer: 0,
        initiates: 1,
        rounds: 0,
        limit_us: 1,
        outcome: &more,
    };
    let launch = Launch::new(entry!(suite_cpnet_ping), Grid::new(3, 1), parameters);
    Node::cpu().run(&[launch], &[]).unwrap();
    let no_group = Refused::NoGroup { group: 2 };
    assert_eq!(more.result(), Err(Failure::Cpnet(no_group)));

    let refused = |result: Result<_, Error>| match result {
        Err(Error::Cpnet(error)) => error,
        other => panic!("{other:?}"),
    };
    for beyond in [
        pes[0].write(buffer, &[0; 4]),
        pes[0].read(buffer, &mut [0; 4]),
    ] {
        match beyond {
            Err(Error::Start(StartError::OutOfRange { bytes, len, .. })) => {
                assert_eq!((bytes, len), (4, 3));
            }
            other => panic!("{other:?}"),
        }
    }
    let full = CpnetError::HeapFull {
        bytes: 93,
        left: 92,
    };
    assert_eq!(refused(cpnet_shmalloc(&pes[0], 93).map(drop)), full);
    assert_eq!(cpnet_shmalloc(&pes[0], 88).unwrap().offset(), 8);
    for (bytes, left) in [(1, 4), (usize::MAX, 4)] {
        let full = CpnetError::HeapFull { bytes, left };
        assert_eq!(refused(cpnet_shmalloc(&pes[0], bytes).map(drop)), full);
    }
    let empty = refused(cpnet_shmalloc(&pes[0], 0).map(drop));
    assert_eq!(empty, CpnetError::Empty);
    let domain = threaded().protection_domain().unwrap();
    for (domains, groups, what) in [
        (&[][..], 1, "PEs of a job"),
        (&[domain][..], 0, "work-groups of a PE"),
        (
            &[threaded().protection_domain().unwrap()][..],
            4097,
            "work-groups of a PE",
        ),
    ] {
        let made = cpnet_init_all(&proxy, domains, groups, &config()).map(drop);
        assert!(matches!(refused(made), CpnetError::Number { what: found, .. } if found == what));
    }
}

#[test]
fn a_proxy_that_has_ended_is_named() {
    let proxy = Proxy::start(1).unwrap();
    let pes = pes(&proxy, &[threaded()], 1);
    let place = cpnet_shmalloc(&pes[0], 1).unwrap().at(0).unwrap();
    let mut ctx = cpnet_ctx_create(pes[0].handle()).unwrap();
    cpnet_shmem_char_p(&mut ctx, place, 7, 0, LIMIT).unwrap();
    cpnet_shmem_char_wait_until(place, 7, LIMIT).unwrap();
    drop(proxy);
    let put = cpnet_shmem_char_p(&mut ctx, place, 8, 0, LIMIT);
    let ended = put.and_then(|()| cpnet_ctx_destroy(ctx, LIMIT));
    let Err(Refused::Failed(error)) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(Fault::of(error), Some(Fault::Stopped));
    assert_eq!(pes[0].first_error(), Some(error));
    assert_eq!(place.read(), 7);
}
