//! A receive queue of one thread, with the test in the NIC's place.
#![cfg(not(loom))]

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering;
use std::time::Duration;

use warpbell::trace::{Buffer, Chunk, Event, Kind, Span};
use warpbell::wqe::{
    Arrival, Cqe64, CqeErrorWord, CqeOpcode, CqeTail, Immediate, Local, LocalKey, Opcode, QpNumber,
    RemoteKey, Syndrome, VendorCode, WqeIndex,
};
use warpbell::{
    BlockShared, Cause, CompletionKind, CompletionParts, CompletionSlot, Deadline, Exclusive,
    FenceReach, GpuShared, OpenError, PostError, QueueState, ReceiveParts, ReceiveQueueHandle,
    Received, RingSegment, Sharing, Traced, WaitError, Word32, Word64,
};
#[cfg(not(miri))]
use warpbell::{Warp, warp};
#[cfg(not(miri))]
use warpbell_cpu_grid::{Grid, Options, launch};

const DEPTH_LOG2: u8 = 2;
const DEPTH: usize = 1 << DEPTH_LOG2;
const STRIDE_LOG2: u8 = 1;
const SOON: Deadline = Deadline::after_us(5);

/// What `host-init` would allocate for a receive queue of four WQEs of two pieces.
struct Rig {
    ring: Vec<UnsafeCell<RingSegment>>,
    record: Word32,
    completions: Vec<CompletionSlot>,
    completion_record: Word32,
    state: QueueState,
}

// SAFETY: no test reads the ring while another thread posts.
unsafe impl Sync for Rig {}

impl Rig {
    fn new() -> Self {
        Self {
            ring: (0..DEPTH << STRIDE_LOG2)
                .map(|_| UnsafeCell::new(RingSegment::zeroed()))
                .collect(),
            record: Word32::new(0),
            completions: (0..DEPTH).map(|_| CompletionSlot::invalid()).collect(),
            completion_record: Word32::new(0),
            state: QueueState::new(),
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
            stride_log2: STRIDE_LOG2,
            reach: FenceReach::System,
        };
        // SAFETY: all of it lives in `self`, which the handle borrows; the
        // sizes are those of the vectors.
        unsafe { ReceiveQueueHandle::new(parts) }
    }

    /// The bytes of segment `piece` of receive WQE `number`.
    fn segment(&self, number: usize, piece: usize) -> [u8; 16] {
        let index = ((number % DEPTH) << STRIDE_LOG2) + piece;
        // SAFETY: a segment is 16 plain bytes; no test posts at the same time.
        unsafe { self.ring[index].get().cast::<[u8; 16]>().read() }
    }

    /// Index in the doorbell record.
    fn posted(&self) -> u32 {
        u32::from_be(self.record.load(Ordering::Relaxed))
    }

    /// A message of `bytes` bytes takes receive `number`.
    fn arrive(&self, number: usize, opcode: CqeOpcode, bytes: u32, immediate: u32) {
        let mut words = [0; 8];
        words[4] = (immediate as u64).to_be();
        words[5] = (bytes as u64).to_be();
        self.write_cqe(number, opcode, words);
    }

    fn write_cqe(&self, number: usize, opcode: CqeOpcode, mut words: [u64; 8]) {
        let owner = number / DEPTH % 2 == 1;
        let qpn = QpNumber::new(5).unwrap();
        words[7] = CqeTail::new(opcode, owner, Opcode::NOP, qpn, number as u16).0;
        let slot = self.completions[number % DEPTH].words();
        for (word, value) in slot.iter().zip(Cqe64::from_words(words).to_words()) {
            word.store(value, Ordering::Release);
        }
    }
}

fn local(address: u64, length: u32) -> Local {
    Local {
        address,
        length,
        key: LocalKey(7),
    }
}

/// Runs a test for each sharing.
macro_rules! everywhere {
    ($name:ident, $test:ident) => {
        #[test]
        fn $name() {
            $test::<Exclusive>();
            $test::<BlockShared>();
            $test::<GpuShared>();
            if cfg!(not(miri)) {
                $test::<Traced<'_, Exclusive>>();
                $test::<Traced<'_, GpuShared>>();
            }
        }
    };
}

