//! Tables of tags: operations that the host registers before and after their triggers, queues that fail, numbers that
//! are refused.

use crate::trigger::{Error as Refused, MAX_THRESHOLD};
use warpbell::wqe::Syndrome;
use warpbell::{Cause, Deadline, Exclusive, SendDoorbell, Thread};

use super::rig::{LIMIT, Rig, config, refusal};
use super::{connected, resident, threaded};
use crate::Error;
use crate::trigger::host::{TriggerError, Triggers};
use warpbell_host_init::{Completions, Error as StartError, QueuePairConfig};

/// A tag of this kind.
fn kind(send_doorbell: SendDoorbell) -> QueuePairConfig {
    QueuePairConfig {
        send_doorbell,
        ..config()
    }
}

#[test]
fn operations_go_once_they_are_triggered() {
    for device in [threaded(), resident()] {
        for send_doorbell in [SendDoorbell::WithRecord, SendDoorbell::WithoutRecord] {
            let mut rig = Rig::new(&device, &[kind(send_doorbell); 3]);
            let writes = [0, 1, 2, 3].map(|at| rig.write(at));
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
            // Spare triggers count for the next operation, which the host's thread registers as a kernel does.
            let again = [rig.write(4)];
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
    let mut rig = Rig::new(&device, &[config(); 1]);
    for number in 0..21 {
        let at = number % 8;
        rig.target.write(0, &[0; 64]).unwrap();
        let write = rig.write(at);
        rig.triggers.register(0, 1, [write; 3]).unwrap();
        let triggers = rig.triggers.handle().open().unwrap();
        triggers.trigger::<Thread>(0).unwrap();
        triggers.wait::<Thread>(0, LIMIT).unwrap();
        assert_eq!(rig.arrived(), std::array::from_fn(|word| word == at));
    }
    assert_eq!(rig.triggers.counter(0).unwrap().end().0, 63);
}

#[test]
fn a_tag_that_failed_is_made_anew() {
    let device = threaded();
    let mut rig = Rig::new(&device, &[config(); 2]);
    let bad = rig.write_beyond();
    // Flushed requests behind it do not hide the cause.
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
    let refused = refusal(rig.triggers.register(0, 1, [write]));
    let error = Refused::Failed(error);
    assert_eq!(refused, TriggerError::Refused { tag: 0, error });
    // The other tag knows nothing of it.
    rig.triggers.register(1, 1, [write]).unwrap();
    rig.renew(0);
    assert_eq!(rig.triggers.counter(0).unwrap().counted(), 0);
    let write = rig.write(1);
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
    let pair = |config| connected([(&domain, &config), (&domain, &config)]);
    let none = refusal(Triggers::new(Vec::new()));
    assert_matches!(none => TriggerError::Tags { tags: 0, .. });
    for send_completions in [
        Completions::Collapsed,
        Completions::Ordinary { depth: Some(16) },
    ] {
        let other = QueuePairConfig {
            send_completions,
            ..config()
        };
        let [good, _far] = pair(config());
        let [other, _far] = pair(other);
        assert_eq!(
            refusal(Triggers::new(vec![good, other])),
            TriggerError::OtherCompletions { tag: 1 }
        );
    }
    let [used, _far] = pair(config());
    let mut queue = used.send_queue().unwrap().open::<Exclusive>().unwrap();
    queue.drain(LIMIT).unwrap();
    drop(queue);
    assert_eq!(
        refusal(Triggers::new(vec![used])),
        TriggerError::Used { tag: 0 }
    );
    let fresh = domain.queue_pair(&config()).unwrap();
    assert_matches!(Triggers::new(vec![fresh]) => Err(Error::Start(StartError::NotReady { .. })));

    let mut rig = Rig::new(&device, &[config(); 1]);
    let write = rig.write(0);
    let mut register = |tag, threshold| refusal(rig.triggers.register(tag, threshold, [write]));
    assert_eq!(register(1, 1), TriggerError::NoSuchTag { tag: 1, tags: 1 });
    for threshold in [0, MAX_THRESHOLD + 1] {
        let error = Refused::InvalidThreshold { threshold };
        assert_eq!(
            register(0, threshold),
            TriggerError::Refused { tag: 0, error }
        );
    }
    let too_many = refusal(rig.triggers.register(0, 1, [write; 5]));
    let error = Refused::InvalidOperation { limit: 4 };
    assert_eq!(too_many, TriggerError::Refused { tag: 0, error });
    rig.triggers.register(0, 1, [write]).unwrap();
    let error = Refused::Untriggered { missing: 1 };
    let twice = refusal(rig.triggers.register(0, 1, [write]));
    assert_eq!(twice, TriggerError::Refused { tag: 0, error });
    let triggers = rig.triggers.handle().open().unwrap();
    triggers.trigger::<Thread>(0).unwrap();
    triggers.wait::<Thread>(0, LIMIT).unwrap();
    assert!(rig.arrived()[0], "after all refusals");
}
