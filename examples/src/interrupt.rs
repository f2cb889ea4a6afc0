//! Ctrl-C: the first one lets the kernels that run come to their end, and ends the example with what it has
//! measured so far; the second one ends it at once.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::Error;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// What a shell expects of a program that Ctrl-C has ended.
const ENDED_BY_CTRL_C: i32 = 130;

/// Listens for Ctrl-C from now on.
pub fn listen() {
    let listening = ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::Relaxed) {
            std::process::exit(ENDED_BY_CTRL_C);
        }
    });
    // Without a handler Ctrl-C ends the program as it always did.
    let _ = listening;
}

/// Whether Ctrl-C was pressed.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
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
pub fn ended_early(result: Result<(), Error>) -> Result<bool, Error> {
    match result {
        Ok(()) => Ok(false),
        Err(Error::Interrupted) => Ok(true),
        Err(other) => Err(other),
    }
}
