//! The order of a receive queue's publishing and polling, in every interleaving that loom finds, and twins in which
//! something is left out and loom must find the fault.
#![cfg(loom)]

use std::cell::UnsafeCell;

use loom::sync::Arc;
use loom::sync::atomic::{Ordering, fence};
use loom::thread;
use warpbell::wqe::{
    Arrival, CqeErrorWord, CqeOpcode, CqeTail, Local, LocalKey, Opcode, QpNumber, Syndrome,
    VendorCode, WqeIndex,
};
use warpbell::{
    CompletionKind, CompletionParts, CompletionSlot, Exclusive, FenceReach, GpuShared, LeftOut,
    QueueState, ReceiveParts, ReceiveQueueHandle, RingSegment, Sharing, Word32, Word64,
};

use crate::common::model::model;

const DEPTH_LOG2: u8 = 1;
const DEPTH: usize = 1 << DEPTH_LOG2;
/// Bytes of every buffer, whose address is one more than its receive's number.
const BYTES: u32 = 64;

/// What `host-init` would allocate for a receive queue of two WQEs of one piece.
struct Rig {
    ring: Vec<UnsafeCell<RingSegment>>,
    record: Word32,
    completions: Vec<CompletionSlot>,
    completion_record: Word32,
    state: QueueState,
    /// What the NIC brings with each message.
    data: [Word64; DEPTH],
}

// SAFETY: the ring's segments are atomics under loom.
unsafe impl Sync for Rig {}
// SAFETY: nothing in a rig belongs to a thread.
unsafe impl Send for Rig {}

impl Rig {
    fn new() -> Self {
        let segment = |_| UnsafeCell::new(RingSegment::zeroed());
        Self {
            ring: (0..DEPTH).map(segment).collect(),
            record: Word32::new(0),
            completions: (0..DEPTH).map(|_| CompletionSlot::invalid()).collect(),
            completion_record: Word32::new(0),
            state: QueueState::new(),
            data: [Word64::new(0), Word64::new(0)],
        }
    }

    fn handle(&self) -> ReceiveQueueHandle<'_> {
        let parts = ReceiveParts {
            ring: self.ring.as_ptr().cast_mut().cast(),
            record: &self.record,
            completions: CompletionParts {
                ring: self.completions.as_ptr(),
                record: &self.completion_record,
                depth_log2: DEPTH_LOG2,
                kind: CompletionKind::Ordinary,
            },
            state: &self.state,
            qpn: 5,
            max_message: 1 << 30,
            depth_log2: DEPTH_LOG2,
            stride_log2: 0,
            reach: FenceReach::System,
        };
        // SAFETY: all of it lives in `self`, which the handle borrows; the sizes are those of the vectors.
        unsafe { ReceiveQueueHandle::new(parts) }
    }

    /// The record's index.
    fn posted(&self) -> u32 {
        u32::from_be(self.record.load(Ordering::Relaxed))
    }

    /// What the NIC does when a message may be coming: record, receive WQEs.
    fn fetch(&self) {
        let posted = self.posted();
        fence(Ordering::Acquire);
        for number in 0..posted as usize {
            // SAFETY: the words are atomics, so a shared reference will do.
            let words = unsafe { &(*self.ring[number].get()).0 };
            let [count_and_key, address] =
                [0, 1].map(|word: usize| u64::from_be(words[word].load(Ordering::Relaxed)));
            let there = (count_and_key >> 32) as u32 == BYTES && address > 0;
            assert!(there, "the NIC fetched a receive that is not there yet");
        }
    }

    /// A message takes receive `number`: its data, then the CQE, the last word last.
    fn arrive(&self, number: usize, release: bool) {
        self.data[number].store(42, Ordering::Relaxed);
        self.completions[number].words()[5].store(u64::from(BYTES).to_be(), Ordering::Relaxed);
        self.finish(number, CqeOpcode::RESPONDER_SEND, release);
    }

    /// Receive `number` fails.
    fn fail(&self, number: usize) {
        let word = CqeErrorWord::new(Syndrome::LOCAL_LENGTH, VendorCode(0));
        self.completions[number].words()[6].store(word.0, Ordering::Relaxed);
        self.finish(number, CqeOpcode::RESPONDER_ERROR, true);
    }

    fn finish(&self, number: usize, opcode: CqeOpcode, release: bool) {
        if release {
            fence(Ordering::Release);
        }
        let qpn = QpNumber::from_low_bits(5);
        let tail = CqeTail::new(opcode, false, Opcode::NOP, qpn, number as u16);
        self.completions[number].words()[7].store(tail.0, Ordering::Relaxed);
    }
}

fn local(number: u64) -> Local {
    Local {
        address: number + 1,
        length: BYTES,
        key: LocalKey(7),
    }
}

/// Starts a thread with the rig.
fn beside<R: 'static>(
    rig: &Arc<Rig>,
    body: impl FnOnce(&Rig) -> R + 'static,
) -> thread::JoinHandle<R> {
    let rig = Arc::clone(rig);
    thread::spawn(move || body(&rig))
}

/// One thread posts two receives while the NIC looks.
fn publish<S: Sharing>(without: Option<LeftOut>) {
    model(without, || {
        let rig = Arc::new(Rig::new());
        let nic = beside(&rig, Rig::fetch);
        let mut queue = rig.handle().open::<S>().unwrap();
        for number in 0..2 {
            assert_eq!(queue.try_post(local(number)), Ok(WqeIndex(number as u16)));
        }
        drop(queue);
        nic.join().unwrap();
        assert_eq!(rig.posted(), 2);
        rig.fetch();
    });
}

#[test]
fn publish_receives() {
    publish::<Exclusive>(None);
    publish::<GpuShared>(None);
}

