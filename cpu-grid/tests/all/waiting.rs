//! Lanes that wait for each other in loops, and threads outside of a launch.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use warpbell_cpu_grid::{Grid, LaneOrder, Options, launch};
use warpbell_gpu::{Deadline, block, thread, warp};

const ORDERS: [LaneOrder; 3] = [
    LaneOrder::Ascending,
    LaneOrder::Descending,
    LaneOrder::Random(3),
];

/// Waits until `ready`, as a queue does.
fn wait_until(ready: impl Fn() -> bool) {
    let mut wait = Deadline::after_ms(300_000).wait();
    while !ready() {
        assert!(!wait.expired(), "nobody came");
    }
}

/// Each thread of two blocks waits for the one before it, against the lane order and with it.
#[test]
fn a_waiting_lane_lets_another_release_it() {
    for order in ORDERS {
        for backwards in [false, true] {
            let dim = Grid::new(2, 65);
            let turn = AtomicU32::new(0);
            launch(
                dim,
                Options {
                    order,
                    ..Options::default()
                },
                || {
                    let index = thread::index();
                    let place = if backwards { 129 - index } else { index };
                    wait_until(|| turn.load(Ordering::Acquire) == place);
                    turn.store(place + 1, Ordering::Release);
                },
            )
            .unwrap();
            assert_eq!(turn.into_inner(), 130);
        }
    }
}

/// A lane in a loop is no reason for the others' meeting to wait.
#[test]
fn lanes_meet_while_another_waits() {
    for order in ORDERS {
        let dim = Grid::new(1, 32);
        let met = AtomicBool::new(false);
        launch(
            dim,
            Options {
                order,
                ..Options::default()
            },
            || {
                if warp::lane_id() == 7 {
                    wait_until(|| met.load(Ordering::Acquire));
                } else {
                    // SAFETY: all lanes but 7 come here.
                    let votes = unsafe { warp::warp_vote_ballot(!(1 << 7), true) };
                    assert_eq!(votes, !(1 << 7));
                    met.store(true, Ordering::Release);
                }
                warp::sync();
            },
        )
        .unwrap();
    }
}

/// What is written before a barrier is seen after it, phase after phase.
#[test]
fn barriers_back_to_back() {
    const THREADS: u32 = 100;
    for order in ORDERS {
        let dim = Grid::new(2, THREADS);
        let cells: Vec<AtomicU32> = (0..2 * THREADS).map(|_| AtomicU32::new(0)).collect();
        launch(
            dim,
            Options {
                order,
                ..Options::default()
            },
            || {
                let block = thread::block_idx_x() * THREADS;
                let thread = thread::thread_idx_x();
                for phase in 1..=50 {
                    cells[(block + thread) as usize].store(phase, Ordering::Relaxed);
                    block::sync();
                    let neighbour = block + (thread + phase) % THREADS;
                    assert_eq!(cells[neighbour as usize].load(Ordering::Relaxed), phase);
                    block::sync();
                }
            },
        )
        .unwrap();
    }
}

/// The order in which the lanes of a warp leave a turn of waiting.
fn trace(order: LaneOrder) -> Vec<u32> {
    let trace = Mutex::new(Vec::new());
    let dim = Grid::new(1, 8);
    launch(
        dim,
        Options {
            order,
            ..Options::default()
        },
        || {
            for _ in 0..4 {
                trace.lock().unwrap().push(warp::lane_id());
                thread::nanosleep(1);
            }
        },
    )
    .unwrap();
    trace.into_inner().unwrap()
}

#[test]
fn lane_orders() {
    assert_eq!(
        trace(LaneOrder::Ascending),
        (0..32).map(|turn| turn % 8).collect::<Vec<_>>()
    );
    assert_eq!(
        trace(LaneOrder::Descending),
        (0..32).map(|turn| 7 - turn % 8).collect::<Vec<_>>()
    );
    assert_eq!(
        trace(LaneOrder::Random(5)),
        trace(LaneOrder::Random(5)),
        "the same seed, the same order"
    );
    assert_ne!(trace(LaneOrder::Random(5)), trace(LaneOrder::Random(6)));
}

/// Outside of a launch a thread is a grid of one thread with the real clock, also after and during one.
#[test]
fn outside_of_a_launch() {
    let alone = || {
        assert_eq!(
            (thread::index(), thread::grid_dim_x(), block::size()),
            (0, 1, 1)
        );
        assert_eq!((warp::full_mask(), warp::rank_and_count(true)), (1, (0, 1)));
        assert_eq!(
            (block::broadcast(9), block::rank_and_count(false)),
            (9, (0, 0))
        );
        let start = std::time::Instant::now();
        let mut wait = Deadline::after_us(200).wait();
        while !wait.expired() {}
        assert!(start.elapsed().as_micros() >= 200);
    };
    launch(Grid::new(1, 40), Options::default(), || {
        block::sync();
        if thread::first() {
            std::thread::scope(|scope| scope.spawn(alone).join()).unwrap();
        }
        block::sync();
    })
    .unwrap();
    alone();
}