/// The events of a receive queue say that they are one's; an index is a receive's.
#[test]
fn events_of_a_receive_queue() {
    let rig = Rig::new();
    let (asked, chunks) = (Word64::new(0), [Chunk::empty()]);
    let mut queue = rig.handle().open::<Traced<Exclusive>>().unwrap();
    queue.trace_into(Buffer::new(&asked, &chunks));
    for _ in 0..2 {
        queue.try_post(local(0x1000, 64)).unwrap();
    }
    assert_eq!(queue.receive(SOON), Err(WaitError::Deadline));
    rig.arrive(0, CqeOpcode::RESPONDER_SEND, 64, 0);
    queue.receive(SOON).unwrap();
    assert_eq!(queue.try_receive(), Ok(None));
    let found: Vec<_> = chunks[0].events().collect();
    let of_all = |event: &Event| event.is_of_receive_queue() && event.qpn().get() == 5;
    assert!(found.iter().all(of_all), "{found:?}");
    let found: Vec<_> = found
        .iter()
        .map(|event| (event.kind().unwrap(), event.value()))
        .collect();
    let published = |start| (Kind::Publish, Span { start, blocks: 1 }.to_value());
    let expected = [
        (
            Kind::Reserve,
            Span {
                start: 0,
                blocks: 1,
            }
            .to_value(),
        ),
        published(0),
        (
            Kind::Reserve,
            Span {
                start: 1,
                blocks: 1,
            }
            .to_value(),
        ),
        published(1),
        (Kind::Completion, 0),
    ];
    assert_eq!(found, expected);
}

everywhere!(buffers_reach_the_ring, post);
fn post<S: Sharing>() {
    let rig = Rig::new();
    let mut queue = rig.handle().open::<S>().unwrap();
    assert_eq!((queue.depth(), queue.max_segments()), (4, 2));
    queue.try_post(local(0x1000, 64)).unwrap();
    queue
        .try_post_scatter(&[local(0x2000, 8), local(0x3000, 4)])
        .unwrap();
    assert_eq!(rig.segment(2, 0), [0; 16], "the next receive's");
    assert_eq!(queue.try_post_scatter(&[]), Ok(WqeIndex(2)));
    assert_eq!(queue.try_post_if(None), Ok(None));
    assert_eq!(queue.try_post_if(Some(local(1, 1))), Ok(Some(WqeIndex(3))));
    assert_eq!(rig.posted(), 4);
    let list_end = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        rig.segment(0, 0),
        [0, 0, 0, 64, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0x10, 0]
    );
    assert_eq!(rig.segment(0, 1), list_end);
    assert_eq!(
        rig.segment(1, 0),
        [0, 0, 0, 8, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0x20, 0]
    );
    assert_eq!(
        rig.segment(1, 1),
        [0, 0, 0, 4, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0x30, 0]
    );
    assert_eq!(rig.segment(2, 0), list_end);
}

everywhere!(messages_come_in_order, messages);
fn messages<S: Sharing>() {
    let rig = Rig::new();
    let mut queue = rig.handle().open::<S>().unwrap();
    let kinds = [
        (CqeOpcode::RESPONDER_SEND, Arrival::Send),
        (
            CqeOpcode::RESPONDER_SEND_IMMEDIATE,
            Arrival::SendImmediate(Immediate(0x0102_0304)),
        ),
        (
            CqeOpcode::RESPONDER_SEND_INVALIDATE,
            Arrival::SendInvalidate(RemoteKey(0x0102_0304)),
        ),
        (
            CqeOpcode::RESPONDER_WRITE_IMMEDIATE,
            Arrival::WriteImmediate(Immediate(0x0102_0304)),
        ),
    ];
    assert_eq!(queue.receive(SOON), Err(WaitError::Deadline));
    // Far more laps than the 16-bit index and the owner bit have.
    let rounds = if cfg!(miri) { 50 } else { 70_000 };
    for number in 0..rounds {
        let posted = queue.try_post(local(0x1000, 64)).unwrap();
        assert_eq!(posted, WqeIndex(number as u16));
        assert_eq!(rig.posted(), (number as u32 + 1) & 0xffff);
        assert_eq!(queue.try_receive(), Ok(None));
        let (opcode, kind) = kinds[number % kinds.len()];
        rig.arrive(number, opcode, 33, 0x0102_0304);
        assert_eq!(
            queue.try_receive(),
            Ok(Some(Received {
                kind,
                bytes: 33,
                index: WqeIndex(number as u16),
            }))
        );
        let consumer = u32::from_be(rig.completion_record.load(Ordering::Relaxed));
        assert_eq!(consumer, number as u32 + 1);
    }
}

everywhere!(what_comes_during_a_wait_is_found, late);
fn late<S: Sharing>() {
    let rig = Rig::new();
    std::thread::scope(|scope| {
        let mut queue = rig.handle().open::<S>().unwrap();
        queue.try_post(local(0x1000, 64)).unwrap();
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(2));
            rig.arrive(0, CqeOpcode::RESPONDER_SEND, 33, 0);
        });
        let received = queue.receive(Deadline::after_ms(300_000)).unwrap();
        assert_eq!((received.kind, received.bytes), (Arrival::Send, 33));
    });
}

