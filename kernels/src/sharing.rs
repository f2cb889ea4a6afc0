//! Who shares a queue, and who calls it together: one kernel for all nine combinations.

use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{
    Block, BlockShared, Deadline, Exclusive, GpuShared, Scope, SendQueueHandle, Sharing, Thread,
    Warp, block, kernel, thread,
};

use crate::outcome::Outcome;

/// A stretch of memory, a piece of which each thread of the grid writes in each round.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Spread<'a> {
    /// Where to post.
    pub queue: SendQueueHandle<'a>,
    /// The first piece here; its length is that of every piece. The others follow.
    pub local: Local,
    /// The first piece at the other end.
    pub remote: Remote,
    /// How many pieces each thread writes.
    pub rounds: u32,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Every thread writes its pieces through a queue that is shared as `S` says, together with those that `C`
/// says. Only each last write is signalled.
fn spread<S: Sharing, C: Scope>(p: Spread<'_>) {
    p.outcome.record(|| {
        let limit = Deadline::after_us(p.limit_us);
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { p.queue.open_together::<S, C>() }?;
        let threads = thread::grid_dim_x() * block::size();
        let mut last = None;
        for round in 0..p.rounds {
            let piece = u64::from(round * threads + thread::index());
            let offset = piece * u64::from(p.local.length);
            let local = p.local.at(offset, p.local.length);
            let remote = p.remote.at(offset);
            let mut wqe = Wqe::write(local, remote);
            if round + 1 == p.rounds {
                wqe = wqe.signalled();
            }
            last = Some(queue.post(wqe, limit)?);
        }
        if let Some(last) = last {
            queue.wait(last, limit)?;
        }
        Ok(())
    });
}

/// One kernel for each combination.
macro_rules! kernels {
    ($($name:ident: $sharing:ident, $scope:ident;)*) => {
        $(
            #[doc = concat!("[`Spread`] through a queue opened as ")]
            #[doc = concat!("[`", stringify!($sharing), "`], [`", stringify!($scope), "`].")]
            #[kernel]
            pub fn $name(p: Spread<'_>) {
                spread::<$sharing, $scope>(p);
            }
        )*
    };
}

kernels! {
    spread_exclusive_thread: Exclusive, Thread;
    spread_exclusive_warp: Exclusive, Warp;
    spread_exclusive_block: Exclusive, Block;
    spread_block_shared_thread: BlockShared, Thread;
    spread_block_shared_warp: BlockShared, Warp;
    spread_block_shared_block: BlockShared, Block;
    spread_gpu_shared_thread: GpuShared, Thread;
    spread_gpu_shared_warp: GpuShared, Warp;
    spread_gpu_shared_block: GpuShared, Block;
}
