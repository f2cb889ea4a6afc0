//! Notifications in every interleaving that loom finds: none is lost, none is taken twice, and who has one sees
//! what was written before it; and twins without a fence, or without the atomic step, in which loom must find
//! the fault.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{Ordering, fence};
use loom::thread;
use warpbell::{LeftOut, Thread, Word64};
use warpbell_patterns::gaspi::{Error, GASPI_TEST, Gaspi, NotificationId};

use crate::common::model::model;
use crate::common::program::Program;

/// What the NIC does for a write and its notification.
fn deliver(data: &Word64, word: &Word64, value: u64) {
    data.store(value, Ordering::Relaxed);
    fence(Ordering::Release);
    // A NIC stores. But loom leaves a store unordered to an atomic step that has read the store before it, as C11
    // does not, and lets a later step miss it; a step instead of a store has its place among the others.
    word.swap(value, Ordering::Relaxed);
}

/// The one notification there is.
const ID: NotificationId = 2;

/// How a waiter takes the notification that it has seen.
type Take = fn(&Gaspi<'_>, &Word64) -> u64;

fn take(gaspi: &Gaspi<'_>, _: &Word64) -> u64 {
    gaspi.notify_reset::<Thread>(0, ID).unwrap().into()
}

/// In two steps, between which another notification may come.
fn take_in_two_steps(_: &Gaspi<'_>, word: &Word64) -> u64 {
    let value = word.load(Ordering::Acquire);
    word.store(0, Ordering::Release);
    value
}

/// Looks once at all notifications and takes what is there; gives what it got.
fn waiter(program: &Program, data: &[Word64], take: Take) -> u64 {
    let tables = program.tables();
    let gaspi = tables.handle().open().unwrap();
    match gaspi.notify_waitsome::<Thread>(0, 1, 3, GASPI_TEST) {
        Ok(first) => {
            assert_eq!(first, ID);
            let value = take(&gaspi, &program.words[ID as usize]);
            if value != 0 {
                let seen = data[value as usize].load(Ordering::Relaxed);
                assert_eq!(seen, value, "old data after the notification");
            }
            value
        }
        Err(error) => {
            assert_eq!(error, Error::Timeout);
            0
        }
    }
}

/// Two threads wait while the NIC brings two notifications of the same number, one after the other.
fn two_waiters(without: Option<LeftOut>, take: Take) {
    model(without, move || {
        let program = Arc::new(Program::new(1, 1, 1));
        let data = Arc::new([Word64::new(0), Word64::new(0), Word64::new(0)]);
        let nic = thread::spawn({
            let (program, data) = (Arc::clone(&program), Arc::clone(&data));
            move || {
                for value in [1, 2] {
                    deliver(&data[value], &program.words[ID as usize], value as u64);
                }
            }
        });
        let other = thread::spawn({
            let (program, data) = (Arc::clone(&program), Arc::clone(&data));
            move || waiter(&program, &*data, take)
        });
        let ours = waiter(&program, &*data, take);
        let theirs = other.join().unwrap();
        nic.join().unwrap();
        let left = program.words[ID as usize].load(Ordering::Relaxed);
        // The second may have replaced the first, as a notification of the same number does.
        let found = |value| {
            [ours, theirs, left]
                .iter()
                .filter(|&&got| got == value)
                .count()
        };
        assert_eq!(found(2), 1, "the last notification is lost, or doubled");
        assert!(found(1) <= 1, "a notification is doubled");
    });
}

#[test]
fn no_notification_is_lost_or_doubled() {
    two_waiters(None, take);
}

#[test]
#[should_panic(expected = "is lost, or doubled")]
fn taking_one_wants_an_atomic_step() {
    two_waiters(None, take_in_two_steps);
}

/// Two threads wait for one notification, and the one that gets it acts on its data.
fn one_notification(without: Option<LeftOut>) {
    model(without, move || {
        let program = Arc::new(Program::new(1, 1, 1));
        let data = Arc::new(Word64::new(0));
        let nic = thread::spawn({
            let (program, data) = (Arc::clone(&program), Arc::clone(&data));
            move || deliver(&data, &program.words[ID as usize], 5)
        });
        let tables = program.tables();
        let gaspi = tables.handle().open().unwrap();
        if gaspi.notify_waitsome::<Thread>(0, 0, 5, GASPI_TEST) == Ok(ID) {
            // Before anybody takes it: waiting alone is enough.
            let seen = data.load(Ordering::Relaxed);
            assert_eq!(seen, 5, "old data after the notification");
        }
        nic.join().unwrap();
    });
}

#[test]
fn waiting_orders_the_data() {
    one_notification(None);
}

#[test]
#[should_panic(expected = "old data after the notification")]
fn waiting_wants_its_acquire_fence() {
    one_notification(Some(LeftOut::Acquire));
}
