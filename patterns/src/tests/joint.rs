//! Tables under which the host registers while others trigger, on software HCAs.

use std::thread;

use warpbell::wqe::Wqe;
use warpbell::{Deadline, SendDoorbell, Thread};
use warpbell_host_init::{
    Device, Error as StartError, MemoryRegion, ProtectionDomain, QueuePair, QueuePairConfig,
};

use super::rig::{LIMIT, config, refusal};
use super::{ALL, bytes_of, connected, reconnect, region, resident, threaded};
use crate::Error;
use crate::trigger::host::{JointTriggers, TriggerError};
use crate::trigger::{Error as Refused, JointTicket, MAX_THRESHOLD, Ringer, Tag};

struct Rig {
    triggers: JointTriggers,
    far: Vec<QueuePair>,
    source: MemoryRegion,
    target: MemoryRegion,
}

impl Rig {
    /// A tag for each kind.
    fn new(device: &Device, kinds: &[QueuePairConfig]) -> Self {
        let domain = device.protection_domain().unwrap();
        let (near, far) = pairs(&domain, kinds);
        Self {
            triggers: JointTriggers::new(near).unwrap(),
            far,
            source: region(&domain, 8, 0xaa, ALL),
            target: region(&domain, 64, 0, ALL),
        }
    }

    /// A write to that word of the target.
    fn write(&self, to: usize) -> Wqe<1> {
        let local = self.source.local(0, 8).unwrap();
        Wqe::write(local, self.target.remote().at(8 * to, 8).unwrap())
    }

    fn has_arrived(&self, to: usize) -> bool {
        bytes_of(&self.target)[8 * to..][..8] == [0xaa; 8]
    }

    fn trigger(&self, tag: Tag) -> JointTicket<Thread> {
        let triggers = self.triggers.handle().open().unwrap();
        triggers.trigger(tag).unwrap()
    }

    fn await_done(&self, ticket: JointTicket<Thread>) -> Result<(), Refused> {
        let triggers = self.triggers.handle().open().unwrap();
        triggers.wait(ticket, LIMIT)
    }
}

/// Queue pairs of these kinds, and their other ends.
fn pairs(domain: &ProtectionDomain, kinds: &[QueuePairConfig]) -> (Vec<QueuePair>, Vec<QueuePair>) {
    let pair = |kind| <(_, _)>::from(connected([(domain, kind), (domain, &config())]));
    kinds.iter().map(pair).unzip()
}

fn refused(tag: Tag, error: Refused) -> TriggerError {
    TriggerError::Refused { tag, error }
}

#[test]
fn the_host_registers_before_and_behind_the_triggers() {
    for device in [threaded(), resident()] {
        let kinds = [SendDoorbell::WithRecord, SendDoorbell::WithoutRecord];
        let kinds = kinds.map(|send_doorbell| QueuePairConfig {
            send_doorbell,
            ..config()
        });
        let rig = Rig::new(&device, &kinds);
        for tag in [0, 1] {
            let at = 2 * tag as usize;
            let writes = [rig.write(at)];
            let ringer = rig.triggers.register(tag, 2, writes, LIMIT);
            assert_eq!(ringer.unwrap(), Ringer::Trigger);
            let tickets = [(); 2].map(|()| rig.trigger(tag));
            assert_eq!(tickets.map(|ticket| rig.await_done(ticket)), [Ok(()); 2]);
            assert!(rig.has_arrived(at) && !rig.has_arrived(at + 1));
            let ticket = rig.trigger(tag);
            let ringer = rig.triggers.register(tag, 1, [rig.write(at + 1)], LIMIT);
            assert_eq!(ringer.unwrap(), Ringer::Host);
            rig.triggers.wait(tag, LIMIT).unwrap();
            assert_eq!(rig.await_done(ticket), Ok(()));
            assert!(rig.has_arrived(at + 1));
            let counter = rig.triggers.counter(tag).unwrap();
            assert_eq!((counter.counted(), counter.end().0), (1, 2));
        }
    }
}

#[test]
fn the_host_registers_while_threads_trigger() {
    let rig = Rig::new(&threaded(), &[config()]);
    let (rounds, triggering) = (200, 3);
    thread::scope(|scope| {
        for _ in 0..triggering {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let ticket = rig.trigger(0);
                    assert_eq!(rig.await_done(ticket), Ok(()));
                }
            });
        }
        for _ in 0..rounds {
            let write = [rig.write(0)];
            rig.triggers.register(0, triggering, write, LIMIT).unwrap();
        }
    });
    rig.triggers.wait(0, LIMIT).unwrap();
    let counter = rig.triggers.counter(0).unwrap();
    assert_eq!((counter.counted(), counter.end().0), (triggering, rounds));
}

