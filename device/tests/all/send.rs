//! A send queue of one thread, with the test in the NIC's place.
#![cfg(not(loom))]

use std::mem;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell::wqe::{
    Immediate, Local, LocalKey, Masked, Opcode, QpNumber, Remote, RemoteKey, Side, Syndrome, Wqe,
    WqeIndex,
};
use warpbell::{
    BlockShared, Cause, CompletionKind, Deadline, Exclusive, GpuShared, OpenError, PostError,
    QueueError, QueueState, SendDoorbell, Sharing, Traced, WaitError,
};

use crate::common::{MAX_MESSAGE, QPN, Rig};

const SOON: Deadline = Deadline::after_us(5);

fn local(length: u32) -> Local {
    Local {
        address: 0x1000,
        length,
        key: LocalKey(7),
    }
}

fn remote(address: u64) -> Remote {
    Remote {
        address,
        key: RemoteKey(9),
    }
}

/// Runs a test for each sharing and each kind of completion queue.
macro_rules! everywhere {
    ($name:ident, $test:ident) => {
        #[test]
        fn $name() {
            for kind in [CompletionKind::Collapsed, CompletionKind::Ordinary] {
                $test::<Exclusive>(kind);
                $test::<BlockShared>(kind);
                $test::<GpuShared>(kind);
                // Miri is slow, and the ledger within is the same.
                if cfg!(not(miri)) {
                    $test::<Traced<'_, Exclusive>>(kind);
                    $test::<Traced<'_, GpuShared>>(kind);
                }
            }
        }
    };
}

everywhere!(posts_reach_the_ring, post);
fn post<S: Sharing>(kind: CompletionKind) {
    let rig = Rig::new(3, kind);
    let mut queue = rig.handle().open::<S>().unwrap();
    let ticket = queue
        .try_post(Wqe::write(local(8), remote(0x2000)).signalled())
        .unwrap();
    assert_eq!(rig.control(0), (0, Opcode::RDMA_WRITE));
    assert_eq!(u64::from_be(rig.ring_word(0, 1)) as u32, 0);
    assert_eq!(u64::from_be(rig.ring_word(0, 0)) as u32, QPN << 8 | 3);
    assert_eq!(u64::from_be(rig.ring_word(0, 2)), 0x2000);
    assert_eq!(rig.producer_index(), 1);
    assert_eq!(rig.doorbell_index(), Some(1));
    assert_eq!(queue.is_done(ticket), Ok(false));
    assert_eq!(queue.wait(ticket, SOON), Err(WaitError::Deadline));
    rig.complete(0, 0);
    assert_eq!(queue.is_done(ticket), Ok(true));
    assert_eq!(queue.wait(ticket, Deadline::PASSED), Ok(()));
}

everywhere!(without_a_record_the_doorbell_tells, without_record);
fn without_record<S: Sharing>(kind: CompletionKind) {
    fn post<S: Sharing>(rig: &Rig, expected: u16) {
        let mut queue = rig.handle().open::<S>().unwrap();
        let _ = queue.try_post(Wqe::nop()).unwrap();
        assert_eq!(rig.doorbell_index(), Some(expected));
        let mut batch = queue.batch(2, SOON).unwrap();
        let _ = batch.post(Wqe::nop()).unwrap();
        let _ = batch.post(Wqe::nop()).unwrap();
        assert_eq!(rig.doorbell_index(), Some(expected), "not before the drop");
        drop(batch);
        assert_eq!(rig.doorbell_index(), Some(expected + 2));
    }
    let rig = Rig::new(4, kind).with_doorbell(SendDoorbell::WithoutRecord);
    post::<S>(&rig, 1);
    post::<S>(&rig, 4);
    assert_eq!(rig.producer_index(), 0, "nobody reads the record");
}

