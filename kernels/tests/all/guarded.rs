//! Memory between guards, and kernels that are to refuse numbers which name more of it.

use std::sync::atomic::Ordering;

use warpbell::wqe::{Local, LocalKey, Remote, RemoteKey};
use warpbell::{FenceReach, SendQueueHandle, Stop, Word64};
use warpbell_cpu_grid::{Grid, Options, launch};
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::place::Place;
use warpbell_patterns::active::{ActiveParts, TargetHandle};
use warpbell_patterns::gaspi::{GaspiHandle, GaspiParts, SegmentEntry};
use warpbell_patterns::trigger::TriggerHandle;

/// No byte of the memory beside a kernel's.
pub const UNCHANGED: [isize; 0] = [];

/// Words on each side of what a kernel gets.
pub const GUARD: usize = 4096;
/// What is in all words at first: two values of 4 bytes, neither of them 0.
pub const FILL: u64 = 0x5a5a_0001_a5a5_0002;
/// Words that a kernel gets.
pub const WORDS: usize = 64;

/// Words between guards.
pub struct Guarded(pub Vec<Word64>);

impl Guarded {
    pub fn new() -> Self {
        let fill = |_| Word64::new(FILL);
        Self((0..WORDS + 2 * GUARD).map(fill).collect())
    }

    /// The first words behind the guard.
    pub fn place(&self, words: usize) -> Place {
        let words = &self.0[GUARD..][..words];
        // SAFETY: the vector outlives each launch of its test, and its words are touched as atomics.
        unsafe { Place::new(words.as_ptr(), words.len() as u64) }
    }

    pub fn words(&self) -> &[Word64] {
        &self.0[GUARD..][..WORDS]
    }

    /// Which words have changed, counted from the first behind the guard.
    pub fn changed(&self) -> Vec<isize> {
        let changed = |(_, word): &(isize, &Word64)| word.load(Ordering::Relaxed) != FILL;
        let places = (-(GUARD as isize)..).zip(&self.0);
        places.filter(changed).map(|(place, _)| place).collect()
    }
}

pub fn run(blocks: u32, threads_per_block: u32, kernel: impl Fn() + Sync) {
    let grid = Grid::new(blocks, threads_per_block);
    launch(grid, Options::default(), kernel).expect("a kernel that ends");
}

/// Runs a kernel that is to refuse its numbers: it says how many words they want, and touches nothing.
#[track_caller]
pub fn refuses(memory: &Guarded, there: u64, grid: (u32, u32), kernel: impl Fn(&Outcome) + Sync) {
    let outcome = Outcome::new();
    run(grid.0, grid.1, || kernel(&outcome));
    match outcome.result() {
        Err(Failure::Outside {
            wanted,
            there: found,
        }) => {
            assert!(wanted > there && found == there, "{wanted} of {found}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(memory.changed(), UNCHANGED);
}

pub const LOCAL: Local = Local {
    address: 0,
    length: 0,
    key: LocalKey(0),
};
pub const REMOTE: Remote = Remote {
    address: 0,
    key: RemoteKey(0),
};
/// Milliseconds that nobody here waits.
pub const LIMIT_US: u64 = 1000;

/// Tags that nobody looks up.
pub fn tags(tags: u32) -> TriggerHandle<'static> {
    // SAFETY: the kernels here end before they look one up.
    unsafe { TriggerHandle::new(std::ptr::null(), tags) }
}

pub fn stop() -> Stop<'static> {
    static WORD: Word64 = Word64::new(0);
    // SAFETY: a word of a CPU's memory.
    unsafe { Stop::new(&WORD) }
}

/// A rank alone with a segment of these bytes.
pub fn with_segment(memory: &Guarded, size: u64, test: impl FnOnce(GaspiHandle<'_>)) {
    let queues = [SendQueueHandle::none(); 2];
    let segment = SegmentEntry {
        address: memory.words().as_ptr().expose_provenance() as u64,
        size,
        ..SegmentEntry::default()
    };
    let parts = GaspiParts {
        rank: 0,
        ranks: 1,
        queues: 2,
        segments: 1,
        notifications: 0,
        transfer_size_max: 1 << 20,
        block_ms: 1,
        reach: FenceReach::Gpu,
        send_queues: queues.as_ptr(),
        segment_entries: &segment,
        notification_entries: std::ptr::null(),
        notification_words: std::ptr::null(),
    };
    // SAFETY: the tables outlive the test, which opens no queue and asks for no notification.
    test(unsafe { GaspiHandle::new(parts) });
}

/// A lane that nobody opens.
pub fn lanes() -> ActiveParts<'static> {
    ActiveParts {
        lanes: 1,
        slots_log2: 0,
        queues: std::ptr::null(),
        states: std::ptr::null(),
        max_result: 0,
        words: std::ptr::null(),
        remote_address: 0,
        remote_key: 0,
        buffers: 0,
        buffer_entries: std::ptr::null(),
    }
}

pub fn target() -> TargetHandle<'static> {
    // SAFETY: the kernels here end before they open a lane.
    unsafe { TargetHandle::new(lanes(), 0, std::ptr::null()) }
}
