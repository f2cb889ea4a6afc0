//! A test's frame.

use std::process::{ExitCode, exit};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use warpbell_host_init::Kernels;
use warpbell_host_init::cuda::Module;

use crate::here;
use crate::machine::{Machine, Unable};
use crate::say::say;

/// What a test is at, for the reader and for the watchdog.
#[derive(Clone, Debug)]
pub struct Progress {
    started: Instant,
    /// Empty until the first step.
    at: Arc<Mutex<String>>,
}

impl Progress {
    /// Prints a line for the next step of the test.
    pub fn step(&self, what: impl Into<String>) {
        let what = what.into();
        say(format_args!(
            "{:6.2} s  {what}",
            self.started.elapsed().as_secs_f64()
        ));
        *self.at() = what;
    }

    /// The same for a step that gives orders to the HCA itself (stop, stumble, stand still), which only a
    /// CPU thread takes; says so where it is left out.
    pub fn step_with_orders(&self, what: &str, step: impl FnOnce()) {
        if !here::takes_orders() {
            return self.leave_out(what, "this NIC takes no orders");
        }
        self.step(what);
        step();
    }

    /// Says that a step is left out, and why.
    fn leave_out(&self, what: &str, why: &str) {
        say(format_args!("         left out, because {why}: {what}"));
    }

    fn at(&self) -> MutexGuard<'_, String> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a test that panics where it fails, on this machine. A test that is not done within
/// `deadline` ends the process, with the step that it was at; one whose hardware is not there says so.
pub fn run(machine: &Machine, deadline: Duration, test: impl FnOnce(&Progress)) -> ExitCode {
    match machine.open() {
        Ok(()) => {}
        Err(Unable::Missing(why)) => return skip(&why),
        Err(Unable::Wrong(why)) => {
            eprintln!("error: {why}");
            return ExitCode::FAILURE;
        }
    }
    let progress = Progress {
        started: Instant::now(),
        at: Arc::default(),
    };
    let watched = progress.clone();
    thread::spawn(move || {
        let deadline = here::patient(deadline);
        thread::sleep(deadline);
        eprintln!("not done after {deadline:?}, at: {}", watched.at());
        exit(1);
    });
    test(&progress);
    if progress.at().is_empty() {
        return skip("every step of it was left out");
    }
    say("Test OK");
    ExitCode::SUCCESS
}

/// The end of a test that cannot be run here.
fn skip(why: &str) -> ExitCode {
    say(format_args!("Skipped: {why}"));
    ExitCode::SUCCESS
}

/// As [`run`], for a test of kernels that are threads of this process.
pub fn run_on_cpu(machine: &Machine, deadline: Duration, test: impl FnOnce(&Progress)) -> ExitCode {
    match machine.is_cpu() {
        true => run(machine, deadline, test),
        false => skip("it looks into kernels that are threads of its process"),
    }
}

/// As [`run`], for a test of what only a GPU does.
pub fn run_on_gpu(
    machine: &Machine,
    deadline: Duration,
    test: impl FnOnce(&Progress, &'static Module),
) -> ExitCode {
    run(machine, deadline, |progress| match here::kernels() {
        Kernels::Gpu(module) => test(progress, module),
        Kernels::Cpu(_) => say("         left out: it is about what only a GPU does"),
    })
}
