//! Triggered operations on queues in plain memory, with the test in the place of the NIC.
#![cfg(not(loom))]

use std::cmp::Ordering;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell::wqe::{Local, LocalKey, Opcode, Remote, RemoteKey, Syndrome, Wqe};
use warpbell::{Cause, CompletionKind, Deadline, SendDoorbell, Thread};
use warpbell_patterns::trigger::{
    Counter, Error, MAX_THRESHOLD, TriggerEntry, TriggerHandle, Triggers,
};

use crate::common::{MAX_MESSAGE, QPN, Rig};

const DEPTH_LOG2: u8 = 3;
const NOW: Deadline = Deadline::PASSED;

fn rigs<const N: usize>(send_doorbell: SendDoorbell) -> [Rig; N] {
    [(); N].map(|()| Rig::new(DEPTH_LOG2, CompletionKind::Ordinary).with_doorbell(send_doorbell))
}

fn entries(rigs: &[Rig]) -> Vec<TriggerEntry<'_>> {
    let entry = |handle| {
        // SAFETY: the completions are rings of the queues' depth, and the queues are used through the entries alone.
        unsafe { TriggerEntry::new(handle, Counter::FRESH) }
    };
    rigs.iter().map(Rig::handle).map(entry).collect()
}

fn open<'a>(entries: &'a [TriggerEntry<'a>]) -> Triggers<'a> {
    // SAFETY: the table is a slice that lives as long.
    let handle = unsafe { TriggerHandle::new(entries.as_ptr(), entries.len() as u32) };
    handle.open().unwrap()
}

/// Completes a WQE, whose CQE has its number.
fn complete(rig: &Rig, index: u16) {
    rig.complete(index.into(), index);
}

/// A write of so many bytes.
pub fn write(length: u32) -> Wqe<1> {
    let local = Local {
        address: 0x1000,
        length,
        key: LocalKey(1),
    };
    let remote = Remote {
        address: 0x2000,
        key: RemoteKey(2),
    };
    Wqe::write(local, remote)
}

fn value() -> Wqe<1> {
    let remote = Remote {
        address: 0x3000,
        key: RemoteKey(2),
    };
    Wqe::write_value(1u64, remote)
}

#[test]
fn an_operation_goes_with_its_last_trigger() {
    for kind in [SendDoorbell::WithRecord, SendDoorbell::WithoutRecord] {
        let rigs = rigs::<2>(kind);
        let entries = entries(&rigs);
        let triggers = open(&entries);
        triggers
            .register::<Thread, 2>(1, 3, [write(8), value()], NOW)
            .unwrap();
        // Its WQEs are there, all signalled; nobody was told.
        assert_eq!(rigs[1].control(0), (0, Opcode::RDMA_WRITE));
        assert_eq!(rigs[1].control(1), (1, Opcode::RDMA_WRITE));
        assert!(rigs[1].signalled(0) && rigs[1].signalled(1));
        for missing in [3, 2, 1] {
            assert_eq!(rigs[1].take_doorbell(), None, "{missing} are missing");
            assert_eq!(rigs[1].producer_index(), 0, "{missing} are missing");
            let late = triggers.wait::<Thread>(1, NOW);
            assert_eq!(late, Err(Error::Untriggered { missing }));
            triggers.trigger::<Thread>(1).unwrap();
        }
        let recorded = match kind {
            SendDoorbell::WithRecord => 2,
            SendDoorbell::WithoutRecord => 0,
        };
        assert_eq!(rigs[1].take_doorbell(), Some(2));
        assert_eq!(rigs[1].producer_index(), recorded);
        assert_eq!(triggers.wait::<Thread>(1, NOW), Err(Error::Timeout));
        // What is too much does not send it again.
        triggers.trigger::<Thread>(1).unwrap();
        assert_eq!(rigs[1].take_doorbell(), None);
        complete(&rigs[1], 1);
        assert_eq!(triggers.wait::<Thread>(1, NOW), Ok(()));
        assert_eq!(rigs[0].take_doorbell(), None, "the other tag's queue");
        assert_eq!(triggers.wait::<Thread>(0, NOW), Err(Error::NotRegistered));
    }
}

#[test]
fn triggers_before_their_operation_are_kept() {
    let rigs = rigs::<1>(SendDoorbell::WithRecord);
    let entries = entries(&rigs);
    let triggers = open(&entries);
    for _ in 0..5 {
        triggers.trigger::<Thread>(0).unwrap();
    }
    assert_eq!(rigs[0].take_doorbell(), None);
    // Two of five; two of three; two of one, which wait for one more.
    for end in [1, 2] {
        triggers
            .register::<Thread, 1>(0, 2, [write(8)], NOW)
            .unwrap();
        assert_eq!(rigs[0].take_doorbell(), Some(end));
        assert_eq!(rigs[0].producer_index(), end);
        complete(&rigs[0], end - 1);
    }
    triggers
        .register::<Thread, 1>(0, 2, [write(8)], NOW)
        .unwrap();
    assert_eq!(rigs[0].take_doorbell(), None);
    let counter = triggers.counter(0).unwrap();
    assert_eq!(
        (counter.counted(), counter.threshold(), counter.missing()),
        (1, 2, 1)
    );
    triggers.trigger::<Thread>(0).unwrap();
    assert_eq!(rigs[0].take_doorbell(), Some(3));
}

#[test]
fn a_tag_has_one_operation_at_a_time() {
    let rigs = rigs::<1>(SendDoorbell::WithRecord);
    let entries = entries(&rigs);
    let triggers = open(&entries);
    let register = || triggers.register::<Thread, 1>(0, 1, [write(8)], NOW);
    register().unwrap();
    assert_eq!(register(), Err(Error::Untriggered { missing: 1 }));
    triggers.trigger::<Thread>(0).unwrap();
    assert_eq!(register(), Err(Error::Timeout));
    assert_eq!(
        rigs[0].take_doorbell(),
        Some(1),
        "the first one, and it alone"
    );
    assert_eq!(rigs[0].producer_index(), 1);
    complete(&rigs[0], 0);
    register().unwrap();
    assert_eq!(rigs[0].producer_index(), 1);
}

#[test]
fn rings_and_indices_wrap() {
    let rigs = rigs::<1>(SendDoorbell::WithRecord);
    let entries = entries(&rigs);
    let triggers = open(&entries);
    let laps = if cfg!(miri) { 20 } else { (1 << 16) + 20 };
    let mut end = 0u16;
    for _ in 0..laps {
        triggers
            .register::<Thread, 3>(0, 1, [write(8), value(), value()], NOW)
            .unwrap();
        triggers.trigger::<Thread>(0).unwrap();
        end = end.wrapping_add(3);
        assert_eq!(rigs[0].take_doorbell(), Some(end));
        assert_eq!(rigs[0].producer_index(), end);
        for back in 1..=3 {
            let index = end.wrapping_sub(back);
            let slot = index as usize % (1 << DEPTH_LOG2);
            assert_eq!(rigs[0].control(slot), (index, Opcode::RDMA_WRITE));
        }
        assert_eq!(triggers.wait::<Thread>(0, NOW), Err(Error::Timeout));
        complete(&rigs[0], end.wrapping_sub(1));
        triggers.wait::<Thread>(0, NOW).unwrap();
    }
}

#[test]
fn the_requests_of_an_operation_lie_in_their_order() {
    fn register<const N: usize>(wqes: [Wqe<1>; N], opcodes: [Opcode; N]) {
        let rigs = rigs::<1>(SendDoorbell::WithRecord);
        let entries = entries(&rigs);
        let triggers = open(&entries);
        triggers.register::<Thread, N>(0, 1, wqes, NOW).unwrap();
        for (index, opcode) in (0..).zip(opcodes) {
            assert_eq!(rigs[0].control(index.into()), (index, opcode));
        }
    }
    let [write, nop] = [write(8), Wqe::nop()];
    let [wrote, nothing] = [Opcode::RDMA_WRITE, Opcode::NOP];
    register([nop], [nothing]);
    register([write, nop], [wrote, nothing]);
    register([nop, write], [nothing, wrote]);
    register([write, nop, write], [wrote, nothing, wrote]);
    register([nop, write, nop, nop], [nothing, wrote, nothing, nothing]);
}

#[test]
fn what_is_wrong_is_named_and_changes_nothing() {
    let rigs = rigs::<2>(SendDoorbell::WithRecord);
    let entries = entries(&rigs);
    let triggers = open(&entries);
    let tag = Error::InvalidTag { tag: 2 };
    assert_eq!(triggers.trigger::<Thread>(2), Err(tag));
    assert_eq!(triggers.look::<Thread>(2).err(), Some(tag));
    assert_eq!(triggers.wait::<Thread>(2, NOW), Err(tag));
    assert_eq!(triggers.counter(2), Err(tag));
    let register = |tag, threshold| triggers.register::<Thread, 1>(tag, threshold, [write(8)], NOW);
    assert_eq!(register(2, 1), Err(tag));
    for threshold in [0, MAX_THRESHOLD + 1, u32::MAX] {
        assert_eq!(
            register(0, threshold),
            Err(Error::InvalidThreshold { threshold })
        );
    }
    let limit = 4;
    assert_eq!(
        triggers.register::<Thread, 5>(0, 1, [write(8); 5], NOW),
        Err(Error::InvalidOperation { limit })
    );
    assert_eq!(
        triggers.register::<Thread, 0>(0, 1, [], NOW),
        Err(Error::InvalidOperation { limit })
    );
    // A bad one behind a good one: neither is registered.
    assert_eq!(
        triggers.register::<Thread, 2>(0, 1, [write(8), write(MAX_MESSAGE + 1)], NOW),
        Err(Error::InvalidSize { limit: MAX_MESSAGE })
    );
    let odd = Remote {
        address: 0x2001,
        key: RemoteKey(2),
    };
    let local = Local {
        address: 0x1000,
        length: 8,
        key: LocalKey(1),
    };
    assert_eq!(
        triggers.register::<Thread, 1>(0, 1, [Wqe::fetch_add(local, odd, 1)], NOW),
        Err(Error::Misaligned)
    );
    triggers.trigger::<Thread>(0).unwrap();
    assert_eq!(rigs[0].take_doorbell(), None);
    assert_eq!(rigs[0].ring_word(0, 0), 0, "something was stored");
    register(0, 1).unwrap();
    assert_eq!(
        rigs[0].take_doorbell(),
        Some(1),
        "with the trigger from before"
    );
    register(1, MAX_THRESHOLD).unwrap();
    let missing = MAX_THRESHOLD;
    assert_eq!(
        triggers.wait::<Thread>(1, NOW),
        Err(Error::Untriggered { missing })
    );
    // SAFETY: of no tags, the entries are not looked at.
    let none = unsafe { TriggerHandle::new(core::ptr::null(), 0) };
    assert_eq!(
        none.open().unwrap().trigger::<Thread>(0),
        Err(Error::InvalidTag { tag: 0 })
    );
    // SAFETY: any bytes are a handle.
    let zeros: TriggerHandle<'_> = unsafe { core::mem::zeroed() };
    assert!(matches!(zeros.open(), Err(Error::Handle)));
}

#[test]
fn a_failed_queue_says_so_to_all_who_ask() {
    let rigs = rigs::<1>(SendDoorbell::WithRecord);
    let entries = entries(&rigs);
    let triggers = open(&entries);
    triggers
        .register::<Thread, 1>(0, 1, [write(8)], NOW)
        .unwrap();
    triggers.trigger::<Thread>(0).unwrap();
    rigs[0].fail(0, 0, Syndrome::REMOTE_ACCESS, 0x88);
    for _ in 0..2 {
        let Err(Error::Failed(error)) = triggers.wait::<Thread>(0, NOW) else {
            panic!("no error");
        };
        let Cause::Completion(of) = error.cause() else {
            panic!("{error:?}");
        };
        assert_eq!(
            (of.syndrome, of.qpn.get()),
            (Syndrome::REMOTE_ACCESS, QPN & 0xff_ffff)
        );
        assert_eq!(rigs[0].state.first_error(), Some(error), "for the host");
        let again = triggers.register::<Thread, 1>(0, 1, [write(8)], NOW);
        assert_eq!(again, Err(Error::Failed(error)));
        assert_eq!(triggers.trigger::<Thread>(0), Ok(()));
        assert_eq!(rigs[0].producer_index(), 1, "nothing more was sent");
    }
}

/// The first of an operation's requests fails, those behind it are flushed, in each place of the ring: the cause is told
/// once all CQEs are there.
#[test]
fn an_operation_of_several_requests_tells_why_it_failed() {
    for before in [0, 1, 5, 6, 7, 8, 13] {
        for failing in 0..3 {
            let rigs = rigs::<1>(SendDoorbell::WithRecord);
            let entries = entries(&rigs);
            let triggers = open(&entries);
            for index in 0..before {
                triggers
                    .register::<Thread, 1>(0, 1, [write(8)], NOW)
                    .unwrap();
                triggers.trigger::<Thread>(0).unwrap();
                complete(&rigs[0], index);
            }
            triggers
                .register::<Thread, 3>(0, 1, [write(8), write(8), value()], NOW)
                .unwrap();
            triggers.trigger::<Thread>(0).unwrap();
            for number in 0..3 {
                let late = triggers.wait::<Thread>(0, NOW);
                assert_eq!(late, Err(Error::Timeout), "{number} of 3 are there");
                let index = before + number;
                let fail = |syndrome, vendor| rigs[0].fail(index.into(), index, syndrome, vendor);
                match number.cmp(&failing) {
                    Ordering::Less => complete(&rigs[0], index),
                    Ordering::Equal => fail(Syndrome::REMOTE_ACCESS, 0x88),
                    Ordering::Greater => fail(Syndrome::FLUSHED, 0xf9),
                }
            }
            let Err(Error::Failed(error)) = triggers.wait::<Thread>(0, NOW) else {
                panic!("no error");
            };
            let Cause::Completion(of) = error.cause() else {
                panic!("{error:?}");
            };
            assert_eq!(
                (of.syndrome, of.wqe_index.0),
                (Syndrome::REMOTE_ACCESS, before + failing)
            );
            assert_eq!(rigs[0].state.first_error(), Some(error), "for the host");
        }
    }
}

#[test]
fn a_tag_of_ones_own_does_the_same_without_the_others() {
    let rigs = rigs::<1>(SendDoorbell::WithRecord);
    let entries = entries(&rigs);
    let triggers = open(&entries);
    triggers.trigger::<Thread>(0).unwrap();
    let mut own = triggers.own::<Thread>(0).unwrap();
    assert!(matches!(triggers.own::<Thread>(0), Err(Error::InUse)));
    assert!(matches!(
        triggers.own::<Thread>(1),
        Err(Error::InvalidTag { tag: 1 })
    ));
    let register = triggers.register::<Thread, 1>(0, 1, [write(8)], NOW);
    assert_eq!(register, Err(Error::InUse));
    assert_eq!(own.wait(NOW), Err(Error::NotRegistered));
    let bad = own.register(0, [write(8)], NOW);
    assert_eq!(bad, Err(Error::InvalidThreshold { threshold: 0 }));
    assert_eq!(
        own.register(1, [], NOW),
        Err(Error::InvalidOperation { limit: 4 })
    );
    // With the trigger from before two are missing.
    own.register(3, [write(8), value()], NOW).unwrap();
    own.trigger();
    assert_eq!(own.wait(NOW), Err(Error::Untriggered { missing: 1 }));
    // Others' count later.
    triggers.trigger::<Thread>(0).unwrap();
    assert_eq!(triggers.wait::<Thread>(0, NOW), Err(Error::NotRegistered));
    assert_eq!(rigs[0].take_doorbell(), None);
    own.trigger();
    assert_eq!(rigs[0].take_doorbell(), Some(2));
    assert_eq!(rigs[0].producer_index(), 2);
    own.trigger();
    assert_eq!(rigs[0].take_doorbell(), None, "one too many");
    assert_eq!(own.register(1, [write(8)], NOW), Err(Error::Timeout));
    complete(&rigs[0], 1);
    own.wait(NOW).unwrap();
    // One is left, and goes into this one at once.
    own.register(1, [write(8)], NOW).unwrap();
    assert_eq!(rigs[0].take_doorbell(), Some(3));
    complete(&rigs[0], 2);
    own.register(2, [write(8)], NOW).unwrap();
    own.trigger();
    assert_eq!(rigs[0].take_doorbell(), None);
    // The other one's trigger is the second.
    drop(own);
    assert_eq!(rigs[0].take_doorbell(), Some(4));
    let counter = triggers.counter(0).unwrap();
    assert_eq!(
        (counter.counted(), counter.threshold(), counter.end().0),
        (2, 2, 4)
    );
    complete(&rigs[0], 3);
    triggers.wait::<Thread>(0, NOW).unwrap();
    triggers
        .register::<Thread, 1>(0, 1, [write(8)], NOW)
        .unwrap();
    // Taken and given back, it wants what it wanted.
    drop(triggers.own::<Thread>(0).unwrap());
    assert_eq!(rigs[0].take_doorbell(), None);
    triggers.trigger::<Thread>(0).unwrap();
    assert_eq!(rigs[0].take_doorbell(), Some(5));
    drop(triggers.own::<Thread>(0).unwrap());
    assert_eq!(rigs[0].take_doorbell(), None, "sent twice");
}

/// Looks, triggers through them and without, and registrations in any order, against a model that counts: a look's
/// trigger is one trigger, whatever came since.
#[test]
fn a_look_triggers_once_whatever_came_since() {
    let steps = if cfg!(miri) { 60 } else { 50_000 };
    let kinds = [SendDoorbell::WithRecord, SendDoorbell::WithoutRecord];
    for (seed, kind) in (0..).zip(kinds.into_iter().cycle().take(8)) {
        let mut random = SmallRng::seed_from_u64(seed);
        let [mut rig] = rigs::<1>(kind);
        if seed % 4 < 2 {
            rig = rig.within_gpu();
        }
        let rigs = [rig];
        let entries = entries(&rigs);
        let triggers = open(&entries);
        let mut looks = Vec::new();
        let (mut came, mut wanted, mut end, mut done) = (0u64, 0u64, 0u16, true);
        let mut claimed = 0;
        for step in 0..steps {
            match random.random_range(0..4) {
                // Some of them become old.
                0 => looks.push(triggers.look::<Thread>(0).unwrap()),
                1 if !looks.is_empty() => {
                    let which = match random.random() {
                        true => looks.len() - 1,
                        false => random.random_range(0..looks.len()),
                    };
                    let missing = triggers.counter(0).unwrap().missing();
                    claimed += u32::from(missing == 1);
                    looks.swap_remove(which).trigger();
                    came += 1;
                }
                2 => {
                    triggers.trigger::<Thread>(0).unwrap();
                    came += 1;
                }
                _ if done => {
                    let threshold = random.random_range(1..5);
                    triggers
                        .register::<Thread, 1>(0, threshold, [write(8)], NOW)
                        .unwrap();
                    (wanted, end, done) =
                        (wanted + u64::from(threshold), end.wrapping_add(1), false);
                }
                _ => {}
            }
            let sent = (!done && came >= wanted).then_some(end);
            assert_eq!(rigs[0].take_doorbell(), sent, "seed {seed}, step {step}");
            if sent.is_some() {
                let recorded = match kind {
                    SendDoorbell::WithRecord => end,
                    SendDoorbell::WithoutRecord => 0,
                };
                assert_eq!(rigs[0].producer_index(), recorded);
                complete(&rigs[0], end.wrapping_sub(1));
                done = true;
            }
            let missing = triggers.counter(0).unwrap().missing();
            assert_eq!(
                u64::from(missing),
                wanted.saturating_sub(came),
                "step {step}"
            );
        }
        assert!(claimed >= steps / 100, "looks were hardly ever the last");
    }
}
