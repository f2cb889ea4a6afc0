//! Operations that the NIC starts by itself: chains of tags, what breaks them, what is refused.

use crate::trigger::Error as Refused;
use warpbell::wqe::{CqNumber, Syndrome, Wqe};
use warpbell::{Cause, Deadline, Exclusive, SendQueue, Thread, WaitError};

use super::{ALL, bytes_of, region, resident, threaded};
use crate::Error;
use crate::trigger::host::{TriggerError, Triggers};
use warpbell_host_init::{
    Device, Error as StartError, MemoryRegion, ProtectionDomain, QueuePair, QueuePairConfig,
    connect,
};

const LIMIT: Deadline = Deadline::after_ms(300_000);
/// For what does not come.
const SOON: Deadline = Deadline::after_ms(50);

fn config() -> QueuePairConfig {
    QueuePairConfig {
        send_depth: 8,
        receive_depth: 0,
        ..QueuePairConfig::granting(warpbell_host_init::Access::all())
    }
}

/// A tag that kernels trigger, and others that follow.
fn kinds(tags: usize) -> Vec<QueuePairConfig> {
    let kind = |tag| QueuePairConfig {
        cross_channel: true,
        managed_send: tag > 0,
        ..config()
    };
    (0..tags).map(kind).collect()
}

struct Rig {
    domain: ProtectionDomain,
    triggers: Triggers,
    far: Vec<QueuePair>,
    source: MemoryRegion,
    target: MemoryRegion,
}

impl Rig {
    fn new(device: &Device, kinds: &[QueuePairConfig]) -> Self {
        Self::with(device, kinds, &config())
    }

    fn with(device: &Device, kinds: &[QueuePairConfig], others: &QueuePairConfig) -> Self {
        let domain = device.protection_domain().unwrap();
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for kind in kinds {
            let mut here = domain.queue_pair(kind).unwrap();
            let mut there = domain.queue_pair(others).unwrap();
            connect(&mut here, &mut there).unwrap();
            near.push(here);
            far.push(there);
        }
        Self {
            triggers: Triggers::new(near).unwrap(),
            far,
            source: region(&domain, 64, 0xaa, ALL),
            target: region(&domain, 64, 0, ALL),
            domain,
        }
    }

    /// Copies a word of the target to the next one: so one write shows that the one before was there.
    fn copy(&self, from: usize) -> Wqe<1> {
        let local = self.target.local(8 * from, 8).unwrap();
        Wqe::write(local, self.target.remote().at(8 * from + 8, 8).unwrap())
    }

    fn write(&self, to: usize) -> Wqe<1> {
        let local = self.source.local(0, 8).unwrap();
        Wqe::write(local, self.target.remote().at(8 * to, 8).unwrap())
    }

    fn arrived(&self) -> [bool; 8] {
        let bytes = bytes_of(&self.target);
        let (words, _) = bytes.as_chunks::<8>();
        std::array::from_fn(|word| words[word] == [0xaa; 8])
    }

    fn trigger(&self, tag: u32) {
        let triggers = self.triggers.handle().open().unwrap();
        triggers.trigger::<Thread>(tag).unwrap();
    }

    fn wait(&self, tag: u32, deadline: Deadline) -> Result<(), Refused> {
        let triggers = self.triggers.handle().open().unwrap();
        triggers.wait::<Thread>(tag, deadline)
    }
}

#[test]
fn a_chain_goes_from_one_trigger_to_its_end() {
    for device in [threaded(), resident()] {
        assert!(device.limits().cross_channel);
        let mut rig = Rig::new(&device, &kinds(4));
        // Often enough to go round the rings, in which an operation and what starts the next has three blocks or four.
        for round in 0..21 {
            rig.target.write(0, &[0; 64]).unwrap();
            let first = [rig.write(0)];
            rig.triggers.register(0, 2, first).unwrap();
            let copies = [0, 1, 2, 3].map(|from| rig.copy(from));
            rig.triggers.register_after(1, 0, [copies[0]]).unwrap();
            rig.triggers
                .register_after(2, 1, [Wqe::nop(), copies[1]])
                .unwrap();
            rig.triggers.register_after(3, 2, [copies[2]]).unwrap();
            rig.trigger(0);
            let missing = Refused::Untriggered { missing: 1 };
            assert_eq!(rig.wait(0, Deadline::PASSED), Err(missing));
            assert_eq!(rig.wait(3, Deadline::PASSED), Err(Refused::Timeout));
            assert_eq!(rig.arrived(), [false; 8], "round {round}");
            rig.trigger(0);
            rig.wait(3, LIMIT).unwrap();
            let copied = rig.arrived();
            assert_eq!(
                &copied[..5],
                [true, true, true, true, false],
                "round {round}"
            );
            for tag in 0..3 {
                rig.wait(tag, LIMIT).unwrap();
            }
        }
    }
}

