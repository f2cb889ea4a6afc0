//! The order of publishing and polling, in every interleaving that loom finds,
//! and twins without a fence, in which loom must find a fault.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;
use warpbell::wqe::{Opcode, Syndrome, Wqe};
use warpbell::{
    Cause, CompletionKind, Deadline, Exclusive, GpuShared, LeftOut, OpenError, SendDoorbell,
    SendQueue, Sharing, Signal, Thread, Ticket,
};

use crate::common::Rig;
use crate::common::model::model;

/// What the NIC does when it looks once: doorbell, record, WQEs. Returns the
/// index of the doorbell that it saw, and that of the record.
fn fetch(rig: &Rig) -> Option<(u16, u16)> {
    let rung = rig.doorbell_index()?;
    let recorded = rig.producer_index();
    for block in 0..recorded {
        assert_eq!(
            rig.control(block as usize),
            (block, Opcode::NOP),
            "the NIC fetched a WQE that is not there yet"
        );
    }
    Some((rung, recorded))
}

/// One thread posts two WQEs while the NIC looks.
fn publish<S: Sharing>(without: Option<LeftOut>, batch: bool) {
    model(without, move || {
        let rig = Arc::new(Rig::new(3, CompletionKind::Collapsed));
        let nic = thread::spawn({
            let rig = Arc::clone(&rig);
            move || fetch(&rig)
        });
        let mut queue = rig.handle().open::<S>().unwrap();
        if batch {
            let mut batch = queue.batch(2, Deadline::PASSED).unwrap();
            let _ = batch.post(Wqe::nop()).unwrap();
            let _ = batch.post(Wqe::nop()).unwrap();
        } else {
            let _ = queue.try_post(Wqe::nop()).unwrap();
            let _ = queue.try_post(Wqe::nop()).unwrap();
        }
        drop(queue);
        if let Some((rung, recorded)) = nic.join().unwrap() {
            assert!(recorded >= rung, "the doorbell overtook its record");
        }
        assert_eq!(fetch(&rig), Some((2, 2)));
    });
}

#[test]
fn publish_alone() {
    publish::<Exclusive>(None, false);
}

#[test]
fn publish_batch() {
    publish::<Exclusive>(None, true);
    publish::<GpuShared>(None, true);
}

#[test]
fn publish_shared() {
    publish::<GpuShared>(None, false);
}

#[test]
#[should_panic(expected = "the doorbell overtook its record")]
fn publish_alone_wants_its_release_fences() {
    publish::<Exclusive>(Some(LeftOut::Release), true);
}

#[test]
#[should_panic(expected = "fetched a WQE that is not there yet")]
fn publish_alone_wants_the_fence_before_its_record() {
    publish::<Exclusive>(Some(LeftOut::OddRelease), false);
}

#[test]
#[should_panic(expected = "the doorbell overtook its record")]
fn publish_alone_wants_the_fence_before_its_doorbell() {
    publish::<Exclusive>(Some(LeftOut::EvenRelease), false);
}

/// What the NIC does that reads no record: doorbell, WQEs. Returns the doorbell's index.
fn fetch_by_doorbell(rig: &Rig) -> Option<u16> {
    let rung = rig.doorbell_index()?;
    for block in 0..rung {
        assert_eq!(
            rig.control(block as usize),
            (block, Opcode::NOP),
            "the NIC fetched a WQE that is not there yet"
        );
    }
    Some(rung)
}

/// One thread posts two WQEs to a queue without a record while the NIC looks.
fn publish_by_doorbell<S: Sharing>(without: Option<LeftOut>) {
    model(without, move || {
        let rig = Rig::new(3, CompletionKind::Collapsed);
        let rig = Arc::new(rig.with_doorbell(SendDoorbell::WithoutRecord));
        let nic = thread::spawn({
            let rig = Arc::clone(&rig);
            move || fetch_by_doorbell(&rig)
        });
        let mut queue = rig.handle().open::<S>().unwrap();
        let _ = queue.try_post(Wqe::nop()).unwrap();
        let mut batch = queue.batch(1, Deadline::PASSED).unwrap();
        let _ = batch.post(Wqe::nop()).unwrap();
        drop(batch);
        drop(queue);
        nic.join().unwrap();
        assert_eq!(fetch_by_doorbell(&rig), Some(2));
    });
}

#[test]
fn publish_without_a_record() {
    publish_by_doorbell::<Exclusive>(None);
    publish_by_doorbell::<GpuShared>(None);
}

