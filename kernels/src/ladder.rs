//! The same stream of writes, posted in one way after the other: each is a rung that spares what the one
//! below it costs, as in GPUrdma (Daoud, Watad and Silberstein 2016, figures 3 and 4).

use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{Block, Deadline, Exclusive, Scope, Slice, Warp, block, kernel, thread, warp};

use crate::bandwidth::{Stream, stream};

/// The piece of memory behind so many others of the same length.
#[inline(always)]
fn piece(p: &Stream<'_>, number: u64) -> (Local, Remote) {
    let offset = number * u64::from(p.local.length);
    let local = p.local.at(offset, p.local.length);
    let remote = p.remote.at(offset);
    (local, remote)
}

/// Posts each message under a doorbell of its own and waits for its completion, with one thread.
#[inline(always)]
fn one_at_a_time(p: &Stream<'_>, message: impl Fn(u64) -> Wqe<1>) {
    p.outcome.record(|| {
        let limit = Deadline::after_us(p.limit_us);
        let mut queue = p.queue.open::<Exclusive>()?;
        let begin = thread::clock_ns();
        for number in 0..p.messages {
            let ticket = queue.post(message(number).signalled(), limit)?;
            queue.wait(ticket, limit)?;
        }
        p.keep_times(begin);
        Ok(())
    });
}

/// Builds each WQE anew. The slots are a power of two.
#[kernel]
pub fn ladder_naive(p: Stream<'_>) {
    let last_slot = p.slots.wrapping_sub(1);
    one_at_a_time(&p, |number| {
        let (local, remote) = piece(&p, number & last_slot);
        Wqe::write(local, remote)
    });
}

/// Builds one WQE, for the first slot, and posts it again and again.
#[kernel]
pub fn ladder_reuse(p: Stream<'_>) {
    let wqe = Wqe::write(p.local, p.remote);
    one_at_a_time(&p, |_| wqe);
}

/// The same, and waits only where the queue is full, and for the last message. As many messages as the batch
/// says share a doorbell.
#[kernel]
pub fn ladder_pipelined(p: Stream<'_>) {
    let wqe = Wqe::write(p.local, p.remote);
    stream(&p, |_, _| wqe);
}

/// The same by many threads: each builds one WQE, for the slot of its own number, and all post theirs together
/// under one doorbell, until there are as many messages as the stream has, or a few more.
#[inline(always)]
fn together<C: Scope>(p: &Stream<'_>, number: u32, threads: u32) {
    p.outcome.record(|| {
        let limit = Deadline::after_us(p.limit_us);
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { p.queue.open_together::<Exclusive, C>() }?;
        let (local, remote) = piece(p, number.into());
        let wqe = Wqe::write(local, remote);
        let begin = thread::clock_ns();
        let mut posted = 0;
        while posted < p.messages {
            posted += u64::from(threads);
            let last = posted >= p.messages;
            let ticket = queue.post(if last { wqe.signalled() } else { wqe }, limit)?;
            if last {
                queue.wait(ticket, limit)?;
            }
        }
        if number == 0 {
            p.keep_times(begin);
        }
        Ok(())
    });
}

/// A stream for each warp of a block.
#[kernel]
pub fn ladder_warps(p: Slice<'_, Stream<'_>>) {
    if let Some(stream) = p.get(u64::from(block::thread_index() / thread::warp_size())) {
        together::<Warp>(stream, warp::lane_id(), thread::warp_size());
    }
}

/// A stream for each block.
#[kernel]
pub fn ladder_blocks(p: Slice<'_, Stream<'_>>) {
    if let Some(stream) = p.get(block::index().into()) {
        together::<Block>(stream, block::thread_index(), block::size());
    }
}
