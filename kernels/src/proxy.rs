//! Puts of many work-groups, as ComP-Net measures them: the same kernel for queues of the NIC's own and for those that
//! a proxy serves.

use warpbell::wqe::{Remote, Wqe};
use warpbell::{
    Block, Deadline, Exclusive, GpuShared, SendQueueHandle, Sharing, Slice, Word64, WordExt, Words,
    block, kernel, thread,
};

use crate::outcome::{Failure, Outcome};
use crate::place::Place;

/// A work-group's queue, and the words that it writes: those of each of its threads, one after the other.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// Where to post: the NIC's queue, or a proxy's. The kernel cannot tell.
    pub queue: SendQueueHandle<'a>,
    /// The payloads at this end.
    pub source: Words<'a>,
    /// The first word at the other end.
    pub target: Remote,
}

/// Puts of whole words.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Puts<'a> {
    /// One for each work-group.
    pub peers: Slice<'a, Peer<'a>>,
    /// Words of 8 bytes in each put, at least 1; with [`proxy_put`] and [`proxy_put_shared`] there is one, whatever
    /// stands here.
    pub words: u32,
    /// Puts of each thread.
    pub rounds: u64,
    /// 1 if each put is waited for before the next is posted, 0 if the last one alone.
    pub one_at_a_time: u32,
    /// Microseconds that each post and each wait may take.
    pub limit_us: u64,
    /// Takes when each work-group began, in nanoseconds.
    pub begin: Slice<'a, Word64>,
    /// Takes when its last put was complete, or had failed.
    pub end: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

impl Puts<'_> {
    /// The first word of what a thread of a work-group puts in its last round.
    pub const fn last(group: u32, thread: u32, rounds: u64) -> u64 {
        (group as u64) << 48 | (thread as u64) << 32 | rounds
    }
}

/// Each work-group puts into its own memory at the other end: its threads fill an entry each, with a word inline, and
/// one of them tells of all. It has its queue to itself, so that the queue's indices are in registers.
#[kernel]
pub fn proxy_put(p: Puts<'_>) {
    put_each::<Exclusive, true>(&p);
}

/// The same with queues that all work-groups might share, so that each post reads and writes the queue's indices in
/// memory.
#[kernel]
pub fn proxy_put_shared(p: Puts<'_>) {
    put_each::<GpuShared, true>(&p);
}

/// As [`proxy_put`], with payloads that the NIC fetches.
#[kernel]
pub fn proxy_put_payload(p: Puts<'_>) {
    put_each::<Exclusive, false>(&p);
}

/// As [`proxy_put_shared`], with payloads that the NIC fetches.
#[kernel]
pub fn proxy_put_payload_shared(p: Puts<'_>) {
    put_each::<GpuShared, false>(&p);
}

#[inline(always)]
fn put_each<S: Sharing, const INLINE: bool>(p: &Puts<'_>) {
    let group = block::index();
    let Some(peer) = p.peers.get(group.into()).copied() else {
        return;
    };
    p.outcome.record(|| put::<S, INLINE>(p, peer));
    if block::thread_index() == 0 {
        p.end.store(group.into(), thread::clock_ns());
    }
}

#[inline(always)]
fn put<S: Sharing, const INLINE: bool>(p: &Puts<'_>, peer: Peer<'_>) -> Result<(), Failure> {
    let limit = Deadline::after_us(p.limit_us);
    let (group, own) = (block::index(), block::thread_index());
    let words = if INLINE { 1 } else { p.words };
    let first = u64::from(words) * u64::from(own);
    // By each thread for all of them: where one stopped alone, the others would wait for it.
    let (wanted, there) = (
        u64::from(words) * u64::from(block::size()),
        peer.source.len(),
    );
    let source = match peer.source.local(first, words) {
        Some(source) if wanted <= there => source,
        _ => return Err(Failure::Outside { wanted, there }),
    };
    let target = peer.target.at(8 * first);
    // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
    let mut queue = unsafe { peer.queue.open_together::<S, Block>() }?;
    if own == 0 {
        p.begin.store(group.into(), thread::clock_ns());
    }
    for round in 1..=p.rounds {
        let value = Puts::last(group, own, round);
        let put = if INLINE {
            Wqe::write_value(value, target)
        } else {
            peer.source.store(first, value);
            Wqe::write(source, target)
        };
        let waits = round == p.rounds || p.one_at_a_time == 1;
        let ticket = queue.post(if waits { put.signalled() } else { put }, limit)?;
        if waits {
            queue.wait_outbound(ticket, limit)?;
        }
    }
    Ok(())
}

/// Memory that is read again and again while work-groups put.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Streaming<'a> {
    /// The memory; far more than the cache has.
    pub memory: Place,
    /// The words of it.
    pub words: u32,
    /// [`Puts::end`]: the reading ends once no word of it is 0.
    pub end: Slice<'a, Word64>,
    /// Microseconds after which it ends in any case.
    pub limit_us: u64,
    /// Takes how often the memory was read.
    pub passes: &'a Word64,
}

/// Reads memory, all threads of the grid in turn, so that the lines of the work-groups' queues are evicted. A GPU loads
/// each word, whoever uses its value.
#[kernel]
pub fn stream_beside_puts(p: Streaming<'_>) {
    let step = thread::grid_dim_x() * block::size();
    let mut wait = Deadline::after_us(p.limit_us).wait();
    let (mut passes, mut ends) = (0, false);
    while !ends {
        let mut at = thread::index();
        while at < p.words {
            p.memory.load(at);
            at = at.saturating_add(step);
        }
        passes += 1;
        // Thread 0 looks for all threads of the block, because the words may lie across the bus.
        let mut over = 0;
        if block::thread_index() == 0 {
            over = u64::from(wait.expired() || all_ended(p.end));
        }
        ends = block::broadcast(over) != 0;
    }
    if thread::first() {
        p.passes.store_relaxed(passes);
    }
}

#[inline(always)]
fn all_ended(end: Slice<'_, Word64>) -> bool {
    let mut group = 0;
    while let Some(word) = end.get(group) {
        if word.load_relaxed() == 0 {
            return false;
        }
        group += 1;
    }
    true
}
