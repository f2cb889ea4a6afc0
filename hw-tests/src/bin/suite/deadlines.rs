//! Proves that nothing hangs: with a NIC that stopped, a peer that is gone, a wire that loses everything, a host that
//! rings faster than the NIC looks, or a message that never comes, every call ends when its time is up or with the NIC's
//! own error, and the other side of the trouble is a queue that works again.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use warpbell::SendDoorbell;
use warpbell::wqe::{CompletionError, Opcode, QpNumber, Side, Syndrome, VendorCode, Wqe, WqeIndex};
use warpbell::{Cause, Deadline, Exclusive, PostError, QueueError, WaitError};
use warpbell_host_init::{Grid, Placement, QueuePair, QueuePairConfig, State, Timers, connect};
use warpbell_hw_tests::collect::Collecting;
use warpbell_hw_tests::here;
use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::post::{Posting, ample, expect_done};
use warpbell_hw_tests::run::run;
use warpbell_hw_tests::say::say;
use warpbell_hw_tests::sides::{ALL_ACCESS, Pair, Sides};
use warpbell_kernels::suite::{Ending, Mode, Request, ScopeKind, SharingKind, Verb, Waiting};
use warpbell_soft_hca::engine::fault::Fate;
use warpbell_soft_hca::engine::packet::Header;
use warpbell_soft_hca::shell::Faults;
use warpbell_soft_hca_gpu::MemoryScope;

/// How long a call may take that is to end late.
const PATIENCE: Duration = Duration::from_millis(20);
const LATE: Ending = Ending::Failed(warpbell_kernels::outcome::Failure::Wait(
    WaitError::Deadline,
));

pub fn test(machine: &Machine) -> ExitCode {
    run(machine, Duration::from_secs(600), |progress| {
        progress.step_with_orders("our NIC has stopped", stopped_nic);
        progress.step_with_orders("the peer is gone", peer_gone);
        progress.step_with_orders("the wire loses everything", lossy_wire);
        progress.step("a host rings again at once");
        host_rings_again();
        progress.step("no message comes");
        no_message();
    })
}

/// Ends, but not before `PATIENCE`. A call that never ends is the watchdog's.
#[track_caller]
fn not_before<R>(what: &str, calls: u32, work: impl FnOnce() -> R) -> R {
    let started = Instant::now();
    let result = work();
    let took = started.elapsed();
    assert!(took >= PATIENCE * calls, "{what}: given up after {took:?}");
    result
}

/// 1 ms and two retries: a peer that is gone is noticed soon.
fn impatient() -> QueuePairConfig {
    QueuePairConfig {
        send_depth: 64,
        timers: Timers {
            acknowledge_timeout: 8,
            retry_count: 2,
            ..Timers::default()
        },
        ..QueuePairConfig::default()
    }
}

fn briefly() -> Posting {
    Posting::with(Waiting::Each, PATIENCE)
}

fn nop() -> Request {
    Request::new(Verb::Nop)
}

/// Every mode's waits and posts end, though no completion will ever come.
fn stopped_nic() {
    for mode in Mode::ALL {
        let sides = Sides::chosen();
        let pair = sides.pair(&impatient());
        let queue = pair.ours.send_queue().expect("a send queue");
        sides.ours.hca().kill();
        let threads = match mode.scope {
            ScopeKind::Thread if mode.sharing == SharingKind::Exclusive => 1,
            _ => 8,
        };
        let posting = Posting {
            grid: Grid::new(1, threads),
            mode,
            ..briefly()
        };
        let requests = vec![nop(); threads as usize];
        let endings = not_before(&format!("{mode:?}"), 1, || posting.post(queue, &requests));
        assert_eq!(endings, vec![LATE; threads as usize], "{mode:?}");
    }
}

fn transport_error(pair: &QueuePair, index: u16, opcode: Opcode) -> QueueError {
    QueueError::new(Cause::Completion(CompletionError {
        side: Side::Requester,
        syndrome: Syndrome::TRANSPORT_RETRY,
        vendor: VendorCode::NO_ACKNOWLEDGEMENT,
        wqe_index: WqeIndex(index),
        opcode,
        qpn: QpNumber::from_low_bits(pair.qpn()),
    }))
}

/// The retries run out, and the error says so; with retries for ever, the kernel's own deadline ends it.
fn peer_gone() {
    let sides = Sides::chosen();
    let mut pair = sides.pair(&impatient());
    let target = sides.theirs.arena(64, ALL_ACCESS, 1);
    let untouched = target.image();
    let write = Request::new(Verb::WriteValue).remote(target.remote(0));
    sides.theirs.hca().kill();
    let queue = pair.ours.send_queue().expect("a send queue");
    let endings = Posting::default().post(queue, &[nop(), write, nop()]);
    let error = transport_error(&pair.ours, 1, Opcode::RDMA_WRITE);
    let failed = Ending::Failed(WaitError::Failed(error).into());
    assert_eq!(endings[..2], [Ending::Done, failed]);
    let refused = Ending::Failed(PostError::Failed(error).into());
    assert_eq!(endings[2], refused, "a post after the error");
    assert_eq!(pair.ours.first_error(), Some(error));
    target.check(&untouched, "a peer that is gone");
    pair.ours.reset().expect("a reset");
    assert_eq!(pair.ours.state().expect("a state"), State::Reset);

    let sides = Sides::chosen();
    let patient = QueuePairConfig {
        timers: Timers {
            acknowledge_timeout: 0,
            ..Timers::default()
        },
        ..impatient()
    };
    let pair = sides.pair(&patient);
    let target = sides.theirs.arena(64, ALL_ACCESS, 1);
    let write = Request::new(Verb::WriteValue).remote(target.remote(0));
    sides.theirs.hca().kill();
    let queue = pair.ours.send_queue().expect("a send queue");
    let endings = not_before("no timer", 2, || briefly().post(queue, &[write, nop()]));
    assert_eq!(endings, [LATE; 2]);
    // The ring fills up, and then posting is late as well.
    let flood = Posting::with(Waiting::Never, PATIENCE);
    let endings = not_before("no room", 1, || flood.post(queue, &vec![nop(); 63]));
    expect_done(&endings[..62], "while there is room");
    assert_eq!(endings[62], Ending::Failed(PostError::Deadline.into()));
}

