//! Tasks that launch a kernel: the dispatcher's kernels, and those that the tasks of [`active`](crate::active) launch.

use warpbell::{Deadline, Stop, block, kernel, thread};
use warpbell_patterns::active::{LaunchedTask, TargetHandle};

use crate::active::add_up;
use crate::outcome::{Failure, Outcome};
use crate::place::Place;

/// The dispatcher.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Dispatch<'a> {
    /// The task that it gives to others.
    pub task: LaunchedTask<'a>,
    /// The lanes.
    pub target: TargetHandle<'a>,
    /// Ends it.
    pub stop: Stop<'a>,
    /// Microseconds that it waits for a task, and for room for an answer.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// The round: thread n looks at lane n until one of them has found a task.
#[kernel]
pub fn active_dispatch(p: Dispatch<'_>) {
    look(p);
}

#[inline(always)]
pub(crate) fn look(p: Dispatch<'_>) {
    let lane = thread::index();
    if lane < p.target.lanes() {
        let limit = Deadline::after_us(p.limit_us);
        ending(p, p.task.find(lane, p.target, p.stop, limit));
    }
}

/// Behind each kernel that a task has launched, with one thread.
#[kernel]
pub fn active_launched_answer(p: Dispatch<'_>) {
    answer(p);
}

#[inline(always)]
pub(crate) fn answer(p: Dispatch<'_>) {
    ending(p, p.task.answer(p.target, Deadline::after_us(p.limit_us)));
}

/// Ends the dispatcher after an error, which it keeps.
#[inline(always)]
fn ending<E>(p: Dispatch<'_>, result: Result<(), E>)
where
    Failure: From<E>,
{
    if result.is_err() {
        p.stop.request();
    }
    p.outcome.record(|| Ok(result?));
}

/// A kernel that a task launches.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchedWork<'a> {
    /// The task.
    pub task: LaunchedTask<'a>,
    /// A vector for each lane, all 0 at first: what was added up.
    pub sums: Place,
    /// Words of a vector.
    pub words: u32,
    /// How many lanes are to end, each by a task.
    pub lanes: u32,
    /// One word, 0 at first: how many of them have ended.
    pub ended: Place,
    /// Ends the dispatcher.
    pub stop: Stop<'a>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// For [`NOTHING`](crate::active::NOTHING) and [`NOTHING_OF_TWO`](crate::active::NOTHING_OF_TWO): gives the task's value.
#[kernel]
pub fn active_launched_nothing(p: LaunchedWork<'_>) {
    if thread::index() == 0 {
        p.task.set_result(Ok(p.task.value()));
    }
}

/// For [`ACCUMULATE`](crate::active::ACCUMULATE), with any grid: adds the payload, times the argument, to the lane's sum.
#[kernel]
pub fn active_launched_accumulate(p: LaunchedWork<'_>) {
    p.outcome.record(|| {
        let words = u64::from(p.words);
        let sums = p.sums.part(u64::from(p.task.lane()) * words, words)?;
        let vector = payload_of(p.task);
        let own = thread::index();
        let threads = block::size() * thread::grid_dim_x();
        let value = add_up(sums, vector, p.task.argument(0), own, threads);
        if own == 0 {
            p.task.set_result(Ok(value));
        }
        Ok(())
    });
}

/// The whole words of a task's payload.
#[inline(always)]
pub(crate) fn payload_of(task: LaunchedTask<'_>) -> Place {
    let (first, bytes) = task.payload();
    // SAFETY: the host vouches for the target's buffers, which NICs write, and which the kernels touch as atomics.
    unsafe { Place::in_bytes(first, bytes.into()) }
}

/// For [`END`](crate::active::END), with one thread: ends the dispatcher once all lanes have ended.
#[kernel]
pub fn active_launched_end(p: LaunchedWork<'_>) {
    // One task runs at a time.
    let ended = p.ended.load(0) + 1;
    p.ended.store(0, ended);
    if ended >= u64::from(p.lanes) {
        p.stop.request();
    }
}
