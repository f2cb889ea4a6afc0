//! Active messages between queues in plain memory, with the test in the place of the NIC.
#![cfg(not(loom))]

mod launched;
mod random;
mod results;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use warpbell::wqe::{Local, LocalKey, Syndrome};
use warpbell::{Cause, Deadline, Thread};
use warpbell_patterns::active::{
    Error, Lane, MAX_ARGUMENTS, MAX_FUNCTION, MAX_PAYLOAD, Payload, Reply, Sent, Server,
};

use crate::common::MAX_MESSAGE;
use crate::common::wire::{BUFFER, Half, MARKS, RESULTS_AT, RESULTS_KEY, Wire};

const NOW: Deadline = Deadline::PASSED;
/// Function n takes so many arguments; 9 is one that is not registered.
const FUNCTIONS: [u32; 7] = [0, 1, 2, 3, 4, 5, 9];
const UNREGISTERED: u32 = 6;

fn payload(buffer: u32, offset: u32, length: u32) -> Payload {
    Payload {
        local: Local {
            address: 0x4000,
            length,
            key: LocalKey(44),
        },
        buffer,
        offset,
    }
}

#[test]
fn a_task_is_given_once_with_what_was_sent() {
    let wire = Wire::new(2, 5, 0, &FUNCTIONS);
    let tables = wire.tables();
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let mut server = tables.target().serve::<Thread>(0).unwrap();
    assert_eq!(server.next(NOW).unwrap_err(), Error::Timeout);
    let sent = lane.send(5, 77, [1, 2, 3, 4, u64::MAX], NOW).unwrap();
    assert_eq!(lane.wait(sent, NOW), Err(Error::Timeout));
    // Two writes of arguments, and that of the header with two more, under one doorbell.
    assert_eq!((wire.near.take_doorbell(), wire.posted()), (Some(3), 3));
    for _ in 0..2 {
        wire.near_step();
        assert_eq!(server.next(NOW).unwrap_err(), Error::Timeout);
    }
    wire.near_step();
    let task = server.next(NOW).unwrap();
    assert_eq!(
        (task.function(), task.value(), task.arguments()),
        (5, 77, 5)
    );
    let arguments: Vec<_> = (0..8).map(|number| task.argument(number)).collect();
    assert_eq!(arguments, [1, 2, 3, 4, u64::MAX, 0, 0, 0]);
    assert!(!task.has_payload() && task.payload().0.is_null());
    // It was not answered: it is given again.
    drop(task);
    let task = server.next(NOW).unwrap();
    server.answer(task, Ok(42), NOW).unwrap();
    assert_eq!(server.next(NOW).unwrap_err(), Error::Timeout);
    wire.settle();
    assert_eq!(lane.wait(sent, NOW), Ok(42));
    assert_eq!(lane.wait(sent, NOW), Ok(42), "an answer stays for a while");
    // One write: a message with two arguments at most.
    let sent = lane.send(2, u32::MAX, [u64::MAX, 0], NOW).unwrap();
    assert_eq!(wire.posted(), 1);
    wire.settle();
    let task = server.next(NOW).unwrap();
    let found = (task.value(), task.argument(0), task.argument(1));
    assert_eq!(found, (u32::MAX, u64::MAX, 0));
    server.answer(task, Ok(3), NOW).unwrap();
    wire.settle();
    assert_eq!(lane.wait(sent, NOW), Ok(3));
    let sent = lane.send(0, 1, [], NOW).unwrap();
    assert_eq!(wire.posted(), 1);
    wire.settle();
    let task = server.next(NOW).unwrap();
    assert_eq!((task.function(), task.value(), task.arguments()), (0, 1, 0));
    server.answer(task, Err(9), NOW).unwrap();
    wire.settle();
    assert_eq!(lane.wait(sent, NOW), Err(Error::Task { code: 9 }));
}

