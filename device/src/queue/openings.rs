//! Who has a queue open: the views are counted, and the first one says whose they are.

use warpbell_gpu::arch::Reach;

use crate::error::OpenError;
use crate::state::QueueState;
use crate::words::{compare_exchange64, fetch_add64, load_relaxed64, store_relaxed64};
use crate::{Deadline, block};

/// The low half of `openings` counts the views. Its high half is the index of the block that has them, in the grid that
/// `grid` names, or one of these. Without views the high half means nothing.
const WHOLE_GPU: u32 = u32::MAX;
const ONE_OWNER: u32 = u32::MAX - 1;
/// A block has the queue, and its first view has not yet written the grid.
const CLAIMING: u32 = u32::MAX - 2;

/// Most views at a time, far below what would carry into the high half.
const MAX_VIEWS: u32 = u32::MAX / 2;

/// Tries to count a view in before contention counts as "in use".
const TRIES: u32 = 1024;

/// How long a view waits for the first view of its block, which has but two words to write.
const CLAIM_MS: u64 = 2_000;

/// Claims the queue for one owner.
#[inline(always)]
pub(super) fn claim(state: &QueueState) -> Result<(), OpenError> {
    let openings = load_relaxed64(&state.openings, Reach::Gpu);
    let (views, _) = split(openings);
    if views != 0 {
        return Err(OpenError::InUse);
    }
    let one_view = join(1, ONE_OWNER);
    compare_exchange64(&state.openings, openings, one_view, Reach::Gpu)
        .map(|_| ())
        .map_err(|_| OpenError::InUse)
}

/// Counts a view in among the threads of a block, or of the GPU.
#[inline(always)]
pub(super) fn share(state: &QueueState, in_block: bool) -> Result<(), OpenError> {
    let sharers = match in_block {
        true => block::index(),
        false => WHOLE_GPU,
    };
    let mut openings = load_relaxed64(&state.openings, Reach::Gpu);
    let mut wait = None;
    for _ in 0..TRIES {
        let (views, whose) = split(openings);
        if views == 0 {
            let whose = if in_block { CLAIMING } else { sharers };
            let one_view = join(1, whose);
            match compare_exchange64(&state.openings, openings, one_view, Reach::Gpu) {
                Ok(_) => {
                    if in_block {
                        store_relaxed64(&state.grid, block::grid(), Reach::Gpu);
                        // The grid before the block's index, because whoever finds that compares the grid: the
                        // addition releases. It is one, because others may count themselves in and out meanwhile.
                        let change = join(0, sharers.wrapping_sub(CLAIMING));
                        fetch_add64(&state.openings, change, Reach::Gpu);
                    }
                    return Ok(());
                }
                Err(found) => openings = found,
            }
        } else if whose == sharers {
            // An addition, because thousands may open the queue at once.
            let found = fetch_add64(&state.openings, 1, Reach::Gpu);
            let (views, whose) = split(found);
            let ours = whose == sharers && views < MAX_VIEWS;
            // The same block's of another grid is another one, and `.cta` would not reach it.
            let same_grid =
                || !in_block || load_relaxed64(&state.grid, Reach::Gpu) == block::grid();
            if ours && same_grid() {
                return Ok(());
            }
            // The views that were there have gone, and others come; or they are another grid's.
            remove(state);
            break;
        } else if in_block && whose == CLAIMING {
            let wait = wait.get_or_insert_with(|| Deadline::after_ms(CLAIM_MS).wait());
            while split(openings).1 == CLAIMING && split(openings).0 != 0 {
                if wait.expired() {
                    return Err(OpenError::InUse);
                }
                openings = load_relaxed64(&state.openings, Reach::Gpu);
            }
        } else {
            break;
        }
    }
    Err(OpenError::InUse)
}

/// Counts a view as gone.
#[inline(always)]
pub(super) fn remove(state: &QueueState) {
    fetch_add64(&state.openings, u64::MAX, Reach::Gpu);
}

/// The views of `openings`, and whose they are.
#[inline(always)]
const fn split(openings: u64) -> (u32, u32) {
    (openings as u32, (openings >> 32) as u32)
}

#[inline(always)]
const fn join(views: u32, whose: u32) -> u64 {
    (whose as u64) << 32 | views as u64
}
