//! One completion queue for several send queues, in every interleaving that loom finds: readers that take turns, and
//! twins without a fence, in which loom must find a fault.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;
use warpbell::wqe::{Syndrome, Wqe};
use warpbell::{Cause, Exclusive, LeftOut, SendQueue, Thread, Ticket, Word64};

use crate::common::completion_queue::Common;
use crate::common::model::model;

/// A queue with a request under way.
fn posted(rig: &Common, queue: usize) -> (SendQueue<'_, Exclusive, Thread>, Ticket) {
    let mut queue = rig.queues[queue].handle().open().unwrap();
    let ticket = queue.try_post(Wqe::nop().signalled()).unwrap();
    (queue, ticket)
}

/// Two threads wait for a request each, of which the NIC brings data: whoever learns that its request is done sees its
/// data, also through the other's reading.
fn two_readers(without: Option<LeftOut>) {
    model(without, || {
        let rig = Arc::new(Common::new(2, 0, 2));
        let data = Arc::new([Word64::new(0), Word64::new(0)]);
        let look = |rig: &Common, data: &[Word64; 2], own: usize, looks: u32| {
            let (mut queue, ticket) = posted(rig, own);
            let mut reader = rig.handle().open().unwrap();
            for _ in 0..looks {
                if reader.is_done(&mut queue, ticket) == Ok(true) {
                    let found = data[own].load(Ordering::Relaxed);
                    assert_eq!(found, 42, "old data behind a completion");
                    return;
                }
            }
        };
        let nic = thread::spawn({
            let (rig, data) = (Arc::clone(&rig), Arc::clone(&data));
            move || {
                for queue in [1, 0] {
                    data[queue].store(42, Ordering::Relaxed);
                    rig.complete(queue as u32, 0);
                }
            }
        });
        let other = thread::spawn({
            let (rig, data) = (Arc::clone(&rig), Arc::clone(&data));
            move || look(&rig, &data, 1, 1)
        });
        look(&rig, &data, 0, 2);
        nic.join().unwrap();
        other.join().unwrap();
        // Nothing is lost, whoever has read what.
        rig.handle().open().unwrap().poll();
        assert_eq!(rig.state.taken(), 2, "a CQE is lost");
        for queue in &rig.queues {
            let tail = queue.entry().words()[7].load(Ordering::Relaxed);
            assert_eq!(warpbell::wqe::CqeTail(tail).wqe_counter(), 0);
        }
    });
}

#[test]
fn who_learns_of_a_completion_sees_its_data() {
    two_readers(None);
}

#[test]
#[should_panic(expected = "old data behind a completion")]
fn readers_want_their_acquire_fence() {
    two_readers(Some(LeftOut::Acquire));
}

#[test]
#[should_panic(expected = "old data behind a completion")]
fn readers_want_their_release_fence() {
    two_readers(Some(LeftOut::Release));
}

/// A queue of two requests beside two readers, one after the other: its entry never goes back.
fn newest_stays(without: Option<LeftOut>) {
    model(without, || {
        let rig = Arc::new(Common::new(1, 1, 2));
        let mut queue = rig.queues[0].handle().open::<Exclusive>().unwrap();
        let [first, second] = [(); 2].map(|()| queue.try_post(Wqe::nop().signalled()).unwrap());
        rig.complete(0, 0);
        let other = thread::spawn({
            let rig = Arc::clone(&rig);
            move || rig.handle().open().unwrap().poll()
        });
        let mut reader = rig.handle().open().unwrap();
        reader.poll();
        rig.complete(0, 1);
        let _ = reader.is_done(&mut queue, second);
        other.join().unwrap();
        reader.poll();
        assert_eq!(rig.state.taken(), 2, "a CQE is taken twice");
        assert_eq!(
            reader.is_done(&mut queue, second),
            Ok(true),
            "the entry went back"
        );
        assert_eq!(reader.is_done(&mut queue, first), Ok(true));
    });
}

#[test]
fn an_entry_never_goes_back() {
    newest_stays(None);
}

#[test]
#[should_panic(expected = "the entry went back")]
fn readers_want_the_right_to_read_released() {
    newest_stays(Some(LeftOut::ReleaseStores));
}

/// The NIC writes an error and a flush behind it while two readers look: the cause stays.
fn cause_stays(without: Option<LeftOut>) {
    model(without, || {
        let rig = Arc::new(Common::new(1, 1, 2));
        let mut queue = rig.queues[0].handle().open::<Exclusive>().unwrap();
        let tickets = [(); 2].map(|()| queue.try_post(Wqe::nop().signalled()).unwrap());
        let nic = thread::spawn({
            let rig = Arc::clone(&rig);
            move || {
                rig.fail(0, 0, Syndrome::REMOTE_ACCESS, 0x88);
                rig.fail(0, 1, Syndrome::FLUSHED, 0xf9);
            }
        });
        let other = thread::spawn({
            let rig = Arc::clone(&rig);
            move || rig.handle().open().unwrap().poll()
        });
        let mut reader = rig.handle().open().unwrap();
        let mut look = |queue: &mut SendQueue<'_, Exclusive, Thread>, ticket| {
            if let Err(error) = reader.is_done(queue, ticket) {
                let Cause::Completion(completion) = error.cause() else {
                    panic!("{error}");
                };
                let cause = completion.syndrome;
                assert_eq!(cause, Syndrome::REMOTE_ACCESS, "the cause is lost");
                return true;
            }
            false
        };
        for _ in 0..2 {
            look(&mut queue, tickets[1]);
        }
        nic.join().unwrap();
        other.join().unwrap();
        assert!(look(&mut queue, tickets[1]), "the error is lost");
    });
}

#[test]
fn the_cause_of_an_error_stays() {
    cause_stays(None);
}

#[test]
#[should_panic(expected = "the cause is lost")]
fn a_cause_wants_its_release_fence() {
    cause_stays(Some(LeftOut::Release));
}