#[test]
#[should_panic(expected = "fetched a WQE that is not there yet")]
fn publish_without_a_record_wants_its_release_fence() {
    publish_by_doorbell::<Exclusive>(Some(LeftOut::Release));
}

/// One thread of several that share a queue posts a WQE.
fn post_one(rig: &Rig) {
    let mut queue = rig.handle().open::<GpuShared>().unwrap();
    let _ = queue.try_post(Wqe::nop()).unwrap();
}

/// Two threads of the GPU post to one queue without a record: the newest doorbell has the highest index, and whoever
/// goes by it finds the WQEs of both.
fn two_publishers_by_doorbell(without: Option<LeftOut>) {
    model(without, || {
        let rig = Rig::new(2, CompletionKind::Collapsed);
        let rig = Arc::new(rig.with_doorbell(SendDoorbell::WithoutRecord));
        let other = thread::spawn({
            let rig = Arc::clone(&rig);
            move || post_one(&rig)
        });
        let nic = thread::spawn({
            let rig = Arc::clone(&rig);
            move || fetch_by_doorbell(&rig)
        });
        post_one(&rig);
        other.join().unwrap();
        nic.join().unwrap();
        assert_eq!(fetch_by_doorbell(&rig), Some(2), "the doorbell went back");
    });
}

#[test]
fn two_publishers_without_a_record() {
    two_publishers_by_doorbell(None);
}

#[test]
#[should_panic(expected = "the doorbell went back")]
fn two_publishers_without_a_record_want_their_turns_released() {
    two_publishers_by_doorbell(Some(LeftOut::ReleaseStores));
}

/// A view posts twice, the second time without a look at whose turn it is if
/// nobody came between, while another posts, too.
#[test]
fn who_posts_again_keeps_the_order() {
    model(None, || {
        let rig = Rig::new(3, CompletionKind::Collapsed);
        let rig = Arc::new(rig.with_doorbell(SendDoorbell::WithoutRecord));
        let other = thread::spawn({
            let rig = Arc::clone(&rig);
            move || post_one(&rig)
        });
        let nic = thread::spawn({
            let rig = Arc::clone(&rig);
            move || fetch_by_doorbell(&rig)
        });
        let mut queue = rig.handle().open::<GpuShared>().unwrap();
        let _ = queue.try_post(Wqe::nop()).unwrap();
        let _ = queue.try_post(Wqe::nop()).unwrap();
        drop(queue);
        other.join().unwrap();
        nic.join().unwrap();
        assert_eq!(fetch_by_doorbell(&rig), Some(3));
    });
}

/// Two threads of the GPU post to one queue: no WQE is lost or torn, and neither record nor doorbell ever goes back.
fn two_publishers_with(without: Option<LeftOut>) {
    model(without, || {
        let rig = Arc::new(Rig::new(2, CompletionKind::Collapsed));
        let other = thread::spawn({
            let rig = Arc::clone(&rig);
            move || post_one(&rig)
        });
        post_one(&rig);
        other.join().unwrap();
        assert_eq!(rig.producer_index(), 2, "the record went back");
        let (rung, _recorded) = fetch(&rig).unwrap();
        assert_eq!(rung, 2, "the doorbell went back");
    });
}

#[test]
fn two_publishers() {
    two_publishers_with(None);
}

#[test]
#[should_panic(expected = "the doorbell went back")]
fn two_publishers_want_their_order() {
    two_publishers_with(Some(LeftOut::ReleaseStores));
}

/// Two threads of the GPU post to one queue while the NIC looks at the doorbell's word, and at the record each time the
/// word has changed: it finds both requests.
fn a_word_for_doorbells(without: Option<LeftOut>) {
    model(without, || {
        let rig = Arc::new(Rig::new(2, CompletionKind::Collapsed));
        let other = thread::spawn({
            let rig = Arc::clone(&rig);
            move || post_one(&rig)
        });
        let nic = thread::spawn({
            let rig = Arc::clone(&rig);
            move || fetch(&rig)
        });
        post_one(&rig);
        other.join().unwrap();
        let heard = nic.join().unwrap();
        let now = rig.doorbell_index();
        let recorded = match heard {
            Some((rung, recorded)) if now == Some(rung) => recorded,
            _ => rig.producer_index(),
        };
        assert_eq!(recorded, 2, "a late doorbell hid the newest one");
    });
}

#[test]
fn a_word_for_doorbells_hides_none() {
    a_word_for_doorbells(None);
}

