//! Proves that a wire which drops, delays and doubles packets, by many seeds and in both directions, changes
//! nothing but the time: every byte arrives, every atomic happens once, every message comes once and in order.

use std::process::ExitCode;
use std::time::Duration;

use warpbell_host_init::{QueuePairConfig, Timers};
use warpbell_hw_tests::collect::Collecting;
use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::model;
use warpbell_hw_tests::post::expect_done;
use warpbell_hw_tests::run::run;
use warpbell_hw_tests::sides::{ALL_ACCESS, Sides};
use warpbell_kernels::suite::{Request, Verb};
use warpbell_soft_hca::engine::fault::{Rates, Seeded};
use warpbell_soft_hca::shell::Faults;

/// Rounds of all verbs under one seed; a message of several packets is among them.
const ROUNDS: u32 = 20;
/// Seeds of each kind of faults.
const SEEDS: u64 = 6;
/// Bytes that a round has to itself at each end.
const CELL: u32 = 200_000;
const LONG: u32 = 150_000;

pub fn test(machine: &Machine) -> ExitCode {
    run(machine, Duration::from_secs(600), |progress| {
        let kinds = [
            ("dropped", rates(60, 0, 0)),
            ("delayed", rates(0, 60, 0)),
            ("doubled", rates(0, 0, 60)),
            ("all of it", rates(30, 30, 30)),
        ];
        for (what, rates) in kinds {
            progress.step_with_orders(&format!("6 to 9 of 100 packets: {what}"), || {
                let retries: u64 = (0..SEEDS).map(|seed| under_faults(seed, rates)).sum();
                assert!(retries > 0, "no fault has shown");
            });
        }
    })
}

fn rates(drop: u32, delay: u32, duplicate: u32) -> Rates {
    Rates {
        drop,
        delay,
        duplicate,
        longest_delay: 40,
    }
}

/// Everything once under one seed; gives how often packets were sent again.
fn under_faults(seed: u64, rates: Rates) -> u64 {
    let faults = |side: u64| Some(Faults::new(Seeded::new(2 * seed + side, rates)));
    let sides = Sides::faulty(faults(0), faults(1));
    let pair = sides.pair(&QueuePairConfig {
        timers: Timers {
            // 4 ms, and as many retries as there are, of which what the peer says it misses takes some.
            acknowledge_timeout: 10,
            ..Timers::default()
        },
        ..QueuePairConfig::default()
    });
    let ours = sides.ours.arena((ROUNDS * CELL) as usize, ALL_ACCESS, seed);
    let theirs = sides
        .theirs
        .arena((ROUNDS * CELL) as usize, ALL_ACCESS, seed + 100);
    let requests: Vec<Request> = (0..ROUNDS)
        .flat_map(|round| {
            let at = i64::from(round * CELL);
            let here = |offset: i64, length| [ours.local(at + offset, length)];
            let there = |request: Request, offset: i64| request.remote(theirs.remote(at + offset));
            let add = |request: Request| {
                request
                    .local(&here(160_000, 8))
                    .remote(theirs.remote(0))
                    .values([3, 0, 0, 0])
            };
            [
                there(Request::new(Verb::Write).local(&here(8, LONG)), 8),
                add(Request::new(Verb::FetchAdd)),
                there(
                    Request::new(Verb::Read).local(&here(170_000, 20_000)),
                    160_000,
                ),
                Request::new(Verb::Send).local(&here(16, 1000 + round)),
                add(Request::new(Verb::FetchAdd)),
                there(Request::new(Verb::WriteImmediate), 180_000)
                    .local(&here(100, 5000))
                    .immediate(round),
            ]
        })
        .collect();

    let messages = 2 * ROUNDS;
    let collecting = Collecting {
        per_thread: messages,
        take: messages,
        stride: 1100,
        length: 1050,
        ..Collecting::default()
    };
    let buffers = sides
        .theirs
        .arena((messages * 1100) as usize, ALL_ACCESS, seed + 200);
    let mut expected = (ours.image(), theirs.image(), buffers.image());
    let what = format!("seed {seed}, {rates:?}");
    let receives = messages as usize;
    // Before the first message leaves. A receiver that is not ready gives no retries back, so losses during a wait for it
    // would use them up.
    let mut posted = collecting.mailbox(receives);
    let posting = Collecting {
        post: messages,
        take: 0,
        ..collecting
    };
    let queue = pair.theirs.receive_queue().expect("a receive queue");
    posting.launch(queue, &buffers, &mut posted);
    expect_done(&posted.endings(), &format!("{what}: receives"));
    let mailbox = collecting.beside_sender(&pair, &requests, &buffers, receives, &what);
    let mut arrived = mailbox.messages().into_iter();
    for request in &requests {
        let delivery = model::apply(request, &mut expected.0, &mut expected.1);
        if let Some(delivery) = delivery {
            let message = arrived.next().expect("as many messages as sent");
            collecting.deliver(&buffers, &posted, &message, &delivery, &mut expected.2);
        }
    }
    assert_eq!(arrived.next(), None, "{what}: a message too many");
    ours.check(&expected.0, &what);
    theirs.check(&expected.1, &what);
    buffers.check(&expected.2, &what);
    let ours = sides.ours.counters(&pair.ours).expect("counters");
    let theirs = sides.theirs.counters(&pair.theirs).expect("counters");
    ours.retries + theirs.duplicates
}
