//! Tables of tags: operations that the host registers before and after their triggers, queues that fail, numbers that
//! are refused.

use crate::trigger::{Error as Refused, MAX_THRESHOLD};
use warpbell::wqe::{Syndrome, Wqe};
use warpbell::{Cause, Deadline, Exclusive, SendDoorbell, Thread};

use super::{ALL, bytes_of, region, resident, threaded};
use crate::Error;
use crate::trigger::host::{TriggerError, Triggers};
use warpbell_host_init::{
    Completions, Device, Error as StartError, MemoryRegion, ProtectionDomain, QueuePair,
    QueuePairConfig, connect,
};

const LIMIT: Deadline = Deadline::after_ms(300_000);
fn config() -> QueuePairConfig {
    QueuePairConfig {
        send_depth: 8,
        receive_depth: 0,
        ..QueuePairConfig::granting(warpbell_host_init::Access::all())
    }
}

/// Tags on one device, the other ends of their connections, and bytes at both.
struct Rig {
    triggers: Triggers,
    far: Vec<QueuePair>,
    source: MemoryRegion,
    target: MemoryRegion,
}

fn pair(domain: &ProtectionDomain, config: &QueuePairConfig) -> [QueuePair; 2] {
    let mut pair = [(); 2].map(|()| domain.queue_pair(config).unwrap());
    let [near, far] = &mut pair;
    connect(near, far).unwrap();
    pair
}

impl Rig {
    fn new(device: &Device, tags: usize, send_doorbell: SendDoorbell) -> Self {
        let domain = device.protection_domain().unwrap();
        let config = QueuePairConfig {
            send_doorbell,
            ..config()
        };
        let pairs = (0..tags).map(|_| <(_, _)>::from(pair(&domain, &config)));
        let (near, far) = pairs.unzip();
        Self {
            triggers: Triggers::new(near).unwrap(),
            far,
            source: region(&domain, 64, 0xaa, ALL),
            target: region(&domain, 64, 0, ALL),
        }
    }

    /// A write of 8 bytes to that place.
    fn write(&self, at: usize) -> Wqe<1> {
        let local = self.source.local(0, 8).unwrap();
        Wqe::write(local, self.target.remote().at(at, 8).unwrap())
    }

    fn arrived(&self) -> [bool; 8] {
        let bytes = bytes_of(&self.target);
        let (words, _) = bytes.as_chunks::<8>();
        std::array::from_fn(|word| words[word] == [0xaa; 8])
    }
}

#[test]
fn operations_go_once_they_are_triggered() {
    for device in [threaded(), resident()] {
        for kind in [SendDoorbell::WithRecord, SendDoorbell::WithoutRecord] {
            let mut rig = Rig::new(&device, 3, kind);
            let writes = [0, 8, 16, 24].map(|at| rig.write(at));
            rig.triggers.register(0, 1, [writes[0], writes[1]]).unwrap();
            rig.triggers.register(1, 3, [writes[2]]).unwrap();
            // Its triggers come first, through a handle of before.
            let triggers = rig.triggers.handle().open().unwrap();
            for tag in [2, 1, 0, 1, 2, 2] {
                triggers.trigger::<Thread>(tag).unwrap();
            }
            triggers.wait::<Thread>(0, LIMIT).unwrap();
            let untriggered = Refused::Untriggered { missing: 1 };
            assert_eq!(
                triggers.wait::<Thread>(1, Deadline::PASSED),
                Err(untriggered)
            );
            assert_eq!(
                triggers.wait::<Thread>(2, LIMIT),
                Err(Refused::NotRegistered)
            );
            assert_eq!(&rig.arrived()[..4], [true, true, false, false]);
            rig.triggers.register(2, 2, [writes[3]]).unwrap();
            let triggers = rig.triggers.handle().open().unwrap();
            triggers.wait::<Thread>(2, LIMIT).unwrap();
            assert_eq!(&rig.arrived()[..4], [true, true, false, true]);
            assert_eq!(rig.triggers.counter(2).unwrap().counted(), 3);
            // What is left over counts for the next one, which the host's thread registers as a kernel does.
            let again = [rig.write(32)];
            triggers.register::<Thread, 1>(2, 2, again, LIMIT).unwrap();
            triggers.trigger::<Thread>(1).unwrap();
            triggers.trigger::<Thread>(2).unwrap();
            for tag in 0..3 {
                triggers.wait::<Thread>(tag, LIMIT).unwrap();
            }
            assert_eq!(&rig.arrived()[..5], [true; 5]);
        }
    }
}

#[test]
fn the_hosts_registrations_go_round_the_ring() {
    let device = threaded();
    let mut rig = Rig::new(&device, 1, SendDoorbell::WithRecord);
    for number in 0..21 {
        let at = number % 8 * 8;
        rig.target.write(0, &[0; 64]).unwrap();
        let write = rig.write(at);
        rig.triggers.register(0, 1, [write; 3]).unwrap();
        let triggers = rig.triggers.handle().open().unwrap();
        triggers.trigger::<Thread>(0).unwrap();
        triggers.wait::<Thread>(0, LIMIT).unwrap();
        assert_eq!(
            rig.arrived(),
            std::array::from_fn(|word| word == number % 8)
        );
    }
    assert_eq!(rig.triggers.counter(0).unwrap().end().0, 63);
}

