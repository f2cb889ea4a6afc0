//! Where the threads of a block meet.

use std::alloc::Layout;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use warpbell_gpu::cpu::{BlockMeeting, BlockOp};

use crate::shared::SharedMemory;

/// A block of a grid: its barrier, and what its threads bring there.
pub(crate) struct Block {
    /// Index of the block in the grid.
    pub(crate) index: u32,
    /// How often the block has met. Read without the lock.
    meetings: AtomicU64,
    state: Mutex<State>,
    met: Condvar,
    shared: Mutex<SharedMemory>,
}

struct State {
    /// For each thread, what it brought to the meeting under way.
    brought: Vec<Option<(BlockOp, u64)>>,
    exited: Vec<bool>,
    arrived: usize,
    gone: usize,
    /// The last meeting, for each thread. All have read it before the next ends, because that one waits
    /// for them.
    last: Vec<BlockMeeting>,
}

/// Two threads of a block that can never meet; what each came to, `None` for having exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mismatch(pub(crate) [(u32, Option<BlockOp>); 2]);

/// Whether an operation has no meaning without some thread of the block.
fn needs_all(op: BlockOp) -> bool {
    matches!(op, BlockOp::Broadcast | BlockOp::Rank)
}

impl Block {
    pub(crate) fn new(index: u32, threads: u32) -> Self {
        let threads = threads as usize;
        let nothing = BlockMeeting {
            first: 0,
            before: 0,
            count: 0,
            threads: 0,
        };
        Self {
            index,
            meetings: AtomicU64::new(0),
            state: Mutex::new(State {
                brought: vec![None; threads],
                exited: vec![false; threads],
                arrived: 0,
                gone: 0,
                last: vec![nothing; threads],
            }),
            met: Condvar::new(),
            shared: Mutex::default(),
        }
    }

    /// The block's array for a place in the source.
    pub(crate) fn shared(&self, place: &'static u8, layout: Layout) -> *mut u8 {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.array(place, layout)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often the block has met.
    pub(crate) fn meetings(&self) -> u64 {
        // A meeting's end before what its threads do next, because it makes the others' stores visible.
        self.meetings.load(Ordering::Acquire)
    }

    /// Thread `thread` comes to `op`; it may go on once [`meetings`](Self::meetings) exceeds the returned
    /// number.
    pub(crate) fn arrive(&self, thread: u32, op: BlockOp, value: u64) -> Result<u64, Mismatch> {
        let mut state = self.state();
        let first = state.brought.iter().position(Option::is_some);
        if let Some(first) = first
            && let Some((other, _)) = state.brought[first]
            && other != op
        {
            return Err(Mismatch([(first as u32, Some(other)), (thread, Some(op))]));
        }
        if needs_all(op)
            && let Some(gone) = state.exited.iter().position(|&gone| gone)
        {
            return Err(Mismatch([(gone as u32, None), (thread, Some(op))]));
        }
        let number = self.meetings.load(Ordering::Relaxed);
        state.brought[thread as usize] = Some((op, value));
        state.arrived += 1;
        self.end_if_complete(&mut state);
        Ok(number)
    }

    /// Thread `thread` has returned from the kernel.
    pub(crate) fn exit(&self, thread: u32) -> Result<(), Mismatch> {
        let mut state = self.state();
        state.exited[thread as usize] = true;
        state.gone += 1;
        let waiting = state.brought.iter().position(Option::is_some);
        if let Some(waiting) = waiting
            && let Some((op, _)) = state.brought[waiting]
            && needs_all(op)
        {
            return Err(Mismatch([(thread, None), (waiting as u32, Some(op))]));
        }
        self.end_if_complete(&mut state);
        Ok(())
    }

    fn end_if_complete(&self, state: &mut State) {
        if state.arrived == 0 || state.arrived + state.gone < state.brought.len() {
            return;
        }
        let value = |brought: &Option<(BlockOp, u64)>| brought.map_or(0, |(_, value)| value);
        let first = value(&state.brought[0]);
        let count = state
            .brought
            .iter()
            .filter(|brought| value(brought) != 0)
            .count() as u32;
        let threads = state.arrived as u32;
        let mut before = 0;
        for (meeting, brought) in state.last.iter_mut().zip(&mut state.brought) {
            *meeting = BlockMeeting {
                first,
                before,
                count,
                threads,
            };
            before += u32::from(value(brought) != 0);
            *brought = None;
        }
        state.arrived = 0;
        // The threads' stores before their going on: see `meetings`.
        self.meetings.fetch_add(1, Ordering::Release);
        self.met.notify_all();
    }

    /// What thread `thread` learns from the last meeting.
    pub(crate) fn meeting(&self, thread: u32) -> BlockMeeting {
        self.state().last[thread as usize]
    }

    /// Sleeps until the block has met more than `number` times, or `cancelled` says so.
    pub(crate) fn wait(&self, number: u64, cancelled: impl Fn() -> bool) {
        let mut state = self.state();
        while self.meetings() <= number && !cancelled() {
            state = self.met.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wakes the threads that sleep in [`wait`](Self::wait), to look at `cancelled` again.
    pub(crate) fn wake(&self) {
        // The lock, because a thread may be between its look at `cancelled` and its sleep.
        let _state = self.state();
        self.met.notify_all();
    }
}
