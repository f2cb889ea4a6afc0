//! Operations that a host registers while kernels trigger them, on queues in plain memory, with the test in the place of
//! the NIC.
#![cfg(not(loom))]

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell::wqe::{Opcode, Syndrome, Wqe};
use warpbell::{CompletionKind, Deadline, SendDoorbell, Thread};
use warpbell_patterns::trigger::{
    Counter, Error, JointHandle, JointTag, JointTriggers, MAX_THRESHOLD, Ringer, TagQueue,
};

use crate::common::{MAX_MESSAGE, Rig};
use crate::trigger::write;

const NOW: Deadline = Deadline::PASSED;

/// One tag.
struct Table {
    rig: Rig,
    tag: JointTag,
}

impl Table {
    fn new(send_doorbell: SendDoorbell) -> Self {
        Self {
            rig: Rig::new(3, CompletionKind::Ordinary).with_doorbell(send_doorbell),
            tag: JointTag::new(),
        }
    }

    /// Calls with what kernels have.
    fn with<R>(&self, act: impl FnOnce(JointTriggers<'_>) -> R) -> R {
        let queue = TagQueue::new(self.rig.handle());
        // SAFETY: a table of one, which lives as long; its completions are a ring of the queue's depth.
        act(unsafe { JointHandle::new(&self.tag, &queue, 1) }
            .open()
            .unwrap())
    }

    fn trigger(&self) {
        self.with(|triggers| triggers.trigger::<Thread>(0).map(drop))
            .unwrap();
    }

    fn register<const N: usize>(&self, threshold: u32, wqes: [Wqe<1>; N]) -> Result<Ringer, Error> {
        // SAFETY: the tag's queue, used through the tag alone.
        unsafe { self.tag.register(&self.rig.handle(), threshold, wqes, NOW) }
    }

    fn settle(&self) -> Result<Ringer, Error> {
        // SAFETY: as above.
        unsafe { self.tag.settle(&self.rig.handle(), NOW) }
    }

    fn await_newest(&self) -> Result<(), Error> {
        // SAFETY: as above.
        unsafe { self.tag.await_newest(&self.rig.handle(), NOW) }
    }

    /// Lets a thread stand between its addition and its look, or go on from there.
    fn set_looking(&self, looking: bool) {
        let tag: *const JointTag = &self.tag;
        // SAFETY: the first word, which others do not use now.
        let tally = unsafe { &*tag.cast::<warpbell::Word64>() };
        let change = if looking { 1 } else { u64::MAX };
        tally.fetch_add(change, std::sync::atomic::Ordering::Relaxed);
    }
}

#[test]
fn the_last_one_rings_be_it_the_host_or_a_trigger() {
    for kind in [SendDoorbell::WithRecord, SendDoorbell::WithoutRecord] {
        let table = Table::new(kind);
        // First the registration.
        assert_eq!(table.register(2, [write(8); 2]), Ok(Ringer::Trigger));
        for index in 0..2 {
            assert_eq!(table.rig.control(index.into()), (index, Opcode::RDMA_WRITE));
            assert_eq!(table.rig.take_doorbell(), None);
            table.trigger();
        }
        assert_eq!(table.rig.take_doorbell(), Some(2));
        table.rig.complete(1, 1);
        // First the triggers, of which one is too many.
        for _ in 0..3 {
            table.trigger();
            assert_eq!(table.rig.take_doorbell(), None);
        }
        assert_eq!(table.register(2, [write(8)]), Ok(Ringer::Host));
        assert_eq!(table.rig.take_doorbell(), Some(3));
        assert_eq!(table.await_newest(), Err(Error::Timeout));
        table.rig.complete(2, 2);
        assert_eq!(table.await_newest(), Ok(()));
        // One before and one behind.
        assert_eq!(table.register(2, [write(8)]), Ok(Ringer::Trigger));
        assert_eq!(table.rig.take_doorbell(), None);
        table.trigger();
        assert_eq!(table.rig.take_doorbell(), Some(4));
        let recorded = match kind {
            SendDoorbell::WithRecord => 4,
            SendDoorbell::WithoutRecord => 0,
        };
        assert_eq!(table.rig.producer_index(), recorded);
    }
}

#[test]
fn a_wait_is_for_the_operation_that_takes_the_trigger() {
    let table = Table::new(SendDoorbell::WithRecord);
    table.with(|triggers| {
        let [first, second, third] = [(); 3].map(|()| triggers.trigger::<Thread>(0).unwrap());
        let wait = |ticket| triggers.wait(ticket, NOW);
        assert_eq!(wait(first), Err(Error::NotRegistered));
        table.register(2, [write(8)]).unwrap();
        assert_eq!(wait(second), Err(Error::Timeout));
        assert_eq!(wait(third), Err(Error::NotRegistered));
        table.rig.complete(0, 0);
        assert_eq!([wait(first), wait(second)], [Ok(()); 2]);
        assert_eq!(wait(third), Err(Error::NotRegistered));
        table.register(3, [write(8)]).unwrap();
        assert_eq!([wait(first), wait(second)], [Ok(()); 2]);
        assert_eq!(wait(third), Err(Error::Untriggered { missing: 2 }));
        assert_eq!(table.await_newest(), Err(Error::Untriggered { missing: 2 }));
        let counter = triggers.counter(0).unwrap();
        assert_eq!((counter.counted(), counter.threshold()), (1, 3));
        assert_eq!(counter.end().0, 2);
    });
}

/// A thread that has counted and not looked yet: the host does not ring as long as that may.
#[test]
fn the_host_asks_again_who_rings() {
    let table = Table::new(SendDoorbell::WithRecord);
    assert_eq!(table.settle(), Err(Error::NotRegistered));
    table.trigger();
    table.set_looking(true);
    assert_eq!(table.register(1, [write(8)]), Err(Error::Unsettled));
    assert_eq!(table.settle(), Err(Error::Unsettled));
    assert_eq!(table.tag.close(), Err(Error::Unsettled));
    // The next one waits for it.
    assert_eq!(table.register(1, [write(8)]), Err(Error::Timeout));
    assert_eq!(table.rig.take_doorbell(), None);
    table.set_looking(false);
    assert_eq!(table.settle(), Ok(Ringer::Host));
    assert_eq!(table.rig.take_doorbell(), Some(1));
    assert_eq!(table.settle(), Ok(Ringer::Host));
    assert_eq!(table.rig.take_doorbell(), None, "it was rung twice");
    table.rig.complete(0, 0);
    // Where triggers are missing, nobody is waited for.
    table.set_looking(true);
    assert_eq!(table.register(1, [write(8)]), Ok(Ringer::Trigger));
    assert_eq!(table.settle(), Ok(Ringer::Trigger));
}

#[test]
fn what_is_wrong_is_named_and_changes_nothing() {
    let table = Table::new(SendDoorbell::WithRecord);
    for threshold in [0, MAX_THRESHOLD + 1, u32::MAX] {
        let refused = table.register(threshold, [write(8)]);
        assert_eq!(refused, Err(Error::InvalidThreshold { threshold }));
    }
    let limit = 4;
    let refused = [table.register(1, []), table.register(1, [write(8); 5])];
    assert_eq!(refused, [Err(Error::InvalidOperation { limit }); 2]);
    let refused = table.register(1, [write(8), write(MAX_MESSAGE + 1)]);
    assert_eq!(refused, Err(Error::InvalidSize { limit: MAX_MESSAGE }));
    assert_eq!(table.await_newest(), Err(Error::NotRegistered));
    assert_eq!(table.tag.counter(), Counter::FRESH);
    table.with(|triggers| {
        let tag = 1;
        let refused = triggers.trigger::<Thread>(tag).map(drop);
        assert_eq!(refused, Err(Error::InvalidTag { tag }));
        assert_eq!(triggers.counter(tag), Err(Error::InvalidTag { tag }));
        let ticket = triggers.trigger::<Thread>(0).unwrap();
        // SAFETY: of no tags, none is looked at.
        let none = unsafe { JointHandle::new(std::ptr::null(), std::ptr::null(), 0) };
        let refused = none.open().unwrap().wait(ticket, NOW);
        assert_eq!(refused, Err(Error::InvalidTag { tag: 0 }));
    });
    assert_eq!(table.rig.take_doorbell(), None);
    assert_eq!(table.register(2, [write(8)]), Ok(Ringer::Trigger));
    let twice = table.register(1, [write(8)]);
    assert_eq!(twice, Err(Error::Untriggered { missing: 1 }));
    table.trigger();
    assert_eq!(table.rig.take_doorbell(), Some(1));
    assert_eq!(table.register(1, [write(8)]), Err(Error::Timeout));
    table.rig.complete(0, 0);
    // SAFETY: any bytes are a handle.
    let zeros: JointHandle<'_> = unsafe { core::mem::zeroed() };
    assert!(matches!(zeros.open(), Err(Error::Handle)));
}

#[test]
fn nothing_comes_behind_the_end() {
    let table = Table::new(SendDoorbell::WithRecord);
    table.with(|triggers| {
        let [first, second] = [(); 2].map(|()| triggers.trigger::<Thread>(0).unwrap());
        table.register(1, [write(8)]).unwrap();
        assert_eq!([table.tag.close(), table.tag.close()], [Ok(()); 2]);
        assert_eq!(table.register(1, [write(8)]), Err(Error::Closed));
        assert_eq!(table.settle(), Err(Error::Closed));
        // The last operation goes its way.
        assert_eq!(triggers.wait(first, NOW), Err(Error::Timeout));
        assert_eq!(triggers.wait(second, NOW), Err(Error::Closed));
        table.rig.complete(0, 0);
        assert_eq!(triggers.wait(first, NOW), Ok(()));
        assert_eq!(table.await_newest(), Ok(()));
    });
}

#[test]
fn a_failed_queue_says_so_to_kernels_and_host() {
    let table = Table::new(SendDoorbell::WithRecord);
    table.register(1, [write(8)]).unwrap();
    table.with(|triggers| {
        let ticket = triggers.trigger::<Thread>(0).unwrap();
        table.rig.fail(0, 0, Syndrome::REMOTE_ACCESS, 0x88);
        let told = triggers.wait(ticket, NOW);
        assert!(matches!(told, Err(Error::Failed(_))), "{told:?}");
        assert_eq!(table.await_newest(), told);
        assert_eq!(table.register(1, [write(8)]).map(drop), told);
    });
}

/// Triggers and registrations in any order, against a model that counts.
#[test]
fn each_operation_goes_once_and_when_its_triggers_are_there() {
    let steps = if cfg!(miri) { 100 } else { 200_000 };
    for seed in 0..4 {
        let kind = match seed % 2 {
            0 => SendDoorbell::WithRecord,
            _ => SendDoorbell::WithoutRecord,
        };
        let table = Table::new(kind);
        let mut random = SmallRng::seed_from_u64(seed);
        let (mut came, mut wanted, mut end, mut done) = (0u64, 0u64, 0u16, true);
        // Now more triggers, now more operations.
        let often = [0.5, 0.7, 0.8, 0.9][seed as usize];
        for step in 0..steps {
            if random.random_bool(often) {
                table.trigger();
                came += 1;
            } else if done {
                let threshold = random.random_range(1..5);
                wanted += u64::from(threshold);
                let ringer = match came >= wanted {
                    true => Ringer::Host,
                    false => Ringer::Trigger,
                };
                end = end.wrapping_add(1);
                done = false;
                assert_eq!(table.register(threshold, [write(8)]), Ok(ringer));
            }
            let sent = (!done && came >= wanted).then_some(end);
            assert_eq!(table.rig.take_doorbell(), sent, "seed {seed}, step {step}");
            if sent.is_some() {
                let last = end.wrapping_sub(1);
                table.rig.complete(last.into(), last);
                done = true;
            }
            let missing = u64::from(table.tag.counter().missing());
            assert_eq!(missing, wanted.saturating_sub(came), "step {step}");
        }
    }
}