/// Each operation waits for its own one before, not for that of another round.
#[test]
fn what_follows_waits_for_the_completion() {
    let receiving = QueuePairConfig {
        receive_depth: 8,
        ..config()
    };
    for device in [threaded(), resident()] {
        let mut rig = Rig::with(&device, &kinds(2), &receiving);
        for round in 0..5 {
            let message = Wqe::send(rig.source.local(0, 8).unwrap());
            rig.triggers.register(0, 1, [message]).unwrap();
            let write = [rig.write(round)];
            rig.triggers.register_after(1, 0, write).unwrap();
            rig.trigger(0);
            // Nobody takes the message yet.
            assert_eq!(rig.wait(1, SOON), Err(Refused::Timeout), "round {round}");
            assert!(!rig.arrived()[round]);
            let mut receives = rig.far[0]
                .receive_queue()
                .unwrap()
                .open::<Exclusive>()
                .unwrap();
            let place = rig.target.local(56, 8).unwrap();
            receives.try_post(place).unwrap();
            receives.receive(LIMIT).unwrap();
            rig.wait(1, LIMIT).unwrap();
            assert!(rig.arrived()[round]);
        }
    }
}

#[test]
fn several_operations_follow_one() {
    for device in [threaded(), resident()] {
        let mut rig = Rig::new(&device, &kinds(4));
        let writes = [0, 2, 3].map(|to| rig.write(to));
        rig.triggers.register(0, 1, [writes[0]]).unwrap();
        // The last follows the second, which grows after it was there.
        for (tag, after, wqe) in [(1, 0, rig.copy(0)), (2, 0, writes[1]), (3, 1, rig.copy(1))] {
            rig.triggers.register_after(tag, after, [wqe]).unwrap();
        }
        rig.trigger(0);
        for tag in 0..4 {
            rig.wait(tag, LIMIT).unwrap();
        }
        assert_eq!(&rig.arrived()[..4], [true, true, true, false]);
    }
}

/// A trigger of a tag that another one starts sends nothing, and a kernel registers nothing there.
#[test]
fn only_the_nic_starts_what_follows() {
    let device = threaded();
    let mut rig = Rig::new(&device, &kinds(2));
    rig.trigger(1);
    let writes = [rig.write(0), rig.write(1)];
    rig.triggers.register(0, 1, [writes[0]]).unwrap();
    rig.triggers.register_after(1, 0, [writes[1]]).unwrap();
    for _ in 0..3 {
        rig.trigger(1);
    }
    assert_eq!(rig.wait(1, SOON), Err(Refused::Timeout));
    let triggers = rig.triggers.handle().open().unwrap();
    let registered = triggers.register::<Thread, 1>(1, 1, [writes[1]], LIMIT);
    assert_eq!(registered, Err(Refused::Managed));
    assert_eq!(triggers.own::<Thread>(1).err(), Some(Refused::Managed));
    assert_eq!(rig.arrived(), [false; 8]);
    rig.trigger(0);
    rig.wait(1, LIMIT).unwrap();
    assert_eq!(&rig.arrived()[..3], [true, true, false]);
    let mut managed = rig.domain.queue_pair(&kinds(2)[1]).unwrap();
    let mut far = rig.domain.queue_pair(&config()).unwrap();
    connect(&mut managed, &mut far).unwrap();
    let qpn = managed.qpn();
    let refused = managed.send_queue().err();
    assert!(matches!(refused, Some(StartError::Managed { qpn: found }) if found == qpn));
}

