//! A launch that goes wrong ends, says where, and leaves nothing behind.

use std::panic::{catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use warpbell_cpu_grid::{
    Doing, Grid, LaneOrder, LaneReport, LaunchError, MAX_WARPS, Options, launch,
};
use warpbell_gpu::cpu::{BlockOp, WarpOp};
use warpbell_gpu::{Deadline, block, shared_array, thread, warp};

const ORDERS: [LaneOrder; 4] = [
    LaneOrder::Ascending,
    LaneOrder::Descending,
    LaneOrder::Random(1),
    LaneOrder::Random(2),
];

/// Launches with each order and gives the errors; a launch that would hang ends with another error.
fn failures(dim: Grid, kernel: impl Fn() + Sync) -> Vec<LaunchError> {
    let run = |order| {
        let options = Options {
            order,
            deadline: Some(Duration::from_secs(300)),
        };
        launch(dim, options, &kernel).expect_err("the launch goes wrong")
    };
    ORDERS.into_iter().map(run).collect()
}

/// The lanes of a divergence.
fn diverged(error: &LaunchError) -> &[LaneReport] {
    match error {
        LaunchError::Diverged(lanes) => lanes,
        other => panic!("{other}"),
    }
}

/// Waits in a loop for something that never comes.
fn wait_in_vain() {
    let mut wait = Deadline::after_ms(3_600_000).wait();
    while !wait.expired() {}
}

#[test]
fn sizes_that_no_grid_has() {
    for (blocks, threads_per_block) in [(0, 32), (1, 0), (1, 1025)] {
        let error = launch(
            Grid::new(blocks, threads_per_block),
            Options::default(),
            || panic!("not run"),
        );
        let Err(LaunchError::Dimensions {
            blocks: b,
            threads: t,
        }) = error
        else {
            panic!("{error:?}")
        };
        assert_eq!((b, t), (blocks, threads_per_block));
    }
    for (blocks, threads_per_block, warps) in
        [(MAX_WARPS + 1, 1, MAX_WARPS + 1), (u32::MAX, 1024, 0)]
    {
        let error = launch(
            Grid::new(blocks, threads_per_block),
            Options::default(),
            || panic!("not run"),
        );
        let Err(LaunchError::TooManyWarps { warps: found, .. }) = error else {
            panic!("{error:?}")
        };
        assert!(
            found == u64::from(warps) || blocks == u32::MAX && found == u64::from(u32::MAX) * 32
        );
    }
}

#[test]
fn the_largest_grid_runs() {
    let threads = AtomicU32::new(0);
    let dim = Grid::new(MAX_WARPS / 32, 1024);
    launch(dim, Options::default(), || {
        block::sync();
        threads.fetch_add(1, Ordering::Relaxed);
    })
    .unwrap();
    assert_eq!(threads.into_inner(), MAX_WARPS * 32);
}

#[test]
fn a_panic_names_its_lane() {
    let dim = Grid::new(3, 70);
    for error in failures(dim, || {
        if thread::block_idx_x() == 2 && thread::thread_idx_x() == 37 {
            panic!("slot {} is taken", 40 + 2);
        }
        // The others wait in each way there is: for their warp, their block, and in a loop.
        match thread::block_idx_x() {
            0 => wait_in_vain(),
            1 if thread::thread_idx_x() == 69 => wait_in_vain(),
            1 => block::sync(),
            _ => warp::sync(),
        }
        wait_in_vain();
    }) {
        let LaunchError::Panicked {
            block,
            warp,
            lane,
            message,
        } = error
        else {
            panic!("{error}")
        };
        assert_eq!(
            (block, warp, lane, message.as_str()),
            (2, 1, 5, "slot 42 is taken")
        );
    }
}

#[test]
fn a_failed_launch_drops_what_its_lanes_hold() {
    struct Held<'a>(&'a AtomicU32);
    impl Drop for Held<'_> {
        fn drop(&mut self) {
            // Even what waits and meets while it is dropped does not hang.
            wait_in_vain();
            warp::sync();
            block::broadcast(1);
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let held = AtomicU32::new(0);
    let dim = Grid::new(2, 40);
    failures(dim, || {
        held.fetch_add(1, Ordering::Relaxed);
        let _held = Held(&held);
        assert!(thread::index() != 50, "one lane fails");
        wait_in_vain();
    });
    assert_eq!(held.into_inner(), 0);
}

#[test]
fn a_kernel_that_catches_its_end_ends() {
    let dim = Grid::new(2, 33);
    let options = Options {
        deadline: Some(Duration::from_millis(50)),
        ..Options::default()
    };
    let held = AtomicU32::new(0);
    let kernel = || {
        struct Held<'a>(&'a AtomicU32);
        impl Drop for Held<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        held.fetch_add(1, Ordering::Relaxed);
        let _held = Held(&held);
        // One catches in loops within loops, others once, and keep it for a while.
        match thread::index() % 3 {
            0 => loop {
                let _ = catch_unwind(|| {
                    loop {
                        let _ = catch_unwind(wait_in_vain);
                    }
                });
            },
            1 => {
                let kept = catch_unwind(wait_in_vain);
                warp::sync();
                assert!(kept.is_ok(), "not come to");
            }
            _ => {
                let caught = catch_unwind(wait_in_vain);
                std::mem::forget(caught);
                wait_in_vain();
            }
        }
    };
    let error = launch(dim, options, kernel).unwrap_err();
    let LaunchError::TimedOut { lanes, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(lanes.len(), 66);
    assert_eq!(held.into_inner(), 0);
}

#[test]
fn a_panic_that_a_kernel_catches_is_its_own() {
    let dim = Grid::new(1, 33);
    let caught = AtomicU32::new(0);
    launch(dim, Options::default(), || {
        let panic = catch_unwind(|| resume_unwind(Box::new(7u32)));
        block::sync();
        let number = panic.unwrap_err().downcast::<u32>().unwrap();
        caught.fetch_add(*number, Ordering::Relaxed);
    })
    .unwrap();
    assert_eq!(caught.into_inner(), 7 * 33);
}

#[test]
fn the_first_failure_is_the_one_reported() {
    struct Tells<'a>(&'a AtomicU32);
    impl Drop for Tells<'_> {
        fn drop(&mut self) {
            self.0.store(1, Ordering::Release);
        }
    }
    let dim = Grid::new(2, 2);
    let stopped = AtomicU32::new(0);
    let error = launch(dim, Options::default(), || match thread::index() {
        0 => {
            let _tells = Tells(&stopped);
            wait_in_vain();
        }
        1 => panic!("first"),
        2 => {
            // Takes no turn of waiting, so that it goes on after the launch has failed.
            while stopped.load(Ordering::Acquire) == 0 {
                std::hint::spin_loop();
            }
            panic!("second");
        }
        _ => {}
    })
    .unwrap_err();
    assert!(
        error.to_string().ends_with("lane 1 panicked: first"),
        "{error}"
    );
}