/// The proof that a record alone does not replace the order of doorbells.
#[test]
#[should_panic(expected = "a late doorbell hid the newest one")]
fn a_word_for_doorbells_wants_their_order() {
    a_word_for_doorbells(Some(LeftOut::ReleaseStores));
}

/// The NIC brings data for a read and completes it; whoever learns of it, by
/// himself or through another thread, must see the data.
fn poll<S: Sharing>(kind: CompletionKind, without: Option<LeftOut>, nic_releases: bool) {
    model(without, move || {
        let rig = Arc::new(Rig::new(2, kind));
        let data = Arc::new(warpbell::Word64::new(0));
        let mut queue = rig.handle().open::<S>().unwrap();
        let ticket = queue.try_post(Wqe::nop().signalled()).unwrap();
        let nic = thread::spawn({
            let (rig, data) = (Arc::clone(&rig), Arc::clone(&data));
            move || {
                data.store(42, Ordering::Relaxed);
                let cqe = rig.completion(0, 0);
                rig.write_cqe(0, cqe, nic_releases);
            }
        });
        for _ in 0..2 {
            if queue.is_done(ticket).unwrap() {
                assert_eq!(data.load(Ordering::Relaxed), 42, "old data after the CQE");
                break;
            }
        }
        nic.join().unwrap();
    });
}

#[test]
fn poll_exclusive() {
    poll::<Exclusive>(CompletionKind::Collapsed, None, true);
    poll::<Exclusive>(CompletionKind::Ordinary, None, true);
}

#[test]
#[should_panic(expected = "old data after the CQE")]
fn poll_wants_its_acquire_fence() {
    poll::<Exclusive>(CompletionKind::Collapsed, Some(LeftOut::Acquire), true);
}

#[test]
#[should_panic(expected = "old data after the CQE")]
fn poll_ordinary_wants_its_acquire_fence() {
    poll::<Exclusive>(CompletionKind::Ordinary, Some(LeftOut::Acquire), true);
}

#[test]
#[should_panic(expected = "old data after the CQE")]
fn poll_wants_the_nic_to_write_the_last_word_last() {
    poll::<Exclusive>(CompletionKind::Collapsed, None, false);
}

