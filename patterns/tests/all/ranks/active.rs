//! Lanes of active messages between ranks.

use std::sync::Barrier;

use warpbell::{Deadline, Thread};
use warpbell_host_init::QueuePairConfig;
use warpbell_host_init::world::WireKind;
use warpbell_patterns::active::host::{ActiveConfig, ActiveRank};
use warpbell_patterns::active::{
    Error as Refused, InitiatorHandle, Lane, Payload, Sent, TargetHandle,
};

use super::*;

/// Adds its two arguments to its value.
const ADD: u32 = 1;
/// Adds up the bytes of its payload, and answers with them.
const SUM: u32 = 4;
const BUFFER: u32 = 1;
const TASKS: u32 = 12;
/// Bytes of a payload.
const BYTES: u32 = 100;
/// A moment in which nothing comes.
const SHORT: Deadline = Deadline::after_ms(20);

fn config() -> ActiveConfig {
    ActiveConfig {
        lanes: 2,
        slots: 4,
        functions: 5,
        buffers: 2,
        max_result: BYTES,
        queue_pair: patient(),
    }
}

/// Ranks 0 and 1 are each other's targets. Rank 2 sends to rank 0, and nobody sends to rank 2.
fn targets(rank: u32) -> [u32; 1] {
    [[1], [0], [0]][rank as usize]
}

fn initiators(rank: u32) -> &'static [u32] {
    [&[1, 2][..], &[0], &[]][rank as usize]
}

/// Where an initiator's lane has its payloads in the target's buffer.
fn offset(initiator: u32, lane: u32) -> u32 {
    1000 * initiator + BYTES * lane
}

fn serve(target: TargetHandle<'_>, lane: u32, buffer: &MemoryRegion, from: u32) {
    let mut server = target.serve::<Thread>(lane).unwrap();
    for _ in 0..TASKS {
        let task = server.next(LIMIT).unwrap();
        match task.function() {
            ADD => {
                let sum = u64::from(task.value()) + task.argument(0) + task.argument(1);
                server.answer(task, Ok(sum as u32), LIMIT).unwrap();
            }
            SUM => {
                let (first, length) = task.payload();
                // SAFETY: the payload is this task's until it is answered.
                let bytes = unsafe { std::slice::from_raw_parts(first, length as usize) };
                let sum = bytes.iter().map(|&byte| u32::from(byte)).sum();
                let result = buffer.local(offset(from, lane) as usize, BYTES).unwrap();
                server.answer_with(task, sum, result, LIMIT).unwrap();
            }
            other => panic!("function {other}"),
        }
    }
}

fn ask(initiator: InitiatorHandle<'_>, number: u32, source: &MemoryRegion, own: u32) {
    let mut lane = initiator.lane::<Thread>(number).unwrap();
    let byte = 16 * own as u8 + number as u8 + 1;
    let payload = Payload {
        local: source.local((BYTES * number) as usize, BYTES).unwrap(),
        buffer: BUFFER,
        offset: offset(own, number),
    };
    source
        .write((BYTES * number) as usize, &[byte; BYTES as usize])
        .unwrap();
    for message in 0..TASKS {
        match message % 2 {
            0 => {
                let sent = lane.put(payload, SUM, 0, [], LIMIT).unwrap();
                let reply = lane.wait_reply(sent, LIMIT).unwrap();
                assert_eq!(reply.value(), BYTES * u32::from(byte), "rank {own}");
                // SAFETY: the result's bytes, while the lane is borrowed.
                let result =
                    unsafe { std::slice::from_raw_parts(reply.first(), reply.length() as usize) };
                assert_eq!(result, [byte; BYTES as usize], "rank {own}");
            }
            _ => {
                let arguments = [u64::from(own), 1000];
                let sent = lane.send(ADD, message, arguments, LIMIT).unwrap();
                assert_eq!(lane.wait(sent, LIMIT), Ok(message + own + 1000));
            }
        }
    }
}

/// How a message ends, or none if it does not in a hundred seconds. A wait finds out at its end that a queue has failed.
fn outcome(lane: &mut Lane<'_, Thread>, sent: Sent) -> Option<Result<u32, Refused>> {
    let mut waits = std::iter::repeat_with(|| lane.wait(sent, SHORT)).take(5000);
    waits.find(|end| *end != Err(Refused::Timeout))
}

/// On all lanes at the same time.
fn tasks(active: &ActiveRank, world: &mut World) {
    let own = world.rank();
    let source = region(world, (BYTES * active.lanes()) as usize, 0);
    thread::scope(|scope| {
        for lane in 0..active.lanes() {
            for &from in initiators(own) {
                let target = active.target(from).unwrap();
                scope.spawn(move || serve(target, lane, active.buffer(BUFFER).unwrap(), from));
            }
            for to in targets(own) {
                let (initiator, source) = (active.initiator(to).unwrap(), &source);
                scope.spawn(move || ask(initiator, lane, source, own));
            }
        }
    });
    world.barrier().unwrap();
}

