//! Tasks that launch a kernel, with the test in the place of whoever launches it.

use warpbell::wqe::Syndrome;
use warpbell::{Choice, Deadline, Stop, Thread, Word64};
use warpbell_patterns::active::{Error, Lane, LaunchedTask, RECORD_WORDS, Sent};

use super::{FUNCTIONS, NOW, UNREGISTERED, payload};
use crate::common::wire::{BUFFER, Wire};

/// What a dispatcher and the kernels of its tasks have in common.
struct Desk {
    choice: Word64,
    stop: Word64,
    record: Vec<Word64>,
}

impl Desk {
    fn new() -> Self {
        // Nothing of an earlier task may be mistaken for the next one's.
        let word = |_| Word64::new(u64::MAX);
        Self {
            choice: Word64::new(0),
            stop: Word64::new(0),
            record: (0..RECORD_WORDS).map(word).collect(),
        }
    }

    fn choice(&self) -> Choice<'_> {
        // SAFETY: `self` has the word.
        unsafe { Choice::new(&raw const self.choice) }
    }

    fn stop(&self) -> Stop<'_> {
        // SAFETY: a word of a CPU's memory.
        unsafe { Stop::new(&self.stop) }
    }

    fn task(&self) -> LaunchedTask<'_> {
        // SAFETY: `self` has as many words, and launched tasks alone touch them.
        unsafe { LaunchedTask::new(self.choice(), self.record.as_ptr()) }
    }
}

const LATE: Deadline = Deadline::after_ms(300_000);

#[test]
fn a_task_is_chosen_with_what_was_sent_and_answered_behind_its_kernel() {
    let (wire, desk) = (Wire::new(2, 5, 0, &FUNCTIONS), Desk::new());
    let (tables, task) = (wire.tables(), desk.task());
    let target = tables.target();
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let arguments = [1, 2, 3, u64::MAX];
    let sent = lane
        .put(payload(0, 16, 240), 4, 77, arguments, NOW)
        .unwrap();
    wire.settle();
    // A dispatcher that ends before the kernel is launched leaves the task to the next one.
    for _ in 0..2 {
        assert_eq!(task.find(0, target, desk.stop(), LATE), Ok(()));
        assert_eq!(desk.choice().take(), Some(4));
    }
    assert_eq!((task.lane(), task.function(), task.value()), (0, 4, 77));
    let found: Vec<_> = (0..8).map(|number| task.argument(number)).collect();
    assert_eq!(found, [1, 2, 3, u64::MAX, 0, 0, 0, 0]);
    // An address that is a number is nothing for miri's strictest mode.
    if !cfg!(miri) {
        let (first, bytes) = task.payload();
        assert_eq!((first as u64, bytes), (BUFFER.address + 16, 240));
    }
    wire.settle();
    assert_eq!(lane.wait(sent, NOW), Err(Error::Timeout), "nobody answered");
    task.set_result(Ok(u32::MAX));
    assert_eq!(task.answer(target, NOW), Ok(()));
    wire.settle();
    assert_eq!(lane.wait(sent, NOW), Ok(u32::MAX));
    // Once: neither found nor answered again.
    assert_eq!(task.find(0, target, desk.stop(), NOW), Err(Error::Timeout));
    assert_eq!(task.answer(target, NOW), Err(Error::NotServed));
    assert!(!wire.far_step() && !desk.choice().is_made());
}

/// Sends a task of function 0 and has it found.
fn found(wire: &Wire, desk: &Desk, lane: &mut Lane<'_, Thread>, value: u32) -> Sent {
    let sent = lane.send(0, value, [], NOW).unwrap();
    while wire.near_step().is_some() {}
    let looked = desk
        .task()
        .find(0, wire.tables().target(), desk.stop(), NOW);
    assert_eq!(looked, Ok(()));
    assert_eq!(desk.choice().take(), Some(0));
    assert_eq!(desk.task().value(), value);
    sent
}

#[test]
fn a_kernel_fails_by_its_code_or_says_nothing() {
    let (wire, desk) = (Wire::new(2, 5, 0, &FUNCTIONS), Desk::new());
    let (tables, task) = (wire.tables(), desk.task());
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let sent = found(&wire, &desk, &mut lane, 5);
    assert!(task.payload().0.is_null() && task.payload().1 == 0);
    task.set_result(Err(u32::MAX));
    assert_eq!(task.answer(tables.target(), NOW), Ok(()));
    wire.settle();
    let failed = Error::Task { code: u32::MAX };
    assert_eq!(lane.wait(sent, NOW), Err(failed));
    let sent = found(&wire, &desk, &mut lane, 6);
    assert_eq!(task.answer(tables.target(), NOW), Ok(()));
    wire.settle();
    assert_eq!(
        lane.wait(sent, NOW),
        Ok(0),
        "not the result of the one before"
    );
}