#[test]
fn an_operation_that_fails_starts_none() {
    for device in [threaded(), resident()] {
        let mut rig = Rig::new(&device, &kinds(3));
        let mut beyond = rig.target.remote().at(0, 8).unwrap();
        beyond.address += 60;
        let bad = Wqe::write(rig.source.local(0, 8).unwrap(), beyond);
        let write = [rig.write(0)];
        rig.triggers.register(0, 1, write).unwrap();
        rig.triggers.register_after(1, 0, [bad]).unwrap();
        let copy = [rig.copy(0)];
        rig.triggers.register_after(2, 1, copy).unwrap();
        rig.trigger(0);
        rig.wait(0, LIMIT).unwrap();
        let Err(Refused::Failed(error)) = rig.wait(1, LIMIT) else {
            panic!("no error");
        };
        let Cause::Completion(of) = error.cause() else {
            panic!("{error:?}");
        };
        // What starts the next one is flushed in the same ring, behind the cause.
        assert_eq!(of.syndrome, Syndrome::REMOTE_ACCESS);
        let failed = rig.triggers.queue_pairs().nth(1).unwrap();
        let cause = failed.nic_error().unwrap().unwrap();
        assert_eq!(cause.syndrome, Syndrome::REMOTE_ACCESS);
        assert_eq!(rig.wait(2, SOON), Err(Refused::Timeout));
        assert_eq!(&rig.arrived()[..2], [true, false]);
        // Made anew, the chain goes.
        for tag in [1, 2] {
            let far = &mut rig.far[tag];
            rig.triggers
                .renew(tag as u32, |near| {
                    near.reset()?;
                    far.reset()?;
                    connect(near, far)
                })
                .unwrap();
        }
        rig.triggers.register(0, 1, write).unwrap();
        rig.triggers.register_after(1, 0, copy).unwrap();
        rig.triggers.register_after(2, 1, [rig.copy(1)]).unwrap();
        rig.trigger(0);
        rig.wait(2, LIMIT).unwrap();
        assert_eq!(&rig.arrived()[..4], [true, true, true, false]);
    }
}

#[test]
fn chains_that_cannot_be_are_refused() {
    let device = threaded();
    let mut all = kinds(3);
    all.push(config());
    let mut rig = Rig::new(&device, &all);
    let write = [rig.write(0)];
    let mut after =
        |rig: &mut Rig, tag, before| match rig.triggers.register_after(tag, before, write) {
            Err(Error::Trigger(error)) => error,
            other => panic!("{other:?}"),
        };
    let after = &mut after;
    let tags = 4;
    assert_eq!(
        after(&mut rig, 4, 0),
        TriggerError::NoSuchTag { tag: 4, tags }
    );
    assert_eq!(
        after(&mut rig, 1, 4),
        TriggerError::NoSuchTag { tag: 4, tags }
    );
    assert_eq!(after(&mut rig, 3, 0), TriggerError::NotManaged { tag: 3 });
    assert_eq!(
        after(&mut rig, 1, 3),
        TriggerError::NotCrossChannel { tag: 3 }
    );
    // Nothing registered, by nobody started, itself.
    assert_eq!(after(&mut rig, 1, 0), TriggerError::Gone { tag: 0 });
    assert_eq!(after(&mut rig, 2, 1), TriggerError::Gone { tag: 1 });
    assert_eq!(after(&mut rig, 1, 1), TriggerError::Gone { tag: 1 });
    let managed = rig.triggers.register(1, 1, write);
    let error = Refused::Managed;
    assert!(matches!(
        managed,
        Err(Error::Trigger(TriggerError::Refused { tag: 1, error: found })) if found == error
    ));

    rig.triggers.register(0, 1, write).unwrap();
    let too_many = rig.triggers.register_after(1, 0, [write[0]; 5]);
    let error = Refused::InvalidOperation { limit: 4 };
    assert!(matches!(
        too_many,
        Err(Error::Trigger(TriggerError::Refused { tag: 1, error: found })) if found == error
    ));
    rig.triggers.register_after(1, 0, write).unwrap();
    // It has one, under way to no end.
    let error = Refused::Timeout;
    assert_eq!(
        after(&mut rig, 1, 0),
        TriggerError::Refused { tag: 1, error }
    );
    rig.triggers.register_after(2, 0, write).unwrap();
    rig.trigger(0);
    for tag in 0..3 {
        rig.wait(tag, LIMIT).unwrap();
    }
    // It has gone.
    assert_eq!(after(&mut rig, 1, 0), TriggerError::Gone { tag: 0 });
    assert_eq!(after(&mut rig, 2, 1), TriggerError::Gone { tag: 1 });
    rig.triggers.register(0, 1, write).unwrap();
    // That it followed the operation before means nothing for this one.
    assert_eq!(after(&mut rig, 2, 1), TriggerError::Gone { tag: 1 });
    rig.triggers.register_after(1, 0, write).unwrap();
    rig.triggers.register_after(2, 1, write).unwrap();
    // A kernel's operation makes CQEs that the host has not counted.
    rig.trigger(0);
    for tag in 0..3 {
        rig.wait(tag, LIMIT).unwrap();
    }
    let triggers = rig.triggers.handle().open().unwrap();
    triggers.register::<Thread, 1>(0, 1, write, LIMIT).unwrap();
    assert_eq!(after(&mut rig, 1, 0), TriggerError::Uncounted { tag: 0 });
    rig.trigger(0);
    rig.wait(0, LIMIT).unwrap();
    rig.triggers.register(0, 1, write).unwrap();
    assert_eq!(after(&mut rig, 1, 0), TriggerError::Uncounted { tag: 0 });
}