everywhere!(a_full_ring_says_so, full);
fn full<S: Sharing>(kind: CompletionKind) {
    let rig = Rig::new(3, kind);
    let mut queue = rig.handle().open::<S>().unwrap();
    for _ in 0..8 {
        let _ = queue.try_post(Wqe::nop()).unwrap();
    }
    assert_eq!(queue.try_post(Wqe::nop()), Err(PostError::NoRoom));
    assert_eq!(queue.post(Wqe::nop(), SOON), Err(PostError::Deadline));
    assert_eq!(rig.producer_index(), 8, "nothing of a refused post is seen");
    // Every quarter of the ring is signalled, asked for or not.
    let signalled: Vec<bool> = (0..8).map(|block| rig.signalled(block)).collect();
    assert_eq!(
        signalled,
        [true, false, true, false, true, false, true, false]
    );
    rig.complete(0, 2);
    for _ in 0..3 {
        let _ = queue.try_post(Wqe::nop()).unwrap();
    }
    assert_eq!(queue.try_post(Wqe::nop()), Err(PostError::NoRoom));
    assert_eq!(rig.control(8), (8, Opcode::NOP));
}

/// Single requests, batches that are filled, half-filled and given up, and posts without a look at the credit, in random
/// order and sizes: whichever way a WQE came, it is signalled if it covers a multiple of a quarter of the ring.
#[test]
fn a_quarter_is_signalled_whatever_is_posted() {
    const DEPTH_LOG2: u8 = 4;
    const QUARTER: u64 = 4;
    let rig = Rig::new(DEPTH_LOG2, CompletionKind::Collapsed);
    let mut queue = rig.handle().open::<Exclusive>().unwrap();
    let long = Wqe::<2>::write_inline(&[5; 40], remote(0)).unwrap();
    let mut random = SmallRng::seed_from_u64(5);
    let (mut next, mut asked_for_none) = (0_u64, 0);
    for _ in 0..if cfg!(miri) { 40 } else { 60_000 } {
        // All that was posted is done, so that every operation finds room.
        rig.complete(0, (next as u16).wrapping_sub(1));
        let mut sizes = Vec::new();
        match random.random_range(0..5) {
            0 => {
                let _ = queue.try_post(Wqe::nop()).unwrap();
                sizes.push(1);
            }
            1 => {
                let _ = queue.try_post(long).unwrap();
                sizes.push(2);
            }
            2 => {
                // SAFETY: the ring is empty.
                let _ = unsafe { queue.post_unchecked(Wqe::nop()) }.unwrap();
                sizes.push(1);
            }
            given_up => {
                let blocks = random.random_range(1..=8);
                let mut batch = queue.batch(blocks, SOON).unwrap();
                for _ in 0..random.random_range(0..=blocks) {
                    let size = random.random_range(1..=batch.room().min(2));
                    let posted = match size {
                        1 => batch.post(Wqe::nop()),
                        _ => batch.post(long),
                    };
                    let _ = posted.unwrap();
                    sizes.push(size);
                    if batch.room() == 0 {
                        break;
                    }
                }
                if given_up == 4 {
                    mem::forget(batch);
                    sizes.clear();
                }
            }
        }
        for size in sizes {
            let covers = (next..next + u64::from(size)).any(|block| block % QUARTER == 0);
            assert_eq!(rig.signalled(next as usize), covers, "{next}");
            asked_for_none += u32::from(!covers);
            next += u64::from(size);
        }
        assert_eq!(rig.producer_index(), next as u16);
    }
    assert!(cfg!(miri) || next > 65_536 && asked_for_none > 10_000);
}

everywhere!(indices_wrap, wrap);
fn wrap<S: Sharing>(kind: CompletionKind) {
    let rig = Rig::new(2, kind);
    let mut queue = rig.handle().open::<S>().unwrap();
    let rounds = if cfg!(miri) { 20 } else { 70_000 };
    for round in 0..rounds {
        let ticket = queue.try_post(Wqe::nop().signalled()).unwrap();
        assert_eq!(rig.control(round), (round as u16, Opcode::NOP));
        assert_eq!(rig.producer_index(), (round + 1) as u16);
        assert_eq!(queue.is_done(ticket), Ok(false), "round {round}");
        rig.complete(round, round as u16);
        assert_eq!(queue.is_done(ticket), Ok(true), "round {round}");
    }
    assert_eq!(rig.completion_consumer(), 0, "the NIC asks nobody");
}

