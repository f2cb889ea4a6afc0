//! Requests whose bytes were changed in the ring, after the kernel wrote them and before the NIC reads them;
//! and a completion queue whose user never moves the consumer index.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell::wqe::{Opcode, QpNumber, Syndrome, VendorCode};
use warpbell::{Cause, OpenError, QueueError, WaitError};
use warpbell_host_init::state::ErrorPlace;
use warpbell_host_init::{QueuePairConfig, State, Timers};
use warpbell_hw_tests::abi;
use warpbell_hw_tests::arena::GUARD;
use warpbell_hw_tests::collect::Collecting;
use warpbell_hw_tests::model;
use warpbell_hw_tests::post::{Posting, ample, expect_done};
use warpbell_hw_tests::sides::Sides;
use warpbell_kernels::outcome::Failure;
use warpbell_kernels::suite::{Ending, Request, Verb, Waiting};
use warpbell_soft_hca::engine::Event;

use super::stage::{Stage, state};

/// Bytes of a block.
const BLOCK: usize = 64;

fn by_hand() -> Stage {
    Stage::on(
        Sides::by_hand(),
        &QueuePairConfig {
            // A request that became a send shall not wait for a receive.
            timers: Timers {
                rnr_retry: 0,
                ..Timers::default()
            },
            ..QueuePairConfig::default()
        },
    )
}

/// Posts a good request, a victim and another good one, damages the victim's bytes at `offset`, and lets the
/// NIC go. Returns the ending of a request that is posted afterwards.
fn damage(stage: &Stage, victim: Request, offset: usize, bytes: &[u8]) -> Ending {
    let posting = Posting::with(Waiting::Never, ample());
    let queue = stage.queue();
    let requests = [stage.good(1), victim, stage.good(2)];
    expect_done(&posting.post(queue, &requests), "posted");
    // SAFETY: the kernel has ended, the NIC stands still, and the victim is the second block.
    unsafe { abi::patch_ring(&queue, BLOCK + offset, bytes) };
    stage.sides.step_until_idle();
    // The NIC stands still again: the ending comes from the CQEs that it wrote.
    let posting = Posting::with(Waiting::Each, Duration::from_millis(1));
    let [ending] = posting.post(queue, &[Request::new(Verb::Nop)])[..] else {
        panic!("one ending");
    };
    ending
}

/// One field after the other.
pub fn every_field() {
    let mut stage = by_hand();
    let (ours, theirs) = (stage.ours.local(64, 8), stage.theirs.remote(64));
    let request = |verb| Request::new(verb).local(&[ours]).remote(theirs);
    let write = (request(Verb::Write), Opcode::RDMA_WRITE);
    let read = (request(Verb::Read), Opcode::RDMA_READ);
    let add = (request(Verb::FetchAdd), Opcode::ATOMIC_FETCH_ADD);
    const OPERATION: (Syndrome, VendorCode) = (Syndrome::LOCAL_QP_OPERATION, VendorCode::NONE);
    const LOCAL: (Syndrome, VendorCode) = (Syndrome::LOCAL_PROTECTION, VendorCode::LOCAL_KEY);
    const REMOTE: (Syndrome, VendorCode) = (Syndrome::REMOTE_ACCESS, VendorCode::REMOTE_ACCESS);
    const REQUEST: (Syndrome, VendorCode) =
        (Syndrome::REMOTE_INVALID_REQUEST, VendorCode::REMOTE_REQUEST);
    const LENGTH: (Syndrome, VendorCode) = (Syndrome::LOCAL_LENGTH, VendorCode::NONE);
    let misplaced = (theirs.address + 4).to_be_bytes();
    // Keys are random: any byte may be theirs.
    let other_key = |key: u32| [!key.to_be_bytes()[3]];
    let (our_key, their_key) = (other_key(ours.key.0), other_key(theirs.key.0));
    let cases: [(&str, usize, &[u8], _); 14] = [
        ("the modifier", 0, &[9], (write, OPERATION)),
        ("the index", 2, &[7], (write, OPERATION)),
        ("an unknown opcode", 3, &[0x3f], (write, OPERATION)),
        ("the QPN", 5, &[0xee], (write, OPERATION)),
        ("no size", 7, &[0], (write, OPERATION)),
        (
            "a size past the producer index",
            7,
            &[63],
            (write, OPERATION),
        ),
        (
            "a size without the data segment",
            7,
            &[1],
            (read, OPERATION),
        ),
        ("the fence", 11, &[7 << 5 | 8], (write, OPERATION)),
        ("the remote address", 16, &[0xff], (write, REMOTE)),
        ("the remote key", 27, &their_key, (write, REMOTE)),
        ("the byte count", 32, &[0, 0, 0, 0], (write, LENGTH)),
        ("the local key", 39, &our_key, (write, LOCAL)),
        ("inline data in a read", 32, &[0x80], (read, OPERATION)),
        ("a misaligned atomic", 16, &misplaced, (add, REQUEST)),
    ];
    for (what, offset, bytes, ((victim, opcode), cause)) in cases {
        // The NIC reports the opcode that it has read.
        let opcode = match offset {
            3 => Opcode(bytes[0]),
            _ => opcode,
        };
        let mut expected = stage.images();
        model::apply(&stage.good(1), &mut expected.ours, &mut expected.theirs);
        let error = stage.error(1, opcode, cause);
        let told = Ending::Failed(WaitError::Failed(error).into());
        assert_eq!(damage(&stage, victim, offset, bytes), told, "{what}");
        stage.check(&expected, what);
        assert_eq!(stage.pair.ours.first_error(), Some(error), "{what}");
        assert_eq!(state(&stage.pair.ours), State::Error, "{what}");
        stage.pair.renew();
    }
}

