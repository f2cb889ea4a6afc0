//! Proves that a graph of kernels launches itself on a GPU, round after round, each kernel behind the one before
//! it, until a kernel or the host asks for an end.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use warpbell_host_init::cuda::{DeviceRuntime, Module, Watch};
use warpbell_hw_tests::here;
use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::run::run_on_gpu;
use warpbell_hw_tests::say::say;
use warpbell_hw_tests::turns::Turns;

const ROUNDS: u64 = 1_000;

pub fn test(machine: &Machine) -> ExitCode {
    run_on_gpu(machine, Duration::from_secs(600), |progress, module| {
        let runtime = match DeviceRuntime::load(module.gpu(), None) {
            Ok(runtime) => runtime,
            Err(error) => return say(format_args!("         left out: {error}")),
        };
        progress.step(format!("a kernel ends it after {ROUNDS} rounds"));
        a_kernel_ends_it(module, &runtime);
        progress.step("the host ends it");
        the_host_ends_it(module, &runtime);
    })
}

fn watch() -> Watch<'static> {
    Watch {
        limit: here::patient(Duration::from_secs(120)),
        asleep: false,
        queue_pairs: &[],
    }
}

fn a_kernel_ends_it(module: &Module, runtime: &DeviceRuntime) {
    let turns = Turns::new(module);
    let running = module.start_repeating(&turns.launches(2 * ROUNDS), turns.stop, runtime);
    running.expect("a graph").wait(&watch()).expect("an end");
    assert_eq!(turns.counted(), [2 * ROUNDS, 2 * ROUNDS - 1]);
}

fn the_host_ends_it(module: &Module, runtime: &DeviceRuntime) {
    let turns = Turns::new(module);
    let mut running = module
        .start_repeating(&turns.launches(u64::MAX), turns.stop, runtime)
        .expect("a graph");
    let deadline = Instant::now() + here::patient(Duration::from_secs(120));
    while turns.counted()[0] < 200 {
        assert!(!running.has_ended().expect("a graph that goes on"));
        assert!(Instant::now() < deadline, "200 counted");
    }
    turns.stop.request();
    running.wait(&watch()).expect("an end");
    let [even, odd] = turns.counted();
    assert_eq!((even % 2, odd), (0, even - 1), "whole rounds");
    assert!(even >= 200);
}