#[test]
#[should_panic(expected = "fetched a receive that is not there yet")]
fn publish_receives_wants_its_release_fence() {
    publish::<Exclusive>(Some(LeftOut::Release));
}

/// Two threads of the GPU post to one queue: no receive is lost or torn, and the record never goes back.
fn two_publish(without: Option<LeftOut>) {
    model(without, || {
        let rig = Arc::new(Rig::new());
        let post = |rig: &Rig| {
            let mut queue = rig.handle().open::<GpuShared>().unwrap();
            queue.try_post(local(0)).unwrap();
        };
        let other = beside(&rig, post);
        post(&rig);
        other.join().unwrap();
        assert_eq!(rig.posted(), 2, "the record went back");
        rig.fetch();
    });
}

#[test]
fn two_who_publish_receives() {
    two_publish(None);
}

#[test]
#[should_panic(expected = "the record went back")]
fn two_who_publish_receives_want_their_turns_released() {
    two_publish(Some(LeftOut::ReleaseStores));
}

/// The NIC brings a message; whoever takes it must see its data.
fn receive<S: Sharing>(without: Option<LeftOut>, nic_releases: bool) {
    model(without, move || {
        let rig = Arc::new(Rig::new());
        let mut queue = rig.handle().open::<S>().unwrap();
        queue.try_post(local(0)).unwrap();
        let nic = beside(&rig, move |rig| rig.arrive(0, nic_releases));
        for _ in 0..2 {
            if let Some(message) = queue.try_receive().unwrap() {
                assert_eq!((message.kind, message.index), (Arrival::Send, WqeIndex(0)));
                assert_eq!(
                    rig.data[0].load(Ordering::Relaxed),
                    42,
                    "old data after the CQE"
                );
                assert_eq!(message.bytes, BYTES, "an old CQE behind its last word");
                break;
            }
        }
        nic.join().unwrap();
    });
}

#[test]
fn receive_a_message() {
    receive::<Exclusive>(None, true);
    receive::<GpuShared>(None, true);
}

#[test]
#[should_panic(expected = "old data after the CQE")]
fn receive_wants_its_acquire_fence() {
    receive::<Exclusive>(Some(LeftOut::Acquire), true);
}

#[test]
#[should_panic(expected = "old data after the CQE")]
fn receive_wants_the_nic_to_write_the_last_word_last() {
    receive::<Exclusive>(None, false);
}

/// Two threads take the messages of a shared queue: each message is one thread's, who sees its data.
#[test]
fn two_receive_each_its_own() {
    model(None, || {
        let rig = Arc::new(Rig::new());
        let mut queue = rig.handle().open::<GpuShared>().unwrap();
        for number in 0..2 {
            queue.try_post(local(number)).unwrap();
        }
        drop(queue);
        let take = |rig: &Rig| {
            let mut queue = rig.handle().open::<GpuShared>().unwrap();
            let message = queue.try_receive().unwrap()?;
            let index = message.index.0;
            let data = rig.data[usize::from(index)].load(Ordering::Relaxed);
            assert_eq!(data, 42, "old data after the CQE");
            Some(index)
        };
        let nic = beside(&rig, |rig| rig.arrive(0, true));
        let other = beside(&rig, take);
        rig.arrive(1, true);
        let ours = take(&rig);
        nic.join().unwrap();
        let others = other.join().unwrap();
        assert!(
            ours.is_none() || ours != others,
            "a message was taken twice"
        );
        let left = [take(&rig), take(&rig)];
        let mut taken: Vec<_> = [ours, others].into_iter().chain(left).flatten().collect();
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
    });
}

/// Who has taken a message frees its CQE before he tells that its receive may be posted again: otherwise the NIC could
/// complete that into an entry that it believes full.
fn free(without: Option<LeftOut>) {
    model(without, || {
        let rig = Arc::new(Rig::new());
        let mut queue = rig.handle().open::<GpuShared>().unwrap();
        queue.try_post(local(0)).unwrap();
        rig.arrive(0, true);
        let other = beside(&rig, |rig| {
            let known = rig.state.progress().completed;
            let freed = u32::from_be(rig.completion_record.load(Ordering::Relaxed));
            assert!(u64::from(freed) >= known, "the NIC overruns");
        });
        assert!(queue.try_receive().unwrap().is_some());
        other.join().unwrap();
    });
}

#[test]
fn entries_are_free_before_their_receives() {
    free(None);
}

#[test]
#[should_panic(expected = "the NIC overruns")]
fn entries_want_to_be_free_before_their_receives() {
    free(Some(LeftOut::ReleaseStores));
}

/// A message and an error behind it: whoever finds the error, the message is taken by one of the two first.
#[test]
fn an_error_comes_behind_the_messages() {
    model(None, || {
        let rig = Arc::new(Rig::new());
        let mut queue = rig.handle().open::<GpuShared>().unwrap();
        for number in 0..2 {
            queue.try_post(local(number)).unwrap();
        }
        rig.arrive(0, true);
        let nic = beside(&rig, |rig| rig.fail(1));
        let other = beside(&rig, |rig| {
            let mut queue = rig.handle().open::<GpuShared>().ok()?;
            Some(queue.try_receive())
        });
        let mut outcomes = vec![queue.try_receive(), queue.try_receive()];
        nic.join().unwrap();
        outcomes.extend(other.join().unwrap());
        outcomes.push(queue.try_receive());
        outcomes.push(queue.try_receive());
        let messages = outcomes
            .iter()
            .filter(|found| matches!(found, Ok(Some(_))))
            .count();
        assert_eq!(messages, 1, "a message was lost, or taken twice");
        assert!(outcomes.last().unwrap().is_err(), "the error was lost");
    });
}
