//! Tasks that answer with bytes.

use super::*;

/// Bytes of the target's memory for results.
pub fn result(offset: u32, length: u32) -> Local {
    Local {
        address: RESULTS_AT + u64::from(offset),
        length,
        key: LocalKey(RESULTS_KEY),
    }
}

/// The bytes of a reply.
pub fn bytes(reply: &Reply<'_>) -> Vec<u8> {
    let words = (0..reply.length().div_ceil(8)).flat_map(|word| reply.word(word).to_le_bytes());
    words.take(reply.length() as usize).collect()
}

#[test]
fn a_result_goes_ahead_of_its_answer() {
    let wire = Wire::with_results(1, [5, 5], 0, &FUNCTIONS, 20);
    let tables = wire.tables();
    for (word, value) in wire
        .results
        .iter()
        .zip([0x0706_0504_0302_0100, 0x0f0e_0d0c])
    {
        word.store(value, Ordering::Relaxed);
    }
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let mut server = tables.target().serve::<Thread>(0).unwrap();
    for (slot, value) in [(0, 7), (1, 8), (0, 9)] {
        let sent = lane.send(0, value, [], NOW).unwrap();
        wire.settle();
        let task = server.next(NOW).unwrap();
        assert_eq!(task.slot(), slot);
        server.answer_with(task, value, result(3, 7), NOW).unwrap();
        assert!(wire.far.take_doorbell().is_some());
        assert!(wire.far_step());
        assert_eq!(lane.wait(sent, NOW), Err(Error::Timeout));
        assert!(wire.far_step() && !wire.far_step());
        assert_eq!(lane.wait(sent, NOW), Ok(value), "the value alone");
        let reply = lane.wait_reply(sent, NOW).unwrap();
        assert_eq!(reply.value(), value);
        assert_eq!(bytes(&reply), [3, 4, 5, 6, 7, 12, 13]);
    }
    // A value alone, and a refusal, have none.
    let value = lane.send(0, 0, [], NOW).unwrap();
    let refused = lane.send(UNREGISTERED, 0, [], NOW).unwrap();
    wire.settle();
    let task = server.next(NOW).unwrap();
    server.answer(task, Ok(1), NOW).unwrap();
    assert_eq!(server.next(NOW).unwrap_err(), Error::Timeout);
    wire.settle();
    let reply = lane.wait_reply(value, NOW).unwrap();
    assert_eq!((reply.value(), reply.length(), reply.word(0)), (1, 0, 0));
    let function = UNREGISTERED;
    let unknown = Err(Error::NotRegistered { function });
    assert_eq!(lane.wait_reply(refused, NOW).map(|_| ()), unknown);
}

#[test]
fn a_result_that_has_no_room_in_the_lane_is_refused() {
    for (limit, wire) in [
        (0, Wire::new(1, 5, 0, &FUNCTIONS)),
        (20, Wire::with_results(1, [5, 5], 0, &FUNCTIONS, 20)),
    ] {
        let tables = wire.tables();
        let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
        let mut server = tables.target().serve::<Thread>(0).unwrap();
        let sent = lane.send(0, 4, [], NOW).unwrap();
        wire.settle();
        for length in [0, limit + 1, u32::MAX] {
            let task = server.next(NOW).expect("the task is given again");
            let refused = server.answer_with(task, 4, result(0, length), NOW);
            assert_eq!(refused, Err(Error::InvalidResult { limit }), "{length}");
            assert!(!wire.far_step(), "nothing was answered");
        }
        let task = server.next(NOW).unwrap();
        server.answer(task, Ok(4), NOW).unwrap();
        wire.settle();
        assert_eq!(lane.wait(sent, NOW), Ok(4));
    }
}

#[test]
fn a_result_is_there_until_its_slot_s_next_message() {
    let wire = Wire::with_results(1, [5, 5], 0, &FUNCTIONS, 8);
    let tables = wire.tables();
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let mut server = tables.target().serve::<Thread>(0).unwrap();
    let mut sent = Vec::new();
    for value in 0..3 {
        sent.push(lane.send(0, value, [], NOW).unwrap());
        wire.settle();
        let task = server.next(NOW).unwrap();
        if value < 2 {
            wire.results[0].store(value.into(), Ordering::Relaxed);
            server.answer_with(task, value, result(0, 8), NOW).unwrap();
            wire.settle();
        }
    }
    // The third message may have its result there already, although it is not answered.
    assert_eq!(lane.wait(sent[0], NOW), Ok(0));
    let forgotten = lane.wait_reply(sent[0], NOW).map(|_| ());
    assert_eq!(forgotten, Err(Error::Forgotten));
    assert_eq!(lane.wait_reply(sent[1], NOW).unwrap().word(0), 1);
    let late = lane.wait_reply(sent[2], NOW).map(|_| ());
    assert_eq!(late, Err(Error::Timeout));
}

#[test]
fn a_result_without_room_in_the_queue_is_kept() {
    // The target's ring has 8 blocks, and its NIC stands still.
    let wire = Wire::with_results(3, [5, 3], 0, &FUNCTIONS, 8);
    let tables = wire.tables();
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    let sent: Vec<_> = (0..6)
        .map(|value| lane.send(0, value, [], NOW).unwrap())
        .collect();
    while wire.near_step().is_some() {}
    let mut server = tables.target().serve::<Thread>(0).unwrap();
    for value in 0..5 {
        wire.results[value as usize].store(100 + u64::from(value), Ordering::Relaxed);
        let task = server.next(NOW).unwrap();
        assert_eq!(task.value(), value);
        let answered = server.answer_with(task, value, result(8 * value, 8), NOW);
        let room = match value {
            0..4 => Ok(()),
            _ => Err(Error::Timeout),
        };
        assert_eq!(answered, room, "{value}");
    }
    assert_eq!(server.next(NOW).unwrap_err(), Error::Timeout);
    // The next server has it, too.
    drop(server);
    let mut server = tables.target().serve::<Thread>(0).unwrap();
    while wire.far_step() {}
    let task = server.next(NOW).unwrap();
    assert_eq!(task.value(), 5, "no task is given twice");
    server.answer(task, Ok(5), NOW).unwrap();
    while wire.far_step() {}
    for (value, sent) in (0..5).zip(sent) {
        let reply = lane.wait_reply(sent, NOW).unwrap();
        let found = (reply.value(), reply.length(), reply.word(0));
        assert_eq!(found, (value, 8, 100 + u64::from(value)));
    }
}

#[test]
fn a_refusal_without_room_in_the_queue_is_kept() {
    let wire = Wire::with_results(4, [5, 3], 0, &FUNCTIONS, 8);
    let tables = wire.tables();
    let mut lane = tables.initiator().lane::<Thread>(0).unwrap();
    for value in 0..8 {
        let _ = lane.send(0, value, [], NOW).unwrap();
    }
    let wrong = lane.send(2, 0, [1], NOW).unwrap();
    while wire.near_step().is_some() {}
    let mut server = tables.target().serve::<Thread>(0).unwrap();
    for value in 0..8 {
        let task = server.next(NOW).unwrap();
        server.answer(task, Ok(value), NOW).unwrap();
    }
    assert_eq!(server.next(NOW).unwrap_err(), Error::Timeout);
    while wire.far_step() {}
    assert_eq!(lane.wait(wrong, NOW), Err(Error::Timeout), "it was owed");
    assert_eq!(server.next(NOW).unwrap_err(), Error::Timeout);
    while wire.far_step() {}
    let wanted = Err(Error::WrongArguments { wanted: 2 });
    assert_eq!(lane.wait(wrong, NOW), wanted);
}