#[test]
fn tasks_run_between_ranks_and_go_on_after_a_lane_failed() {
    for (port, wire) in (22_000..).zip(WIRES) {
        job(port, 3, wire, |mut world| {
            let own = world.rank();
            let mut active = ActiveRank::new(&mut world, targets(own), &config()).unwrap();
            active.register(ADD, 2).unwrap();
            active.register(SUM, 0).unwrap();
            if own < 2 {
                active.register_buffer(BUFFER, 3000).unwrap();
            }
            active.share_buffers(&mut world).unwrap();
            let ends = targets(own).len() + initiators(own).len();
            assert_eq!(active.queue_pairs().count(), 2 * ends);
            tasks(&active, &mut world);

            if own == 2 {
                // A payload that is nobody's memory.
                let mut lane = active.initiator(0).unwrap().lane::<Thread>(1).unwrap();
                let mut local = region(&world, 64, 0).local(0, 64).unwrap();
                local.address = 8;
                let (buffer, offset) = (BUFFER, 0);
                let payload = Payload {
                    local,
                    buffer,
                    offset,
                };
                let sent = lane.put(payload, SUM, 0, [], LIMIT).unwrap();
                let end = outcome(&mut lane, sent);
                assert!(matches!(end, Some(Err(Refused::Failed(_)))), "{end:?}");
            }
            if own == 1 {
                // One that nobody answers is forgotten.
                let mut lane = active.initiator(0).unwrap().lane::<Thread>(1).unwrap();
                let _forgotten = lane.send(ADD, 7, [0, 0], LIMIT).unwrap();
            }
            world.barrier().unwrap();
            active.renew(&mut world, 1).unwrap();
            for &from in initiators(own) {
                let mut server = active.target(from).unwrap().serve::<Thread>(1).unwrap();
                assert_eq!(server.next(SHORT).unwrap_err(), Refused::Timeout);
            }
            world.barrier().unwrap();
            tasks(&active, &mut world);
        });
    }
}

#[test]
fn what_does_not_fit_between_ranks_is_named() {
    let errors = job(22_002, 2, WireKind::SharedMemory, |mut world| {
        let own = world.rank();
        let with = |slots| ActiveConfig { slots, ..config() };
        let others = ActiveRank::new(&mut world, [], &with(4 << own)).unwrap_err();
        let active = ActiveRank::new(
            &mut world,
            [1 - own; 1].into_iter().filter(|_| own == 0),
            &with(4),
        );
        let active = active.unwrap();
        let one = match own {
            0 => active.target(1).map(drop),
            _ => active.initiator(0).map(drop),
        };
        let itself = ActiveRank::new(&mut world, [0], &with(4)).unwrap_err();
        [
            others.to_string(),
            one.unwrap_err().to_string(),
            itself.to_string(),
        ]
    });
    for [others, ..] in &errors {
        assert!(
            others.starts_with("slots of a lane: 8 at rank 1, 4 at rank 0"),
            "{errors:?}"
        );
    }
    let [[_, no_initiator, itself], [_, no_target, told]] = &errors[..] else {
        panic!("{errors:?}");
    };
    assert!(
        no_initiator.starts_with("rank 1 does not send to this rank"),
        "{errors:?}"
    );
    assert!(
        no_target.starts_with("rank 0 is no target of this rank"),
        "{errors:?}"
    );
    let refused = "rank 0 cannot be a neighbour of rank 0 among 2 ranks";
    assert!(itself.starts_with(refused), "{errors:?}");
    assert!(told.contains(refused), "{errors:?}");
}

/// Rank 1 is late, and left out: its tasks do not come any more.
#[test]
fn a_rank_that_is_left_out_is_not_served() {
    for (port, wire) in (22_003..).zip(WIRES) {
        let left_out = Barrier::new(2);
        job(port, 2, wire, |mut world| {
            let own = world.rank();
            let config = ActiveConfig {
                queue_pair: QueuePairConfig::granting(ALL),
                ..config()
            };
            let mut active = ActiveRank::new(&mut world, [1 - own], &config).unwrap();
            active.register(ADD, 2).unwrap();
            if own == 1 {
                left_out.wait();
                let mut lane = active.initiator(0).unwrap().lane::<Thread>(0).unwrap();
                let sent = lane.send(ADD, 0, [1, 2], LIMIT).unwrap();
                let end = outcome(&mut lane, sent);
                // Rank 0 is there until now.
                left_out.wait();
                assert!(matches!(end, Some(Err(Refused::Failed(_)))), "{end:?}");
                return;
            }
            let without = world.shrink(Duration::ZERO).unwrap();
            active.drop_left_out(&world);
            left_out.wait();
            left_out.wait();
            assert!(without.into_iter().eq([1]));
            assert_eq!(active.queue_pairs().count(), 0);
            assert!(active.initiator(1).is_err() && active.target(1).is_err());
        });
    }
}
