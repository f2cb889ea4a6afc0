//! GASPI in kernels: the stencil that the GPUrdma paper sketches in its figure 6, and how long a notification takes.

use core::sync::atomic::Ordering;

use warpbell::gaspi::{Error, GASPI_BLOCK, Gaspi, GaspiHandle};
use warpbell::wqe::{Remote, Wqe};
use warpbell::{
    Block, Deadline, Exclusive, SendQueueHandle, Signal, Thread, Word64, block, kernel, thread,
};

use crate::outcome::{Numbers, Outcome};

/// The segment of both kernels.
const SEGMENT: u32 = 0;

/// A stencil in one dimension over all blocks of all ranks, the last beside the first.
///
/// Each block has a strip of cells, and uses queue `2 * block` towards the strip on its left, `2 * block + 1` towards
/// the one on its right. Segment 0 holds the strips of a rank's blocks, twice: what is read in one step is written in
/// the next. A strip is its cells with one more at each end, a copy of the neighbour's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Stencil<'a> {
    /// The rank.
    pub gaspi: GaspiHandle<'a>,
    /// Cells of a strip, without the copies.
    pub cells: u32,
    /// How many steps.
    pub steps: u32,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// The ends of a strip. Numbers, because an array of them that is gone through would lie in a GPU's local memory.
const LEFT: u32 = 0;
const RIGHT: u32 = 1;

impl Stencil<'_> {
    /// Bytes of segment 0 for so many blocks.
    pub const fn bytes(blocks: u32, cells: u32) -> usize {
        8 * 2 * blocks as usize * (cells as usize + 2)
    }

    /// Notifications of so many blocks.
    pub const fn notifications(blocks: u32) -> u32 {
        4 * blocks
    }

    /// Where a block's cell lies in segment 0 after so many steps, in bytes; cell 0 is the copy on the left.
    pub const fn offset(cells: u32, block: u32, step: u32, cell: u32) -> u64 {
        let strip = 2 * block + step % 2;
        8 * (strip as u64 * (cells as u64 + 2) + cell as u64)
    }

    /// What a cell becomes.
    pub const fn next(left: u64, own: u64, right: u64) -> u64 {
        left.wrapping_add(own.wrapping_mul(3)).wrapping_sub(right)
    }

    /// Says that a block's copy at that end is there after so many steps. Two numbers in turn: the neighbour may be one
    /// step ahead.
    const fn notification(block: u32, end: u32, step: u32) -> u32 {
        4 * block + 2 * (step % 2) + end
    }
}

/// Computes all steps, with all threads of each block.
#[kernel]
pub fn gaspi_stencil(p: Stencil<'_>) {
    p.outcome.record(|| Ok(stencil(p)?));
}

#[inline(always)]
fn stencil(p: Stencil<'_>) -> Result<(), Error> {
    let gaspi = p.gaspi.open()?;
    // Never 0, which the compiler does not know: a division by 0 would be a panic.
    let (blocks, own) = (thread::grid_dim_x().max(1), block::index());
    let strips = (gaspi.proc_num() * blocks).max(1);
    let strip = gaspi.proc_rank() * blocks + own;
    let (left, right) = ((strip + strips - 1) % strips, (strip + 1) % strips);
    let mut to_left = gaspi.queue::<Exclusive, Block>(2 * own, left / blocks)?;
    let mut to_right = gaspi.queue::<Exclusive, Block>(2 * own + 1, right / blocks)?;
    let (left, right) = (left % blocks, right % blocks);
    let segment = gaspi.segment_ptr(SEGMENT)?;
    let at = |step, cell| {
        let offset = Stencil::offset(p.cells, own, step, cell);
        // SAFETY: inside the segment, whose words are touched as atomics.
        unsafe { &*segment.wrapping_add(offset as usize).cast::<Word64>() }
    };
    let old = |step, cell| at(step, cell).load(Ordering::Relaxed);
    let offset = |block, step, cell| Stencil::offset(p.cells, block, step, cell);
    for step in 0..p.steps {
        let next = step + 1;
        let mut cell = 1 + block::thread_index();
        while cell <= p.cells {
            let value = Stencil::next(old(step, cell - 1), old(step, cell), old(step, cell + 1));
            at(next, cell).store(value, Ordering::Relaxed);
            cell += block::size();
        }
        // Our first cell is the copy at their right end, our last one that at their left.
        let there = offset(left, next, p.cells + 1);
        let told = Stencil::notification(left, RIGHT, next);
        to_left.write_notify(
            SEGMENT,
            offset(own, next, 1),
            SEGMENT,
            there,
            8,
            told,
            next,
            GASPI_BLOCK,
        )?;
        let there = offset(right, next, 0);
        let told = Stencil::notification(right, LEFT, next);
        to_right.write_notify(
            SEGMENT,
            offset(own, next, p.cells),
            SEGMENT,
            there,
            8,
            told,
            next,
            GASPI_BLOCK,
        )?;
        for end in LEFT..=RIGHT {
            let told = Stencil::notification(own, end, next);
            expect::<Block>(gaspi, told, next)?;
        }
    }
    to_left.wait(GASPI_BLOCK)?;
    to_right.wait(GASPI_BLOCK)
}

