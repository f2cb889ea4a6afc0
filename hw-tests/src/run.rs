//! A test's frame.

use std::process::exit;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What a test is at, for the reader and for the watchdog.
#[derive(Clone, Debug)]
pub struct Progress {
    started: Instant,
    at: Arc<Mutex<String>>,
}

impl Progress {
    /// Prints a line for the next step of the test.
    pub fn step(&self, what: impl Into<String>) {
        let what = what.into();
        println!("{:6.2} s  {what}", self.started.elapsed().as_secs_f64());
        *self.at() = what;
    }

    fn at(&self) -> MutexGuard<'_, String> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs a test that panics where it fails. A test that is not done within `deadline` ends the process, with
/// the step that it was at.
pub fn run(deadline: Duration, test: impl FnOnce(&Progress)) {
    let progress = Progress {
        started: Instant::now(),
        at: Arc::default(),
    };
    let watched = progress.clone();
    thread::spawn(move || {
        thread::sleep(deadline);
        eprintln!("not done after {deadline:?}, at: {}", watched.at());
        exit(1);
    });
    test(&progress);
    println!("Test OK");
}