#[test]
fn a_payload_goes_ahead_of_its_task() {
    let wire = Wire::new(2, 5, 0, &FUNCTIONS);
    let tables = wire.tables();
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let mut server = tables.target().serve::<Thread>(0).unwrap();
    let sent = lane.put(payload(0, 16, 240), 1, 5, [6], NOW).unwrap();
    assert_eq!((wire.near.take_doorbell(), wire.posted()), (Some(2), 2));
    let moved = (0x4000, 240, 44, BUFFER.address + 16, BUFFER.remote_key);
    assert_eq!(wire.near_step(), Some(Some(moved)));
    assert_eq!(server.next(NOW).unwrap_err(), Error::Timeout);
    assert_eq!(wire.near_step(), Some(None));
    let task = server.next(NOW).unwrap();
    assert!(task.has_payload());
    assert_eq!((task.argument(0), task.argument(1)), (6, 0));
    // An address that is a number is nothing for miri's strictest mode.
    if !cfg!(miri) {
        let (first, length) = task.payload();
        assert_eq!((first as u64, length), (BUFFER.address + 16, 240));
    }
    server.answer(task, Ok(0), NOW).unwrap();
    wire.settle();
    assert_eq!(lane.wait(sent, NOW), Ok(0));
}

#[test]
fn what_no_target_takes_is_refused_and_not_sent() {
    let wire = Wire::new(2, 5, 0, &FUNCTIONS);
    let tables = wire.tables();
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let function = MAX_FUNCTION + 1;
    let refused = lane.send(function, 0, [], NOW);
    assert_eq!(refused, Err(Error::InvalidFunction { function }));
    let refused = lane.send(0, 0, [0; MAX_ARGUMENTS + 1], NOW);
    assert_eq!(refused, Err(Error::TooManyArguments { given: 6 }));
    let limit = MAX_PAYLOAD.min(MAX_MESSAGE);
    for (payload, error) in [
        (payload(2, 0, 8), Error::InvalidBuffer { buffer: 2 }),
        (payload(0, 249, 8), Error::InvalidOffset { buffer: 0 }),
        (payload(0, u32::MAX, 8), Error::InvalidOffset { buffer: 0 }),
        (payload(1, 0, 1), Error::InvalidOffset { buffer: 1 }),
        (payload(0, 0, 0), Error::InvalidSize { limit }),
        (payload(0, 0, limit + 1), Error::InvalidSize { limit }),
    ] {
        assert_eq!(lane.put(payload, 0, 0, [], NOW), Err(error));
    }
    assert_eq!(wire.near.take_doorbell(), None);
    assert_eq!(lane.wait_all(NOW), Ok(0));
}

#[test]
fn what_is_not_registered_is_refused_by_the_target() {
    let wire = Wire::new(3, 6, 0, &FUNCTIONS);
    let tables = wire.tables();
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let mut server = tables.target().serve::<Thread>(0).unwrap();
    let unregistered = lane.send(UNREGISTERED, 0, [], NOW).unwrap();
    let beyond = lane.send(MAX_FUNCTION, 0, [], NOW).unwrap();
    let wrong = lane.send(2, 0, [1], NOW).unwrap();
    let good = lane.send(1, 0, [1], NOW).unwrap();
    // A payload that the initiator would have refused.
    let outside = lane.put(payload(0, 0, 8), 0, 0, [], NOW).unwrap();
    while wire.posted() != 0 {
        wire.near_step();
    }
    // Offset 249, 8 bytes: bits from 31 on lie behind a mark.
    wire.slots[4 * 8 + 1].store(MARKS | 249 << 33 | 8 << 8, Ordering::Relaxed);
    // One of them is a task.
    let late = Deadline::after_ms(300_000);
    let task = server.next(late).unwrap();
    assert_eq!(task.function(), 1);
    server.answer(task, Ok(8), NOW).unwrap();
    assert_eq!(
        server.next(Deadline::after_us(1)).unwrap_err(),
        Error::Timeout
    );
    wire.settle();
    let not = |function| Err(Error::NotRegistered { function });
    assert_eq!(lane.wait(unregistered, NOW), not(UNREGISTERED));
    assert_eq!(lane.wait(beyond, NOW), not(MAX_FUNCTION));
    let wanted = Err(Error::WrongArguments { wanted: 2 });
    assert_eq!(lane.wait(wrong, NOW), wanted);
    assert_eq!(lane.wait(good, NOW), Ok(8));
    let buffer = Err(Error::InvalidPayload { buffer: 0 });
    assert_eq!(lane.wait(outside, NOW), buffer);
    assert_eq!(lane.wait_all(NOW), Ok(4), "refusals are counted");
}

