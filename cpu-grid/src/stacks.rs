//! Stacks of lanes, kept for the next launch.

use std::io;
use std::sync::{Mutex, PoisonError};

use corosensei::stack::DefaultStack;

/// Address space of a stack; memory is used only as far as a lane has come. A panic's backtrace is
/// written on it too. Past its end lies a page that nobody may touch.
pub(crate) const STACK_BYTES: usize = 256 << 10;

/// How many stacks are kept at most.
const KEPT: usize = 4096;

static POOL: Mutex<Vec<DefaultStack>> = Mutex::new(Vec::new());

/// A stack, from the pool if there is one.
pub(crate) fn take() -> io::Result<DefaultStack> {
    let pooled = POOL.lock().unwrap_or_else(PoisonError::into_inner).pop();
    pooled.map_or_else(|| DefaultStack::new(STACK_BYTES), Ok)
}

/// Gives a stack back.
pub(crate) fn give_back(stack: DefaultStack) {
    let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
    if pool.len() < KEPT {
        pool.push(stack);
    }
}