/// Anything may stand in a request: the NIC carries it out or names an error, and stays inside of what is
/// registered.
pub fn at_random() {
    const ROUNDS: u64 = 400;
    let mut stage = by_hand();
    let guards = |stage: &Stage| {
        let images = stage.images();
        [(images.ours, &stage.ours), (images.theirs, &stage.theirs)].map(|(image, arena)| {
            let behind = arena.address() + u64::from(super::stage::LENGTH);
            let before = arena.address() - GUARD as u64;
            [before, behind].map(|at| image.get(at, GUARD).to_vec())
        })
    };
    let untouched = guards(&stage);
    let mut failed = 0;
    for seed in 0..ROUNDS {
        let mut random = SmallRng::seed_from_u64(seed);
        let verbs = [
            Verb::Write,
            Verb::WriteImmediate,
            Verb::Read,
            Verb::Send,
            Verb::FetchAdd,
            Verb::MaskedCompareSwap4,
            Verb::Nop,
        ];
        let verb = verbs[random.random_range(0..verbs.len())];
        let width = match verb {
            Verb::MaskedCompareSwap4 => 4,
            _ => 8,
        };
        let victim = Request::new(verb)
            .local(&[stage.ours.local(64, width)])
            .remote(stage.theirs.remote(64));
        let offset = random.random_range(0..BLOCK - 4);
        let bytes: [u8; 4] = random.random();
        let count = random.random_range(1..=4);
        let ending = damage(&stage, victim, offset, &bytes[..count]);
        match ending {
            // The NIC went through all of it; the NOP behind waits for a NIC that stands still.
            Ending::Failed(Failure::Wait(WaitError::Deadline)) => {}
            Ending::Failed(Failure::Wait(WaitError::Failed(error)))
            | Ending::Failed(Failure::Open(OpenError::Failed(error))) => {
                assert!(is_told_well(error), "seed {seed}: {error}");
                failed += 1;
            }
            other => panic!("seed {seed}: {other:?}"),
        }
        assert!(
            guards(&stage) == untouched,
            "seed {seed}: a guard has changed"
        );
        stage.pair.renew();
    }
    assert!(
        failed > ROUNDS / 2,
        "{failed} of {ROUNDS} damages were noticed"
    );
}

/// Whether an error names the victim and a syndrome that has a meaning.
fn is_told_well(error: QueueError) -> bool {
    match error.cause() {
        Cause::Completion(completion) => {
            completion.wqe_index.0 == 1
                && !error.is_flush()
                && completion.syndrome.describe().is_some()
        }
        _ => false,
    }
}

/// The completion queue of receives overruns when its consumer index does not move: the queue pair goes to error, the
/// message is lost, and the host is told which queue it was. That of sends has no such index.
pub fn overrun() {
    const DEPTH: u32 = 16;
    const LENGTH: u32 = 8;
    let mut stage = Stage::new(&QueuePairConfig {
        receive_depth: DEPTH,
        ..QueuePairConfig::default()
    });
    let collecting = |post, take| Collecting {
        per_thread: DEPTH,
        post,
        take,
        stride: LENGTH,
        length: LENGTH,
        ..Collecting::default()
    };
    let send = Request::new(Verb::Send).local(&[stage.ours.local(0, LENGTH)]);
    let theirs = stage.pair.theirs.receive_queue().expect("a receive queue");
    let collect = |post, take| {
        let kernel = collecting(post, take);
        let mut mailbox = kernel.mailbox(DEPTH as usize);
        kernel.launch(theirs, &stage.theirs, &mut mailbox);
        expect_done(&mailbox.endings(), "receives");
    };
    collect(DEPTH, 0);
    let full = vec![send; DEPTH as usize];
    expect_done(&Posting::default().post(stage.queue(), &full), "a lap");
    collect(0, DEPTH);
    // SAFETY: the kernel has ended.
    unsafe { abi::set_consumer_index(&theirs, 0) };
    collect(1, 0);
    let posting = Posting::with(Waiting::Each, Duration::from_millis(50));
    let endings = posting.post(stage.queue(), &[send]);
    assert_ne!(endings, [Ending::Done], "a message that nobody is told of");
    assert_eq!(state(&stage.pair.theirs), State::Error);
    let events: Vec<Event> = stage
        .sides
        .theirs
        .hca()
        .command(|engine| std::iter::from_fn(|| engine.poll_event()).collect())
        .expect("a running HCA");
    let qpn = QpNumber::from_low_bits(stage.pair.theirs.qpn());
    assert!(
        matches!(events[..], [Event::Overrun(_), Event::QueuePairFatal(failed)] if failed == qpn),
        "{events:?}"
    );
    let told = stage.pair.theirs.nic_error().expect("a running HCA");
    assert_eq!(
        told.map(|error| error.place),
        Some(ErrorPlace::CompletionQueue)
    );
    stage.renew("an overrun");
}