#[test]
fn a_ring_has_room_for_what_follows_or_says_so() {
    let device = threaded();
    let mut rig = Rig::new(&device, &kinds(4));
    let write = [rig.write(0)];
    rig.triggers.register(0, 1, [write[0]; 4]).unwrap();
    for tag in [1, 2] {
        rig.triggers.register_after(tag, 0, write).unwrap();
    }
    let full = rig.triggers.register_after(3, 0, write);
    let error = Refused::InvalidOperation { limit: 8 };
    assert!(matches!(
        full,
        Err(Error::Trigger(TriggerError::Refused { tag: 0, error: found })) if found == error
    ));
    rig.trigger(0);
    for tag in 0..3 {
        rig.wait(tag, LIMIT).unwrap();
    }
    assert_eq!(rig.wait(3, LIMIT), Err(Refused::NotRegistered));
}

#[test]
fn tags_of_different_devices_do_not_follow_each_other() {
    let devices = [threaded(), threaded()];
    let mut near = Vec::new();
    let mut far = Vec::new();
    for (device, kind) in devices.iter().zip(kinds(2)) {
        let domain = device.protection_domain().unwrap();
        let mut ends = [kind, config()].map(|config| domain.queue_pair(&config).unwrap());
        let [here, there] = &mut ends;
        connect(here, there).unwrap();
        let [here, there] = ends;
        near.push(here);
        far.push(there);
    }
    let mut triggers = Triggers::new(near).unwrap();
    triggers.register(0, 1, [Wqe::nop()]).unwrap();
    let refused = triggers.register_after(1, 0, [Wqe::nop()]);
    let error = TriggerError::OtherDevice { tag: 1, after: 0 };
    assert!(matches!(refused, Err(Error::Trigger(found)) if found == error));
}

fn open(pair: &QueuePair) -> SendQueue<'_, Exclusive, Thread> {
    pair.send_queue().unwrap().open().unwrap()
}

/// A queue that a kernel posts to waits for another one's completions; what it names wrongly is an error.
#[test]
fn kernels_post_waits_themselves() {
    for device in [threaded(), resident()] {
        let domain = device.protection_domain().unwrap();
        let master = QueuePairConfig {
            cross_channel: true,
            ..config()
        };
        let ends = [master, config()].map(|kind| {
            let mut ends = [kind, config()].map(|kind| domain.queue_pair(&kind).unwrap());
            let [here, there] = &mut ends;
            connect(here, there).unwrap();
            ends
        });
        let [[one, _], [plain, _]] = &ends;
        let second = domain.queue_pair(&master).unwrap();
        let mut second = [second, domain.queue_pair(&config()).unwrap()];
        let [other, far] = &mut second;
        connect(other, far).unwrap();

        let mut waiting = open(one);
        let completions = |pair: &QueuePair| CqNumber::from_low_bits(pair.send_cqn());
        let wait = Wqe::wait(completions(other), 0).signalled();
        let ticket = waiting.post(wait, LIMIT).unwrap();
        assert!(waiting.wait(ticket, SOON).is_err());
        let mut other = open(other);
        let done = other.post(Wqe::nop().signalled(), LIMIT).unwrap();
        other.wait(done, LIMIT).unwrap();
        waiting.wait(ticket, LIMIT).unwrap();

        // Of several engines, one that has to do with no other queue has the second, which this one does not hear of.
        let wait = Wqe::wait(completions(plain), 0).signalled();
        let ticket = waiting.post(wait, LIMIT).unwrap();
        let Err(WaitError::Failed(error)) = waiting.wait(ticket, SOON) else {
            assert!(device.soft_hca().is_some(), "engines of one HCA");
            continue;
        };
        assert!(device.soft_hca().is_none(), "one engine");
        let Cause::Completion(of) = error.cause() else {
            panic!("{error:?}");
        };
        assert_eq!(of.syndrome, Syndrome::LOCAL_QP_OPERATION);
    }
}