/// Without a look at the credit, the waits alone tell what is complete.
// Too many rounds for miri.
#[cfg(not(miri))]
#[test]
fn indices_wrap_without_a_look_at_the_credit() {
    for kind in [CompletionKind::Collapsed, CompletionKind::Ordinary] {
        let rig = Rig::new(2, kind);
        let mut queue = rig.handle().open::<Exclusive>().unwrap();
        for round in 0..70_000 {
            // SAFETY: all that was posted before is complete.
            let ticket = unsafe { queue.post_unchecked(Wqe::nop().signalled()) }.unwrap();
            assert_eq!(rig.control(round), (round as u16, Opcode::NOP));
            rig.complete(round, round as u16);
            assert_eq!(queue.wait(ticket, SOON), Ok(()), "round {round}");
        }
    }
}

everywhere!(what_comes_during_a_wait_is_found, late);
fn late<S: Sharing>(kind: CompletionKind) {
    let rig = Rig::new(3, kind);
    let nap = || std::thread::sleep(Duration::from_millis(2));
    let limit = Deadline::after_ms(300_000);
    std::thread::scope(|scope| {
        let mut queue = rig.handle().open::<S>().unwrap();
        let [_, second, third] = [(); 3].map(|()| queue.try_post(Wqe::nop().signalled()).unwrap());
        scope.spawn(|| {
            // News that is not what the wait is for, and then what it is for.
            nap();
            rig.complete(0, 0);
            nap();
            rig.complete(1, 1);
            nap();
            nap();
            rig.fail(2, 2, Syndrome::REMOTE_ACCESS, 0x88);
        });
        assert_eq!(queue.wait(second, limit), Ok(()));
        let Err(WaitError::Failed(error)) = queue.wait(third, limit) else {
            panic!("the third request failed");
        };
        assert!(matches!(error.cause(), Cause::Completion(_)), "{error:?}");
    });
}

everywhere!(room_that_comes_during_a_post_is_taken, room);
fn room<S: Sharing>(kind: CompletionKind) {
    let rig = Rig::new(3, kind);
    std::thread::scope(|scope| {
        let mut queue = rig.handle().open::<S>().unwrap();
        for _ in 0..8 {
            let _ = queue.try_post(Wqe::nop()).unwrap();
        }
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(2));
            rig.complete(0, 2);
        });
        let posted = queue.post(Wqe::nop(), Deadline::after_ms(300_000));
        assert!(posted.is_ok(), "{posted:?}");
    });
}

everywhere!(the_first_error_stays, errors);
fn errors<S: Sharing>(kind: CompletionKind) {
    let mut rig = Rig::new(3, kind);
    {
        let mut queue = rig.handle().open::<S>().unwrap();
        let done = queue.try_post(Wqe::nop().signalled()).unwrap();
        let failed = queue
            .try_post(Wqe::write(local(8), remote(0)).signalled())
            .unwrap();
        let flushed = queue.try_post(Wqe::nop().signalled()).unwrap();
        rig.fail(0, 1, Syndrome::REMOTE_ACCESS, 0x88);
        let error = queue.is_done(failed).unwrap_err();
        let Cause::Completion(completion) = error.cause() else {
            panic!("{error:?}");
        };
        assert_eq!(completion.syndrome, Syndrome::REMOTE_ACCESS);
        assert_eq!(completion.vendor.0, 0x88);
        assert_eq!(completion.wqe_index.0, 1);
        assert_eq!(completion.opcode, Opcode::RDMA_WRITE);
        assert_eq!(completion.side, Side::Requester);
        assert_eq!(completion.qpn, QpNumber::new(QPN).unwrap());
        // What came before it is done, what came after fails at once.
        assert_eq!(queue.wait(done, Deadline::PASSED), Ok(()));
        assert_eq!(queue.wait(flushed, SOON), Err(WaitError::Failed(error)));
        assert_eq!(rig.state.first_error(), Some(error));
        rig.fail(1, 2, Syndrome::FLUSHED, 0xf9);
        assert_eq!(queue.wait(flushed, SOON), Err(WaitError::Failed(error)));
        assert_eq!(rig.state.first_error(), Some(error), "a flush is no cause");
        drop(queue);
        assert_eq!(
            rig.handle().open::<S>().err(),
            Some(OpenError::Failed(error))
        );
    }
    rig.state.clear();
    assert_eq!(rig.state.first_error(), None);
    assert!(rig.handle().open::<S>().is_ok());
}

