//! Proves that receive queues deliver each message once, in order, into the buffer that was posted for it: in
//! every sharing and scope, while the sender is faster than the receiver, past the wrap of the 16-bit index,
//! into one piece or several, and after a time without any buffer.

use std::process::ExitCode;
use std::time::Duration;

use warpbell::WaitError;
use warpbell_cpu_grid::Grid;
use warpbell_host_init::{Kernels, QueuePairConfig, Timers};
use warpbell_hw_tests::collect::Collecting;
use warpbell_hw_tests::here;
use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::model;
use warpbell_hw_tests::post::{Posting, expect_done};
use warpbell_hw_tests::run::run;
use warpbell_hw_tests::sides::{ALL_ACCESS, Sides};
use warpbell_kernels::outcome::Failure;
use warpbell_kernels::suite::{
    Ending, Message, MessageKind, Mode, Request, ScopeKind, SharingKind, Verb, Waiting,
};

pub fn test(machine: &Machine) -> ExitCode {
    run(machine, Duration::from_secs(600), |progress| {
        for kernels in here::in_each_order() {
            progress.step(format!("every mode, {kernels}"));
            for mode in Mode::ALL {
                crowd(kernels, mode);
            }
        }
        progress.step("past index 2^16");
        wrap();
        progress.step("several pieces");
        scatter();
        progress.step("no buffer for a while");
        not_ready();
    })
}

/// Messages of a crowd: a multiple of the scopes in every grid below.
const MESSAGES: u32 = 960;
/// Bytes from one message to the next, at both ends, and the longest message.
const STRIDE: u32 = 64;
const LONGEST: u32 = 48;

/// A grid for a mode, how many scopes it has, and the threads of its smallest.
fn grid_of(mode: Mode) -> (Grid, u32, u32) {
    match (mode.sharing, mode.scope) {
        (SharingKind::Exclusive, ScopeKind::Thread) => (Grid::new(1, 1), 1, 1),
        (SharingKind::BlockShared, ScopeKind::Thread) => (Grid::new(1, 24), 24, 1),
        (SharingKind::GpuShared, ScopeKind::Thread) => (Grid::new(2, 12), 24, 1),
        (SharingKind::Exclusive, ScopeKind::Warp) => (Grid::new(1, 29), 1, 29),
        (SharingKind::BlockShared, ScopeKind::Warp) => (Grid::new(1, 77), 3, 13),
        (SharingKind::GpuShared, ScopeKind::Warp) => (Grid::new(2, 45), 4, 13),
        (SharingKind::GpuShared, ScopeKind::Block) => (Grid::new(2, 48), 2, 48),
        (_, ScopeKind::Block) => (Grid::new(1, 48), 1, 48),
    }
}

/// One thread sends while a crowd receives, with just about as many buffers as threads.
fn crowd(kernels: Kernels, mode: Mode) {
    let what = format!("{kernels}, {mode:?}");
    let (grid, scopes, smallest) = grid_of(mode);
    let threads = grid.blocks * grid.threads_per_block;
    let take = MESSAGES / scopes;
    let per_thread = 1 + take.div_ceil(smallest);
    let sides = Sides::chosen();
    let pair = sides.pair(&QueuePairConfig {
        receive_depth: (2 * threads).next_power_of_two(),
        ..rnr_in_10_us()
    });
    let source = sides
        .ours
        .arena((MESSAGES * STRIDE) as usize, ALL_ACCESS, 1);
    let buffers = sides
        .theirs
        .arena((threads * per_thread * STRIDE) as usize, ALL_ACCESS, 2);
    let requests: Vec<Request> = (0..MESSAGES)
        .map(|number| {
            let start = i64::from(number * STRIDE);
            let region = source.region();
            region
                .write(start as usize, &number.to_le_bytes())
                .expect("inside");
            let length = 4 + number % (LONGEST - 4);
            Request::new(Verb::Send).local(&[source.local(start, length)])
        })
        .collect();

    let collecting = Collecting {
        kernels,
        grid,
        mode,
        per_thread,
        post: 1,
        take,
        repost: true,
        stride: STRIDE,
        length: LONGEST,
        ..Collecting::default()
    };
    let mut expected = buffers.image();
    let mailbox = collecting.beside_sender(&pair, &requests, &buffers, 1 << 16, &what);
    let mut messages = mailbox.messages();
    messages.sort_by_key(|message| message.receive);
    assert_eq!(messages.len(), MESSAGES as usize, "{what}: messages");
    let mut ours = source.image();
    for (number, (message, request)) in messages.iter().zip(&requests).enumerate() {
        assert_eq!(message.receive, number as u32, "{what}: each receive once");
        let delivery = model::apply(request, &mut ours, &mut expected);
        let delivery = delivery.expect("a send brings a message");
        collecting.deliver(&buffers, &mailbox, message, &delivery, &mut expected);
    }
    buffers.check(&expected, &what);
}

/// A receiver that is late delays its peer for 10 µs.
fn rnr_in_10_us() -> QueuePairConfig {
    QueuePairConfig {
        timers: Timers {
            rnr_timer: 1,
            ..Timers::default()
        },
        ..QueuePairConfig::default()
    }
}