/// Two threads wait for the same request of a shared queue.
fn poll_together(kind: CompletionKind, without: Option<LeftOut>) {
    fn look(rig: &Rig, data: &warpbell::Word64, ticket: Ticket) {
        let mut queue = rig.handle().open::<GpuShared>().unwrap();
        if queue.is_done(ticket).unwrap() {
            assert_eq!(data.load(Ordering::Relaxed), 42, "old data after the CQE");
        }
    }
    model(without, move || {
        let rig = Arc::new(Rig::new(2, kind));
        let data = Arc::new(warpbell::Word64::new(0));
        let mut queue = rig.handle().open::<GpuShared>().unwrap();
        let ticket = queue.try_post(Wqe::nop().signalled()).unwrap();
        drop(queue);
        let nic = thread::spawn({
            let (rig, data) = (Arc::clone(&rig), Arc::clone(&data));
            move || {
                data.store(42, Ordering::Relaxed);
                rig.complete(0, 0);
            }
        });
        let other = thread::spawn({
            let (rig, data) = (Arc::clone(&rig), Arc::clone(&data));
            move || look(&rig, &data, ticket)
        });
        look(&rig, &data, ticket);
        nic.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn poll_shared_collapsed() {
    poll_together(CompletionKind::Collapsed, None);
}

#[test]
fn poll_shared_ordinary() {
    poll_together(CompletionKind::Ordinary, None);
}

#[test]
#[should_panic(expected = "old data after the CQE")]
fn poll_shared_collapsed_wants_its_acquire_fence() {
    poll_together(CompletionKind::Collapsed, Some(LeftOut::Acquire));
}

#[test]
#[should_panic(expected = "old data after the CQE")]
fn poll_shared_ordinary_wants_its_acquire_fence() {
    poll_together(CompletionKind::Ordinary, Some(LeftOut::Acquire));
}

/// A ring goes through two laps. A view that learns of both from another one waits for the first CQE of the third, which
/// has the owner bit of those of the first and never comes: neither an entry of two laps ago nor one that the other view
/// has taken is news.
fn two_laps_ago(depth_log2: u8, without: Option<LeftOut>) {
    model(without, move || {
        let depth = 1 << depth_log2;
        let rig = Arc::new(Rig::new(depth_log2, CompletionKind::Ordinary));
        let next_lap = {
            let other = Rig::new(depth_log2 + 2, CompletionKind::Ordinary);
            let mut queue = other.handle().open::<Exclusive>().unwrap();
            let mut post = |_| queue.try_post(Wqe::nop()).unwrap();
            (0..=2 * depth).map(&mut post).last().unwrap()
        };
        let other = thread::spawn({
            let rig = Arc::clone(&rig);
            move || {
                let mut queue = rig.handle().open::<GpuShared>().unwrap();
                for _ in 0..2 {
                    let done = queue.is_done(next_lap);
                    assert_eq!(done, Ok(false), "an old entry for a new one");
                }
            }
        });
        let mut queue = rig.handle().open::<GpuShared>().unwrap();
        for number in 0..2 * depth {
            // There is room once the entries are taken, unless the other one is at it.
            if queue.try_post(Wqe::nop().signalled()).is_err() {
                break;
            }
            if (number + 1) % depth == 0 {
                for completed in number + 1 - depth..=number {
                    rig.complete(completed, completed as u16);
                }
            }
        }
        let _ = queue.try_post(Wqe::nop());
        other.join().unwrap();
    });
}

#[test]
fn an_entry_of_two_laps_ago_is_no_news() {
    two_laps_ago(0, None);
    two_laps_ago(1, None);
}

#[test]
#[should_panic(expected = "an old entry for a new one")]
fn entries_want_what_is_stored_with_release() {
    two_laps_ago(1, Some(LeftOut::ReleaseStores));
}

/// A write that asks for no completion fails, and the NIC flushes the flag behind it, while one or two views look: each
/// learns why, or nothing yet.
fn cause_stays<S: Sharing>(kind: CompletionKind, views: usize, without: Option<LeftOut>) {
    fn look<S: Sharing>(queue: &mut SendQueue<'_, S, Thread>, flag: Ticket) {
        match queue.is_done(flag) {
            Ok(done) => assert!(!done, "done, and was flushed"),
            Err(error) => {
                let Cause::Completion(completion) = error.cause() else {
                    panic!("{error}");
                };
                let cause = completion.syndrome;
                assert_eq!(cause, Syndrome::REMOTE_ACCESS, "the cause is lost");
            }
        }
    }
    model(without, move || {
        let rig = Arc::new(Rig::new(2, kind));
        let mut queue = rig.handle().open::<S>().unwrap();
        let _ = queue.try_post(Wqe::nop()).unwrap();
        let flag = queue.try_post(Wqe::nop().signalled()).unwrap();
        let nic = thread::spawn({
            let rig = Arc::clone(&rig);
            move || {
                rig.fail(0, 0, Syndrome::REMOTE_ACCESS, 0x88);
                rig.fail(1, 1, Syndrome::FLUSHED, 0xf9);
            }
        });
        let other = (views == 2).then(|| {
            let rig = Arc::clone(&rig);
            thread::spawn(move || {
                // The error may be known already.
                if let Ok(mut queue) = rig.handle().open::<S>() {
                    look(&mut queue, flag);
                }
            })
        });
        look(&mut queue, flag);
        nic.join().unwrap();
        if let Some(other) = other {
            other.join().unwrap();
        }
        look(&mut queue, flag);
        assert!(queue.is_done(flag).is_err());
    });
}

#[test]
fn a_ring_keeps_the_cause() {
    cause_stays::<Exclusive>(CompletionKind::Ordinary, 1, None);
    cause_stays::<GpuShared>(CompletionKind::Ordinary, 2, None);
}

#[test]
#[should_panic(expected = "the cause is lost")]
fn a_collapsed_queue_loses_the_cause() {
    cause_stays::<Exclusive>(CompletionKind::Collapsed, 1, None);
}

#[test]
#[should_panic(expected = "the cause is lost")]
fn a_cause_wants_its_acquire_fence() {
    cause_stays::<Exclusive>(CompletionKind::Ordinary, 1, Some(LeftOut::Acquire));
}

/// One thread finds the error of a request while another waits for the request
/// before it, which is done: an error never takes that back.
fn fail_together(kind: CompletionKind, without: Option<LeftOut>) {
    model(without, move || {
        let rig = Arc::new(Rig::new(2, kind));
        let mut queue = rig.handle().open::<GpuShared>().unwrap();
        let done = queue.try_post(Wqe::nop().signalled()).unwrap();
        let failed = queue.try_post(Wqe::nop().signalled()).unwrap();
        let nic = thread::spawn({
            let rig = Arc::clone(&rig);
            move || rig.fail(0, 1, Syndrome::REMOTE_ACCESS, 0x88)
        });
        let other = thread::spawn({
            let rig = Arc::clone(&rig);
            move || {
                let mut queue = rig.handle().open::<GpuShared>();
                // The error may be known already.
                if let Ok(queue) = &mut queue {
                    assert!(queue.is_done(done).is_ok(), "done, and then failed");
                }
            }
        });
        let _ = queue.is_done(failed);
        nic.join().unwrap();
        other.join().unwrap();
        assert!(queue.is_done(failed).is_err());
        assert_eq!(queue.is_done(done), Ok(true));
    });
}

#[test]
fn fail_shared_collapsed() {
    fail_together(CompletionKind::Collapsed, None);
}

#[test]
fn fail_shared_ordinary() {
    fail_together(CompletionKind::Ordinary, None);
}

#[test]
#[should_panic(expected = "done, and then failed")]
fn fail_shared_wants_its_acquire_fence() {
    fail_together(CompletionKind::Ordinary, Some(LeftOut::Acquire));
}

/// An owner leaves the queue while another thread tries to open it: the next
/// one goes on where the last one stopped.
fn hand_over<S: Sharing>() {
    model(None, || {
        let rig = Arc::new(Rig::new(2, CompletionKind::Collapsed));
        let mut first = rig.handle().open::<Exclusive>().unwrap();
        let other = thread::spawn({
            let rig = Arc::clone(&rig);
            move || match rig.handle().open::<S>() {
                Ok(mut queue) => {
                    let _ = queue.try_post(Wqe::nop()).unwrap();
                    2
                }
                Err(error) => {
                    assert_eq!(error, OpenError::InUse);
                    1
                }
            }
        });
        let _ = first.try_post(Wqe::nop()).unwrap();
        drop(first);
        let posted = other.join().unwrap();
        assert_eq!(fetch(&rig), Some((posted, posted)));
    });
}

#[test]
fn hand_over_to_one() {
    hand_over::<Exclusive>();
}

#[test]
fn hand_over_to_many() {
    hand_over::<GpuShared>();
}

/// Views come and go: who has the queue to himself has nobody beside him, those
/// who share it all get in, and in the end it is free.
#[test]
fn owners_and_sharers() {
    const OWNER: u64 = 100;
    fn visit<S: Sharing>(rig: &Rig, inside: &warpbell::Word64, weight: u64) -> bool {
        let Ok(queue) = rig.handle().open::<S>() else {
            return false;
        };
        let others = inside.fetch_add(weight, Ordering::Relaxed);
        assert!(
            others == 0 || weight + others < OWNER,
            "an owner is not alone"
        );
        inside.fetch_sub(weight, Ordering::Relaxed);
        drop(queue);
        true
    }
    model(None, || {
        let rig = Arc::new(Rig::new(0, CompletionKind::Collapsed));
        let inside = Arc::new(warpbell::Word64::new(0));
        let visitor = |visit: fn(&Rig, &warpbell::Word64, u64) -> bool, weight| {
            let (rig, inside) = (Arc::clone(&rig), Arc::clone(&inside));
            thread::spawn(move || visit(&rig, &inside, weight))
        };
        let owner = visitor(visit::<Exclusive>, OWNER);
        let sharer = visitor(visit::<GpuShared>, 1);
        let shared = visit::<GpuShared>(&rig, &inside, 1);
        let all = [owner.join().unwrap(), sharer.join().unwrap(), shared];
        assert!(all.contains(&true), "everybody was refused");
        assert!(visit::<Exclusive>(&rig, &inside, OWNER), "somebody stayed");
    });
}

/// The NIC brings data, then the signal behind them.
fn signal(order: Ordering) {
    model(None, move || {
        let words = Arc::new([warpbell::Word64::new(0), warpbell::Word64::new(0)]);
        let nic = thread::spawn({
            let words = Arc::clone(&words);
            move || {
                words[0].store(42, Ordering::Relaxed);
                words[1].store(1, order);
            }
        });
        // SAFETY: the words outlive the signal, which ends here.
        let signal = unsafe { Signal::new(&words[1]) };
        if signal.read() == 1 {
            assert_eq!(
                words[0].load(Ordering::Relaxed),
                42,
                "old data after the signal"
            );
        }
        nic.join().unwrap();
    });
}

#[test]
fn a_signal_comes_after_its_data() {
    signal(Ordering::Release);
}

#[test]
#[should_panic(expected = "old data after the signal")]
fn a_signal_wants_the_nic_to_write_it_last() {
    signal(Ordering::Relaxed);
}
