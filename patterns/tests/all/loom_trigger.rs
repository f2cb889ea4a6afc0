//! Triggers against their operation's registration, in every interleaving that loom finds: none is lost, none counts
//! twice, an operation goes once and with the data of all who triggered it; and twins without a fence, or without the
//! atomic step, in which loom must find the fault.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{Ordering, fence};
use loom::thread;
use warpbell::wqe::{Local, LocalKey, Opcode, Remote, RemoteKey, Syndrome, Wqe, WqeIndex};
use warpbell::{Cause, CompletionKind, Deadline, LeftOut, Thread, Word64};
use warpbell_patterns::trigger::{Counter, Error, TriggerEntry, TriggerHandle, Triggers};

use crate::common::Rig;
use crate::common::model::model;

/// A WQE of which no word is 0, as in a ring where none was stored.
pub fn write() -> Wqe<1> {
    let (address, key) = (0x1000, 7);
    let local = Local {
        address,
        length: 8,
        key: LocalKey(key),
    };
    let remote = Remote {
        address,
        key: RemoteKey(key),
    };
    Wqe::write(local, remote)
}

/// One tag, and a word of data for each of two threads.
struct Table {
    /// Leads into `rig`, which is freed after it.
    entry: TriggerEntry<'static>,
    rig: Box<Rig>,
    data: [Word64; 2],
}

