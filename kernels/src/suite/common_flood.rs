//! A kernel whose queues have one completion queue in common.

use warpbell::wqe::Wqe;
use warpbell::{
    Block, CompletionQueueHandle, Exclusive, Scope, SendQueueHandle, Slice, Thread, Warp, block,
    kernel, thread,
};

use super::arguments::Kernel;
use super::flood::Pour;
use super::mode::ScopeKind;
use crate::outcome::Failure;

/// Every thread (or warp, or block) has a queue of its own, and all have one completion queue. Each thread writes and
/// counts as in a [`Flood`](super::Flood).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CommonFlood<'a> {
    /// The completion queue.
    pub completions: CompletionQueueHandle<'a>,
    /// Its queues, one for each scope of the grid.
    pub queues: Slice<'a, SendQueueHandle<'a>>,
    /// Who has a queue.
    pub scope: ScopeKind,
    /// What each thread does.
    pub pour: Pour<'a>,
}

impl Kernel for CommonFlood<'_> {
    #[cfg(not(target_arch = "nvptx64"))]
    const ENTRY: warpbell::Entry<fn(Self)> = suite_common_flood::ENTRY;

    fn run(&self) {
        let warps = block::size().div_ceil(thread::warp_size());
        let warp = block::thread_index() / thread::warp_size();
        self.pour.end(match self.scope {
            ScopeKind::Thread => self.flood::<Thread>(thread::index()),
            ScopeKind::Warp => self.flood::<Warp>(block::index() * warps + warp),
            ScopeKind::Block => self.flood::<Block>(block::index()),
        });
    }
}

/// Runs [`CommonFlood`].
#[kernel]
pub fn suite_common_flood(kernel: CommonFlood<'_>) {
    kernel.run();
}

impl CommonFlood<'_> {
    fn flood<C: Scope>(&self, queue: u32) -> Result<(), Failure> {
        let Some(handle) = self.queues.get(queue.into()) else {
            return Ok(());
        };
        // SAFETY: all threads of the scope run this with the same parameters, and make all calls together.
        let mut queue = unsafe { handle.open_together::<Exclusive, C>() }?;
        // SAFETY: as above.
        let mut completions = unsafe { self.completions.open_together::<C>() }?;
        let patience = self.pour.patience();
        for round in 0..self.pour.rounds {
            let (value, add) = self.pour.requests(round);
            let _ = completions.post(&mut queue, value, patience)?;
            let _ = completions.post(&mut queue, add, patience)?;
        }
        let last = completions.post(&mut queue, Wqe::nop().signalled(), patience)?;
        Ok(completions.wait(&mut queue, last, patience)?)
    }
}