/// A NIC orders no bytes of one write among themselves, and words behind it come when they come: whatever the slot held
/// before, nothing is given, and nothing refused, before the last half of a word has come.
#[test]
fn no_half_message_is_taken_in_whatever_order_its_words_come() {
    let wire = Wire::new(0, 5, 0, &FUNCTIONS);
    let tables = wire.tables();
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let mut server = tables.target().serve::<Thread>(0).unwrap();
    let mut random = SmallRng::seed_from_u64(11);
    for round in 0..if cfg!(miri) { 12 } else { 6000 } {
        let (function, value) = (random.random_range(0..=UNREGISTERED), random.random());
        // Now and then all bits, so that no word is told by its value.
        let a: [u64; 5] = match random.random_range(0..4) {
            0 => [[0, u64::MAX][round % 2]; 5],
            _ => random.random(),
        };
        let sent = match function {
            0 => lane.send(0, value, [], NOW),
            1 => lane.send(1, value, [a[0]], NOW),
            2 => lane.send(2, value, [a[0], a[1]], NOW),
            3 => lane.put(payload(0, 8, 16), 3, value, [a[0], a[1], a[2]], NOW),
            4 => lane.send(4, value, [a[0], a[1], a[2], a[3]], NOW),
            5 => lane.put(payload(0, 0, 1), 5, value, a, NOW),
            _ => lane.send(UNREGISTERED, value, a, NOW),
        };
        let mut halves = Vec::new();
        while let Some((_, words)) = wire.near_step_without() {
            halves.extend(words);
        }
        halves.shuffle(&mut random);
        for half in halves {
            assert_eq!(server.next(NOW).unwrap_err(), Error::Timeout, "{round}");
            assert!(!wire.far_step(), "nothing is answered: {round}");
            wire.bring(half);
        }
        let given = server.next(NOW);
        let expected = match function {
            UNREGISTERED => {
                assert_eq!(given.unwrap_err(), Error::Timeout);
                Err(Error::NotRegistered { function })
            }
            _ => {
                let task = given.unwrap();
                assert_eq!((task.function(), task.value()), (function, value));
                assert_eq!(task.has_payload(), function == 3 || function == 5);
                for number in 0..function {
                    assert_eq!(task.argument(number), a[number as usize], "{round}");
                }
                server.answer(task, Ok(value), NOW).unwrap();
                Ok(value)
            }
        };
        wire.settle();
        assert_eq!(lane.wait(sent.unwrap(), NOW), expected);
    }
}

#[test]
fn bad_indices_do_not_keep_the_target() {
    let wire = Wire::new(3, 6, 0, &FUNCTIONS);
    let tables = wire.tables();
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let mut server = tables.target().serve::<Thread>(0).unwrap();
    for _ in 0..4 {
        let _ = lane.send(UNREGISTERED, 0, [], NOW).unwrap();
    }
    wire.settle();
    // A look each, and no more.
    for left in (0..4).rev() {
        assert_eq!(server.next(NOW).unwrap_err(), Error::Timeout);
        wire.settle();
        let answered = lane.wait_all(NOW);
        assert_eq!(answered.is_ok(), left == 0, "{left} are left");
    }
}

