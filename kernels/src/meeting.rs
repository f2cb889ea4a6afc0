//! A meeting of all blocks of a kernel, without atomics: a word for each block.

use core::sync::atomic::Ordering;

use warpbell::{Deadline, Signal, WaitError, block, thread};

use crate::posting::Place;

/// How many meetings the block has been to, in this launch or in one before: from here on its kernel counts. All threads of
/// the block ask before the next meeting.
#[inline(always)]
pub(crate) fn met_before(arrivals: Place) -> u64 {
    arrivals.word(block::index()).load(Ordering::Relaxed)
}

/// Waits, with all threads of each block, until all of so many blocks are here for meeting number `number`, the first
/// being 1. What any of them wrote before may be read by all behind it.
///
/// The first block waits for all others' words, and each of those for that of the first one: so a word is looked at by one
/// thread of each block, and not by most threads of all.
///
/// `arrivals` has a word for each block, 0 before the first meeting, in memory of the kernel's own.
///
/// # Errors
/// `Deadline`, at all threads of a block.
#[inline(always)]
pub fn meet(
    arrivals: Place,
    blocks: u32,
    number: u64,
    deadline: Deadline,
) -> Result<(), WaitError> {
    // What the block's threads did before its word, because others go on by that.
    thread::sync_threads();
    let (own, hosts) = (block::thread_index(), block::index() == 0);
    let has_come = |other: u32| {
        // SAFETY: the host promises a word for each block for the launch; kernels touch them as atomics.
        let arrival = unsafe { Signal::new(arrivals.word(other)) };
        u32::from(arrival.wait(number, deadline).is_err())
    };
    let mut late = 0;
    if hosts {
        let mut other = 1 + own;
        while other < blocks {
            late += has_come(other);
            other += block::size();
        }
        // All words before the first block's, by which the others go on.
        late = thread::sync_threads_count(late);
    }
    if (own == 0) & (late == 0) {
        // What the block did, and in the first block what all others did, before its word: nobody but this kernel's blocks
        // looks.
        thread::device_fence();
        arrivals
            .word(block::index())
            .store(number, Ordering::Relaxed);
        if !hosts {
            late = has_come(0);
        }
    }
    // The word before anybody goes on.
    match thread::sync_threads_count(late) {
        0 => Ok(()),
        _ => Err(WaitError::Deadline),
    }
}
