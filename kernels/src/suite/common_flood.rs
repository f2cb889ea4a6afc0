//! A kernel whose queues have one completion queue in common.

use warpbell::wqe::{Local, LocalKey, Remote, RemoteKey, Wqe};
use warpbell::{
    Block, CompletionQueueHandle, Deadline, Exclusive, Scope, SendQueueHandle, Slice, Thread, Warp,
    block, kernel, thread,
};

use super::arguments::{Kernel, Output};
use super::ending::{Ending, EndingWords};
use super::flood::Flood;
use super::mode::ScopeKind;
use crate::outcome::Failure;

/// Every thread (or warp, or block) has a queue of its own, and all have one completion queue. Each thread writes and
/// counts as in a [`Flood`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CommonFlood<'a> {
    /// The completion queue.
    pub completions: CompletionQueueHandle<'a>,
    /// Its queues, one for each scope of the grid.
    pub queues: Slice<'a, SendQueueHandle<'a>>,
    /// Who has a queue.
    pub scope: ScopeKind,
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

impl Kernel for CommonFlood<'_> {
    #[cfg(not(target_arch = "nvptx64"))]
    const ENTRY: warpbell::Entry<fn(Self)> = suite_common_flood::ENTRY;

    fn run(&self) {
        let warps = block::size().div_ceil(thread::warp_size());
        let warp = block::thread_index() / thread::warp_size();
        let result = match self.scope {
            ScopeKind::Thread => self.pour::<Thread>(thread::index()),
            ScopeKind::Warp => self.pour::<Warp>(block::index() * warps + warp),
            ScopeKind::Block => self.pour::<Block>(block::index()),
        };
        // SAFETY: each thread has a place of its own.
        unsafe {
            self.endings
                .write(thread::index().into(), Ending::from(result).into());
        };
    }
}

/// Runs [`CommonFlood`].
#[kernel]
pub fn suite_common_flood(kernel: CommonFlood<'_>) {
    kernel.run();
}

impl CommonFlood<'_> {
    fn pour<C: Scope>(&self, queue: u32) -> Result<(), Failure> {
        let Some(handle) = self.queues.get(queue.into()) else {
            return Ok(());
        };
        // SAFETY: all threads of the scope run this with the same parameters, and make all calls together.
        let mut queue = unsafe { handle.open_together::<Exclusive, C>() }?;
        // SAFETY: as above.
        let mut completions = unsafe { self.completions.open_together::<C>() }?;
        let thread = thread::index();
        let patience = Deadline::after_ns(self.patience_ns);
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
        for round in 0..self.rounds {
            let place = u64::from(thread) * u64::from(self.rounds) + u64::from(round);
            let value = Flood::value(thread, round);
            let value = Wqe::write_value(value, at(self.values + 8 * place));
            let _ = completions.post(&mut queue, value, patience)?;
            let add = Wqe::fetch_add(found, counter, 1);
            let _ = completions.post(&mut queue, add, patience)?;
        }
        let last = completions.post(&mut queue, Wqe::nop().signalled(), patience)?;
        Ok(completions.wait(&mut queue, last, patience)?)
    }
}