/// Each lane posts its own buffer, in the order of the lanes, and all get the same message.
#[cfg(not(miri))]
fn lanes<S: Sharing>() {
    let rig = Rig::new();
    let dim = Grid::new(1, 2);
    launch(dim, Options::default(), || {
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { rig.handle().open_together::<S, Warp>() }.unwrap();
        let lane = warp::lane_id();
        let number = WqeIndex(lane as u16);
        let own = local(0x1000, lane + 1);
        assert_eq!(queue.try_post(own), Ok(number));
        // One lane alone; then both, one of which is refused.
        let posted = queue.try_post_if((lane == 1).then_some(own));
        assert_eq!(posted, Ok((lane == 1).then_some(WqeIndex(2))));
        let posted = queue.try_post(local(0x1000, lane));
        match lane {
            0 => assert_eq!(posted, Err(PostError::Empty)),
            _ => assert_eq!(posted, Ok(WqeIndex(3))),
        }
        if lane == 0 {
            rig.arrive(0, CqeOpcode::RESPONDER_SEND, 33, 0);
        }
        let received = queue.receive(Deadline::after_ms(300_000)).unwrap();
        assert_eq!((received.bytes, received.index), (33, WqeIndex(0)));
    })
    .unwrap();
    assert_eq!(rig.posted(), 4);
    let lengths = [0, 1, 2, 3].map(|number| rig.segment(number, 0)[3]);
    assert_eq!(lengths, [1, 2, 2, 1]);
}

#[cfg(not(miri))]
#[test]
fn a_warp_receives_together() {
    lanes::<Exclusive>();
    lanes::<BlockShared>();
    lanes::<GpuShared>();
}

everywhere!(a_full_ring_says_so, full);
fn full<S: Sharing>() {
    let rig = Rig::new();
    let mut queue = rig.handle().open::<S>().unwrap();
    for _ in 0..DEPTH {
        queue.try_post(local(0x1000, 64)).unwrap();
    }
    assert_eq!(queue.try_post(local(0x1000, 64)), Err(PostError::NoRoom));
    rig.arrive(0, CqeOpcode::RESPONDER_SEND, 1, 0);
    assert_eq!(
        queue.try_post(local(0x1000, 64)),
        Err(PostError::NoRoom),
        "a message frees its receive when it is taken"
    );
    assert!(queue.try_receive().unwrap().is_some());
    queue.try_post(local(0x1000, 64)).unwrap();
}

#[test]
fn bad_buffers_are_refused() {
    let rig = Rig::new();
    let mut queue = rig.handle().open::<Exclusive>().unwrap();
    assert_eq!(queue.try_post(local(0x1000, 0)), Err(PostError::Empty));
    assert_eq!(
        queue.try_post_scatter(&[local(0x1000, 8); 3]),
        Err(PostError::TooManyBlocks { asked: 3, limit: 2 })
    );
    assert_eq!(
        queue.try_post_scatter(&[local(0x1000, 1 << 30), local(0, 1)]),
        Err(PostError::TooLong {
            bytes: (1 << 30) + 1,
            limit: 1 << 30
        })
    );
    assert_eq!(rig.posted(), 0);
    assert_eq!(queue.try_post(local(0x1000, 1 << 30)), Ok(WqeIndex(0)));
}

everywhere!(messages_before_an_error_are_taken_first, errors);
fn errors<S: Sharing>() {
    let rig = Rig::new();
    let mut queue = rig.handle().open::<S>().unwrap();
    for _ in 0..3 {
        queue.try_post(local(0x1000, 64)).unwrap();
    }
    rig.arrive(0, CqeOpcode::RESPONDER_SEND, 1, 0);
    let mut words = [0; 8];
    words[6] = CqeErrorWord::new(Syndrome::LOCAL_LENGTH, VendorCode(0x5a)).0;
    rig.write_cqe(1, CqeOpcode::RESPONDER_ERROR, words);
    assert!(queue.try_receive().unwrap().is_some());
    let error = queue.try_receive().unwrap_err();
    let Cause::Completion(completion) = error.cause() else {
        panic!("{error:?}");
    };
    assert_eq!(completion.syndrome, Syndrome::LOCAL_LENGTH);
    assert_eq!(completion.wqe_index, WqeIndex(1));
    assert_eq!(queue.receive(SOON), Err(WaitError::Failed(error)));
    assert_eq!(rig.state.first_error(), Some(error));
}

#[test]
fn a_cqe_of_a_sender_is_no_message() {
    let rig = Rig::new();
    let mut queue = rig.handle().open::<Exclusive>().unwrap();
    rig.arrive(0, CqeOpcode::REQUESTER, 1, 0);
    assert_eq!(
        queue.try_receive().unwrap_err().cause(),
        Cause::UnexpectedCompletion { op_own: 0 }
    );
}

#[test]
fn a_handle_with_a_reach_that_nobody_knows_is_refused() {
    let rig = Rig::new();
    let with_reach = |number: u8| {
        let mut copy = rig.handle();
        // SAFETY: the byte is an integer, of which every value is valid.
        unsafe { (&raw mut copy).cast::<u8>().add(66).write(number) };
        copy.open::<Exclusive>().err()
    };
    assert_eq!(with_reach(2), Some(OpenError::Reach { found: 2 }));
    for known in [0, 1] {
        assert_eq!(with_reach(known), None);
    }
}
