//! Active messages while their NICs move them, in every interleaving that loom finds: whoever sees a task sees its
//! arguments and its payload, whoever sees an answer sees what the task left, and what is sent is there before its
//! doorbell; and twins without a fence, in which loom must find the fault.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{Ordering, fence};
use loom::thread;
use warpbell::wqe::{Local, LocalKey};
use warpbell::{Deadline, LeftOut, Thread, Word64};
use warpbell_patterns::active::Error;

use crate::common::model::model;
use crate::common::wire::{RESULTS_AT, RESULTS_KEY, Wire};

const NOW: Deadline = Deadline::PASSED;

/// A lane, and a word of memory that is written ahead of a message or an answer.
struct Lane {
    wire: Wire,
    data: Word64,
}

impl Lane {
    fn new() -> Arc<Self> {
        Self::of_slots(0)
    }

    /// A lane of `1 << log2` slots.
    fn of_slots(log2: u32) -> Arc<Self> {
        Arc::new(Self {
            wire: Wire::new(log2, 4, 0, &[0, 1]),
            data: Word64::new(0),
        })
    }
}

/// The target's NIC brings what came while the target looks: the payload, and behind it the message's words, which have no
/// order among themselves.
fn taking(without: Option<LeftOut>) {
    model(without, || {
        let lane = Lane::new();
        let nic = Arc::clone(&lane);
        let nic = thread::spawn(move || {
            // A message as the initiator makes it: let it make one, and bring it.
            let tables = nic.wire.tables();
            let mut sender = tables.initiator().lane::<Thread>(0).unwrap();
            let _ = sender.send(1, 7, [42], NOW).unwrap();
            nic.data.store(1, Ordering::Relaxed);
            // As NICs do before words that may be polled.
            fence(Ordering::Release);
            nic.wire.near_step();
        });
        let tables = lane.wire.tables();
        let mut server = tables.target().serve::<Thread>(0).unwrap();
        match server.next(NOW) {
            Ok(task) => {
                assert_eq!(task.argument(0), 42, "an old argument");
                let data = lane.data.load(Ordering::Relaxed);
                assert_eq!(data, 1, "an old payload");
                server.answer(task, Ok(0), NOW).unwrap();
            }
            Err(error) => assert_eq!(error, Error::Timeout),
        }
        nic.join().unwrap();
    });
}

#[test]
fn a_task_comes_with_its_arguments() {
    taking(None);
}

#[test]
#[should_panic(expected = "an old")]
fn taking_a_task_wants_its_fence() {
    taking(Some(LeftOut::Acquire));
}

/// A lane of one slot, whose next message comes once its answer is on its way: the words of the task before were cleared
/// ahead of that, and nothing of what comes now is.
fn used_again(without: Option<LeftOut>) {
    model(without, || {
        let lane = Arc::new(Wire::new(0, 4, 0, &[5]));
        bring(&lane, [1, 2, 3, 4, 5]);
        // The next message, as it is made by a lane that has come so far.
        let later = Wire::new(0, 4, 1, &[5]);
        bring(&later, [6, 7, 8, 9, 10]);
        let next: Vec<_> = later
            .slots
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect();
        let nic = Arc::clone(&lane);
        let nic = thread::spawn(move || {
            // The record tells of an answer: the initiator takes it, and the next message comes.
            let answered = nic.far.producer_index() == 1;
            if answered {
                for (slot, &word) in nic.slots.iter().zip(&next) {
                    slot.store(word, Ordering::Relaxed);
                }
            }
            answered
        });
        let tables = lane.tables();
        let mut server = tables.target().serve::<Thread>(0).unwrap();
        let task = server.next(NOW).unwrap();
        server.answer(task, Ok(0), NOW).unwrap();
        if nic.join().unwrap() {
            let task = server.next(NOW).expect("a word was cleared late");
            let arguments: Vec<_> = (0..5).map(|at| task.argument(at)).collect();
            assert_eq!(arguments, [6, 7, 8, 9, 10]);
        }
    });
}

/// Sends a message and brings it.
fn bring(wire: &Wire, arguments: [u64; 5]) {
    let tables = wire.tables();
    let mut sender = tables.initiator().lane::<Thread>(0).unwrap();
    let _ = sender.send(0, 0, arguments, NOW).unwrap();
    while wire.near_step().is_some() {}
}

#[test]
fn a_slots_next_message_comes_behind_the_clearing_of_its_words() {
    used_again(None);
}

#[test]
#[should_panic(expected = "a word was cleared late")]
fn clearing_a_slots_words_wants_its_fence() {
    used_again(Some(LeftOut::Release));
}

/// The initiator's NIC brings what the task wrote back, and then the answer, while the initiator looks.
fn answered(without: Option<LeftOut>) {
    model(without, || {
        let lane = Lane::new();
        let tables = lane.wire.tables();
        let mut sender = tables.initiator().lane::<Thread>(0).unwrap();
        let sent = sender.send(0, 0, [], NOW).unwrap();
        lane.wire.near_step();
        let nic = Arc::clone(&lane);
        let nic = thread::spawn(move || {
            let tables = nic.wire.tables();
            let mut server = tables.target().serve::<Thread>(0).unwrap();
            let task = server.next(NOW).unwrap();
            server.answer(task, Ok(5), NOW).unwrap();
            nic.data.store(1, Ordering::Relaxed);
            fence(Ordering::Release);
            nic.wire.far_step();
        });
        match sender.wait(sent, NOW) {
            Ok(value) => {
                assert_eq!(value, 5);
                let data = lane.data.load(Ordering::Relaxed);
                assert_eq!(data, 1, "old data behind the answer");
            }
            Err(error) => assert_eq!(error, Error::Timeout),
        }
        nic.join().unwrap();
        assert_eq!(sender.wait(sent, NOW), Ok(5));
    });
}

