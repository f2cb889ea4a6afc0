//! Ctrl-C: the first one asks the kernels that run to come to their end, and ends the example with what it
//! has measured so far; the second one ends it at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use warpbell::Stop;
use warpbell_host_init::{Placement, StopWord};

use crate::run::error::{Error, Nested};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Whether it was pressed at another rank. After that, the first Ctrl-C at this rank still does not end the process at
/// once.
static ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// Words that running kernels look at.
static WORDS: Mutex<Vec<(Placement, &StopWord)>> = Mutex::new(Vec::new());

/// What a shell expects of a program that Ctrl-C has ended.
pub(crate) const ENDED_BY_CTRL_C: u8 = 130;

/// Listens for Ctrl-C from now on.
pub fn listen() {
    let listening = ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(ENDED_BY_CTRL_C.into());
        }
        stop_kernels();
    });
    // Without a handler Ctrl-C ends the program as it always did.
    let _ = listening;
}

/// Ctrl-C was pressed at another rank, which all ranks follow.
pub(crate) fn pressed_elsewhere() {
    ELSEWHERE.store(true, Ordering::Relaxed);
    stop_kernels();
}

fn stop_kernels() {
    let words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    words.iter().for_each(|(_, word)| word.request());
}

/// A stop for kernels that reach memory there, which the first Ctrl-C requests.
///
/// # Errors
/// No memory for it.
pub fn stop(placement: Placement) -> Result<Stop<'static>, Error> {
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, word)) = words.iter().find(|(there, _)| *there == placement) {
        return Ok(word.stop());
    }
    // Kernels may look at it until the process ends.
    let word: &StopWord = Box::leak(Box::new(StopWord::new(placement)?));
    words.push((placement, word));
    if requested() {
        word.request();
    }
    Ok(word.stop())
}

/// Whether Ctrl-C was pressed.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed) || ELSEWHERE.load(Ordering::Relaxed)
}

/// Ends what is under way if Ctrl-C was pressed.
///
/// # Errors
/// [`Error::Interrupted`] then.
pub fn check() -> Result<(), Error> {
    match requested() {
        true => Err(Error::Interrupted),
        false => Ok(()),
    }
}

/// Takes Ctrl-C as an end that is not wrong: whether it came.
///
/// # Errors
/// Any other error.
pub fn ended_early<E: Nested>(result: Result<(), E>) -> Result<bool, E> {
    match result {
        Ok(()) => Ok(false),
        Err(error) if matches!(error.own(), Some(Error::Interrupted)) => Ok(true),
        Err(other) => Err(other),
    }
}