#[test]
fn a_tag_that_failed_is_made_anew() {
    let device = threaded();
    let mut rig = Rig::new(&device, 2, SendDoorbell::WithRecord);
    let mut beyond = rig.target.remote().at(0, 8).unwrap();
    beyond.address += 60;
    let bad = Wqe::write(rig.source.local(0, 8).unwrap(), beyond);
    // What is flushed behind it does not hide the cause.
    let behind = rig.write(0);
    rig.triggers.register(0, 1, [bad, behind]).unwrap();
    let triggers = rig.triggers.handle().open().unwrap();
    triggers.trigger::<Thread>(0).unwrap();
    triggers.trigger::<Thread>(0).unwrap();
    let Err(Refused::Failed(error)) = triggers.wait::<Thread>(0, LIMIT) else {
        panic!("no error");
    };
    let Cause::Completion(of) = error.cause() else {
        panic!("{error:?}");
    };
    assert_eq!(of.syndrome, Syndrome::REMOTE_ACCESS);
    let seen = rig.triggers.queue_pairs().next().unwrap().first_error();
    assert_eq!(seen, Some(error), "for the host");
    let write = rig.write(0);
    let refused = rig.triggers.register(0, 1, [write]);
    assert!(matches!(
        refused,
        Err(Error::Trigger(TriggerError::Refused { tag: 0, error: Refused::Failed(of) })) if of == error
    ));
    // The other tag knows nothing of it.
    rig.triggers.register(1, 1, [write]).unwrap();
    let far = &mut rig.far[0];
    rig.triggers
        .renew(0, |near| {
            near.reset()?;
            far.reset()?;
            connect(near, far)
        })
        .unwrap();
    assert_eq!(rig.triggers.counter(0).unwrap().counted(), 0);
    let write = rig.write(8);
    rig.triggers.register(0, 1, [write]).unwrap();
    let triggers = rig.triggers.handle().open().unwrap();
    for tag in 0..2 {
        triggers.trigger::<Thread>(tag).unwrap();
        triggers.wait::<Thread>(tag, LIMIT).unwrap();
    }
    assert_eq!(&rig.arrived()[..3], [true, true, false]);
}

#[test]
fn bad_tables_and_operations_are_refused() {
    let device = threaded();
    let domain = device.protection_domain().unwrap();
    let refusal = |pairs| match Triggers::new(pairs) {
        Err(Error::Trigger(error)) => error,
        other => panic!("{other:?}"),
    };
    let none = refusal(Vec::new());
    assert!(matches!(none, TriggerError::Tags { tags: 0, .. }));
    for send_completions in [
        Completions::Collapsed,
        Completions::Ordinary { depth: Some(16) },
    ] {
        let other = QueuePairConfig {
            send_completions,
            ..config()
        };
        let [good, _far] = pair(&domain, &config());
        let [other, _far] = pair(&domain, &other);
        assert_eq!(
            refusal(vec![good, other]),
            TriggerError::OtherCompletions { tag: 1 }
        );
    }
    let [used, _far] = pair(&domain, &config());
    let mut queue = used.send_queue().unwrap().open::<Exclusive>().unwrap();
    queue.drain(LIMIT).unwrap();
    drop(queue);
    assert_eq!(refusal(vec![used]), TriggerError::Used { tag: 0 });
    let fresh = domain.queue_pair(&config()).unwrap();
    assert!(matches!(
        Triggers::new(vec![fresh]),
        Err(Error::Start(StartError::NotReady { .. }))
    ));

    let mut rig = Rig::new(&device, 1, SendDoorbell::WithRecord);
    let write = rig.write(0);
    let mut register = |tag, threshold| match rig.triggers.register(tag, threshold, [write]) {
        Err(Error::Trigger(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(register(1, 1), TriggerError::NoSuchTag { tag: 1, tags: 1 });
    for threshold in [0, MAX_THRESHOLD + 1] {
        let error = Refused::InvalidThreshold { threshold };
        assert_eq!(
            register(0, threshold),
            TriggerError::Refused { tag: 0, error }
        );
    }
    let too_many = rig.triggers.register(0, 1, [write; 5]);
    let error = Refused::InvalidOperation { limit: 4 };
    assert!(matches!(
        too_many,
        Err(Error::Trigger(TriggerError::Refused { tag: 0, error: found })) if found == error
    ));
    rig.triggers.register(0, 1, [write]).unwrap();
    let twice = rig.triggers.register(0, 1, [write]);
    let error = Refused::Untriggered { missing: 1 };
    assert!(matches!(
        twice,
        Err(Error::Trigger(TriggerError::Refused { tag: 0, error: found })) if found == error
    ));
    let triggers = rig.triggers.handle().open().unwrap();
    triggers.trigger::<Thread>(0).unwrap();
    triggers.wait::<Thread>(0, LIMIT).unwrap();
    assert!(rig.arrived()[0], "after all refusals");
}