/// A wire that drops everything, until it is mended.
fn lossy_wire() {
    let broken = Arc::new(AtomicBool::new(true));
    let fate = {
        let broken = broken.clone();
        move |_: &Header| match broken.load(Ordering::Relaxed) {
            true => Fate::Drop,
            false => Fate::Pass,
        }
    };
    let sides = Sides::faulty(Some(Faults::new(fate)), None);
    let mut pair = sides.pair(&impatient());
    let target = sides.theirs.arena(64, ALL_ACCESS, 1);
    let mut expected = target.image();
    let write = Request::new(Verb::WriteValue)
        .remote(target.remote(0))
        .values([7, 0, 0, 0]);
    let queue = pair.ours.send_queue().expect("a send queue");
    let error = transport_error(&pair.ours, 0, Opcode::RDMA_WRITE);
    let failed = Ending::Failed(WaitError::Failed(error).into());
    assert_eq!(Posting::default().post(queue, &[write]), [failed]);
    target.check(&expected, "a wire that loses everything");

    broken.store(false, Ordering::Relaxed);
    pair.renew();
    works_again(&pair, write);
    expected.set(target.address(), &7u64.to_ne_bytes());
    target.check(&expected, "a mended wire");
}

fn works_again(pair: &Pair, request: Request) {
    let queue = pair.ours.send_queue().expect("a send queue");
    expect_done(
        &Posting::default().post(queue, &[request]),
        "after the reset",
    );
}

/// A host's posts to several queues, and another one behind each before the NIC can have heard the first: no ring is lost.
/// The registers lie in memory that the host rings in and the NIC looks at. For an engine on a GPU that is beyond the GPU:
/// one that exchanged them for 0 there would hang here, where a CPU's would not.
fn host_rings_again() {
    const ROUNDS: u64 = 500;
    let sides = Sides::reaching(MemoryScope::System);
    let able = sides.ours.device().limits().without_record;
    for send_doorbell in [SendDoorbell::WithRecord, SendDoorbell::WithoutRecord] {
        if send_doorbell == SendDoorbell::WithoutRecord && !able {
            say(format_args!(
                "         left out, because this NIC wants a record: {send_doorbell:?}"
            ));
            continue;
        }
        let config = QueuePairConfig {
            placement: Some(here::kernels().placement()),
            state_placement: Some(Placement::Host),
            send_depth: 64,
            send_doorbell,
            ..QueuePairConfig::default()
        };
        let pair = || {
            let mut ours = sides.ours.domain.queue_pair(&config).expect("a queue pair");
            let mut theirs = sides.theirs.queue_pair(&QueuePairConfig::default());
            connect(&mut ours, &mut theirs).expect("a connection");
            (ours, theirs)
        };
        let pairs: Vec<_> = (0..8).map(|_| pair()).collect();
        let target = sides.theirs.arena(8 * pairs.len(), ALL_ACCESS, 1);
        let mut expected = target.image();
        let mut queues: Vec<_> = pairs
            .iter()
            .map(|(ours, _)| {
                let queue = ours.send_queue().expect("a send queue");
                queue.open::<Exclusive>().expect("open")
            })
            .collect();
        let limit = Deadline::after_us(ample().as_micros() as u64);
        for round in 1..=ROUNDS {
            for (queue, offset) in queues.iter_mut().zip((0..).step_by(8)) {
                let write = Wqe::write_value(round, target.remote(offset));
                let _ = queue.post(write, limit).expect("a post");
            }
            for (number, queue) in queues.iter_mut().enumerate() {
                let done = queue.drain(limit);
                assert_eq!(
                    done,
                    Ok(()),
                    "{send_doorbell:?}, queue {number}, round {round}"
                );
            }
        }
        for number in 0..pairs.len() {
            let at = target.remote(8 * number as i64).address;
            expected.set(at, &ROUNDS.to_ne_bytes());
        }
        target.check(&expected, "what a host has written");
    }
}

/// A receive waits no longer than it is told, in every mode.
fn no_message() {
    for mode in Mode::ALL {
        let sides = Sides::chosen();
        let pair = sides.pair(&QueuePairConfig::default());
        let buffers = sides.theirs.arena(4096, ALL_ACCESS, 1);
        let untouched = buffers.image();
        let threads = match mode.scope {
            ScopeKind::Thread if mode.sharing == SharingKind::Exclusive => 1,
            _ => 8,
        };
        let collecting = Collecting {
            grid: Grid::new(1, threads),
            mode,
            per_thread: 1,
            post: 1,
            take: 1,
            ..Collecting::default()
        };
        let mut mailbox = collecting.mailbox(64);
        let queue = pair.theirs.receive_queue().expect("a receive queue");
        let mut kernel = collecting.kernel(queue, &buffers, &mut mailbox);
        kernel.patience_ns = PATIENCE.as_nanos() as u64;
        not_before(&format!("{mode:?}"), 1, || {
            here::launch(collecting.kernels, collecting.grid, &kernel);
        });
        assert_eq!(mailbox.endings(), vec![LATE; threads as usize], "{mode:?}");
        assert!(mailbox.messages().is_empty());
        buffers.check(&untouched, "no message");
    }
}
