//! A kernel's queue behind a proxy, with the test in the NIC's place and in that of the proxy's thread.
#![cfg(not(loom))]

use std::cell::Cell;
use std::collections::VecDeque;

use warpbell::wqe::{
    Local, LocalKey, MAX_WQE_BLOCKS, Octoword, Opcode, Remote, RemoteKey, Syndrome, Wqe,
};
use warpbell::{
    BlockShared, Cause, CompletionKind, Deadline, Exclusive, GpuShared, PostError, QueueError,
    SendDoorbell, SendQueue, Sharing, Thread, Ticket, WaitError,
};
use warpbell_patterns::proxy::{Drain, Entry, Fault, Turn, Unfit};

use crate::common::{QPN, Rig};

const DEPTH_LOG2: u8 = 3;
const REMOTE: Remote = Remote {
    address: 0x2000,
    key: RemoteKey(9),
};

/// A front for kernels, and a NIC's queue.
struct Rigs {
    front: Rig,
    nic: Rig,
    /// CQEs that the NIC has written.
    cqes: Cell<usize>,
}

impl Rigs {
    fn new(depth_log2: u8) -> Self {
        let rig = |kind| Rig::new(depth_log2, kind);
        Self {
            front: rig(CompletionKind::Collapsed).with_doorbell(SendDoorbell::WithoutRecord),
            nic: rig(CompletionKind::Ordinary),
            cqes: Cell::new(0),
        }
    }

    /// Completes the WQE whose first block has this index.
    fn complete(&self, index: u16) {
        self.nic.complete(self.cqes.get(), index);
        self.cqes.set(self.cqes.get() + 1);
    }

    /// Fails it.
    fn fail(&self, index: u16, syndrome: Syndrome, vendor: u8) {
        self.nic.fail(self.cqes.get(), index, syndrome, vendor);
        self.cqes.set(self.cqes.get() + 1);
    }

    fn drain(&self) -> Drain<'_> {
        // SAFETY: both are fresh, and nobody else has the NIC's.
        unsafe { Drain::new(self.front.handle(), self.nic.handle()) }.expect("a pair")
    }

    /// A drain of producer indices: the NIC reads the kernels' ring.
    fn drain_of_indices(&self) -> Drain<'_> {
        // SAFETY: as above.
        unsafe { Drain::new(self.front.handle(), self.nic.handle_on(&self.front)) }.expect("a pair")
    }

    fn open<S: Sharing>(&self) -> SendQueue<'_, S, Thread> {
        self.front.handle().open().expect("a fresh queue")
    }
}

fn all(_: Entry<'_>) -> bool {
    true
}

fn posts(posts: u32) -> Turn {
    Turn {
        posts,
        completions: 0,
    }
}

const COMPLETION: Turn = Turn {
    posts: 0,
    completions: 1,
};

fn value(value: u64) -> Wqe<1> {
    Wqe::write_value(value, REMOTE).signalled()
}

fn post<S: Sharing>(queue: &mut SendQueue<'_, S, Thread>, wqe: Wqe<1>) -> Ticket {
    queue.try_post(wqe).expect("room")
}

#[track_caller]
fn fault(error: QueueError) -> (Fault, u16) {
    let Cause::Completion(cause) = error.cause() else {
        panic!("no completion: {error}");
    };
    (Fault::of(error).expect("a fault"), cause.wqe_index.0)
}

