//! How quick a NIC is: one write at a time, and many from several queues.

use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{
    Deadline, Exclusive, SendQueueHandle, Slice, Ticket, Word64, kernel, shared_array, thread,
};

use crate::outcome::Outcome;

/// A queue, and what is written through it again and again.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Lane<'a> {
    /// Where to post.
    pub queue: SendQueueHandle<'a>,
    /// What is written.
    pub local: Local,
    /// Where to.
    pub remote: Remote,
}

/// The lane of the calling thread, if it is the first of its block: each block has one. A copy, because an acquire fence
/// empties the SM's cache, and lanes may lie in the host's memory.
#[inline(always)]
fn mine<'a>(lanes: Slice<'a, Lane<'a>>) -> Option<Lane<'a>> {
    match thread::thread_idx_x() {
        0 => lanes.get(thread::block_idx_x().into()).copied(),
        _ => None,
    }
}

/// Writes one at a time that one launch can measure.
pub const MOST_SINGLES: usize = 2048;

/// Writes, each of which is waited for before the next is posted.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OneAtATime<'a> {
    /// Its queue.
    pub lanes: Slice<'a, Lane<'a>>,
    /// How many writes, up to [`MOST_SINGLES`].
    pub writes: u64,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// Takes each write's cycles, from before its post until its completion is seen.
    pub cycles: Slice<'a, Word64>,
    /// Takes the nanoseconds of all.
    pub elapsed: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Writes one at a time.
#[kernel]
pub fn rate_one_at_a_time(p: OneAtATime<'_>) {
    let Some(lane) = mine(p.lanes) else {
        return;
    };
    p.outcome.record(|| {
        let limit = Deadline::after_us(p.limit_us);
        let mut queue = lane.queue.open::<Exclusive>()?;
        // Kept on the SM until the end, so that no store to the host's memory is part of what is measured.
        let cycles = shared_array![u64; MOST_SINGLES];
        let writes = p.writes.min(MOST_SINGLES as u64);
        let begin = thread::clock_ns();
        for write in 0..writes {
            let posted = thread::cycles();
            let wqe = Wqe::write(lane.local, lane.remote).signalled();
            let ticket = queue.post(wqe, limit)?;
            queue.wait_outbound(ticket, limit)?;
            // SAFETY: below the array's length, which only this thread of the block uses.
            unsafe { *cycles.add(write as usize) = thread::cycles() - posted };
        }
        p.elapsed.store(0, thread::clock_ns() - begin);
        for write in 0..writes {
            // SAFETY: as above; it was written.
            p.cycles
                .store(write, unsafe { *cycles.add(write as usize) });
        }
        Ok(())
    });
}

/// Writes, of which so many are under way all the time.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct InFlight<'a> {
    /// Their queues.
    pub lanes: Slice<'a, Lane<'a>>,
    /// How many writes in each queue.
    pub writes: u64,
    /// Writes under one doorbell, the last of which is signalled; two such groups are under way in each queue.
    pub group: u32,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// Takes when each queue began, in nanoseconds.
    pub begin: Slice<'a, Word64>,
    /// Takes when its last write was complete.
    pub end: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Writes from several queues, each with two groups under way.
#[kernel]
pub fn rate_in_flight(p: InFlight<'_>) {
    let Some(lane) = mine(p.lanes) else {
        return;
    };
    p.outcome.record(|| {
        let limit = Deadline::after_us(p.limit_us);
        let mut queue = lane.queue.open::<Exclusive>()?;
        let (mut older, mut newer): (Option<Ticket>, Option<Ticket>) = (None, None);
        let mut left = p.writes;
        let block = u64::from(thread::block_idx_x());
        p.begin.store(block, thread::clock_ns());
        while left > 0 {
            if let Some(older) = older {
                queue.wait_outbound(older, limit)?;
            }
            let group = left.min(u64::from(p.group)) as u32;
            let mut batch = queue.batch(group, limit)?;
            older = newer;
            for write in 1..=group {
                let mut wqe = Wqe::write(lane.local, lane.remote);
                if write == group {
                    wqe = wqe.signalled();
                }
                newer = Some(batch.post(wqe)?);
            }
            left -= u64::from(group);
        }
        if let Some(newest) = newer {
            queue.wait_outbound(newest, limit)?;
        }
        p.end.store(block, thread::clock_ns());
        Ok(())
    });
}
