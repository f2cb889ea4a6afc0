//! Errors of receives: each side learns its own part.

use warpbell::wqe::{
    CompletionError, LocalKey, Opcode, QpNumber, Side, Syndrome, VendorCode, WqeIndex,
};
use warpbell::{Cause, QueueError, WaitError};
use warpbell_host_init::{Completions, QueuePairConfig, State, Timers};
use warpbell_hw_tests::collect::{Collecting, Mailbox};
use warpbell_hw_tests::here;
use warpbell_hw_tests::model;
use warpbell_hw_tests::post::{Posting, expect_done};
use warpbell_kernels::suite::{Ending, MessageKind, Request, Verb};

use super::stage::{Stage, state};

/// Buffers of this length, in the first part of their cells.
const LENGTH: u32 = 32;
const CELL: u32 = 64;

fn receiving() -> Collecting {
    Collecting {
        per_thread: 3,
        post: 3,
        stride: CELL,
        length: LENGTH,
        ..Collecting::default()
    }
}

fn taking() -> Collecting {
    Collecting {
        post: 0,
        take: 2,
        ..receiving()
    }
}

/// A message one byte longer than its buffer.
pub fn too_small() {
    let send = |stage: &Stage| Request::new(Verb::Send).local(&[stage.ours.local(0, LENGTH + 1)]);
    let there = (Syndrome::LOCAL_LENGTH, VendorCode::NONE);
    let here = (Syndrome::REMOTE_INVALID_REQUEST, VendorCode::REMOTE_REQUEST);
    fails_at_both_ends("a receive too small", send, None, there, here);
}

/// A buffer whose key is not the peer's own.
pub fn bad_key() {
    let send = |stage: &Stage| Request::new(Verb::Send).local(&[stage.ours.local(0, LENGTH)]);
    let there = (Syndrome::LOCAL_PROTECTION, VendorCode::LOCAL_KEY);
    let here = (Syndrome::REMOTE_OPERATION, VendorCode::NONE);
    fails_at_both_ends("a receive with a bad key", send, Some(1), there, here);
}

type Part = (Syndrome, VendorCode);

/// Sends a good message and a bad one. The peer has its buffers in our arena of the other side; from number
/// `bad_key` on, their key is wrong.
fn fails_at_both_ends(
    what: &str,
    bad: impl Fn(&Stage) -> Request,
    bad_key: Option<u32>,
    there: Part,
    here: Part,
) {
    let mut stage = Stage::new(&QueuePairConfig::default());
    let mut expected = stage.images();
    let good = Request::new(Verb::Send).local(&[stage.ours.local(100, LENGTH)]);

    let receive_queue = stage.pair.theirs.receive_queue().expect("a receive queue");
    let mut mailbox = receiving().mailbox(3);
    let right = Collecting {
        post: bad_key.unwrap_or(receiving().post),
        ..receiving()
    };
    right.launch(receive_queue, &stage.theirs, &mut mailbox);
    expect_done(&mailbox.endings(), what);
    if bad_key.is_some() {
        let mut ignored = receiving().mailbox(3);
        let mut kernel = receiving().kernel(receive_queue, &stage.theirs, &mut ignored);
        kernel.key = LocalKey(kernel.key ^ 0xff).0;
        here::launch(receiving().kernels, receiving().grid, &kernel);
    }

    let queue = stage.queue();
    let error = stage.error(1, Opcode::SEND, here);
    let endings = Posting::default().post(queue, &[good, bad(&stage)]);
    let failed = Ending::Failed(WaitError::Failed(error).into());
    assert_eq!(endings, [Ending::Done, failed], "{what}");

    // The peer gets the good message, then its own error.
    let mut taken: Mailbox = taking().mailbox(0);
    taking().launch(receive_queue, &stage.theirs, &mut taken);
    let peer_error = QueueError::new(Cause::Completion(CompletionError {
        side: Side::Responder,
        syndrome: there.0,
        vendor: there.1,
        wqe_index: WqeIndex(1),
        opcode: Opcode::NOP,
        qpn: QpNumber::from_low_bits(stage.pair.theirs.qpn()),
    }));
    let failed = Ending::Failed(WaitError::Failed(peer_error).into());
    assert_eq!(taken.endings(), [failed], "{what}: the peer");
    let [message] = taken.messages()[..] else {
        panic!("{what}: the good message alone");
    };
    assert_eq!(message.kind, MessageKind::Send);
    let delivery = model::apply(&good, &mut expected.ours, &mut expected.theirs);
    let delivery = delivery.expect("a send brings a message");
    receiving().deliver(
        &stage.theirs,
        &mailbox,
        &message,
        &delivery,
        &mut expected.theirs,
    );
    // The buffer of the failed receive may hold anything.
    let buffer = stage.theirs.local(CELL.into(), LENGTH);
    let found = stage.theirs.image().gather(&[buffer]);
    expected.theirs.set(buffer.address, &found);
    stage.check(&expected, what);

    assert_eq!(stage.pair.theirs.first_error(), Some(peer_error), "{what}");
    assert_eq!(state(&stage.pair.theirs), State::Error, "{what}");
    stage.check_failed(queue, error, what);
    stage.renew(what);
}

/// No receive, and few retries.
pub fn none_for_too_long() {
    let mut stage = Stage::new(&QueuePairConfig {
        timers: Timers {
            rnr_retry: 2,
            rnr_timer: 1,
            ..Timers::default()
        },
        ..QueuePairConfig::default()
    });
    let send = Request::new(Verb::Send).local(&[stage.ours.local(0, 8)]);
    let cause = (Syndrome::RNR_RETRY, VendorCode::RECEIVER_NOT_READY);
    let what = "no receive for too long";
    stage.fails(what, send, Opcode::SEND, cause, Completions::ORDINARY);
}
