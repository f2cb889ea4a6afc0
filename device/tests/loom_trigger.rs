//! Triggers against their operation's registration, in every interleaving that loom finds: none is lost, none counts
//! twice, an operation goes once and with the data of all who triggered it; and twins without a fence, or without the
//! atomic step, in which loom must find the fault.
#![cfg(loom)]

mod common;

use common::Rig;
use common::model::model;
use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;
use warpbell::trigger::{Counter, Error, TriggerEntry, TriggerHandle, Triggers};
use warpbell::wqe::{Opcode, Wqe, WqeIndex};
use warpbell::{CompletionKind, Deadline, LeftOut, Thread, Word64};

/// One tag, and a word of data for each of two threads.
struct Table {
    /// Leads into `rig`, which is freed after it.
    entry: TriggerEntry<'static>,
    rig: Box<Rig>,
    data: [Word64; 2],
}

impl Table {
    fn new() -> Arc<Self> {
        let rig = Box::new(Rig::new(2, CompletionKind::Collapsed));
        // SAFETY: the rig stays where it is as long as the entry. Its completions are collapsed, and its queue is used
        // through the entry alone.
        let entry = unsafe {
            let rig: *const Rig = &*rig;
            TriggerEntry::new((*rig).handle(), Counter::FRESH)
        };
        let data = [Word64::new(0), Word64::new(0)];
        Arc::new(Self { entry, rig, data })
    }

    fn triggers(&self) -> Triggers<'_> {
        // SAFETY: a table of one, which lives as long.
        unsafe { TriggerHandle::new(&self.entry, 1) }
            .open()
            .unwrap()
    }

    fn register(&self, threshold: u32) -> Result<(), Error> {
        self.triggers()
            .register::<Thread, 1>(0, threshold, [Wqe::nop()], Deadline::PASSED)
    }

    /// The word that triggers add to, for those that do so by hand.
    fn word(&self) -> &Word64 {
        let entry: *const TriggerEntry<'_> = &self.entry;
        // SAFETY: the first field, transparently an atomic word.
        unsafe { &*entry.cast::<Word64>() }
    }
}

/// How a thread triggers; whether it sends the operation where it should.
type Trigger = fn(&Table) -> bool;

fn trigger(table: &Table) -> bool {
    table.triggers().trigger::<Thread>(0).unwrap();
    true
}

const ONE: u64 = Counter::new(WqeIndex(0), 0, 1).to_bits();

/// In two steps, between which another trigger may come.
fn trigger_in_two_steps(table: &Table) -> bool {
    let found = table.word().load(Ordering::Acquire);
    table
        .word()
        .store(found.wrapping_add(ONE), Ordering::Release);
    false
}

/// Without the order of its data before it.
fn trigger_relaxed(table: &Table) -> bool {
    table.word().fetch_add(ONE, Ordering::Relaxed);
    false
}

/// What the NIC does when it looks: doorbell, record, WQE, data.
fn look(table: &Table) -> Option<u16> {
    let rung = table.rig.doorbell_index()?;
    let recorded = table.rig.producer_index();
    assert!(recorded >= rung, "an old record after its doorbell");
    for block in 0..recorded {
        let found = table.rig.control(block.into());
        assert_eq!(found, (block, Opcode::NOP), "the NIC fetched an old WQE");
    }
    for data in &table.data {
        assert_eq!(data.load(Ordering::Relaxed), 1, "the NIC sends old data");
    }
    Some(recorded)
}

/// Two threads store and trigger, one registers an operation that wants both, and the NIC looks.
fn two_triggers(without: Option<LeftOut>, other: Trigger) {
    model(without, move || {
        let table = Table::new();
        let act = |number: usize, how: Trigger| {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                table.data[number].store(1, Ordering::Relaxed);
                let sends = how(&table);
                // Everybody may be the NIC as well.
                look(&table);
                sends
            })
        };
        let threads = [act(0, trigger), act(1, other)];
        table.register(2).unwrap();
        look(&table);
        let all_send = threads.map(|thread| thread.join().unwrap()) == [true; 2];
        let counter = table.triggers().counter(0).unwrap();
        assert_eq!(counter.missing(), 0, "a trigger is lost");
        if all_send {
            assert_eq!(look(&table), Some(1), "the operation was not sent");
        }
    });
}

#[test]
fn an_operation_goes_with_the_last_of_three() {
    two_triggers(None, trigger);
}

#[test]
#[should_panic(expected = "a trigger is lost")]
fn triggering_wants_an_atomic_step() {
    two_triggers(None, trigger_in_two_steps);
}

#[test]
#[should_panic(expected = "the NIC sends old data")]
fn triggering_releases_the_data() {
    two_triggers(None, trigger_relaxed);
}

/// Three triggers, two at the same time as the registrations, for two operations that want one and two.
fn two_operations(without: Option<LeftOut>) {
    model(without, move || {
        let table = Table::new();
        for data in &table.data {
            data.store(1, Ordering::Relaxed);
        }
        let threads = [0, 1].map(|_| {
            let table = Arc::clone(&table);
            thread::spawn(move || trigger(&table))
        });
        table.register(1).unwrap();
        // Plays the NIC, once it is rung.
        let second = match look(&table) {
            Some(1) => {
                table.rig.complete(0, 0);
                table.register(2).unwrap();
                true
            }
            _ => false,
        };
        for thread in threads {
            thread.join().unwrap();
        }
        let counter = table.triggers().counter(0).unwrap();
        let recorded = look(&table);
        if second {
            assert_eq!(
                (recorded, counter.missing()),
                (Some(1), 1),
                "sent too early"
            );
            trigger(&table);
            assert_eq!(look(&table), Some(2), "the second was not sent");
        } else {
            assert_eq!(
                (recorded, counter.counted()),
                (Some(1), 2),
                "the first was not sent"
            );
        }
    });
}

/// One thread has the tag to itself for a trigger of its own, the other one triggers meanwhile, before or after.
#[test]
fn a_tag_of_ones_own_loses_nothing() {
    model(None, || {
        let table = Table::new();
        table.register(2).unwrap();
        let other = Arc::clone(&table);
        let other = thread::spawn(move || {
            other.data[1].store(1, Ordering::Relaxed);
            trigger(&other);
            look(&other);
        });
        table.data[0].store(1, Ordering::Relaxed);
        let mut own = table.triggers().own::<Thread>(0).unwrap();
        own.trigger();
        drop(own);
        look(&table);
        other.join().unwrap();
        let counter = table.triggers().counter(0).unwrap();
        assert_eq!((counter.counted(), counter.missing()), (2, 0));
        assert_eq!(look(&table), Some(1), "the operation was not sent");
    });
}

#[test]
fn triggers_are_counted_once_across_operations() {
    two_operations(None);
}

#[test]
#[should_panic(expected = "an old record after its doorbell")]
fn sending_wants_its_fences() {
    two_triggers(Some(LeftOut::Release), trigger);
}