/// A write fails that asks for no completion, then the flag behind it is flushed, before the kernel looks.
fn cause<S: Sharing>(kind: CompletionKind) -> Syndrome {
    let rig = Rig::new(3, kind);
    let mut queue = rig.handle().open::<S>().unwrap();
    let _ = queue.try_post(Wqe::nop().signalled()).unwrap();
    let _ = queue.try_post(Wqe::write(local(8), remote(0))).unwrap();
    let flag = Wqe::<1>::write_inline(&[1; 8], remote(8)).unwrap();
    let flag = queue.try_post(flag.signalled()).unwrap();
    rig.complete(0, 0);
    rig.fail(1, 1, Syndrome::REMOTE_ACCESS, 0x88);
    rig.fail(2, 2, Syndrome::FLUSHED, 0xf9);
    let WaitError::Failed(error) = queue.wait(flag, SOON).unwrap_err() else {
        panic!("no error");
    };
    assert_eq!(rig.state.first_error(), Some(error));
    match error.cause() {
        Cause::Completion(completion) => completion.syndrome,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_ring_keeps_the_cause_that_a_collapsed_queue_loses() {
    let ring = CompletionKind::Ordinary;
    let causes = [cause::<Exclusive>, cause::<BlockShared>, cause::<GpuShared>];
    for cause in causes {
        assert_eq!(cause(ring), Syndrome::REMOTE_ACCESS);
        assert_eq!(cause(CompletionKind::Collapsed), Syndrome::FLUSHED);
    }
}

#[test]
fn a_flush_makes_room_for_its_cause() {
    let rig = Rig::new(3, CompletionKind::Collapsed);
    let mut first = rig.handle().open::<GpuShared>().unwrap();
    let mut second = rig.handle().open::<GpuShared>().unwrap();
    let one = first.try_post(Wqe::nop().signalled()).unwrap();
    let two = second.try_post(Wqe::nop().signalled()).unwrap();
    // The CQE of the cause was overwritten before this view saw it.
    rig.fail(0, 1, Syndrome::FLUSHED, 0xf9);
    assert!(first.is_done(one).unwrap_err().is_flush());
    // Another view has seen it; here, the NIC writes it again.
    rig.fail(0, 0, Syndrome::LOCAL_PROTECTION, 0x53);
    assert!(!second.is_done(two).unwrap_err().is_flush());
    assert!(!rig.state.first_error().unwrap().is_flush());
    assert!(!first.is_done(one).unwrap_err().is_flush());
}

everywhere!(unsignalled_requests_are_not_waited_for, unsignalled);
fn unsignalled<S: Sharing>(kind: CompletionKind) {
    let rig = Rig::new(5, kind);
    let mut queue = rig.handle().open::<S>().unwrap();
    let _ = queue.try_post(Wqe::nop()).unwrap();
    let silent = queue.try_post(Wqe::nop()).unwrap();
    let silence = Err(WaitError::NotSignalled);
    assert_eq!(queue.wait(silent, SOON), silence);
    assert_eq!(queue.wait_outbound(silent, SOON), silence);
    let loud = queue.try_post(Wqe::nop().signalled()).unwrap();
    let late = Err(WaitError::Deadline);
    assert_eq!(queue.wait(silent, SOON), late);
    assert_eq!(queue.wait_outbound(silent, SOON), late);
    rig.complete(0, 2);
    assert_eq!(queue.wait(silent, SOON), Ok(()));
    assert_eq!(queue.wait(loud, SOON), Ok(()));
    assert_eq!(queue.wait_outbound(loud, SOON), Ok(()));
}

#[test]
fn bad_requests_are_refused() {
    let rig = Rig::new(3, CompletionKind::Collapsed);
    let mut queue = rig.handle().open::<Exclusive>().unwrap();
    let there = remote(0x2004);
    let masked = |value, mask| Masked { value, mask };
    assert_eq!(
        queue.try_post(Wqe::write(local(0), there)),
        Err(PostError::Empty)
    );
    assert_eq!(queue.try_post(Wqe::send(local(0))), Err(PostError::Empty));
    assert_eq!(
        queue.try_post(Wqe::read(local(MAX_MESSAGE + 1), there)),
        Err(PostError::TooLong {
            bytes: MAX_MESSAGE as u64 + 1,
            limit: MAX_MESSAGE
        })
    );
    let misaligned = Err(PostError::Misaligned { address: 0x2004 });
    assert_eq!(
        queue.try_post(Wqe::fetch_add(local(8), there, 1)),
        misaligned
    );
    assert_eq!(
        queue.try_post(Wqe::compare_swap(local(8), there, 1, 2)),
        misaligned
    );
    assert_eq!(
        queue.try_post(Wqe::masked_fetch_add_u64(local(8), there, 1, 0)),
        misaligned
    );
    assert_eq!(
        queue.try_post(Wqe::masked_compare_swap_u64(
            local(8),
            there,
            masked(1, 1),
            masked(1, 1)
        )),
        misaligned
    );
    // A quarter of eight blocks is two.
    let long = Wqe::<3>::write_inline(&[1; 150], there).unwrap();
    assert_eq!(
        queue.try_post(long),
        Err(PostError::TooManyBlocks { asked: 3, limit: 2 })
    );
    let longest = Wqe::<3>::write_gather(&[local(MAX_MESSAGE / 8); 8], there).unwrap();
    assert_eq!(
        queue.try_post(longest),
        Err(PostError::TooManyBlocks { asked: 3, limit: 2 })
    );
    assert_eq!(
        queue.batch(5, SOON).err(),
        Some(PostError::TooManyBlocks { asked: 5, limit: 4 })
    );
    assert_eq!(rig.doorbell_index(), None, "nothing was posted");
    // These may be empty, and 4-byte atomics want 4 bytes.
    let _ = queue
        .try_post(Wqe::write_immediate_only(there, Immediate(1)))
        .unwrap();
    let _ = queue.try_post(Wqe::send_empty()).unwrap();
    let _ = queue
        .try_post(Wqe::masked_fetch_add_u32(local(4), there, 1, 0))
        .unwrap();
    assert_eq!(rig.producer_index(), 3);
    // A quarter of four blocks is one, and this atomic is aligned.
    let rig = Rig::new(2, CompletionKind::Collapsed);
    let mut queue = rig.handle().open::<Exclusive>().unwrap();
    let swap = Wqe::masked_compare_swap_u64(local(8), remote(0x2008), masked(1, 1), masked(1, 1));
    assert_eq!(
        queue.try_post(swap),
        Err(PostError::TooManyBlocks { asked: 2, limit: 1 })
    );
}

everywhere!(a_batch_rings_once, batch);
fn batch<S: Sharing>(kind: CompletionKind) {
    let rig = Rig::new(4, kind);
    let mut queue = rig.handle().open::<S>().unwrap();
    let mut batch = queue.batch(4, SOON).unwrap();
    let _ = batch.post(Wqe::nop()).unwrap();
    let two_blocks = Wqe::<2>::write_inline(&[5; 40], remote(0)).unwrap();
    let last = batch.post(two_blocks.signalled()).unwrap();
    assert_eq!(batch.room(), 1);
    assert_eq!(
        batch.post(two_blocks),
        Err(PostError::TooManyBlocks { asked: 2, limit: 1 })
    );
    assert_eq!(rig.doorbell_index(), None, "not before the drop");
    drop(batch);
    assert_eq!(rig.control(1), (1, Opcode::RDMA_WRITE));
    // The spare block goes back to an exclusive queue; a shared one gets a NOP.
    let end = rig.producer_index();
    if end == 4 {
        assert_eq!(rig.control(3), (3, Opcode::NOP));
    } else {
        assert_eq!(end, 3);
    }
    rig.complete(0, 1);
    assert_eq!(queue.wait(last, SOON), Ok(()));
    drop(queue.batch(2, SOON).unwrap());
    let next = queue.try_post(Wqe::nop()).unwrap();
    assert!(next > last);
}

/// Every block up to the record's index holds the WQE of that index.
fn assert_published_are_written(rig: &Rig) {
    for block in 0..rig.producer_index() {
        let (index, _) = rig.control(block as usize);
        assert_eq!(index, block, "the NIC was sent to a slot without its WQE");
    }
}

#[test]
fn a_leaked_batch_posts_nothing() {
    let rig = Rig::new(4, CompletionKind::Collapsed);
    let mut queue = rig.handle().open::<Exclusive>().unwrap();
    let mut batch = queue.batch(4, SOON).unwrap();
    let _ = batch.post(Wqe::nop()).unwrap();
    mem::forget(batch);
    let _ = queue.try_post(Wqe::nop()).unwrap();
    assert_eq!(rig.producer_index(), 1);
    assert_published_are_written(&rig);
}

#[test]
#[cfg_attr(
    miri,
    ignore = "a stall takes 20 million turns of the one-thread clock"
)]
fn a_leaked_batch_stalls_a_shared_queue() {
    let rig = Rig::new(4, CompletionKind::Collapsed);
    let mut queue = rig.handle().open::<GpuShared>().unwrap();
    let _ = queue.try_post(Wqe::nop()).unwrap();
    mem::forget(queue.batch(4, SOON).unwrap());
    drop(queue);
    // Whoever has the queue to himself next knows that nobody will fill the gap.
    let mut queue = rig.handle().open::<Exclusive>().unwrap();
    let _ = queue.try_post(Wqe::nop()).unwrap();
    assert_eq!(rig.producer_index(), 2);
    assert_published_are_written(&rig);
    drop(queue);
    // Whoever shares it does not, and finds out.
    let mut queue = rig.handle().open::<GpuShared>().unwrap();
    let mut other = rig.handle().open::<GpuShared>().unwrap();
    mem::forget(queue.batch(4, SOON).unwrap());
    let behind = queue.try_post(Wqe::nop().signalled()).unwrap();
    assert_eq!(rig.producer_index(), 2);
    let stalled = QueueError::new(Cause::Stalled { wqe: WqeIndex(2) });
    assert_eq!(
        queue.wait(behind, SOON),
        Err(WaitError::Failed(stalled)),
        "the request was taken, so its failure must be told"
    );
    assert_eq!(
        other.is_done(behind),
        Err(stalled),
        "no completion tells the other view"
    );
    assert_eq!(queue.try_post(Wqe::nop()), Err(PostError::Failed(stalled)));
}