#[test]
fn a_lane_that_has_exited_is_missed() {
    let dim = Grid::new(1, 64);
    for error in failures(dim, || {
        if thread::thread_idx_x() != 35 {
            warp::rank_and_count(true);
        }
    }) {
        let lanes = diverged(&error);
        let exited: Vec<_> = lanes
            .iter()
            .filter(|lane| lane.doing == Doing::Exited)
            .collect();
        assert_eq!(exited.len(), 1, "{error}");
        assert_eq!((exited[0].block, exited[0].warp, exited[0].lane), (0, 1, 3));
        let waits = Doing::AtWarp {
            op: WarpOp::Vote,
            mask: u32::MAX,
        };
        assert!(lanes.iter().any(|lane| lane.doing == waits), "{error}");
    }
}

#[test]
fn different_operations_do_not_meet() {
    let dim = Grid::new(1, 3);
    for error in failures(dim, || match warp::lane_id() {
        0 => warp::sync(),
        1 => assert_eq!(warp::broadcast(1), 1),
        _ => wait_in_vain(),
    }) {
        let of = |lane: usize| diverged(&error)[lane].doing;
        assert_eq!(
            of(0),
            Doing::AtWarp {
                op: WarpOp::Sync,
                mask: 7
            }
        );
        assert_eq!(
            of(1),
            Doing::AtWarp {
                op: WarpOp::ShuffleIdx,
                mask: 7
            }
        );
    }
}

#[test]
fn masks_that_wait_for_each_other_in_a_ring() {
    let dim = Grid::new(1, 4);
    for error in failures(dim, || {
        let lane = warp::lane_id();
        if lane == 3 {
            wait_in_vain();
        }
        // SAFETY: none: the breach is the test.
        unsafe { warp::sync_warp(1 << lane | 1 << ((lane + 1) % 3)) };
    }) {
        assert_eq!(
            diverged(&error)
                .iter()
                .map(|lane| lane.lane)
                .collect::<Vec<_>>(),
            [0, 1, 2]
        );
    }
}

#[test]
fn masks_may_be_met_one_after_the_other() {
    for order in ORDERS {
        let dim = Grid::new(1, 3);
        launch(
            dim,
            Options {
                order,
                ..Options::default()
            },
            || {
                let lane = warp::lane_id();
                // SAFETY: each pair of lanes comes to its mask, in an order that every lane keeps.
                unsafe {
                    if lane != 2 {
                        warp::sync_warp(0b011);
                    }
                    if lane != 0 {
                        warp::sync_warp(0b110);
                    }
                    if lane != 1 {
                        warp::sync_warp(0b101);
                    }
                }
            },
        )
        .unwrap();
    }
}

#[test]
fn a_lane_outside_of_its_mask() {
    let dim = Grid::new(1, 4);
    for error in failures(dim, || {
        // SAFETY: none: the breach is the test.
        unsafe { warp::sync_warp(0b0111) };
    }) {
        assert!(
            diverged(&error).iter().any(|lane| lane.lane == 3),
            "{error}"
        );
    }
}

