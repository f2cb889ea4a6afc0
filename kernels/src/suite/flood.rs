//! A kernel in which every thread pushes as much as it can through one queue.

use warpbell::wqe::{Local, LocalKey, Remote, RemoteKey, Wqe};
use warpbell::{Deadline, Scope, SendQueueHandle, Sharing, kernel, thread};

use super::arguments::{Kernel, Output};
use super::ending::{Ending, EndingWords};
use super::mode::{Mode, by_mode};
use crate::outcome::Failure;

/// What each thread of a flood writes and counts, and where.
///
/// Value number r of thread t goes to `values + 8 · (t · rounds + r)` and is [`value`](Self::value); a write that
/// came twice would not show, so each round also adds 1 to the counter at `counters + 8 · t`, as an atomic
/// that must happen exactly once.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pour<'a> {
    /// How often.
    pub rounds: u32,
    /// How long each post and each wait may take, in nanoseconds.
    pub patience_ns: u64,
    /// Address of the values at the other end.
    pub values: u64,
    /// Address of the counters at the other end.
    pub counters: u64,
    /// Remote key of both.
    pub remote_key: u32,
    /// Local key of `found`.
    pub local_key: u32,
    /// Address of 8 local bytes for each thread, where its counter's old value goes.
    pub found: u64,
    /// How each thread fared.
    pub endings: Output<'a, EndingWords>,
}

impl Pour<'_> {
    /// What thread `thread` writes in round `round`: never 0, and the same for no two.
    pub const fn value(thread: u32, round: u32) -> u64 {
        (thread as u64 + 1) << 32 | round as u64
    }

    pub(super) fn patience(&self) -> Deadline {
        Deadline::after_ns(self.patience_ns)
    }

    /// Both requests of this thread in a round.
    #[inline(always)]
    pub(super) fn requests(&self, round: u32) -> (Wqe<1>, Wqe<1>) {
        let thread = thread::index();
        let place = u64::from(thread) * u64::from(self.rounds) + u64::from(round);
        let at = |address| Remote {
            address,
            key: RemoteKey(self.remote_key),
        };
        let found = Local {
            address: self.found + 8 * u64::from(thread),
            length: 8,
            key: LocalKey(self.local_key),
        };
        let counter = at(self.counters + 8 * u64::from(thread));
        (
            Wqe::write_value(Self::value(thread, round), at(self.values + 8 * place)),
            Wqe::fetch_add(found, counter, 1),
        )
    }

    /// Tells how this thread fared.
    pub(super) fn end(&self, result: Result<(), Failure>) {
        // SAFETY: each thread has a place of its own.
        unsafe {
            self.endings
                .write(thread::index().into(), Ending::from(result).into());
        };
    }
}

/// Every thread writes a value of its own for each round, and counts the round at the other end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Flood<'a> {
    /// Where to post.
    pub queue: SendQueueHandle<'a>,
    /// How to open it.
    pub mode: Mode,
    /// What each thread does.
    pub pour: Pour<'a>,
}

impl Kernel for Flood<'_> {
    #[cfg(not(target_arch = "nvptx64"))]
    const ENTRY: warpbell::Entry<fn(Self)> = suite_flood::ENTRY;

    fn run(&self) {
        self.pour.end(by_mode!(self.mode, flood(self)));
    }
}

/// Runs [`Flood`].
#[kernel]
pub fn suite_flood(kernel: Flood<'_>) {
    kernel.run();
}

fn flood<S: Sharing, C: Scope>(kernel: &Flood<'_>) -> Result<(), Failure> {
    // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
    let mut queue = unsafe { kernel.queue.open_together::<S, C>() }?;
    let patience = kernel.pour.patience();
    for round in 0..kernel.pour.rounds {
        let (value, add) = kernel.pour.requests(round);
        let _ = queue.post(value, patience)?;
        let _ = queue.post(add, patience)?;
    }
    Ok(queue.drain(patience)?)
}