#[test]
fn gather_lists_take_the_blocks_they_need() {
    let rig = Rig::new(4, CompletionKind::Collapsed);
    let mut queue = rig.handle().open::<Exclusive>().unwrap();
    let two = Wqe::<2>::write_gather(&[local(8); 2], remote(0)).unwrap();
    let three = Wqe::<2>::write_gather(&[local(8); 3], remote(0)).unwrap();
    let _ = queue.try_post(two).unwrap();
    assert_eq!(rig.producer_index(), 1);
    assert_eq!(rig.ring_word(1, 0), 0, "a block that it does not take");
    let _ = queue.try_post(three).unwrap();
    assert_eq!(rig.producer_index(), 3);
    assert_eq!(rig.control(1), (1, Opcode::RDMA_WRITE));
}

#[test]
fn the_last_wqe_hides_its_tail_and_the_ring_still_empties() {
    // Four WQEs of two blocks in a ring of eight: the CQE names a first block,
    // so one block of the newest counts as busy until the next CQE.
    let rig = Rig::new(3, CompletionKind::Collapsed);
    let mut queue = rig.handle().open::<Exclusive>().unwrap();
    let pair = Wqe::<2>::write_inline(&[5; 40], remote(0)).unwrap();
    for round in 0..50u16 {
        let ticket = loop {
            match queue.try_post(pair) {
                Ok(ticket) => break ticket,
                Err(error) => assert_eq!(error, PostError::NoRoom),
            }
            rig.complete(0, round.wrapping_sub(1).wrapping_mul(2));
        };
        assert!(queue.is_done(ticket) == Ok(false));
    }
}

