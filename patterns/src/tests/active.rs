//! Active messages: lanes that are connected, functions and buffers that are registered, numbers that are refused.

use std::thread;

use crate::active::{
    Error as Refused, InitiatorHandle, MAX_ARGUMENTS, MAX_RESULT, MAX_SLOTS, Payload, TargetHandle,
};
use warpbell::{Deadline, Thread};
use warpbell_soft_hca::shell::{HcaOptions, LateStores};

use super::{ALL, region, resident, threaded};
use crate::Error;
use crate::active::host::{ActiveConfig, ActiveError, ActiveMessages};
use warpbell_host_init::soft::SoftOptions;
use warpbell_host_init::{Device, Nic, ProtectionDomain, QueuePairConfig};

const LIMIT: Deadline = Deadline::after_ms(300_000);
const SHORT: Deadline = Deadline::after_ms(20);

/// Adds its two arguments to its value.
const ADD: u32 = 1;
/// Adds up the bytes of its payload.
const SUM: u32 = 4;

fn config() -> ActiveConfig {
    ActiveConfig {
        lanes: 3,
        slots: 4,
        functions: 5,
        buffers: 2,
        max_result: 100,
        queue_pair: QueuePairConfig {
            send_depth: 16,
            ..QueuePairConfig::granting(warpbell_host_init::Access::all())
        },
    }
}

fn active(device: &Device) -> (ActiveMessages, ProtectionDomain) {
    let domain = || device.protection_domain().unwrap();
    let near = domain();
    let mut active = ActiveMessages::new(&near, &domain(), &config()).unwrap();
    active.register(ADD, 2).unwrap();
    active.register(SUM, 0).unwrap();
    active.register_buffer(1, 3000).unwrap();
    (active, near)
}

/// Runs `tasks` tasks of a lane.
fn serve(target: TargetHandle<'_>, lane: u32, tasks: u32) {
    let mut server = target.serve::<Thread>(lane).unwrap();
    for _ in 0..tasks {
        let task = server.next(LIMIT).unwrap();
        let result = match task.function() {
            ADD => {
                let sum = u64::from(task.value()) + task.argument(0) + task.argument(1);
                u32::try_from(sum).map_err(|_| 1)
            }
            SUM => {
                let (first, length) = task.payload();
                // SAFETY: the payload is this task's until it is answered.
                let bytes = unsafe { std::slice::from_raw_parts(first, length as usize) };
                Ok(bytes.iter().map(|&byte| u32::from(byte)).sum())
            }
            other => panic!("function {other}"),
        };
        server.answer(task, result, LIMIT).unwrap();
    }
}

/// Sends more messages than a lane has slots, a payload with every third of them.
fn ask(initiator: InitiatorHandle<'_>, number: u32, payload: Payload, sum: u32, messages: u32) {
    let mut lane = initiator.lane::<Thread>(number).unwrap();
    let mut before = None;
    for message in 0..messages {
        let sent = match message % 3 {
            0 => (lane.put(payload, SUM, message, [], LIMIT), Ok(sum)),
            1 => {
                let arguments = [u64::from(number), 1000];
                let expected = Ok(message + number + 1000);
                (lane.send(ADD, message, arguments, LIMIT), expected)
            }
            _ => {
                let failed = Err(Refused::Task { code: 1 });
                (lane.send(ADD, 0, [1 << 32, 0], LIMIT), failed)
            }
        };
        // One behind, so that messages are on their way together.
        if let Some((sent, expected)) = before.replace((sent.0.unwrap(), sent.1)) {
            assert_eq!(lane.wait(sent, LIMIT), expected, "lane {number}");
        }
    }
    assert_eq!(lane.wait_all(LIMIT), Ok(messages / 3));
}

fn lanes_at_the_same_time(device: &Device) {
    let (active, near) = active(device);
    let lanes = active.lanes();
    assert_eq!(active.queue_pairs().count(), 2 * lanes as usize);
    let source = region(&near, 1000, 3, ALL);
    thread::scope(|scope| {
        for lane in 0..lanes {
            let (initiator, target) = (active.initiator(), active.target());
            let payload = Payload {
                local: source.local(100 * lane as usize, 100).unwrap(),
                buffer: 1,
                offset: 1000 * lane + 900,
            };
            scope.spawn(move || serve(target, lane, 60));
            scope.spawn(move || ask(initiator, lane, payload, 300, 60));
        }
    });
    let mut bytes = vec![0; 3000];
    active.buffer(1).unwrap().read(0, &mut bytes).unwrap();
    let expected = |at: usize| if at % 1000 >= 900 { 3 } else { 0 };
    assert!((0..bytes.len()).all(|at| bytes[at] == expected(at)));
}

#[test]
fn tasks_run_once_and_are_answered() {
    lanes_at_the_same_time(&threaded());
}

#[test]
fn tasks_run_once_through_a_kernel() {
    lanes_at_the_same_time(&resident());
}

