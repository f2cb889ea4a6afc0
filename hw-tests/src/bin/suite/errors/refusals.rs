//! Requests and handles that are refused before the NIC hears of them: the queue stays usable.

use std::time::Duration;

use warpbell::wqe::{BuildError, Opcode, QpNumber, Syndrome, VendorCode};
use warpbell::{ABI_VERSION, OpenError, PostError, WaitError};
use warpbell_host_init::{Error, Grid, Kernels, Nic, QueuePairConfig, State, connect};
use warpbell_hw_tests::abi;
use warpbell_hw_tests::here;
use warpbell_hw_tests::post::{Posting, expect_done};
use warpbell_hw_tests::sides::{ALL_ACCESS, Sides};
use warpbell_kernels::outcome::Failure;
use warpbell_kernels::suite::{DoorbellKind, Ending, Request, Verb, Waiting};
use warpbell_soft_hca::engine::Transition;
use warpbell_soft_hca_gpu::MemoryScope;

use super::stage::{Stage, state};

const LONGEST: u32 = 4096;

/// Requests that no card would carry out as meant: refused with their own error, and the next is fine.
pub fn bad_requests() {
    let config = QueuePairConfig {
        send_depth: 4,
        max_message: LONGEST,
        ..QueuePairConfig::default()
    };
    let stage = Stage::new(&config);
    let (ours, theirs) = (&stage.ours, &stage.theirs);
    let there = theirs.remote(64);
    let with = |verb, length| {
        Request::new(verb)
            .local(&[ours.local(0, length)])
            .remote(there)
    };
    let misplaced = |verb, width, offset| {
        let request = Request::new(verb).local(&[ours.local(0, width)]);
        let remote = theirs.remote(offset);
        let error = PostError::Misaligned {
            address: remote.address,
        };
        (request.remote(remote), Failure::Post(error))
    };
    let too_long = |bytes| {
        Failure::Post(PostError::TooLong {
            bytes,
            limit: LONGEST,
        })
    };
    let gather = |verb, lengths: [u32; 2]| {
        Request::new(verb)
            .local(&lengths.map(|length| ours.local(0, length)))
            .remote(there)
    };
    let empty = Failure::Post(PostError::Empty);
    let wide = Failure::Post(PostError::TooManyBlocks { asked: 2, limit: 1 });
    let refused: Vec<(Request, Failure)> = vec![
        (with(Verb::Write, 0), empty),
        (with(Verb::WriteImmediate, 0), empty),
        (with(Verb::Read, 0), empty),
        (with(Verb::Send, 0), empty),
        (with(Verb::SendInvalidate, 0), empty),
        (
            with(Verb::Write, LONGEST + 1),
            too_long(u64::from(LONGEST) + 1),
        ),
        (
            with(Verb::Send, LONGEST + 1),
            too_long(u64::from(LONGEST) + 1),
        ),
        (with(Verb::Read, u32::MAX), too_long(u64::from(u32::MAX))),
        (
            gather(Verb::WriteGather, [LONGEST, 1]),
            too_long(u64::from(LONGEST) + 1),
        ),
        (
            gather(Verb::WriteGather, [8, 0]),
            Failure::Build(BuildError::EmptySegment),
        ),
        (
            gather(Verb::ReadScatter, [8, 1 << 31]),
            Failure::Build(BuildError::SegmentTooLong { length: 1 << 31 }),
        ),
        (
            Request::new(Verb::WriteInline).remote(there),
            Failure::Build(BuildError::EmptyInline),
        ),
        misplaced(Verb::FetchAdd, 8, 4),
        misplaced(Verb::CompareSwap, 8, 1),
        misplaced(Verb::MaskedFetchAdd4, 4, 2),
        misplaced(Verb::MaskedFetchAdd8, 8, 4),
        misplaced(Verb::MaskedCompareSwap4, 4, 3),
        misplaced(Verb::MaskedCompareSwap8, 8, 4),
        // A quarter of four blocks is one.
        (
            Request::new(Verb::WriteInline)
                .remote(there)
                .inline(&[1; 60]),
            wide,
        ),
    ];
    let untouched = stage.images();
    let (requests, failures): (Vec<_>, Vec<_>) = refused.into_iter().unzip();
    let queue = stage.queue();
    let endings = Posting::default().post(queue, &requests);
    for (number, failure) in failures.into_iter().enumerate() {
        assert_eq!(
            endings[number],
            Ending::Failed(failure),
            "{:?}",
            requests[number].verb
        );
    }
    // Half of four blocks is two: more do not share a doorbell.
    let batch = Posting {
        doorbell: DoorbellKind::Batch,
        grid: Grid::new(1, 3),
        mode: warpbell_kernels::suite::Mode {
            sharing: warpbell_kernels::suite::SharingKind::Exclusive,
            scope: warpbell_kernels::suite::ScopeKind::Warp,
        },
        ..Posting::default()
    };
    let crowd = Failure::Post(PostError::TooManyBlocks { asked: 3, limit: 2 });
    let endings = batch.post(queue, &[Request::new(Verb::Nop); 3]);
    assert_eq!(endings, [Ending::Failed(crowd); 3]);

    stage.check(&untouched, "refused requests");
    assert_eq!(state(&stage.pair.ours), State::ReadyToSend);
    assert_eq!(stage.pair.ours.send_progress().published, 0);
    expect_done(
        &Posting::default().post(queue, &[stage.good(1)]),
        "a good request",
    );
}

