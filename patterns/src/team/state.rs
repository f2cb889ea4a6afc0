//! What a member keeps of a channel: who has it open, how many calls there were, and where a grid's blocks are.

use warpbell_gpu::arch::{Reach, Word64};

use super::Error;
use super::error::Verdict;
use crate::words::{
    compare_exchange64, fetch_add64, load_acquire64, load_relaxed64, store_relaxed64,
    store_release64,
};
use warpbell::{Deadline, block};

/// What a member keeps of a channel, in memory that its kernels alone touch; zero at first. `repr(C)`, 40 bytes.
#[repr(C)]
#[derive(Debug)]
pub struct ChannelState {
    /// 1 while a unit has the channel open.
    owner: Word64,
    /// How many units of a grid have this channel as their first, in the low bits; above them the number of the grid.
    grid: Word64,
    /// Calls so far.
    calls: Word64,
    /// The first bad verdict of a call's threads.
    verdict: Word64,
    /// The last meeting of a grid's blocks that this unit came to.
    arrival: Word64,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<ChannelState>() == ChannelState::BYTES);

/// Bits of `grid` that count units: more than a grid has that is resident at once.
const UNITS: u32 = 20;

/// Tries to count a unit in before contention counts as "in use".
const TRIES: u32 = 1024;

/// Bits of a meeting's number.
const MEETING: u32 = 44;

impl ChannelState {
    /// Bytes of it.
    pub const BYTES: usize = 40;

    /// Opens the channel for this unit. What the last one to have it did comes before all that follows.
    #[inline(always)]
    pub(super) fn claim(&self) -> Result<(), Error> {
        match compare_exchange64(&self.owner, 0, 1, Reach::Gpu) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::InUse),
        }
    }

    /// Closes it again.
    #[inline(always)]
    pub(super) fn release(&self) {
        store_release64(&self.owner, 0, Reach::Gpu);
    }

    /// Counts this unit in among those of its grid; another grid's may not have the channel as their first meanwhile.
    #[inline(always)]
    pub(super) fn join(&self) -> Result<(), Error> {
        let grid = block::grid() << UNITS;
        let mut found = load_relaxed64(&self.grid, Reach::Gpu);
        for _ in 0..TRIES {
            let next = match found & ((1 << UNITS) - 1) {
                0 => grid | 1,
                _ if found >> UNITS == grid >> UNITS => found + 1,
                _ => break,
            };
            match compare_exchange64(&self.grid, found, next, Reach::Gpu) {
                Ok(_) => return Ok(()),
                Err(now) => found = now,
            }
        }
        Err(Error::InUse)
    }

    /// Counts this unit out.
    #[inline(always)]
    pub(super) fn leave(&self) {
        fetch_add64(&self.grid, u64::MAX, Reach::Gpu);
    }

    /// How many calls there were.
    #[inline(always)]
    pub(super) fn calls(&self) -> u64 {
        load_relaxed64(&self.calls, Reach::Gpu)
    }

    /// Keeps how many calls there were.
    #[inline(always)]
    pub(super) fn set_calls(&self, calls: u64) {
        store_relaxed64(&self.calls, calls, Reach::Gpu);
    }

    /// Keeps a thread's verdict, if it is the first bad one of the call.
    #[inline(always)]
    pub(super) fn keep(&self, verdict: Verdict) {
        let _ = compare_exchange64(&self.verdict, 0, verdict.to_word(), Reach::Gpu);
    }

    /// The call's first bad verdict.
    #[inline(always)]
    pub(super) fn verdict(&self) -> Verdict {
        Verdict::of_word(load_relaxed64(&self.verdict, Reach::Gpu))
    }

    /// Forgets the call's verdict.
    #[inline(always)]
    pub(super) fn forget(&self) {
        store_relaxed64(&self.verdict, 0, Reach::Gpu);
    }

    /// Says that this unit has come to a meeting of those of channel `base`.
    #[inline(always)]
    pub(super) fn come(&self, base: u32, meeting: u64) {
        store_relaxed64(&self.arrival, Self::at(base, meeting), Reach::Gpu);
    }

    /// Waits until the unit has come to that meeting or a later one.
    #[inline(always)]
    pub(super) fn wait(&self, base: u32, meeting: u64, limit: Deadline) -> Result<(), Error> {
        let wanted = Self::at(base, meeting);
        let mut wait = limit.wait();
        loop {
            let late = wait.expired();
            // What the unit did before it came, before what this one does then.
            let arrival = load_acquire64(&self.arrival, Reach::Gpu);
            if arrival >> MEETING == wanted >> MEETING && arrival >= wanted {
                return Ok(());
            }
            if late {
                return Err(Error::Blocks);
            }
        }
    }

    #[inline(always)]
    const fn at(base: u32, meeting: u64) -> u64 {
        (base as u64) << MEETING | (meeting & ((1 << MEETING) - 1))
    }
}
