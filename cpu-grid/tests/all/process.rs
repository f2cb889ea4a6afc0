//! What ends the process, and what it says before: each test runs itself again, in a process of its own.

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::panic::catch_unwind;
use std::process::{Command, Output};
use std::time::Duration;

use warpbell_cpu_grid::{Grid, Options, launch};
use warpbell_gpu::{Deadline, thread};

const INSIDE: &str = "WARPBELL_INSIDE";
const ABORT: Option<i32> = Some(6);
const SEGMENTATION_FAULT: Option<i32> = Some(11);

/// Thread 37 of block 1 does something, in a process of its own; gives what that said, and the signal that ended it.
fn of_one_thread(name: &str, what: impl Fn() + Sync) -> (Option<i32>, String) {
    if std::env::var_os(INSIDE).is_some() {
        let dim = Grid::new(2, 40);
        let kernel = || {
            if thread::block_idx_x() == 1 && thread::thread_idx_x() == 37 {
                what();
            }
        };
        // On a busy machine the time may be over before the thread has begun: then once more, with more of it.
        for milliseconds in [50, 500, 5_000, 50_000] {
            let options = Options {
                deadline: Some(Duration::from_millis(milliseconds)),
                ..Options::default()
            };
            eprintln!("{:?}", launch(dim, options, kernel));
        }
        panic!("the process goes on");
    }
    let Output { status, stderr, .. } = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "")
        .output()
        .unwrap();
    (status.signal(), String::from_utf8_lossy(&stderr).into())
}

/// Uses more stack the deeper it goes.
fn deeper(depth: u64) -> u64 {
    let words = black_box([depth; 64]);
    match depth {
        0 => words[0],
        _ => words[63] + deeper(depth - 1),
    }
}

#[test]
fn a_lane_that_overflows_its_stack_is_named() {
    let (signal, said) = of_one_thread("process::a_lane_that_overflows_its_stack_is_named", || {
        black_box(deeper(100_000));
    });
    assert_eq!(signal, ABORT, "{said}");
    let line = "warpbell: block 1 warp 1 lane 5 overflowed its stack of 256 KiB";
    assert!(said.contains(line), "{said}");
}

#[test]
fn any_other_fault_stays_what_it_is() {
    let (signal, said) = of_one_thread("process::any_other_fault_stays_what_it_is", || {
        // SAFETY: none: the fault is the test.
        unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
    });
    assert_eq!(signal, SEGMENTATION_FAULT, "{said}");
    assert!(!said.contains("overflowed"), "{said}");
}

#[test]
fn a_lane_that_keeps_all_that_it_catches_is_named() {
    let (signal, said) = of_one_thread(
        "process::a_lane_that_keeps_all_that_it_catches_is_named",
        || {
            loop {
                std::mem::forget(catch_unwind(|| {
                    let mut wait = Deadline::after_ms(3_600_000).wait();
                    while !wait.expired() {}
                }));
            }
        },
    );
    assert_eq!(signal, ABORT, "{said}");
    let line = "warpbell: block 1 warp 1 lane 5 has caught the end of its launch 1000 times";
    assert!(said.contains(line), "{said}");
}
