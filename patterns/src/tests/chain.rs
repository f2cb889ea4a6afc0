//! Operations that the NIC starts by itself: chains of tags, broken chains, refused chains.

use crate::trigger::Error as Refused;
use warpbell::wqe::{CqNumber, Syndrome, Wqe};
use warpbell::{Cause, Deadline, Exclusive, SendQueue, Thread, WaitError};

use super::rig::{LIMIT, Rig, config, refusal};
use super::{connected, resident, threaded};
use crate::trigger::host::{TriggerError, Triggers};
use warpbell_host_init::{Error as StartError, QueuePair, QueuePairConfig};

/// For what does not come.
const SOON: Deadline = Deadline::after_ms(50);

/// A tag that kernels trigger, and others that follow.
fn kinds(tags: usize) -> Vec<QueuePairConfig> {
    let kind = |tag| QueuePairConfig {
        cross_channel: true,
        managed_send: tag > 0,
        ..config()
    };
    (0..tags).map(kind).collect()
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
    let domain = &rig.domain;
    let [managed, _far] = connected([(domain, &kinds(2)[1]), (domain, &config())]);
    let qpn = managed.qpn();
    let refused = managed.send_queue().err();
    assert_matches!(refused => Some(StartError::Managed { qpn: found }) if found == qpn);
}

#[test]
fn an_operation_that_fails_starts_none() {
    for device in [threaded(), resident()] {
        let mut rig = Rig::new(&device, &kinds(3));
        let bad = rig.write_beyond();
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
            rig.renew(tag);
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
    let after =
        |rig: &mut Rig, tag, before| refusal(rig.triggers.register_after(tag, before, write));
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
    let error = Refused::Managed;
    let managed = refusal(rig.triggers.register(1, 1, write));
    assert_eq!(managed, TriggerError::Refused { tag: 1, error });

    rig.triggers.register(0, 1, write).unwrap();
    let too_many = refusal(rig.triggers.register_after(1, 0, [write[0]; 5]));
    let error = Refused::InvalidOperation { limit: 4 };
    assert_eq!(too_many, TriggerError::Refused { tag: 1, error });
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
    let error = Refused::InvalidOperation { limit: 8 };
    let full = refusal(rig.triggers.register_after(3, 0, write));
    assert_eq!(full, TriggerError::Refused { tag: 0, error });
    rig.trigger(0);
    for tag in 0..3 {
        rig.wait(tag, LIMIT).unwrap();
    }
    assert_eq!(rig.wait(3, LIMIT), Err(Refused::NotRegistered));
}

#[test]
fn tags_of_different_devices_do_not_follow_each_other() {
    let devices = [threaded(), threaded()];
    let pairs = devices.iter().zip(kinds(2)).map(|(device, kind)| {
        let domain = device.protection_domain().unwrap();
        <(_, _)>::from(connected([(&domain, &kind), (&domain, &config())]))
    });
    let (near, _far): (Vec<_>, Vec<_>) = pairs.unzip();
    let mut triggers = Triggers::new(near).unwrap();
    triggers.register(0, 1, [Wqe::nop()]).unwrap();
    let refused = refusal(triggers.register_after(1, 0, [Wqe::nop()]));
    assert_eq!(refused, TriggerError::OtherDevice { tag: 1, after: 0 });
}

fn open(pair: &QueuePair) -> SendQueue<'_, Exclusive, Thread> {
    pair.send_queue().unwrap().open().unwrap()
}

/// A queue that a kernel posts to waits for another queue's completions. A wrong name is an error.
#[test]
fn kernels_post_waits_themselves() {
    for device in [threaded(), resident()] {
        let domain = device.protection_domain().unwrap();
        let master = QueuePairConfig {
            cross_channel: true,
            ..config()
        };
        let ends = [master, config(), master]
            .map(|kind| connected([(&domain, &kind), (&domain, &config())]));
        let [[one, _], [plain, _], [other, _]] = &ends;

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