/// Words come late here, each at a time of its own. Pieces are of 8 bytes because an answer relies on its word coming
/// whole; that a message does not, and that its halves may come one by one, is seen in `patterns/tests/active`.
#[test]
fn messages_come_though_their_words_come_late_and_in_any_order() {
    let device = Device::open(Nic::Soft(SoftOptions {
        hca: HcaOptions {
            late_stores: Some(LateStores {
                seed: 5,
                piece: 8,
                late: 600,
                longest_ns: 3_000_000,
            }),
            ..HcaOptions::default()
        },
        ..SoftOptions::default()
    }));
    let (mut active, _near) = active(&device.unwrap());
    const MIXED: u64 = 0x9e37_79b9_7f4a_7c15;
    let (of_one, of_five) = (0, 2);
    active.register(of_one, 1).unwrap();
    active.register(of_five, 5).unwrap();
    let sum = |arguments: &[u64]| arguments.iter().fold(0, |sum, word| sum ^ word) as u32;
    thread::scope(|scope| {
        let target = active.target();
        scope.spawn(move || {
            let mut server = target.serve::<Thread>(0).unwrap();
            for _ in 0..180 {
                let task = server.next(LIMIT).unwrap();
                let arguments: Vec<_> = (0..task.arguments()).map(|at| task.argument(at)).collect();
                let value = task.value() ^ sum(&arguments);
                server.answer(task, Ok(value), LIMIT).unwrap();
            }
        });
        let mut lane = active.initiator().lane::<Thread>(0).unwrap();
        for message in 0..60u32 {
            let [a, b, c, d, e] = [1, 2, 3, 4, 5]
                .map(|number: u64| (number << 32 | u64::from(message)).wrapping_mul(MIXED));
            let all = [
                (lane.send(of_one, message, [a], LIMIT), sum(&[a])),
                (lane.send(ADD, message, [a, b], LIMIT), sum(&[a, b])),
                (
                    lane.send(of_five, message, [a, b, c, d, e], LIMIT),
                    sum(&[a, b, c, d, e]),
                ),
            ];
            for (sent, sum) in all {
                assert_eq!(lane.wait(sent.unwrap(), LIMIT), Ok(message ^ sum));
            }
        }
    });
}

/// More tasks of one lane than it has slots, each of which answers with a piece of a buffer.
fn results_come_back(device: &Device) {
    let (active, _near) = active(device);
    let bytes: Vec<u8> = (0..3000).map(|byte| (byte % 251) as u8).collect();
    let buffer = active.buffer(1).unwrap();
    buffer.write(0, &bytes).unwrap();
    for lane in [0, 2] {
        thread::scope(|scope| {
            let (initiator, target) = (active.initiator(), active.target());
            let piece = |offset, length| buffer.local(offset, length).unwrap();
            scope.spawn(move || {
                let mut server = target.serve::<Thread>(lane).unwrap();
                for length in 1..=100 {
                    let task = server.next(LIMIT).unwrap();
                    let result = piece(task.argument(0) as usize, length);
                    server.answer_with(task, length, result, LIMIT).unwrap();
                }
            });
            let mut lane = initiator.lane::<Thread>(lane).unwrap();
            for length in 1..=100 {
                let offset = 29 * length;
                let sent = lane.send(ADD, 0, [offset as u64, 0], LIMIT).unwrap();
                let reply = lane.wait_reply(sent, LIMIT).unwrap();
                assert_eq!(
                    (reply.value(), reply.length()),
                    (length as u32, length as u32)
                );
                // SAFETY: the result's bytes, while the lane is borrowed.
                let found = unsafe { std::slice::from_raw_parts(reply.first(), length) };
                assert_eq!(found, &bytes[offset..offset + length]);
            }
        });
    }
}

#[test]
fn results_come_back_behind_their_tasks() {
    results_come_back(&threaded());
}

#[test]
fn results_come_back_through_a_kernel() {
    results_come_back(&resident());
}

#[test]
fn a_lane_that_failed_is_made_anew() {
    let (mut active, _) = active(&threaded());
    let mut lane = active.initiator().lane::<Thread>(2).unwrap();
    let sent = lane.send(ADD, 1, [2, 3], LIMIT).unwrap();
    drop(lane);
    serve(active.target(), 2, 1);
    let mut lane = active.initiator().lane::<Thread>(2).unwrap();
    assert_eq!(lane.wait(sent, LIMIT), Ok(6));
    // One that is not answered is forgotten.
    let lost = lane.send(ADD, 0, [0, 0], LIMIT).unwrap();
    drop(lane);
    active.break_lane(2);
    {
        let mut lane = active.initiator().lane::<Thread>(2).unwrap();
        let sent = lane.send(ADD, 0, [0, 0], SHORT);
        let refused = sent.and_then(|sent| lane.wait(sent, SHORT));
        assert_matches!(refused => Err(Refused::Failed(_)));
    }
    active.renew(2).unwrap();
    let mut lane = active.initiator().lane::<Thread>(2).unwrap();
    assert_eq!(lane.wait_all(SHORT), Ok(0));
    let mut server = active.target().serve::<Thread>(2).unwrap();
    assert_eq!(server.next(SHORT).unwrap_err(), Refused::Timeout);
    drop(server);
    let sent = lane.send(ADD, 7, [2, 3], LIMIT).unwrap();
    serve(active.target(), 2, 1);
    assert_eq!(lane.wait(sent, LIMIT), Ok(12));
    let _ = lost;
}