#[test]
fn a_mask_with_lanes_that_the_block_has_not() {
    let dim = Grid::new(1, 40);
    for error in failures(dim, || {
        if thread::thread_idx_x() >= 32 {
            // SAFETY: none: the breach is the test.
            unsafe { warp::sync_warp(u32::MAX) };
        }
    }) {
        let missing = diverged(&error)
            .iter()
            .filter(|lane| lane.doing == Doing::Missing)
            .count();
        assert_eq!(missing, 24, "{error}");
    }
}

#[test]
fn a_lane_at_the_block_is_missed_by_its_warp() {
    let dim = Grid::new(1, 96);
    for error in failures(dim, || {
        if thread::thread_idx_x() == 40 {
            warp::sync()
        } else {
            block::sync()
        }
    }) {
        let doing = |lane: u32| {
            diverged(&error)
                .iter()
                .find(|report| report.lane == lane)
                .map(|report| report.doing)
        };
        assert_eq!(
            doing(8),
            Some(Doing::AtWarp {
                op: WarpOp::Sync,
                mask: u32::MAX
            }),
            "{error}"
        );
        assert!(
            diverged(&error)
                .iter()
                .any(|lane| lane.doing == Doing::AtBlock(BlockOp::Sync)),
            "{error}"
        );
    }
}

#[test]
fn different_operations_of_a_block_do_not_meet() {
    let dim = Grid::new(1, 64);
    for error in failures(dim, || {
        if thread::thread_idx_x() == 33 {
            block::sync();
        } else {
            block::broadcast(0);
        }
    }) {
        let mut doing: Vec<_> = diverged(&error).iter().map(|lane| lane.doing).collect();
        doing.sort_by_key(|doing| *doing == Doing::AtBlock(BlockOp::Sync));
        assert_eq!(
            doing,
            [
                Doing::AtBlock(BlockOp::Broadcast),
                Doing::AtBlock(BlockOp::Sync)
            ]
        );
    }
}

#[test]
fn a_broadcast_needs_every_thread() {
    let dim = Grid::new(1, 64);
    for error in failures(dim, || {
        if thread::thread_idx_x() != 33 {
            block::broadcast(0);
        }
    }) {
        let exited = diverged(&error)
            .iter()
            .find(|lane| lane.doing == Doing::Exited)
            .expect("the exited one");
        assert_eq!((exited.warp, exited.lane), (1, 1));
    }
}

#[test]
fn time_is_up() {
    let doing = |index: usize| {
        if index < 31 {
            Doing::AtBlock(BlockOp::Sync)
        } else {
            Doing::Running
        }
    };
    let expected: Vec<_> = (0..33)
        .map(|index| LaneReport {
            block: 1,
            warp: index as u32 / 32,
            lane: index as u32 % 32,
            doing: doing(index),
        })
        .collect();
    // On a busy machine lanes may still be on their way there when the time is over: then once more, with more of it.
    let mut lanes = Vec::new();
    for milliseconds in [50, 500, 5_000, 50_000] {
        lanes = lanes_when_time_is_up(Duration::from_millis(milliseconds));
        if lanes == expected {
            break;
        }
    }
    assert_eq!(lanes, expected);
}

/// What the lanes are doing after this time: two of block 1 go on for ever, its others wait for them, and block 0 ends.
fn lanes_when_time_is_up(deadline: Duration) -> Vec<LaneReport> {
    let dim = Grid::new(2, 33);
    let options = Options {
        deadline: Some(deadline),
        ..Options::default()
    };
    let error = launch(dim, options, || match thread::index() {
        64 => wait_in_vain(),
        65 => loop {
            // No turn of waiting, but a look at the clock.
            Deadline::after_ns(0).fixed();
        },
        33.. => block::sync(),
        _ => {}
    })
    .unwrap_err();
    let LaunchError::TimedOut { after, lanes } = error else {
        panic!("{error}")
    };
    assert_eq!(after, deadline);
    lanes
}

#[test]
fn kernels_do_not_launch() {
    let dim = Grid::new(1, 1);
    launch(dim, Options::default(), || {
        let inner = launch(dim, Options::default(), || ());
        assert!(matches!(inner, Err(LaunchError::InsideKernel)));
    })
    .unwrap();
}

#[test]
fn errors_say_it_in_words() {
    let report = |lane| LaneReport {
        block: 0,
        warp: 1,
        lane,
        doing: Doing::Exited,
    };
    let error = LaunchError::Diverged((0..10).map(report).collect());
    let text = error.to_string();
    assert!(
        text.starts_with("lanes that do not meet: block 0 warp 1 lane 0 has exited, "),
        "{text}"
    );
    assert!(text.ends_with("lane 7 has exited, and 2 more"), "{text}");
}

#[test]
fn more_shared_memory_than_a_gpu_has_is_a_panic() {
    let dim = Grid::new(1, 1);
    let error = launch(dim, Options::default(), || {
        let _ = (
            shared_array![u64; 4096],
            shared_array![u64; 2048],
            shared_array![u8; 1],
        );
    });
    let Err(LaunchError::Panicked { message, .. }) = error else {
        panic!("{error:?}");
    };
    assert!(message.contains("has 49152 and uses 49152"), "{message}");
}