/// Waits for a notification, takes it, and compares its value.
#[inline(always)]
fn expect<C: warpbell::Scope>(
    gaspi: Gaspi<'_>,
    notification: u32,
    value: u32,
) -> Result<(), Error> {
    let first = gaspi.notify_waitsome::<C>(SEGMENT, notification, 1, GASPI_BLOCK)?;
    match gaspi.notify_reset::<C>(SEGMENT, first)? {
        found if found == value => Ok(()),
        _ => Err(Error::InvalidNotificationValue),
    }
}

/// Two ranks that notify each other in turn.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NotifyRoundTrip<'a> {
    /// The rank, 0 or 1; 0 begins.
    pub gaspi: GaspiHandle<'a>,
    /// How many rounds.
    pub rounds: u32,
    /// How many bytes of its segment rank 0 writes ahead of its notifications, if it does.
    pub bytes: u32,
    /// Takes the nanoseconds of each round.
    pub samples: Numbers<'a>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Plays one side, with one thread; either answers with a notification alone.
#[kernel]
pub fn gaspi_round_trip(p: NotifyRoundTrip<'_>) {
    p.outcome.record(|| Ok(round_trip::<false>(p)?));
}

/// The same; rank 0 notifies behind a write, under one doorbell.
#[kernel]
pub fn gaspi_round_trip_behind(p: NotifyRoundTrip<'_>) {
    p.outcome.record(|| Ok(round_trip::<true>(p)?));
}

#[inline(always)]
fn round_trip<const BEHIND: bool>(p: NotifyRoundTrip<'_>) -> Result<(), Error> {
    let gaspi = p.gaspi.open()?;
    let begins = gaspi.proc_rank() == 0;
    let mut queue = gaspi.queue::<Exclusive, Thread>(0, u32::from(begins))?;
    for round in 0..p.rounds {
        let begin = thread::clock_ns();
        if begins & BEHIND {
            let bytes = u64::from(p.bytes);
            queue.write_notify(SEGMENT, 0, SEGMENT, 0, bytes, 0, round + 1, GASPI_BLOCK)?;
        } else if begins {
            queue.notify(SEGMENT, 0, round + 1, GASPI_BLOCK)?;
        }
        expect::<Thread>(gaspi, 0, round + 1)?;
        if !begins {
            queue.notify(SEGMENT, 0, round + 1, GASPI_BLOCK)?;
        }
        p.samples.store(round.into(), thread::clock_ns() - begin);
    }
    queue.wait(GASPI_BLOCK)
}

/// The same without GASPI: a write of 8 bytes, and a word that is polled.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WriteRoundTrip<'a> {
    /// Where to post.
    pub queue: SendQueueHandle<'a>,
    /// The word that the other side writes.
    pub signal: Signal<'a>,
    /// The word of the other side.
    pub answer: Remote,
    /// 1 for the side that begins, 0 for the other one.
    pub begins: u32,
    /// How many rounds.
    pub rounds: u32,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// Takes the nanoseconds of each round.
    pub samples: Numbers<'a>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Plays one side, with one thread.
#[kernel]
pub fn write_round_trip(p: WriteRoundTrip<'_>) {
    p.outcome.record(|| {
        let limit = Deadline::after_us(p.limit_us);
        let mut queue = p.queue.open::<Exclusive, Thread>()?;
        for round in 0..u64::from(p.rounds) {
            let begin = thread::clock_ns();
            let write = Wqe::write_value(round + 1, p.answer).signalled();
            if p.begins == 1 {
                let _ = queue.post(write, limit)?;
            }
            p.signal.wait(round + 1, limit)?;
            if p.begins == 0 {
                let _ = queue.post(write, limit)?;
            }
            p.samples.store(round, thread::clock_ns() - begin);
        }
        queue.drain(limit)?;
        Ok(())
    });
}