/// One view posts and waits while the other sleeps for more blocks than an index
/// tells apart: the other one catches up.
// Too many rounds for miri.
#[cfg(not(miri))]
#[test]
fn a_view_that_slept_catches_up() {
    let rounds = 2 * 65_536 + 3;
    for kind in [CompletionKind::Collapsed, CompletionKind::Ordinary] {
        let rig = Rig::new(3, kind);
        let mut awake = rig.handle().open::<GpuShared>().unwrap();
        let mut asleep = rig.handle().open::<GpuShared>().unwrap();
        let first = awake.try_post(Wqe::nop().signalled()).unwrap();
        rig.complete(0, 0);
        for number in 1..rounds {
            let ticket = awake.try_post(Wqe::nop().signalled()).unwrap();
            rig.complete(number, number as u16);
            assert_eq!(awake.wait(ticket, SOON), Ok(()));
        }
        assert_eq!(asleep.is_done(first), Ok(true));
        let ticket = asleep.try_post(Wqe::nop().signalled()).unwrap();
        assert_eq!(asleep.is_done(ticket), Ok(false));
        rig.complete(rounds, rounds as u16);
        assert_eq!(asleep.wait(ticket, SOON), Ok(()));
    }
}

/// The newest completion's index is that of long ago: a view that knows nothing
/// takes it for what it is.
// Too many rounds for miri.
#[cfg(not(miri))]
#[test]
fn an_index_that_repeats_itself_is_news() {
    let rig = Rig::new(3, CompletionKind::Collapsed);
    let mut awake = rig.handle().open::<GpuShared>().unwrap();
    let mut asleep = rig.handle().open::<GpuShared>().unwrap();
    let first = awake.try_post(Wqe::nop().signalled()).unwrap();
    rig.complete(0, 0);
    for number in 1..65_536 {
        let ticket = awake.try_post(Wqe::nop().signalled()).unwrap();
        rig.complete(number, number as u16);
        assert_eq!(awake.wait(ticket, SOON), Ok(()));
    }
    // Index 65,535 would be the one before the first.
    assert_eq!(asleep.is_done(first), Ok(true));
}