#[test]
fn one_thread_of_the_host_registers_at_a_time() {
    let rig = Rig::new(&threaded(), &[config()]);
    let register = |deadline| rig.triggers.register(0, 1, [rig.write(0)], deadline);
    let in_use = refused(0, Refused::InUse);
    register(LIMIT).unwrap();
    thread::scope(|scope| {
        // Waits for the first operation's trigger. The refusals below hold the tag for a moment each.
        let other = scope.spawn(|| {
            loop {
                match register(LIMIT) {
                    Err(Error::Trigger(error)) if error == in_use => thread::yield_now(),
                    registered => break registered,
                }
            }
        });
        let mut wait = LIMIT.wait();
        loop {
            let error = refusal(register(Deadline::PASSED));
            if error == in_use {
                break;
            }
            assert_eq!(error, refused(0, Refused::Untriggered { missing: 1 }));
            assert!(!wait.expired(), "two threads register");
            thread::yield_now();
        }
        let _ = rig.trigger(0);
        assert_eq!(other.join().unwrap().unwrap(), Ringer::Trigger);
    });
}

#[test]
fn a_tag_that_is_closed_or_failed_is_made_anew() {
    let mut rig = Rig::new(&threaded(), &[config()]);
    let mut beyond = rig.target.remote().at(0, 8).unwrap();
    beyond.address += 60;
    let bad = Wqe::write(rig.source.local(0, 8).unwrap(), beyond);
    rig.triggers.register(0, 1, [bad], LIMIT).unwrap();
    let ticket = rig.trigger(0);
    let Err(Refused::Failed(error)) = rig.await_done(ticket) else {
        panic!("no error");
    };
    let failed = refused(0, Refused::Failed(error));
    assert_eq!(refusal(rig.triggers.wait(0, LIMIT)), failed);
    let write = rig.write(0);
    assert_eq!(refusal(rig.triggers.register(0, 1, [write], LIMIT)), failed);
    rig.triggers.close(0).unwrap();
    let closed = refused(0, Refused::Closed);
    assert_eq!(refusal(rig.triggers.register(0, 1, [write], LIMIT)), closed);
    assert_eq!(refusal(rig.triggers.settle(0, LIMIT)), closed);
    let ticket = rig.trigger(0);
    assert_eq!(rig.await_done(ticket), Err(Refused::Closed));
    let far = &mut rig.far[0];
    let renewed = rig.triggers.renew(0, |near| reconnect(near, far));
    renewed.unwrap();
    let ticket = rig.trigger(0);
    let ringer = rig.triggers.register(0, 1, [write], LIMIT).unwrap();
    assert_eq!((ringer, rig.await_done(ticket)), (Ringer::Host, Ok(())));
    assert!(rig.has_arrived(0));
}

#[test]
fn bad_tables_and_operations_are_refused() {
    let device = threaded();
    let domain = device.protection_domain().unwrap();
    let table = |kinds: &[QueuePairConfig]| JointTriggers::new(pairs(&domain, kinds).0).map(drop);
    assert_matches!(refusal(table(&[])) => TriggerError::Tags { tags: 0, .. });
    let managed = QueuePairConfig {
        managed_send: true,
        ..config()
    };
    assert_eq!(
        refusal(table(&[config(), managed])),
        refused(1, Refused::Managed)
    );
    let fresh = domain.queue_pair(&config()).unwrap();
    let unready = JointTriggers::new(vec![fresh]).map(drop);
    assert_matches!(unready => Err(Error::Start(StartError::NotReady { .. })));

    let rig = Rig::new(&device, &[config()]);
    let none = TriggerError::NoSuchTag { tag: 1, tags: 1 };
    let write = [rig.write(0)];
    assert_eq!(refusal(rig.triggers.register(1, 1, write, LIMIT)), none);
    assert_eq!(refusal(rig.triggers.settle(1, LIMIT)), none);
    assert_eq!(refusal(rig.triggers.wait(1, LIMIT)), none);
    assert_eq!(refusal(rig.triggers.close(1)), none);
    assert_eq!(refusal(rig.triggers.counter(1)), none);
    for threshold in [0, MAX_THRESHOLD + 1] {
        let error = Refused::InvalidThreshold { threshold };
        let told = refusal(rig.triggers.register(0, threshold, write, LIMIT));
        assert_eq!(told, refused(0, error));
    }
    let not_registered = refused(0, Refused::NotRegistered);
    assert_eq!(refusal(rig.triggers.wait(0, LIMIT)), not_registered);
    assert_eq!(refusal(rig.triggers.settle(0, LIMIT)), not_registered);
}