impl Table {
    fn new() -> Arc<Self> {
        let rig = Box::new(Rig::new(2, CompletionKind::Ordinary).within_gpu());
        // SAFETY: the rig stays where it is as long as the entry. Its completions are a ring of the queue's depth, and its queue is used
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
            .register::<Thread, 1>(0, threshold, [write()], Deadline::PASSED)
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

/// Through a look: loom lets it be as old as anybody's memory may be.
fn look_and_trigger(table: &Table) -> bool {
    table.triggers().look::<Thread>(0).unwrap().trigger();
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

/// What a trigger by hand leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Without {
    /// What the look tells of is not acquired.
    Acquire,
    /// This thread's data is not released.
    Release,
    /// What came between the look and the addition is neither acquired nor ordered before the record.
    Behind,
    /// The record is not ordered before the doorbell.
    RecordFirst,
    Nothing,
}

/// The steps of a trigger, some left out.
fn trigger_by_hand(table: &Table, without: Without) -> bool {
    let wants = |step| without != step;
    let (word, order) = (table.word(), Ordering::Relaxed);
    let seen = word.load(order);
    if wants(Without::Acquire) {
        fence(Ordering::Acquire);
    }
    if wants(Without::Release) {
        fence(Ordering::Release);
    }
    let found = word.fetch_add(ONE, order);
    if Counter::from_bits(found).missing() == 1 {
        if found != seen && wants(Without::Behind) {
            fence(Ordering::Acquire);
            fence(Ordering::Release);
        }
        let end = Counter::from_bits(found).end();
        table.rig.store_record(end);
        if wants(Without::RecordFirst) {
            fence(Ordering::Release);
        }
        table.rig.ring(end);
    }
    true
}

/// The steps of a trigger through a look, some left out.
fn claim_by_hand(table: &Table, without: Without) -> bool {
    let wants = |step| without != step;
    let (word, order) = (table.word(), Ordering::Relaxed);
    let seen = word.load(order);
    if Counter::from_bits(seen).missing() == 1 {
        let claimed = word.compare_exchange(seen, seen.wrapping_add(ONE), order, order);
        if wants(Without::Acquire) {
            fence(Ordering::Acquire);
        }
        if wants(Without::Release) {
            fence(Ordering::Release);
        }
        if claimed.is_ok() {
            let end = Counter::from_bits(seen).end();
            table.rig.store_record(end);
            if wants(Without::RecordFirst) {
                fence(Ordering::Release);
            }
            table.rig.ring(end);
            return true;
        }
    }
    trigger_by_hand(table, Without::Nothing)
}

/// What the NIC does when it looks at the record, which it may at any time: record, WQE.
fn fetch_by_record(table: &Table) -> u16 {
    let recorded = table.rig.producer_index();
    for block in 0..recorded {
        let found = table.rig.control(block.into());
        let expected = (block, Opcode::RDMA_WRITE);
        assert_eq!(found, expected, "the NIC fetched an old WQE");
    }
    recorded
}

/// What the NIC does when it looks at the doorbell, and then goes on.
fn fetch(table: &Table) -> Option<u16> {
    let rung = table.rig.doorbell_index()?;
    let recorded = fetch_by_record(table);
    assert!(recorded >= rung, "an old record after its doorbell");
    Some(recorded)
}

fn sends(table: &Table, data: usize) {
    let sent = table.data[data].load(Ordering::Relaxed);
    assert_eq!(sent, 1, "the NIC sends old data");
}

/// The same, and it sends the data.
fn look(table: &Table) -> Option<u16> {
    let recorded = fetch(table)?;
    sends(table, 0);
    sends(table, 1);
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

/// One thread stores and triggers, one registers an operation that wants nothing else, and a third is the NIC, which
/// knows nothing but what it sees.
fn one_trigger(without: Option<LeftOut>, how: Trigger) {
    model(without, move || {
        let table = Table::new();
        table.data[1].store(1, Ordering::Relaxed);
        let triggering = Arc::clone(&table);
        let triggering = thread::spawn(move || {
            triggering.data[0].store(1, Ordering::Relaxed);
            how(&triggering);
        });
        let nic = Arc::clone(&table);
        let nic = thread::spawn(move || {
            if fetch_by_record(&nic) == 1 {
                sends(&nic, 0);
            }
            look(&nic);
        });
        table.register(1).unwrap();
        nic.join().unwrap();
        triggering.join().unwrap();
        assert_eq!(look(&table), Some(1), "the operation was not sent");
    });
}

#[test]
fn an_operation_goes_with_its_trigger_or_its_registration() {
    one_trigger(None, trigger);
    one_trigger(None, |table| trigger_by_hand(table, Without::Nothing));
}

#[test]
fn an_operation_goes_with_the_last_of_three() {
    two_triggers(None, trigger);
}

#[test]
fn a_look_is_one_of_its_triggers() {
    one_trigger(None, look_and_trigger);
    one_trigger(None, |table| claim_by_hand(table, Without::Nothing));
}

#[test]
fn a_look_is_the_last_of_three_or_another() {
    two_triggers(None, look_and_trigger);
}

#[test]
fn a_look_too_many_counts_with_its_data() {
    one_too_many(look_and_trigger);
}

#[test]
#[should_panic(expected = "a trigger is lost")]
fn triggering_wants_an_atomic_step() {
    two_triggers(None, trigger_in_two_steps);
}

/// Two threads trigger for an operation each, of which the first goes with either: the second one's data belong to the
/// second, whoever sends it.
fn one_too_many(how: Trigger) {
    model(None, move || {
        let table = Table::new();
        let first = Arc::clone(&table);
        let first = thread::spawn(move || trigger(&first));
        let second = Arc::clone(&table);
        let second = thread::spawn(move || {
            second.data[1].store(1, Ordering::Relaxed);
            how(&second);
        });
        table.register(1).unwrap();
        if fetch(&table) == Some(1) {
            table.rig.complete(0, 0);
            table.register(1).unwrap();
        }
        if fetch(&table) == Some(2) {
            sends(&table, 1);
        }
        first.join().unwrap();
        second.join().unwrap();
    });
}

#[test]
fn one_too_many_counts_with_its_data() {
    one_too_many(trigger);
    one_too_many(|table| trigger_by_hand(table, Without::Nothing));
}

#[test]
fn the_steps_by_hand_are_those_of_a_trigger() {
    two_triggers(None, |table| trigger_by_hand(table, Without::Nothing));
}

#[test]
#[should_panic(expected = "the NIC sends old data")]
fn triggering_releases_the_data() {
    two_triggers(None, |table| trigger_by_hand(table, Without::Release));
}

#[test]
#[should_panic(expected = "the NIC fetched an old WQE")]
fn triggering_acquires_what_the_look_tells_of() {
    one_trigger(None, |table| trigger_by_hand(table, Without::Acquire));
}

#[test]
#[should_panic(expected = "the NIC fetched an old WQE")]
fn the_last_orders_what_came_behind_its_look() {
    one_trigger(None, |table| trigger_by_hand(table, Without::Behind));
}

#[test]
#[should_panic(expected = "an old record after its doorbell")]
fn the_last_orders_the_record() {
    two_triggers(None, |table| trigger_by_hand(table, Without::RecordFirst));
}

#[test]
#[should_panic(expected = "the NIC fetched an old WQE")]
fn a_claim_acquires_what_it_finds() {
    one_trigger(None, |table| claim_by_hand(table, Without::Acquire));
}

/// One thread stores and triggers; the one that registered is the NIC, which has the WQE and looks at the record alone.
fn one_trigger_for_who_registered(how: Trigger) {
    model(None, move || {
        let table = Table::new();
        let triggering = Arc::clone(&table);
        let triggering = thread::spawn(move || {
            triggering.data[0].store(1, Ordering::Relaxed);
            how(&triggering);
        });
        table.register(1).unwrap();
        if fetch_by_record(&table) == 1 {
            sends(&table, 0);
        }
        triggering.join().unwrap();
    });
}

#[test]
fn a_record_alone_tells_of_the_data() {
    one_trigger_for_who_registered(trigger);
    one_trigger_for_who_registered(look_and_trigger);
}

#[test]
#[should_panic(expected = "the NIC sends old data")]
fn a_claim_releases_the_data() {
    one_trigger_for_who_registered(|table| claim_by_hand(table, Without::Release));
}

#[test]
#[should_panic(expected = "an old record after its doorbell")]
fn a_claim_orders_the_record() {
    one_trigger(None, |table| claim_by_hand(table, Without::RecordFirst));
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
fn own_and_other(how: Trigger) {
    model(None, move || {
        let table = Table::new();
        table.register(2).unwrap();
        let other = Arc::clone(&table);
        let other = thread::spawn(move || {
            other.data[1].store(1, Ordering::Relaxed);
            how(&other);
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
fn a_tag_of_ones_own_loses_nothing() {
    own_and_other(trigger);
    own_and_other(look_and_trigger);
}

#[test]
fn triggers_are_counted_once_across_operations() {
    two_operations(None);
}

#[test]
#[should_panic(expected = "the NIC sends old data")]
fn sending_wants_its_release_fences() {
    two_triggers(Some(LeftOut::Release), trigger);
}

#[test]
#[should_panic(expected = "the NIC fetched an old WQE")]
fn sending_wants_its_acquire_fences() {
    one_trigger(Some(LeftOut::Acquire), trigger);
}

/// The first of two requests fails and the other one is flushed, while two threads wait: whoever is told of a failure is
/// told its cause.
fn the_cause_is_told(without: Option<LeftOut>) {
    model(without, || {
        let table = Table::new();
        let operation = [write(), write()];
        let triggers = table.triggers();
        triggers
            .register::<Thread, 2>(0, 1, operation, Deadline::PASSED)
            .unwrap();
        triggers.trigger::<Thread>(0).unwrap();
        let nic = Arc::clone(&table);
        let nic = thread::spawn(move || {
            nic.rig.fail(0, 0, Syndrome::REMOTE_ACCESS, 0x88);
            nic.rig.fail(1, 1, Syndrome::FLUSHED, 0xf9);
        });
        let other = Arc::clone(&table);
        let other = thread::spawn(move || told(&other));
        told(&table);
        nic.join().unwrap();
        other.join().unwrap();
        assert!(told(&table), "a failure that nobody is told of");
    });
}

/// Whether a thread that waits is told of a failure.
fn told(table: &Table) -> bool {
    match table.triggers().wait::<Thread>(0, Deadline::PASSED) {
        Err(Error::Failed(error)) => {
            let Cause::Completion(of) = error.cause() else {
                panic!("{error:?}");
            };
            let cause = (of.syndrome, of.wqe_index);
            let expected = (Syndrome::REMOTE_ACCESS, WqeIndex(0));
            assert_eq!(cause, expected, "the cause is lost");
            true
        }
        Err(Error::Timeout) => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn waits_are_told_the_cause() {
    the_cause_is_told(None);
}

#[test]
#[should_panic(expected = "the cause is lost")]
fn the_cause_wants_its_acquire_fence() {
    the_cause_is_told(Some(LeftOut::Acquire));
}