#[test]
fn a_full_lane_refuses_and_goes_on() {
    let wire = Wire::new(1, 5, 0, &FUNCTIONS);
    let tables = wire.tables();
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let first = lane.send(0, 1, [], NOW).unwrap();
    let second = lane.send(0, 2, [], NOW).unwrap();
    wire.settle();
    for _ in 0..3 {
        assert_eq!(lane.send(0, 3, [], NOW), Err(Error::Full));
    }
    assert_eq!(wire.posted(), 0, "nothing was sent");
    assert_eq!(lane.wait(first, NOW), Err(Error::Timeout));
    // The target comes, and nothing that was accepted is lost.
    let mut server = tables.target().serve::<Thread>(0).unwrap();
    for value in [1, 2] {
        let task = server.next(NOW).unwrap();
        assert_eq!(task.value(), value);
        server.answer(task, Ok(10 * value), NOW).unwrap();
    }
    wire.settle();
    let third = lane.send(0, 3, [], NOW).unwrap();
    assert_eq!(
        lane.wait(first, NOW),
        Ok(10),
        "no answer took its place yet"
    );
    wire.settle();
    let task = server.next(NOW).unwrap();
    server.answer(task, Ok(30), NOW).unwrap();
    wire.settle();
    assert_eq!(lane.wait(first, NOW), Err(Error::Forgotten));
    assert_eq!(lane.wait(second, NOW), Ok(20));
    assert_eq!(lane.wait(third, NOW), Ok(30));
}

#[test]
fn an_old_message_s_answer_is_not_mistaken_for_a_new_one_s() {
    let wire = Wire::new(0, 4, 0, &FUNCTIONS);
    let tables = wire.tables();
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let mut server = tables.target().serve::<Thread>(0).unwrap();
    let first = lane.send(0, 0, [], NOW).unwrap();
    // As many as there are sequence numbers.
    let laps = if cfg!(miri) { 0 } else { 1 << 16 };
    for _ in 0..laps {
        wire.settle();
        let task = server.next(NOW).unwrap();
        server.answer(task, Ok(1), NOW).unwrap();
        wire.settle();
        let _ = lane.send(0, 0, [], NOW).unwrap();
    }
    wire.settle();
    let task = server.next(NOW).unwrap();
    server.answer(task, Ok(2), NOW).unwrap();
    wire.settle();
    assert_eq!(lane.wait_all(NOW), Ok(0));
    let expected = if cfg!(miri) {
        Ok(2)
    } else {
        Err(Error::Forgotten)
    };
    assert_eq!(lane.wait(first, NOW), expected);
}

#[test]
fn an_answer_without_room_is_kept() {
    // The target's ring has 8 blocks, and its NIC stands still.
    let wire = Wire::with_depths(4, [5, 3], 0, &FUNCTIONS);
    let tables = wire.tables();
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let sent: Vec<_> = (0..10)
        .map(|value| lane.send(0, value, [], NOW).unwrap())
        .collect();
    while wire.near_step().is_some() {}
    let mut server = tables.target().serve::<Thread>(0).unwrap();
    for value in 0..9 {
        let task = server.next(NOW).unwrap();
        assert_eq!(task.value(), value);
        let answered = server.answer(task, Ok(value), NOW);
        let room = if value < 8 {
            Ok(())
        } else {
            Err(Error::Timeout)
        };
        assert_eq!(answered, room, "{value}");
    }
    assert_eq!(server.next(NOW).unwrap_err(), Error::Timeout);
    // The next server has it, too.
    drop(server);
    let mut server = tables.target().serve::<Thread>(0).unwrap();
    while wire.far_step() {}
    let task = server.next(NOW).unwrap();
    assert_eq!(task.value(), 9, "no task is given twice");
    server.answer(task, Ok(9), NOW).unwrap();
    while wire.far_step() {}
    for (value, sent) in (0..).zip(sent) {
        assert_eq!(lane.wait(sent, NOW), Ok(value));
    }
}

