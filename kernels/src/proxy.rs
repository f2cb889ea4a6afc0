//! Puts of many work-groups, as ComP-Net measures them: the same kernel for queues of the NIC's own and for those that
//! a proxy serves.

use warpbell::wqe::{Remote, Wqe};
use warpbell::{Block, Deadline, Exclusive, SendQueueHandle, Slice, Word64, block, kernel, thread};

use crate::outcome::{Failure, Outcome};

/// A work-group's queue, and the words that it writes, one for each of its threads.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// Where to post: the NIC's queue, or a proxy's. The kernel cannot tell.
    pub queue: SendQueueHandle<'a>,
    /// The word of thread 0.
    pub target: Remote,
}

/// Puts of 8 bytes, inline in their entries.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Puts<'a> {
    /// One for each work-group.
    pub peers: Slice<'a, Peer<'a>>,
    /// Puts of each thread.
    pub rounds: u64,
    /// 1 if each put is waited for before the next is posted, 0 if the last one alone.
    pub one_at_a_time: u32,
    /// Microseconds that each post and each wait may take.
    pub limit_us: u64,
    /// Takes when each work-group began, in nanoseconds.
    pub begin: Slice<'a, Word64>,
    /// Takes when its last put was complete.
    pub end: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

impl Puts<'_> {
    /// What a thread of a work-group puts in the end.
    pub const fn last(group: u32, thread: u32, rounds: u64) -> u64 {
        (group as u64) << 48 | (thread as u64) << 32 | rounds
    }
}

/// Each work-group puts into its own memory at the other end: its threads fill an entry each, and one of them tells
/// of all.
#[kernel]
pub fn proxy_put(p: Puts<'_>) {
    let Some(peer) = p.peers.get(block::index().into()).copied() else {
        return;
    };
    p.outcome.record(|| put(&p, peer));
}

#[inline(always)]
fn put(p: &Puts<'_>, peer: Peer<'_>) -> Result<(), Failure> {
    let limit = Deadline::after_us(p.limit_us);
    let (group, own) = (block::index(), block::thread_index());
    let target = peer.target.at(8 * u64::from(own));
    // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
    let mut queue = unsafe { peer.queue.open_together::<Exclusive, Block>() }?;
    let begin = thread::clock_ns();
    for round in 1..=p.rounds {
        let put = Wqe::write_value(Puts::last(group, own, round), target);
        let waits = round == p.rounds || p.one_at_a_time == 1;
        let ticket = queue.post(if waits { put.signalled() } else { put }, limit)?;
        if waits {
            queue.wait_outbound(ticket, limit)?;
        }
    }
    if own == 0 {
        p.begin.store(group.into(), begin);
        p.end.store(group.into(), thread::clock_ns());
    }
    Ok(())
}