/// The newest completion's index is that of a request of long ago, whose ticket is waited for once more: what is known
/// since stays known.
// Too many rounds for miri.
#[cfg(not(miri))]
#[test]
fn an_old_ticket_takes_nothing_back() {
    let rig = Rig::new(3, CompletionKind::Collapsed);
    let mut queue = rig.handle().open::<Exclusive>().unwrap();
    let first = queue.try_post(Wqe::nop().signalled()).unwrap();
    rig.complete(0, 0);
    for number in 1..=65_536 {
        let ticket = queue.try_post(Wqe::nop().signalled()).unwrap();
        rig.complete(number, number as u16);
        assert_eq!(queue.wait(ticket, SOON), Ok(()));
    }
    assert_eq!(queue.wait(first, SOON), Ok(()));
    for number in 0..8 {
        assert!(queue.try_post(Wqe::nop()).is_ok(), "post {number}");
    }
}

/// The first entry of an ordinary completion queue is that of 2^16 blocks ago, with the index of what is waited for.
// Too many rounds for miri.
#[cfg(not(miri))]
#[test]
fn an_entry_of_long_ago_is_no_news() {
    let rig = Rig::new(15, CompletionKind::Ordinary);
    let mut queue = rig.handle().open::<Exclusive>().unwrap();
    // Only what opens a quarter of the ring is signalled.
    let mut entry = 0;
    for number in 0..65_536u32 {
        let ticket = queue.try_post(Wqe::nop()).unwrap();
        if number.is_multiple_of(8_192) {
            rig.complete(entry, number as u16);
            entry += 1;
            assert_eq!(queue.wait(ticket, SOON), Ok(()));
        }
    }
    let ticket = queue.try_post(Wqe::nop()).unwrap();
    assert_eq!(queue.is_done(ticket), Ok(false));
    rig.complete(entry, 0);
    assert_eq!(queue.wait(ticket, SOON), Ok(()));
}

