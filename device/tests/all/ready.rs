//! A ring that is filled once, with the test in the NIC's place: every WQE is what a post would have built.
#![cfg(not(loom))]

use warpbell::wqe::{Local, LocalKey, Remote, RemoteKey, Syndrome, Wqe};
use warpbell::{CompletionKind, Deadline, Exclusive, PostError, SendDoorbell, WaitError};

use crate::common::Rig;

const DEPTH_LOG2: u8 = 3;
const NOW: Deadline = Deadline::PASSED;

fn remote(address: u64) -> Remote {
    Remote {
        address,
        key: RemoteKey(9),
    }
}

fn local(length: u32) -> Local {
    Local {
        address: 0x1000,
        length,
        key: LocalKey(7),
    }
}

fn block(rig: &Rig, slot: usize) -> [u64; 8] {
    std::array::from_fn(|word| rig.ring_word(slot, word))
}

/// Completes the NOP that drains the queue before it is filled. It waits for nothing, because it is complete already.
fn prepare(rig: &Rig) {
    rig.complete(0, 0);
}

/// The same posts, from a ring filled once and built anew, lap after lap.
#[test]
fn what_is_patched_is_what_would_have_been_built() {
    let address = |number: u64| 0x2000 + 8 * (number * number % 1000);
    for signalled in [false, true] {
        for kind in [SendDoorbell::WithRecord, SendDoorbell::WithoutRecord] {
            let [patched, built] = [(); 2]
                .map(|()| Rig::new(DEPTH_LOG2, CompletionKind::Collapsed).with_doorbell(kind));
            let write = |address| match signalled {
                true => Wqe::write(local(64), remote(address)).signalled(),
                false => Wqe::write(local(64), remote(address)),
            };
            prepare(&patched);
            prepare(&built);
            let mut one = patched.handle().open::<Exclusive>().unwrap();
            let mut other = built.handle().open::<Exclusive>().unwrap();
            other.drain(NOW).unwrap();
            let mut ready = one.ready(write(address(0)), NOW).unwrap();
            assert_eq!(
                patched.take_doorbell(),
                built.take_doorbell(),
                "the NOP alone"
            );
            // All indices once.
            let whole = signalled && kind == SendDoorbell::WithRecord && !cfg!(miri);
            let laps = if whole {
                (1 << 16) + 40
            } else if cfg!(miri) {
                20
            } else {
                40
            };
            for number in 1..laps {
                let ticket = ready.post_to(address(number), NOW).unwrap();
                let expected = other.post(write(address(number)), NOW).unwrap();
                assert_eq!(ticket, expected);
                let slot = number as usize % (1 << DEPTH_LOG2);
                assert_eq!(block(&patched, slot), block(&built, slot), "WQE {number}");
                assert_eq!(patched.take_doorbell(), built.take_doorbell());
                assert_eq!(patched.producer_index(), built.producer_index());
                let reported = patched.signalled(slot);
                let told = ready.wait(ticket, NOW);
                assert_eq!(told, other.wait(expected, NOW), "WQE {number}");
                match reported {
                    true => assert_eq!(told, Err(WaitError::Deadline)),
                    false => assert_eq!(told, Err(WaitError::NotSignalled)),
                }
                if reported {
                    patched.complete(0, number as u16);
                    built.complete(0, number as u16);
                    ready.wait(ticket, NOW).unwrap();
                }
            }
        }
    }
}

#[test]
fn a_wqe_without_a_remote_address_is_posted_as_it_is() {
    let [ready, built] = [(); 2].map(|()| Rig::new(DEPTH_LOG2, CompletionKind::Collapsed));
    prepare(&ready);
    prepare(&built);
    let mut one = ready.handle().open::<Exclusive>().unwrap();
    let mut other = built.handle().open::<Exclusive>().unwrap();
    other.drain(NOW).unwrap();
    let send = Wqe::send(local(64));
    let _ = one.ready(send, NOW).unwrap().post_to(0x2000, NOW).unwrap();
    let _ = other.post(send, NOW).unwrap();
    assert_eq!(block(&ready, 1), block(&built, 1));
}

#[test]
fn a_full_ring_waits_and_the_queue_is_usable_after() {
    let rig = Rig::new(DEPTH_LOG2, CompletionKind::Collapsed);
    prepare(&rig);
    let mut queue = rig.handle().open::<Exclusive>().unwrap();
    let mut ready = queue.ready(Wqe::write(local(8), remote(0)), NOW).unwrap();
    for _ in 0..8 {
        let _ = ready.post(NOW).unwrap();
    }
    assert_eq!(ready.post(NOW), Err(PostError::Deadline));
    assert_eq!(rig.producer_index(), 9);
    rig.complete(0, 8);
    let _ = ready.post(NOW).unwrap();
    assert_eq!(rig.producer_index(), 10);
    let ticket = queue.post(Wqe::nop().signalled(), NOW).unwrap();
    rig.complete(0, 10);
    queue.wait(ticket, NOW).unwrap();
}

#[test]
fn what_is_wrong_is_refused() {
    let rig = Rig::new(DEPTH_LOG2, CompletionKind::Collapsed);
    let mut queue = rig.handle().open::<Exclusive>().unwrap();
    let write = Wqe::write(local(8), remote(0));
    // The NOP is under way.
    assert_eq!(queue.ready(write, NOW).err(), Some(PostError::Deadline));
    rig.complete(0, 1);
    let empty = Wqe::write(local(0), remote(0));
    assert_eq!(queue.ready(empty, NOW).err(), Some(PostError::Empty));
    let mut ready = queue
        .ready(Wqe::fetch_add(local(8), remote(8), 1), NOW)
        .unwrap();
    let odd = ready.post_to(0x2004, NOW);
    assert_eq!(odd, Err(PostError::Misaligned { address: 0x2004 }));
    assert_eq!(rig.producer_index(), 2, "the NOPs alone");
    let ticket = ready.post_to(0x2008, NOW).unwrap();
    rig.fail(0, 2, Syndrome::REMOTE_ACCESS, 0x88);
    let Err(WaitError::Failed(error)) = ready.wait(ticket, NOW) else {
        panic!("no error");
    };
    assert_eq!(ready.post(NOW), Err(PostError::Failed(error)));
    assert_eq!(
        queue.ready(write, NOW).err(),
        Some(PostError::Failed(error))
    );
}