#[test]
fn a_lane_is_one_owner_s_at_a_time_and_goes_on_after_it() {
    let wire = Wire::new(1, 5, 0, &FUNCTIONS);
    let tables = wire.tables();
    let (initiator, target) = (tables.initiator(), tables.target());
    assert_eq!((initiator.lanes(), target.lanes()), (1, 1));
    let no_lane = Error::InvalidLane { lane: 1 };
    assert_eq!(initiator.lane::<Thread>(1).err(), Some(no_lane));
    assert_eq!(target.serve::<Thread>(1).err(), Some(no_lane));
    for value in 0..5 {
        let mut lane = initiator.lane::<Thread>(0).unwrap();
        assert_eq!(initiator.lane::<Thread>(0).err(), Some(Error::InUse));
        let sent = lane.send(0, value, [], NOW).unwrap();
        drop(lane);
        wire.settle();
        let mut server = target.serve::<Thread>(0).unwrap();
        assert_eq!(target.serve::<Thread>(0).err(), Some(Error::InUse));
        let task = server.next(NOW).unwrap();
        assert_eq!(task.value(), value);
        server.answer(task, Ok(value), NOW).unwrap();
        drop(server);
        wire.settle();
        let mut lane = initiator.lane::<Thread>(0).unwrap();
        assert_eq!(lane.wait(sent, NOW), Ok(value));
    }
}

#[test]
fn a_task_of_another_server_is_refused() {
    let wires = [0, 1].map(|_| Wire::new(1, 5, 0, &FUNCTIONS));
    let tables = wires.each_ref().map(Wire::tables);
    let mut lane = tables[0].initiator().lane::<Thread>(0).unwrap();
    let mut servers = tables
        .each_ref()
        .map(|tables| tables.target().serve::<Thread>(0).unwrap());
    let sent = lane.send(0, 0, [], NOW).unwrap();
    wires[0].settle();
    let task = servers[0].next(NOW).unwrap();
    assert_eq!(servers[1].answer(task, Ok(0), NOW), Err(Error::NotServed));
    assert!(!wires[1].far_step(), "nothing was answered");
    let task = servers[0].next(NOW).unwrap();
    servers[0].answer(task, Ok(3), NOW).unwrap();
    wires[0].settle();
    assert_eq!(lane.wait(sent, NOW), Ok(3));
}

#[test]
fn a_queue_that_failed_is_named() {
    let wire = Wire::new(1, 5, 0, &FUNCTIONS);
    let tables = wire.tables();
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let sent = lane.send(0, 0, [], NOW).unwrap();
    wire.near.fail(0, 0, Syndrome::REMOTE_ACCESS, 0);
    let Err(Error::Failed(error)) = lane.wait(sent, NOW) else {
        panic!("a wait for an answer that never comes");
    };
    assert!(
        matches!(error.cause(), Cause::Completion(error) if error.syndrome == Syndrome::REMOTE_ACCESS)
    );
    assert_eq!(lane.send(0, 0, [], NOW), Err(Error::Failed(error)));
    // At once from then on, however long it might wait.
    let begun = Instant::now();
    let minutes = Deadline::after_ms(300_000);
    assert_eq!(lane.wait(sent, minutes), Err(Error::Failed(error)));
    assert!(begun.elapsed() < Duration::from_secs(300));
}

#[test]
fn an_answer_that_failed_is_named() {
    let wire = Wire::new(1, 5, 0, &FUNCTIONS);
    let tables = wire.tables();
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let mut server = tables.target().serve::<Thread>(0).unwrap();
    let _ = lane.send(0, 0, [], NOW).unwrap();
    wire.settle();
    let task = server.next(NOW).unwrap();
    server.answer(task, Ok(0), NOW).unwrap();
    wire.far.fail(0, 0, Syndrome::REMOTE_ACCESS, 0);
    assert!(matches!(server.next(NOW), Err(Error::Failed(_))));
}