#[test]
fn exclusive_is_exclusive() {
    let rig = Rig::new(3, CompletionKind::Collapsed);
    let exclusive = rig.handle().open::<Exclusive>().unwrap();
    assert_eq!(
        rig.handle().open::<Exclusive>().err(),
        Some(OpenError::InUse)
    );
    assert_eq!(
        rig.handle().open::<GpuShared>().err(),
        Some(OpenError::InUse)
    );
    drop(exclusive);
    let shared = rig.handle().open::<GpuShared>().unwrap();
    let again = rig.handle().open::<GpuShared>().unwrap();
    assert_eq!(
        rig.handle().open::<BlockShared>().err(),
        Some(OpenError::InUse),
        "the ordering of a block does not reach the GPU's other threads"
    );
    assert_eq!(
        rig.handle().open::<Exclusive>().err(),
        Some(OpenError::InUse)
    );
    drop((shared, again));
    assert!(rig.handle().open::<Exclusive>().is_ok());
}

#[test]
fn a_queue_goes_on_where_it_was_left() {
    let rig = Rig::new(3, CompletionKind::Ordinary);
    for round in 0..20u16 {
        let mut queue = rig.handle().open::<Exclusive>().unwrap();
        let ticket = queue.try_post(Wqe::nop().signalled()).unwrap();
        rig.complete(round as usize, round);
        assert_eq!(queue.wait(ticket, SOON), Ok(()));
    }
    let mut shared = rig.handle().open::<GpuShared>().unwrap();
    let ticket = shared.try_post(Wqe::nop().signalled()).unwrap();
    assert_eq!(rig.control(20), (20, Opcode::NOP));
    assert_eq!(shared.is_done(ticket), Ok(false));
}

#[test]
fn handles_of_others_are_refused() {
    /// Where this version has the kind of the completion queue; another may
    /// have anything there.
    const KIND: usize = 48 + 17;
    let rig = Rig::new(3, CompletionKind::Collapsed);
    let handle = rig.handle();
    let patched = |offset: usize, byte: u8| {
        let mut copy = handle;
        for (offset, byte) in [(offset, byte), (KIND, 0xaa)] {
            // SAFETY: the bytes are of integers, of which every value is valid.
            unsafe { (&raw mut copy).cast::<u8>().add(offset).write(byte) };
        }
        copy.open::<Exclusive>().err()
    };
    assert!(matches!(patched(0, 0), Some(OpenError::NotAHandle { .. })));
    assert_eq!(
        patched(4, 99),
        Some(OpenError::Version {
            found: 99,
            wanted: warpbell::ABI_VERSION
        })
    );
    assert!(matches!(
        patched(6, 1),
        Some(OpenError::Size { found: 1, .. })
    ));
    // The reach of fences and the kind of doorbell: two each are known.
    assert_eq!(patched(73, 2), Some(OpenError::Reach { found: 2 }));
    assert_eq!(patched(74, 2), Some(OpenError::SendDoorbell { found: 2 }));
    for known in [0, 1] {
        assert_eq!(patched(73, known), None);
        assert_eq!(patched(74, known), None);
    }
}

#[test]
fn drain_waits_for_everything() {
    let rig = Rig::new(3, CompletionKind::Collapsed);
    let mut queue = rig.handle().open::<Exclusive>().unwrap();
    let silent = queue.try_post(Wqe::write(local(8), remote(0))).unwrap();
    assert_eq!(queue.drain(SOON), Err(WaitError::Deadline));
    assert_eq!(rig.control(1), (1, Opcode::NOP));
    assert!(rig.signalled(1));
    rig.complete(0, 1);
    assert_eq!(queue.wait(silent, SOON), Ok(()));
}

/// The words of a state elsewhere are told by their places, which the host's copy keeps.
#[test]
fn a_state_is_read_from_its_words() {
    let words = std::array::from_fn(|at| 100 + at as u64);
    let state = QueueState::from_words(words);
    let progress = state.progress();
    assert_eq!(progress.reserved, 100);
    assert_eq!(progress.published, 101);
    assert_eq!(progress.completed, 116);
    let words = [0; QueueState::WORDS];
    assert_eq!(QueueState::from_words(words).first_error(), None);
}
