//! Patterns whose queues a fake GPU has no memory for.
#![cfg(feature = "host")]

#[path = "../../../host-init/tests/all/fake/mod.rs"]
#[allow(dead_code, reason = "this file needs a part of it")]
mod fake;

use fake::with_fake;
use warpbell::Deadline;
use warpbell::wqe::Wqe;
use warpbell_host_init::soft::SoftOptions;
use warpbell_host_init::{
    Access, Buffer, Device, Gpu, Nic, Placement, ProtectionDomain, QueuePairConfig, connect,
};
use warpbell_patterns::Error;
use warpbell_patterns::active::host::{ActiveConfig, ActiveMessages};
use warpbell_patterns::proxy::host::{ProducerLines, Proxy, ProxyError};
use warpbell_patterns::trigger::host::{JointTriggers, Triggers};
use warpbell_patterns::trigger::{self, Ringer};

#[test]
fn what_is_shared_beside_the_queues_states_lies_where_those_are() {
    let name = "gpu::what_is_shared_beside_the_queues_states_lies_where_those_are";
    with_fake(name, "works", || {
        let gpu = Gpu::open(0).unwrap();
        let mut taken = Vec::new();
        for bytes in [1 << 20, 64] {
            while let Ok(buffer) = Buffer::placed(Placement::Gpu(gpu), bytes) {
                taken.push(buffer);
            }
        }
        let device = Device::open(Nic::Soft(SoftOptions::default())).unwrap();
        let domain = device.protection_domain().unwrap();
        let config = QueuePairConfig {
            placement: Some(Placement::Pinned(gpu)),
            state_placement: Some(Placement::Host),
            ..QueuePairConfig::granting(Access::all())
        };
        let mut pairs = vec![
            domain.queue_pair(&config).unwrap(),
            domain.queue_pair(&config).unwrap(),
        ];
        let [one, other] = &mut pairs[..] else {
            unreachable!()
        };
        connect(one, other).unwrap();
        Triggers::new(pairs).unwrap();
        let config = ActiveConfig {
            queue_pair: config,
            ..ActiveConfig::default()
        };
        ActiveMessages::new(&domain, &domain, &config).unwrap();
    });
}

/// A GPU, and where queues lie in pinned memory for its kernels.
fn pinned() -> (Gpu, ProtectionDomain, QueuePairConfig) {
    let gpu = Gpu::open(0).unwrap();
    let device = Device::open(Nic::Soft(SoftOptions::default())).unwrap();
    let config = QueuePairConfig {
        placement: Some(Placement::Pinned(gpu)),
        ..QueuePairConfig::granting(Access::all())
    };
    (gpu, device.protection_domain().unwrap(), config)
}

#[test]
fn producers_lines_lie_where_the_kernels_have_their_own() {
    let name = "gpu::producers_lines_lie_where_the_kernels_have_their_own";
    with_fake(name, "works", || {
        let (gpu, domain, config) = pinned();
        let pair = || domain.connected(&domain, &config).unwrap();
        let serve = |lines, pair| {
            let proxy = Proxy::start(1).unwrap().with_lines(lines);
            proxy.serve(pair, Placement::Pinned(gpu)).map(drop)
        };
        let lines = ProducerLines::new(Placement::Pinned(gpu), 1).unwrap();
        assert!(lines.window().is_ok(), "in the GPU's memory");
        let (near, _far) = pair();
        assert!(serve(lines, near).is_ok());
        let (near, _far) = pair();
        let refused = serve(ProducerLines::new(Placement::Host, 1).unwrap(), near);
        let (placement, wanted) = (Placement::Host, Placement::Gpu(gpu));
        match refused {
            Err(Error::Proxy(ProxyError::LinesElsewhere {
                placement: found,
                wanted: asked,
            })) => assert_eq!((found, asked), (placement, wanted)),
            other => panic!("{other:?}"),
        }
    });
}

/// The table is for the GPU's kernels alone, and the host registers in it.
#[test]
fn the_host_registers_for_kernels_of_a_gpu() {
    let name = "gpu::the_host_registers_for_kernels_of_a_gpu";
    with_fake(name, "works", || {
        let (_, domain, config) = pinned();
        let mut near = domain.queue_pair(&config).unwrap();
        let mut far = domain.queue_pair(&config).unwrap();
        connect(&mut near, &mut far).unwrap();
        let triggers = JointTriggers::new(vec![near]).unwrap();
        assert!(matches!(
            triggers.handle().open(),
            Err(trigger::Error::Elsewhere)
        ));
        let ringer = triggers.register(0, 1, [Wqe::nop()], Deadline::PASSED);
        assert_eq!(ringer.unwrap(), Ringer::Trigger);
        let told = triggers.wait(0, Deadline::PASSED).unwrap_err();
        let expected = trigger::Error::Untriggered { missing: 1 }.to_string();
        assert!(told.to_string().contains(&expected), "{told}");
    });
}