/// The initiator's NIC brings a task's result, and then the answer, while the initiator looks.
fn replied(without: Option<LeftOut>) {
    model(without, || {
        let wire = Wire::with_results(0, [4, 4], 0, &[0], 8);
        wire.results[0].store(42, Ordering::Relaxed);
        let wire = Arc::new(wire);
        let tables = wire.tables();
        let mut sender = tables.initiator().lane::<Thread>(0).unwrap();
        let sent = sender.send(0, 0, [], NOW).unwrap();
        wire.near_step();
        let nic = Arc::clone(&wire);
        let nic = thread::spawn(move || {
            let tables = nic.tables();
            let mut server = tables.target().serve::<Thread>(0).unwrap();
            let task = server.next(NOW).unwrap();
            let result = Local {
                address: RESULTS_AT,
                length: 8,
                key: LocalKey(RESULTS_KEY),
            };
            server.answer_with(task, 5, result, NOW).unwrap();
            nic.far_step();
            // As NICs do before a word that may be polled.
            fence(Ordering::Release);
            nic.far_step();
        });
        match sender.wait_reply(sent, NOW) {
            Ok(reply) => {
                assert_eq!((reply.value(), reply.length()), (5, 8));
                assert_eq!(reply.word(0), 42, "an old result");
            }
            Err(error) => assert_eq!(error, Error::Timeout),
        }
        nic.join().unwrap();
        assert_eq!(sender.wait_reply(sent, NOW).unwrap().word(0), 42);
    });
}

#[test]
fn an_answer_comes_behind_its_result() {
    replied(None);
}

#[test]
#[should_panic(expected = "an old result")]
fn taking_a_result_wants_its_fence() {
    replied(Some(LeftOut::Acquire));
}

#[test]
fn an_answer_comes_behind_its_data() {
    answered(None);
}

/// The same, of two messages of which one is answered: whoever waits for the other takes the first's answer, too.
fn answered_in_part(without: Option<LeftOut>) {
    model(without, || {
        let lane = Lane::of_slots(1);
        let tables = lane.wire.tables();
        let mut sender = tables.initiator().lane::<Thread>(0).unwrap();
        let first = sender.send(0, 0, [], NOW).unwrap();
        let second = sender.send(0, 0, [], NOW).unwrap();
        lane.wire.near_step();
        lane.wire.near_step();
        let nic = Arc::clone(&lane);
        let nic = thread::spawn(move || {
            let tables = nic.wire.tables();
            let mut server = tables.target().serve::<Thread>(0).unwrap();
            let task = server.next(NOW).unwrap();
            server.answer(task, Ok(5), NOW).unwrap();
            nic.data.store(1, Ordering::Relaxed);
            fence(Ordering::Release);
            nic.wire.far_step();
        });
        assert_eq!(sender.wait(second, NOW), Err(Error::Timeout));
        if let Ok(value) = sender.wait(first, NOW) {
            assert_eq!(value, 5);
            let data = lane.data.load(Ordering::Relaxed);
            assert_eq!(data, 1, "old data behind an answer that came alone");
        }
        nic.join().unwrap();
    });
}

#[test]
fn an_answer_that_comes_alone_comes_behind_its_data() {
    answered_in_part(None);
}

#[test]
#[should_panic(expected = "old data behind an answer that came alone")]
fn taking_an_answer_alone_wants_its_fence() {
    answered_in_part(Some(LeftOut::Acquire));
}

#[test]
#[should_panic(expected = "old data behind the answer")]
fn taking_an_answer_wants_its_fence() {
    answered(Some(LeftOut::Acquire));
}

/// The initiator stores data and sends, while its NIC looks at the doorbell.
fn sending(without: Option<LeftOut>) {
    model(without, || {
        let lane = Lane::new();
        let nic = Arc::clone(&lane);
        let nic = thread::spawn(move || {
            let rig = &nic.wire.near;
            if let Some(rung) = rig.doorbell_index() {
                assert_eq!(rung, 2, "one doorbell for all arguments and the header");
                assert_eq!(rig.producer_index(), 2, "an old record");
                for block in 0..2 {
                    assert_eq!(rig.control(block.into()).0, block, "an old WQE");
                }
                let data = nic.data.load(Ordering::Relaxed);
                assert_eq!(data, 1, "the NIC sends old data");
            }
        });
        let tables = lane.wire.tables();
        let mut sender = tables.initiator().lane::<Thread>(0).unwrap();
        lane.data.store(1, Ordering::Relaxed);
        let _ = sender.send(1, 0, [1, 2, 3], NOW).unwrap();
        drop(sender);
        nic.join().unwrap();
    });
}

#[test]
fn a_message_is_there_before_its_doorbell() {
    sending(None);
}

#[test]
#[should_panic(expected = "old")]
fn sending_wants_its_fences() {
    sending(Some(LeftOut::Release));
}