#[track_caller]
fn failed(result: Result<(), WaitError>) -> QueueError {
    match result {
        Err(WaitError::Failed(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn wqes_pass_as_they_are_under_one_doorbell() {
    wqes_pass::<Exclusive>();
    wqes_pass::<BlockShared>();
    wqes_pass::<GpuShared>();
}

fn wqes_pass<S: Sharing>() {
    let rigs = Rigs::new(4);
    let mut drain = rigs.drain();
    assert_eq!(drain.turn(all), Turn::default(), "nothing is there");
    let mut queue = rigs.open::<S>();
    let _ = post(&mut queue, value(0x1234));
    // Of three blocks, with its payload inline.
    let bytes: Vec<u8> = (0..130).collect();
    let long: Wqe<3> = Wqe::write_inline(&bytes, REMOTE).unwrap();
    let _ = queue.try_post(long.signalled()).unwrap();
    assert_eq!(rigs.nic.doorbell_index(), None, "the kernel rings no NIC");
    assert_eq!(drain.turn(all), posts(2));
    for block in 0..4 {
        for word in 0..8 {
            let (sent, got) = (
                rigs.front.ring_word(block, word),
                rigs.nic.ring_word(block, word),
            );
            assert_eq!(sent, got, "block {block}, word {word}");
        }
    }
    assert_eq!(rigs.nic.control(1), (1, Opcode::RDMA_WRITE));
    assert_eq!(rigs.nic.producer_index(), 4);
    assert_eq!(rigs.nic.doorbell_index(), Some(4));
    assert_eq!(drain.turn(all), Turn::default(), "each is taken once");
}

#[test]
fn completions_come_back_and_free_the_ring() {
    let rigs = Rigs::new(DEPTH_LOG2);
    let mut drain = rigs.drain();
    let mut queue = rigs.open::<Exclusive>();
    let rounds = if cfg!(miri) { 24 } else { 70_000 };
    let mut tickets = VecDeque::new();
    for round in 0..rounds {
        tickets.push_back(post(&mut queue, value(round)));
        assert_eq!(drain.turn(all), posts(1));
        if tickets.len() < 8 {
            continue;
        }
        assert_eq!(queue.try_post(value(0)), Err(PostError::NoRoom));
        rigs.complete((round - 7) as u16);
        let oldest = tickets.pop_front().unwrap();
        assert_eq!(queue.is_done(oldest), Ok(false), "round {round}");
        assert_eq!(drain.turn(all), COMPLETION);
        assert_eq!(drain.turn(all), Turn::default(), "each is told once");
        assert_eq!(queue.is_done(oldest), Ok(true), "round {round}");
        assert_eq!(queue.is_done(tickets[0]), Ok(false), "round {round}");
    }
}

#[test]
fn an_error_of_the_nic_is_the_kernels() {
    let rigs = Rigs::new(DEPTH_LOG2);
    let mut drain = rigs.drain();
    let mut queue = rigs.open::<Exclusive>();
    let before = post(&mut queue, value(1));
    let bad = post(&mut queue, value(2));
    let _ = post(&mut queue, value(3));
    drain.turn(all);
    // All of it before the proxy looks: neither the success nor the flush takes the cause's place.
    rigs.complete(0);
    rigs.fail(1, Syndrome::REMOTE_ACCESS, 0x88);
    rigs.fail(2, Syndrome::FLUSHED, 0xf9);
    assert_eq!(drain.turn(all), COMPLETION);
    assert_eq!(queue.is_done(before), Ok(true));
    assert_eq!(drain.turn(all), COMPLETION);
    assert!(drain.is_over());
    assert_eq!(drain.turn(all), Turn::default());
    assert_eq!(queue.wait(before, Deadline::PASSED), Ok(()));
    let error = failed(queue.wait(bad, Deadline::PASSED));
    let Cause::Completion(cause) = error.cause() else {
        panic!("{error}");
    };
    assert_eq!(cause.syndrome, Syndrome::REMOTE_ACCESS);
    assert_eq!((cause.vendor.0, cause.wqe_index.0), (0x88, 1));
    assert_eq!(Fault::of(error), None);
}

#[test]
fn a_refused_entry_is_named_and_what_came_before_it_is_done() {
    let rigs = Rigs::new(DEPTH_LOG2);
    let mut drain = rigs.drain();
    let mut queue = rigs.open::<Exclusive>();
    let good = post(&mut queue, value(1));
    let read = Wqe::read(
        Local {
            address: 0x1000,
            length: 8,
            key: LocalKey(7),
        },
        REMOTE,
    );
    let refused = post(&mut queue, read.signalled());
    let behind = post(&mut queue, value(3));
    let mut seen = Vec::new();
    let turn = drain.turn(|entry| {
        assert_eq!(entry.blocks().len(), 1);
        let mut copy = [[Octoword::ZERO; 4]; MAX_WQE_BLOCKS];
        assert_eq!(entry.copied(&mut copy).blocks(), entry.blocks());
        seen.push(entry.control().opcode());
        entry.control().opcode() == Opcode::RDMA_WRITE
    });
    assert_eq!(turn, posts(1));
    assert_eq!(
        seen,
        [Opcode::RDMA_WRITE, Opcode::RDMA_READ],
        "none behind it"
    );
    // The NIC has a NOP in its place, and nothing else.
    assert_eq!(rigs.nic.producer_index(), 2);
    assert_eq!(rigs.nic.control(1), (1, Opcode::NOP));
    assert!(rigs.nic.signalled(1));

    rigs.complete(0);
    assert_eq!(drain.turn(all), COMPLETION, "nothing more is taken");
    assert_eq!(queue.wait(good, Deadline::PASSED), Ok(()));
    assert_eq!(
        queue.wait(refused, Deadline::PASSED),
        Err(WaitError::Deadline)
    );
    rigs.complete(1);
    assert_eq!(drain.turn(all), COMPLETION);
    let error = failed(queue.wait(refused, Deadline::PASSED));
    assert_eq!(fault(error), (Fault::Refused, 1));
    assert_eq!(failed(queue.wait(behind, Deadline::PASSED)), error);
    assert_eq!(queue.try_post(value(4)), Err(PostError::Failed(error)));
    assert!(error.to_string().contains("does not allow"), "{error}");
    assert!(drain.is_over());
}

/// Writes by hand what no queue of this library posts.
fn damage(rigs: &Rigs, depth: u64, words: [u64; 2], index: u64) -> Option<(Fault, u16)> {
    let mut drain = rigs.drain();
    let mut queue = rigs.open::<Exclusive>();
    let _ = post(&mut queue, value(1));
    drain.turn(all);
    let ticket = post(&mut queue, value(2));
    rigs.front.overwrite(1, words);
    rigs.front
        .ring_by_hand((index << 40 | u64::from(QPN) << 8).to_be());
    drain.turn(all);
    rigs.complete(1);
    drain.turn(all);
    assert!(rigs.nic.producer_index() as u64 <= depth);
    match queue.wait(ticket, Deadline::PASSED) {
        Ok(()) => None,
        result => Some(fault(failed(result))),
    }
}

#[test]
fn what_is_no_wqe_of_the_queue_is_refused() {
    let control = |opcode: u64, index: u64, qpn: u64, ds: u64| {
        [
            (index << 40 | opcode << 32 | qpn << 8 | ds).to_be(),
            0x08_0000_0000_u64.to_be(),
        ]
    };
    let (opcode, qpn) = (0x08, u64::from(QPN));
    let depth = 8;
    let damaged = |words, index| damage(&Rigs::new(DEPTH_LOG2), depth, words, index);
    assert_eq!(damaged(control(opcode, 1, qpn, 3), 2), None, "a good one");
    let bad = Some((Fault::Damaged, 1));
    assert_eq!(
        damaged(control(opcode, 2, qpn, 3), 2),
        bad,
        "another's index"
    );
    assert_eq!(
        damaged(control(opcode, 1, qpn + 1, 3), 2),
        bad,
        "another queue's"
    );
    assert_eq!(damaged(control(opcode, 1, qpn, 0), 2), bad, "of no size");
    assert_eq!(
        damaged(control(opcode, 1, qpn, 5), 2),
        bad,
        "behind the doorbell's index"
    );
    assert_eq!(
        damaged(control(opcode, 1, qpn, 12), 4),
        bad,
        "too long for the ring"
    );
    assert_eq!(
        damaged(control(opcode, 1, qpn, 3), 10),
        bad,
        "more than the ring has"
    );
}

#[test]
fn a_doorbell_that_comes_late_takes_nothing_back() {
    let rigs = Rigs::new(DEPTH_LOG2);
    let mut drain = rigs.drain();
    let mut queue = rigs.open::<Exclusive>();
    for number in 0..2 {
        let _ = post(&mut queue, value(number));
    }
    assert_eq!(drain.turn(all), posts(2));
    for late in [1u64, 0, 0x8003] {
        rigs.front
            .ring_by_hand((late << 40 | u64::from(QPN) << 8).to_be());
        assert_eq!(drain.turn(all), Turn::default(), "{late:#x}");
    }
    let _ = post(&mut queue, value(2));
    assert_eq!(drain.turn(all), posts(1));
    assert_eq!(rigs.nic.producer_index(), 3);
}

#[test]
#[cfg_attr(miri, ignore = "too many WQEs")]
fn the_deepest_ring_is_taken_at_once() {
    let rigs = Rigs::new(15);
    let mut drain = rigs.drain();
    let mut queue = rigs.open::<Exclusive>();
    for number in 0..1 << 15 {
        let _ = post(&mut queue, value(number));
    }
    assert_eq!(queue.try_post(value(0)), Err(PostError::NoRoom));
    assert_eq!(drain.turn(all), posts(1 << 15));
}

#[test]
fn a_proxy_that_stops_carries_out_what_it_was_handed() {
    let rigs = Rigs::new(DEPTH_LOG2);
    let mut drain = rigs.drain();
    let mut queue = rigs.open::<Exclusive>();
    let tickets: Vec<_> = (0..8)
        .map(|number| post(&mut queue, value(number)))
        .collect();
    assert_eq!(drain.turn(all), posts(8));
    drain.close(Fault::Stopped);
    // There is no room for the NOP yet.
    assert_eq!(drain.turn(all), Turn::default());
    assert_eq!(rigs.nic.producer_index(), 8);
    rigs.complete(5);
    assert_eq!(drain.turn(all), COMPLETION);
    assert_eq!(rigs.nic.control(8), (8, Opcode::NOP));
    // What is handed over now is too late.
    let late = post(&mut queue, value(8));
    assert!(!drain.is_over());
    rigs.complete(8);
    drain.turn(all);
    assert!(drain.is_over());
    for ticket in tickets {
        assert_eq!(queue.wait(ticket, Deadline::PASSED), Ok(()));
    }
    let error = failed(queue.wait(late, Deadline::PASSED));
    assert_eq!(fault(error), (Fault::Stopped, 8));
    assert_eq!(queue.try_post(value(9)), Err(PostError::Failed(error)));
}

#[test]
fn a_proxy_that_dies_says_what_is_known_to_be_complete() {
    let rigs = Rigs::new(DEPTH_LOG2);
    let mut drain = rigs.drain();
    let mut queue = rigs.open::<Exclusive>();
    let first = post(&mut queue, value(0));
    let second = post(&mut queue, value(1));
    drain.turn(all);
    rigs.complete(0);
    drain.turn(all);
    drain.end(Fault::Died);
    assert!(drain.is_over());
    // Nothing that comes later takes it back.
    drain.end(Fault::Stopped);
    rigs.complete(1);
    assert_eq!(drain.turn(all), Turn::default());
    drain.close(Fault::Stopped);
    assert_eq!(queue.wait(first, Deadline::PASSED), Ok(()));
    let error = failed(queue.wait(second, Deadline::PASSED));
    assert_eq!(fault(error), (Fault::Died, 1));
}

/// A thread that does not come back from a question, and another one that goes on in its place.
#[test]
fn what_was_taken_is_complete_before_a_queue_ends_at_a_question() {
    let rigs = Rigs::new(DEPTH_LOG2);
    let mut drain = rigs.drain();
    let mut queue = rigs.open::<Exclusive>();
    let first = post(&mut queue, value(0));
    let asked = post(&mut queue, value(1));
    let behind = post(&mut queue, value(2));
    assert_eq!(drain.look(), 0);
    assert!(drain.next().is_some());
    drain.decide(true);
    assert!(drain.next().is_some());
    assert_eq!(rigs.nic.doorbell_index(), None, "the turn is not over");
    // The other thread knows that there will be no answer.
    drain.close(Fault::Hung);
    assert_eq!(rigs.nic.producer_index(), 1);
    // What comes late is no answer.
    drain.decide(true);
    assert!(drain.next().is_none());
    assert_eq!(drain.turn(all), Turn::default());
    assert_eq!(rigs.nic.producer_index(), 2);
    assert_eq!(rigs.nic.control(1), (1, Opcode::NOP));
    rigs.complete(1);
    assert_eq!(drain.turn(all), COMPLETION);
    assert!(drain.is_over());
    assert_eq!(queue.wait(first, Deadline::PASSED), Ok(()));
    let error = failed(queue.wait(asked, Deadline::PASSED));
    assert_eq!(fault(error), (Fault::Hung, 1));
    assert_eq!(failed(queue.wait(behind, Deadline::PASSED)), error);
}

/// A thread that ends between two steps: another one takes the rest, and nothing twice.
#[test]
fn another_thread_goes_on_between_any_two_steps() {
    for steps in 0..8_u32 {
        let rigs = Rigs::new(DEPTH_LOG2);
        let mut drain = rigs.drain();
        let mut queue = rigs.open::<Exclusive>();
        for number in 0..3 {
            let _ = post(&mut queue, value(number));
        }
        for step in 0..steps {
            match step {
                0 => assert_eq!(drain.look(), 0),
                1 | 3 | 5 => assert!(drain.next().is_some(), "step {step}"),
                _ => drain.decide(true),
            }
        }
        let taken_before = steps.saturating_sub(1) / 2;
        assert_eq!(drain.turn(all), posts(3 - taken_before), "{steps} steps");
        assert_eq!(rigs.nic.producer_index(), 3);
        for number in 0..3 {
            assert_eq!(
                rigs.nic.control(number),
                (number as u16, Opcode::RDMA_WRITE)
            );
        }
        assert_eq!(drain.turn(all), Turn::default());
    }
}

#[test]
fn a_proxy_that_dies_at_once_completes_nothing() {
    let rigs = Rigs::new(DEPTH_LOG2);
    let mut queue = rigs.open::<Exclusive>();
    let ticket = post(&mut queue, value(0));
    rigs.drain().end(Fault::Died);
    let error = failed(queue.wait(ticket, Deadline::PASSED));
    assert_eq!(fault(error), (Fault::Died, 0));
}

#[test]
fn indices_alone_leave_the_ring_as_it_is() {
    let rigs = Rigs::new(DEPTH_LOG2);
    let mut drain = rigs.drain_of_indices();
    let mut queue = rigs.open::<GpuShared>();
    let rounds = if cfg!(miri) { 20 } else { 300 };
    for round in 0..rounds {
        let first = post(&mut queue, value(2 * round));
        let second = post(&mut queue, value(2 * round + 1));
        let posted: Vec<_> = (0..16)
            .map(|block| rigs.front.ring_word(block / 8, block % 8))
            .collect();
        assert_eq!(drain.turn(all), posts(2));
        let left: Vec<_> = (0..16)
            .map(|block| rigs.front.ring_word(block / 8, block % 8))
            .collect();
        assert_eq!(left, posted);
        assert_eq!(u64::from(rigs.nic.producer_index()), 2 * round + 2);
        assert_eq!(rigs.nic.doorbell_index(), Some(rigs.nic.producer_index()));
        assert_eq!(queue.is_done(first), Ok(false));
        rigs.complete((2 * round + 1) as u16);
        assert_eq!(drain.turn(all), COMPLETION);
        assert_eq!(queue.is_done(second), Ok(true));
    }
}

#[test]
fn a_proxy_of_indices_that_stops_waits_for_what_asks_for_a_completion() {
    let rigs = Rigs::new(5);
    let mut drain = rigs.drain_of_indices();
    let mut queue = rigs.open::<Exclusive>();
    let first = post(&mut queue, value(0));
    let last = post(&mut queue, value(1));
    let _ = post(&mut queue, value(2).unsignalled());
    assert_eq!(drain.turn(all), posts(3));
    drain.close(Fault::Stopped);
    rigs.complete(0);
    drain.turn(all);
    assert!(!drain.is_over(), "the second one is under way");
    let late = post(&mut queue, value(3));
    rigs.complete(1);
    drain.turn(all);
    assert!(drain.is_over());
    assert_eq!(
        rigs.nic.producer_index(),
        3,
        "no NOP, and nothing that came late"
    );
    for ticket in [first, last] {
        assert_eq!(queue.wait(ticket, Deadline::PASSED), Ok(()));
    }
    let error = failed(queue.wait(late, Deadline::PASSED));
    assert_eq!(fault(error), (Fault::Stopped, 2));
}

#[test]
fn what_is_no_wqe_ends_a_proxy_of_indices_behind_what_is() {
    let rigs = Rigs::new(DEPTH_LOG2);
    let mut drain = rigs.drain_of_indices();
    let mut queue = rigs.open::<Exclusive>();
    let good = post(&mut queue, value(0));
    let bad = post(&mut queue, value(1));
    rigs.front.overwrite(1, [0; 2]);
    assert_eq!(drain.turn(all), posts(1));
    assert_eq!(rigs.nic.producer_index(), 1);
    assert!(!drain.is_over());
    rigs.complete(0);
    drain.turn(all);
    assert!(drain.is_over());
    assert_eq!(queue.wait(good, Deadline::PASSED), Ok(()));
    let error = failed(queue.wait(bad, Deadline::PASSED));
    assert_eq!(fault(error), (Fault::Damaged, 1));
}

#[test]
fn queues_that_do_not_go_together_are_refused() {
    let collapsed = |depth| Rig::new(depth, CompletionKind::Collapsed);
    let front = |depth| collapsed(depth).with_doorbell(SendDoorbell::WithoutRecord);
    let ordinary = |depth| Rig::new(depth, CompletionKind::Ordinary);
    for (front, nic, why) in [
        (front(3), ordinary(4), Unfit::Different),
        (collapsed(3), ordinary(3), Unfit::Record),
        (front(3), collapsed(3), Unfit::Completions),
        (
            ordinary(3).with_doorbell(SendDoorbell::WithoutRecord),
            ordinary(3),
            Unfit::Completions,
        ),
    ] {
        // SAFETY: nobody else has them.
        let refused = unsafe { Drain::new(front.handle(), nic.handle()) };
        assert_eq!(refused.err(), Some(why));
    }
}