#[test]
fn a_dispatcher_refuses_what_is_not_registered() {
    let (wire, desk) = (Wire::new(2, 5, 0, &FUNCTIONS), Desk::new());
    let (tables, task) = (wire.tables(), desk.task());
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let unregistered = lane.send(UNREGISTERED, 0, [], NOW).unwrap();
    let wrong = lane.send(2, 0, [1], NOW).unwrap();
    wire.settle();
    for _ in 0..2 {
        let refused = task.find(0, tables.target(), desk.stop(), NOW);
        assert_eq!(refused, Err(Error::Timeout));
    }
    assert!(!desk.choice().is_made(), "nothing is launched");
    wire.settle();
    let function = UNREGISTERED;
    let refused = Err(Error::NotRegistered { function });
    assert_eq!(lane.wait(unregistered, NOW), refused);
    let refused = Err(Error::WrongArguments { wanted: 2 });
    assert_eq!(lane.wait(wrong, NOW), refused);
}

#[test]
fn one_task_is_chosen_in_a_round() {
    let (wire, desk) = (Wire::new(2, 5, 0, &FUNCTIONS), Desk::new());
    let (tables, task) = (wire.tables(), desk.task());
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    assert!(desk.choice().choose(9), "another lane's task");
    // Nothing came here: this thread ends with the other one.
    assert_eq!(task.find(0, tables.target(), desk.stop(), LATE), Ok(()));
    let sent = lane.send(0, 5, [], NOW).unwrap();
    wire.settle();
    assert_eq!(task.find(0, tables.target(), desk.stop(), LATE), Ok(()));
    assert_eq!(desk.choice().take(), Some(9));
    assert_eq!(task.argument(0), u64::MAX, "the other one's record stays");
    assert!(!wire.far_step());
    // In the next round it is this one's turn.
    assert_eq!(task.find(0, tables.target(), desk.stop(), LATE), Ok(()));
    assert_eq!((desk.choice().take(), task.value()), (Some(0), 5));
    assert_eq!(task.answer(tables.target(), NOW), Ok(()));
    wire.settle();
    assert_eq!(lane.wait(sent, NOW), Ok(0));
}

#[test]
fn a_dispatcher_ends_by_its_word_its_deadline_and_a_queue_that_failed() {
    let (wire, desk) = (Wire::new(2, 5, 0, &FUNCTIONS), Desk::new());
    let (tables, task) = (wire.tables(), desk.task());
    let (target, stop) = (tables.target(), desk.stop());
    let short = Deadline::after_us(10);
    assert_eq!(task.find(0, target, stop, short), Err(Error::Timeout));
    let none = Error::InvalidLane { lane: 1 };
    assert_eq!(task.find(1, target, stop, LATE), Err(none));
    stop.request();
    assert_eq!(task.find(0, target, stop, LATE), Ok(()));
    assert!(!desk.choice().is_made());
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let _ = found(&wire, &desk, &mut lane, 1);
    assert_eq!(task.answer(target, NOW), Ok(()));
    wire.far.fail(0, 0, Syndrome::REMOTE_ACCESS, 0);
    let failed = task.find(0, target, stop, LATE);
    assert!(matches!(failed, Err(Error::Failed(_))), "{failed:?}");
    let failed = task.answer(target, LATE);
    assert!(matches!(failed, Err(Error::Failed(_))), "{failed:?}");
}

#[test]
fn an_answer_without_room_goes_with_a_later_look() {
    // The target's ring has 8 blocks, and its NIC stands still.
    let (wire, desk) = (Wire::with_depths(4, [5, 3], 0, &FUNCTIONS), Desk::new());
    let (tables, task) = (wire.tables(), desk.task());
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let mut sent = Vec::new();
    for value in 0..9 {
        sent.push(found(&wire, &desk, &mut lane, value));
        task.set_result(Ok(10 * value));
        assert_eq!(task.answer(tables.target(), NOW), Ok(()), "{value}");
    }
    while wire.far_step() {}
    assert_eq!(lane.wait(sent[8], NOW), Err(Error::Timeout));
    let looked = task.find(0, tables.target(), desk.stop(), NOW);
    assert_eq!(looked, Err(Error::Timeout), "it is not given twice");
    while wire.far_step() {}
    for (value, sent) in (0..).zip(sent) {
        assert_eq!(lane.wait(sent, NOW), Ok(10 * value));
    }
}
