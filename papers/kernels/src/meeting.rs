//! A meeting of all blocks of a kernel, without atomics: a word for each block.

use warpbell::{Deadline, Signal, WaitError, Word64, WordExt, block, thread};

use warpbell_kernels::outcome::Failure;
use warpbell_kernels::place::Place;

/// How many meetings the block has been to, in this launch or in one before: from here on its kernel counts. All threads of
/// the block ask before the next meeting.
#[inline(always)]
pub(crate) fn met_before(arrivals: Place) -> u64 {
    arrivals.load(block::index())
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
/// `Deadline`, at all threads of a block; [`Failure::Outside`] where there is no word for each block.
#[inline(always)]
pub fn meet(arrivals: Place, blocks: u32, number: u64, deadline: Deadline) -> Result<(), Failure> {
    // All threads of a block find the same, so that none waits for another at a barrier.
    arrivals.holds(u64::from(blocks).max(u64::from(block::index()) + 1))?;
    // SAFETY: there are the words of all these blocks, and of this one.
    Ok(unsafe { meet_at(arrivals.first(), blocks, number, deadline) }?)
}

/// The same at words of which somebody has vouched that there is one for each block.
///
/// # Safety
/// From `arrivals` on there is a word for each of so many blocks, and for this one. Kernels touch them as atomics.
#[inline(always)]
pub(crate) unsafe fn meet_at(
    arrivals: *const Word64,
    blocks: u32,
    number: u64,
    deadline: Deadline,
) -> Result<(), WaitError> {
    // SAFETY: the caller's promise.
    let word = |block: u32| unsafe { &*arrivals.add(block as usize) };
    // What the block's threads did before its word, because others go on by that.
    thread::sync_threads();
    let (own, hosts) = (block::thread_index(), block::index() == 0);
    let has_come = |other: u32| {
        // SAFETY: kernels touch it as an atomic.
        let arrival = unsafe { Signal::new(word(other)) };
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
        word(block::index()).store_relaxed(number);
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