#[test]
fn what_is_registered_is_known_to_both_ends() {
    let (mut active, near) = active(&threaded());
    let source = region(&near, 64, 1, ALL);
    let payload = |buffer, offset| Payload {
        local: source.local(0, 64).unwrap(),
        buffer,
        offset,
    };
    {
        let mut lane = active.initiator().lane::<Thread>(0).unwrap();
        for (buffer, offset, error) in [
            (0, 0, Refused::InvalidOffset { buffer: 0 }),
            (1, 2937, Refused::InvalidOffset { buffer: 1 }),
            (2, 0, Refused::InvalidBuffer { buffer: 2 }),
        ] {
            let refused = lane.put(payload(buffer, offset), SUM, 0, [], SHORT);
            assert_eq!(refused, Err(error));
        }
        let sent = lane.put(payload(1, 2936), SUM, 0, [], LIMIT).unwrap();
        serve(active.target(), 0, 1);
        assert_eq!(lane.wait(sent, LIMIT), Ok(64));
    }
    active.deregister(ADD).unwrap();
    active.register_buffer(0, 64).unwrap();
    let mut lane = active.initiator().lane::<Thread>(0).unwrap();
    let gone = lane.send(ADD, 0, [1, 1], LIMIT).unwrap();
    let sent = lane.put(payload(0, 0), SUM, 0, [], LIMIT).unwrap();
    serve(active.target(), 0, 1);
    assert_eq!(lane.wait(sent, LIMIT), Ok(64));
    let unknown = Err(Refused::NotRegistered { function: ADD });
    assert_eq!(lane.wait(gone, LIMIT), unknown);
}

#[test]
fn bad_numbers_are_refused() {
    let device = threaded();
    let domain = device.protection_domain().unwrap();
    let refusal = |config: ActiveConfig| match ActiveMessages::new(&domain, &domain, &config) {
        Err(Error::Active(error)) => error,
        other => panic!("{other:?}"),
    };
    let with = |change: fn(&mut ActiveConfig)| {
        let mut config = config();
        change(&mut config);
        match refusal(config) {
            ActiveError::Number { what, value, .. } => (what, value),
            other => panic!("{other}"),
        }
    };
    let slots = 2 * MAX_SLOTS;
    assert_eq!(with(|config| config.lanes = 0), ("lanes", 0));
    assert_eq!(
        with(|config| config.slots = 2 * MAX_SLOTS),
        ("slots of a lane", slots)
    );
    assert_eq!(
        with(|config| config.functions = 2049),
        ("places for functions", 2049)
    );
    assert_eq!(
        with(|config| config.buffers = 257),
        ("places for buffers", 257)
    );
    let three = ActiveConfig {
        slots: 3,
        ..config()
    };
    assert_eq!(refusal(three), ActiveError::Slots { slots: 3 });
    let short_messages = QueuePairConfig {
        max_message: 512,
        ..config().queue_pair
    };
    for (bytes, queue_pair, limit) in [
        (MAX_RESULT + 1, config().queue_pair, MAX_RESULT),
        (513, short_messages, 512),
    ] {
        let long = ActiveConfig {
            max_result: bytes,
            queue_pair,
            ..config()
        };
        assert_eq!(refusal(long), ActiveError::Result { bytes, limit });
    }
    let mut shallow = config();
    shallow.queue_pair.send_depth = 4;
    let refused = refusal(shallow);
    assert_matches!(refused => ActiveError::TooShallow { depth: 4, .. });

    let (mut active, _) = active(&device);
    let of = |result| match result {
        Err(Error::Active(error)) => error,
        other => panic!("{other:?}"),
    };
    let no_place = ActiveError::NoSuchFunction {
        function: 5,
        functions: 5,
    };
    assert_eq!(of(active.register(5, 0)), no_place);
    assert_eq!(of(active.deregister(5)), no_place);
    let twice = ActiveError::FunctionExists { function: ADD };
    assert_eq!(of(active.register(ADD, 2)), twice);
    let arguments = MAX_ARGUMENTS as u32 + 1;
    let long = ActiveError::Arguments { arguments };
    assert_eq!(of(active.register(0, arguments)), long);
    let absent = ActiveError::NoSuchFunction {
        function: 0,
        functions: 5,
    };
    assert_eq!(of(active.deregister(0)), absent);
    let twice = ActiveError::BufferExists { buffer: 1 };
    assert_eq!(of(active.register_buffer(1, 8)), twice);
    let no_place = ActiveError::NoSuchBuffer {
        buffer: 2,
        limit: 2,
    };
    assert_eq!(of(active.register_buffer(2, 8)), no_place);
    let no_lane = ActiveError::NoSuchLane { lane: 3, lanes: 3 };
    assert_eq!(of(active.renew(3)), no_lane);
    assert!(active.buffer(0).is_err());
}