/// Handles of another kind, version or size, or with a reach that nobody knows.
pub fn bad_handles() {
    let stage = Stage::new(&QueuePairConfig::default());
    let queue = stage.queue();
    let nop = [Request::new(Verb::Nop)];
    let refused = |offset, byte, error: OpenError| {
        let endings = Posting::default().post(abi::with_byte(queue, offset, byte), &nop);
        assert_eq!(endings, [Ending::Failed(error.into())]);
    };
    let magic = u32::from_le_bytes(*b"WBRQ");
    refused(abi::MAGIC + 2, b'R', OpenError::NotAHandle { magic });
    let wanted = ABI_VERSION;
    let found = wanted + 1;
    refused(
        abi::VERSION,
        found as u8,
        OpenError::Version { found, wanted },
    );
    let wanted = size_of_val(&queue) as u16;
    let found = wanted - 8;
    refused(abi::SIZE, found as u8, OpenError::Size { found, wanted });
    refused(abi::REACH, 2, OpenError::Reach { found: 2 });
    let unknown = OpenError::SendDoorbell { found: 2 };
    refused(abi::SEND_DOORBELL, 2, unknown);
    expect_done(&Posting::default().post(queue, &nop), "the true handle");
    // Only a NIC that runs beside the kernels on their GPU is as near as that.
    let beside =
        matches!(here::kernels(), Kernels::Gpu(_)) && matches!(here::node().nic(), Nic::SoftGpu(_));
    let near = beside && here::reach() == MemoryScope::Gpu;
    assert_eq!(abi::reach(&queue), u8::from(near));
}

/// A ring that the NIC does not empty says so, at once or when the time is up; then it empties, and works.
pub fn full_ring() {
    const DEPTH: usize = 8;
    let sides = Sides::by_hand();
    let stage = Stage::on(
        sides,
        &QueuePairConfig {
            send_depth: DEPTH as u32,
            ..QueuePairConfig::default()
        },
    );
    let at_once = Posting::with(Waiting::Never, Duration::ZERO);
    let queue = stage.queue();
    let requests: Vec<Request> = (1..=DEPTH + 2)
        .map(|value| stage.good(value as u64))
        .collect();
    let mut expected = stage.images();
    let endings = at_once.post(queue, &requests);
    expect_done(&endings[..DEPTH], "a ring full");
    let no_room = Ending::Failed(PostError::NoRoom.into());
    assert_eq!(endings[DEPTH..], [no_room; 2]);
    let soon = Posting::with(Waiting::Never, Duration::from_millis(5));
    let late = Ending::Failed(PostError::Deadline.into());
    assert_eq!(soon.post(queue, &requests[..1]), [late]);
    stage.check(&expected, "a NIC that stands still");

    stage.sides.step_until_idle();
    expected
        .theirs
        .set(stage.theirs.address(), &(DEPTH as u64).to_ne_bytes());
    stage.check(&expected, "the ring's worth");
    expect_done(&at_once.post(queue, &requests[..1]), "room again");
    stage.sides.step_until_idle();
    expected
        .theirs
        .set(stage.theirs.address(), &1u64.to_ne_bytes());
    stage.check(&expected, "room again");
}

/// Queue pairs that are not connected yet, or in error.
pub fn wrong_states() {
    let sides = Sides::chosen();
    let config = QueuePairConfig::default();
    let mut ours = sides.ours.queue_pair(&config);
    let mut theirs = sides.theirs.queue_pair(&config);
    let not_ready = |result: Result<(), Error>, wanted: State| {
        assert!(
            matches!(result, Err(Error::NotReady { state, .. }) if state == wanted),
            "{result:?} in {wanted}"
        );
    };
    not_ready(ours.send_queue().map(|_| ()), State::Reset);
    not_ready(ours.receive_queue().map(|_| ()), State::Reset);
    ours.to_init().expect("INIT");
    not_ready(ours.send_queue().map(|_| ()), State::Init);
    ours.receive_queue().expect("receives may be posted now");
    connect(&mut ours, &mut theirs).expect("a connection");
    assert!(matches!(ours.to_init(), Err(Error::WrongState { .. })));

    // The queue goes to ERROR while a kernel holds it: posted requests are flushed.
    let theirs_before = sides.theirs.arena(64, ALL_ACCESS, 1);
    let untouched = theirs_before.image();
    let queue = ours.send_queue().expect("a send queue");
    let qpn = QpNumber::from_low_bits(ours.qpn());
    let hca = sides.ours.hca();
    hca.command(|engine| engine.modify_queue_pair(qpn, Transition::Error))
        .expect("a running HCA")
        .expect("ERROR");
    let write = Request::new(Verb::WriteValue).remote(theirs_before.remote(0));
    let [Ending::Failed(Failure::Wait(WaitError::Failed(error)))] =
        Posting::default().post(queue, &[write])[..]
    else {
        panic!("a request in ERROR");
    };
    assert!(error.is_flush(), "{error}");
    let warpbell::Cause::Completion(flushed) = error.cause() else {
        panic!("{error:?}");
    };
    assert_eq!(
        (flushed.syndrome, flushed.vendor, flushed.opcode),
        (Syndrome::FLUSHED, VendorCode::FLUSHED, Opcode::RDMA_WRITE)
    );
    assert_eq!(ours.first_error(), Some(error));
    theirs_before.check(&untouched, "a request in ERROR");
    not_ready(ours.receive_queue().map(|_| ()), State::Error);
}