/// More messages than a 16-bit index counts, through a small queue.
fn wrap() {
    const COUNT: u32 = 70_000;
    let sides = Sides::chosen();
    let pair = sides.pair(&QueuePairConfig {
        receive_depth: 64,
        ..rnr_in_10_us()
    });
    let target = sides.theirs.arena(64, ALL_ACCESS, 1);
    let requests: Vec<Request> = (0..COUNT)
        .map(|number| {
            let request = Request::new(Verb::WriteImmediateOnly)
                .remote(target.remote(0))
                .immediate(number);
            match number + 1 {
                COUNT => request,
                _ => request.unsignalled(),
            }
        })
        .collect();
    // The buffers are never filled, so they may all be the same.
    let collecting = Collecting {
        per_thread: COUNT,
        post: 64,
        take: COUNT,
        repost: true,
        stride: 0,
        length: 64,
        ..Collecting::default()
    };
    let mailbox = collecting.beside_sender(&pair, &requests, &target, 1, "past the wrap");
    let messages = mailbox.messages();
    assert_eq!(messages.len(), COUNT as usize);
    for (number, message) in messages.iter().enumerate() {
        let expected = Message {
            kind: MessageKind::WriteImmediate,
            immediate: number as u32,
            bytes: 0,
            receive: number as u32 & 0xffff,
        };
        assert_eq!(*message, expected);
    }
}

/// Messages of all lengths into buffers of four pieces, up to several packets long.
fn scatter() {
    for length in [16, 50_001] {
        let whole = 4 * length;
        let lengths: Vec<u32> = if whole < 100 {
            (0..=whole).collect()
        } else {
            vec![whole, whole - 1, 65_536, 65_537, 131_072, length, 1]
        };
        let count = lengths.len() as u32;
        let sides = Sides::chosen();
        let pair = sides.pair(&QueuePairConfig {
            receive_segments: 4,
            ..QueuePairConfig::default()
        });
        let stride = whole + 40;
        let source = sides.ours.arena(whole as usize, ALL_ACCESS, 1);
        let buffers = sides.theirs.arena((stride * count) as usize, ALL_ACCESS, 2);
        let requests: Vec<Request> = lengths
            .iter()
            .map(|&length| match length {
                0 => Request::new(Verb::SendEmpty),
                _ => Request::new(Verb::Send).local(&[source.local(0, length)]),
            })
            .collect();
        let posting = Collecting {
            per_thread: count,
            post: count,
            take: count,
            stride,
            length,
            segments: 4,
            ..Collecting::default()
        };
        let mut ours = source.image();
        let mut expected = buffers.image();
        let what = format!("pieces of {length} bytes");
        let mailbox = posting.beside_sender(&pair, &requests, &buffers, count as usize, &what);
        let messages = mailbox.messages();
        assert_eq!(messages.len(), requests.len());
        for (message, request) in messages.iter().zip(&requests) {
            let delivery = model::apply(request, &mut ours, &mut expected);
            let delivery = delivery.expect("a send brings a message");
            posting.deliver(&buffers, &mailbox, message, &delivery, &mut expected);
        }
        buffers.check(&expected, &what);
    }
}

/// A message that finds no buffer waits for one, and arrives.
fn not_ready() {
    let sides = Sides::chosen();
    let pair = sides.pair(&rnr_in_10_us());
    let source = sides.ours.arena(64, ALL_ACCESS, 1);
    let buffers = sides.theirs.arena(256, ALL_ACCESS, 2);
    let untouched = buffers.image();
    let send = Request::new(Verb::Send).local(&[source.local(0, 64)]);
    let posting = Posting::with(Waiting::Each, Duration::from_millis(20));
    let queue = pair.ours.send_queue().expect("a send queue");
    let late = Ending::Failed(Failure::Wait(WaitError::Deadline));
    assert_eq!(posting.post(queue, &[send]), [late]);
    buffers.check(&untouched, "a message without a buffer");
    if let Some(counters) = sides.ours.counters(&pair.ours) {
        assert!(counters.receiver_not_ready > 0, "{counters:?}");
    }

    let collecting = Collecting {
        per_thread: 1,
        post: 1,
        take: 1,
        ..Collecting::default()
    };
    let mut expected = buffers.image();
    let mut mailbox = collecting.mailbox(1);
    let receive_queue = pair.theirs.receive_queue().expect("a receive queue");
    collecting.launch(receive_queue, &buffers, &mut mailbox);
    expect_done(&mailbox.endings(), "the receiver");
    let delivery = model::apply(&send, &mut source.image(), &mut expected);
    collecting.deliver(
        &buffers,
        &mailbox,
        &mailbox.messages()[0],
        &delivery.expect("a send brings a message"),
        &mut expected,
    );
    buffers.check(&expected, "a message that waited");
    // The queue still works.
    let nop = Request::new(Verb::Nop);
    expect_done(&Posting::default().post(queue, &[nop]), "a NOP afterwards");
}
