//! Numbers that name more memory than a kernel was given: it refuses them by name, or leaves that memory alone.

use std::sync::atomic::Ordering;

use warpbell::wqe::{Local, LocalKey, Remote, RemoteKey};
use warpbell::{Deadline, FenceReach, SendQueueHandle, Slice, Stop, Word64};
use warpbell_cpu_grid::{Grid, Options, launch};
use warpbell_kernels::active::{Contribute, Reduce, active_contribute, active_reduce};
use warpbell_kernels::allreduce::{
    AllReduce, AllReduceStep, AllReduceTriggered, Plan, Rank, allreduce_posted, allreduce_step,
    allreduce_triggered,
};
use warpbell_kernels::daq::{
    DaqBatch, DaqDetector, DaqReceiver, Entry, daq_batch, daq_detector, daq_receiver,
};
use warpbell_kernels::inbound::{Inbound, Way, inbound_block, inbound_thread, inbound_warp};
use warpbell_kernels::jacobi::{
    Cells, Jacobi, JacobiStep, JacobiTriggered, jacobi_notified, jacobi_step, jacobi_triggered,
};
use warpbell_kernels::kv::{
    Client, GetByReads, Keys, ServeGets, kv_read_block, kv_read_thread, kv_read_warp,
    kv_serve_block, kv_serve_thread, kv_serve_warp,
};
use warpbell_kernels::matvec::{
    MatvecClient, MatvecServer, Multiply, matvec_batch, matvec_client, matvec_server,
};
use warpbell_kernels::meeting::meet;
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::overlap::{OverlapEnd, Process, overlap_end, overlap_process};
use warpbell_kernels::path::Path;
use warpbell_kernels::place::Place;
use warpbell_kernels::serving::{Message, ServingClient, serving_client};
use warpbell_kernels::stencil::{
    Stencil, StencilStep, StencilTriggered, Strips, gaspi_stencil, stencil_step, stencil_triggered,
};
use warpbell_kernels::suite::{
    ActiveAsk, ActiveServe, AskStep, Caught, Ending, EndingWords, GaspiStorm, Mode, Output,
    ScopeKind, SharingKind, TriggerStorm, suite_active_ask, suite_active_serve, suite_gaspi_storm,
    suite_trigger_storm,
};
use warpbell_kernels::trigger::{
    Listing, TriggerCost, trigger_cost_posts, trigger_cost_ready, trigger_cost_triggers,
    trigger_kernel, trigger_work_groups, trigger_work_items,
};
use warpbell_patterns::active::{ActiveParts, InitiatorHandle, TargetHandle};
use warpbell_patterns::gaspi::{GaspiHandle, GaspiParts, SegmentEntry};
use warpbell_patterns::inbound::FlushHandle;
use warpbell_patterns::trigger::TriggerHandle;

/// No byte of the memory beside a kernel's.
const UNCHANGED: [isize; 0] = [];

/// Words on each side of what a kernel gets.
const GUARD: usize = 4096;
/// What is in all words at first: two values of 4 bytes, neither of them 0.
const FILL: u64 = 0x5a5a_0001_a5a5_0002;
/// Words that a kernel gets.
const WORDS: usize = 64;

/// Words between guards.
struct Guarded(Vec<Word64>);

impl Guarded {
    fn new() -> Self {
        let fill = |_| Word64::new(FILL);
        Self((0..WORDS + 2 * GUARD).map(fill).collect())
    }

    /// The first words behind the guard.
    fn place(&self, words: usize) -> Place {
        let words = &self.0[GUARD..][..words];
        // SAFETY: the vector outlives each launch of its test, and its words are touched as atomics.
        unsafe { Place::new(words.as_ptr(), words.len() as u64) }
    }

    fn words(&self) -> &[Word64] {
        &self.0[GUARD..][..WORDS]
    }

    /// Which words have changed, counted from the first behind the guard.
    fn changed(&self) -> Vec<isize> {
        let changed = |(_, word): &(isize, &Word64)| word.load(Ordering::Relaxed) != FILL;
        let places = (-(GUARD as isize)..).zip(&self.0);
        places.filter(changed).map(|(place, _)| place).collect()
    }
}

fn run(blocks: u32, threads_per_block: u32, kernel: impl Fn() + Sync) {
    let grid = Grid {
        blocks,
        threads_per_block,
    };
    launch(grid, Options::default(), kernel).expect("a kernel that ends");
}

/// Runs a kernel that is to refuse its numbers: it says how many words they want, and touches nothing.
#[track_caller]
fn refuses(memory: &Guarded, there: u64, grid: (u32, u32), kernel: impl Fn(&Outcome) + Sync) {
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

const LOCAL: Local = Local {
    address: 0,
    length: 0,
    key: LocalKey(0),
};
const REMOTE: Remote = Remote {
    address: 0,
    key: RemoteKey(0),
};
/// Milliseconds that nobody here waits.
const LIMIT_US: u64 = 1000;

/// A way without queues.
fn path(signals: Place, parts: u32) -> Path<'static> {
    Path {
        queues: Slice::new(&[]),
        source: LOCAL,
        target: REMOTE,
        told: REMOTE,
        signals,
        bytes: 64,
        parts,
        limit_us: LIMIT_US,
    }
}

/// Tags that nobody looks up.
fn tags(tags: u32) -> TriggerHandle<'static> {
    // SAFETY: the kernels here end before they look one up.
    unsafe { TriggerHandle::new(std::ptr::null(), tags) }
}

fn stop() -> Stop<'static> {
    static WORD: Word64 = Word64::new(0);
    // SAFETY: a word of a CPU's memory.
    unsafe { Stop::new(&WORD) }
}

#[test]
fn a_meeting_has_a_word_for_each_block() {
    for (words, blocks, grid) in [(2, 3, 2), (2, 2, 3), (0, 0, 1), (2, u32::MAX, 1)] {
        let memory = Guarded::new();
        let arrivals = memory.place(words);
        let outcome = Outcome::new();
        run(grid, 3, || {
            outcome.record(|| meet(arrivals, blocks, 1, Deadline::after_us(LIMIT_US)));
        });
        let failure = outcome.result().unwrap_err();
        let deadline = Failure::Wait(warpbell::WaitError::Deadline);
        let outside = matches!(failure, Failure::Outside { .. });
        assert!(outside | (failure == deadline), "{failure}");
        let changed = memory.changed();
        let inside = |place: &isize| (0..words as isize).contains(place);
        assert!(changed.iter().all(inside), "{changed:?}");
    }
}

#[test]
fn overlap_works_on_its_part_alone() {
    let memory = Guarded::new();
    let process = |words_of_a_part| Process {
        words: memory.place(WORDS),
        words_of_a_part,
    };
    // The second block's part is not all there.
    run(2, 7, || overlap_process(process(40)));
    assert_eq!(memory.changed(), (0..40).collect::<Vec<_>>());
    let memory = Guarded::new();
    let process = |words_of_a_part| Process {
        words: memory.place(WORDS),
        words_of_a_part,
    };
    run(2, 7, || overlap_process(process(u32::MAX)));
    assert_eq!(memory.changed(), UNCHANGED);
    refuses(&memory, WORDS as u64, (1, 7), |outcome| {
        overlap_end(OverlapEnd {
            process: process(WORDS as u32 + 1),
            path: path(memory.place(WORDS), 1),
            begins: 1,
            whole: true,
            rounds: 1,
            chunk: 0,
            group: 0,
            arrivals: memory.place(1),
            times: Slice::new(&[]),
            outcome,
        });
    });
}

#[test]
fn matvec_multiplies_and_compares_what_is_there() {
    let matrix: Vec<_> = (0..512).map(|_| Word64::new(0)).collect();
    let memory = Guarded::new();
    let multiply = |matrix: &[Word64], vectors_of_a_part| Multiply {
        // SAFETY: the words outlive the launch, and are touched as atomics.
        matrix: unsafe { Place::new(matrix.as_ptr(), matrix.len() as u64) },
        vectors: memory.place(WORDS),
        products: memory.place(WORDS),
        vectors_of_a_part,
    };
    for (matrix, vectors) in [(&matrix[..], 5), (&matrix[..], u32::MAX), (&matrix[1..], 1)] {
        run(1, 32, || matvec_batch(multiply(matrix, vectors)));
        assert_eq!(memory.changed(), UNCHANGED);
        let there = if vectors == 1 { 511 } else { WORDS as u64 };
        refuses(&memory, there, (1, 32), |outcome| {
            matvec_server(MatvecServer {
                multiply: multiply(matrix, vectors),
                path: path(memory.place(WORDS), 1),
                outcome,
            });
        });
    }
    for (products, expected, batches) in [(15, 64, 1), (16, 15, 2), (16, 64, u32::MAX)] {
        let there = if products == 15 { products } else { expected };
        refuses(&memory, there as u64, (1, 64), |outcome| {
            matvec_client(MatvecClient {
                path: path(memory.place(WORDS), 1),
                batches,
                products: memory.place(products),
                expected: memory.place(expected),
                warm_up: 0,
                rounds: 1,
                nanoseconds: 0,
                stop: stop(),
                numbers: Slice::new(&[]),
                outcome,
            });
        });
    }
}

/// A rank alone with a segment of these bytes.
fn with_segment(memory: &Guarded, size: u64, test: impl FnOnce(GaspiHandle<'_>)) {
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

#[test]
fn a_stencil_goes_to_whole_strips() {
    let memory = Guarded::new();
    let strips = |cells| Strips {
        start: memory.place(WORDS),
        cells,
    };
    for cells in [31, u32::MAX] {
        run(1, 5, || {
            stencil_step(StencilStep {
                strips: strips(cells),
                step: u32::MAX,
            });
        });
        assert_eq!(memory.changed(), UNCHANGED);
        refuses(&memory, WORDS as u64, (1, 5), |outcome| {
            stencil_triggered(StencilTriggered {
                strips: strips(cells),
                rank: 0,
                steps: 1,
                path: path(memory.place(WORDS), 2),
                triggers: tags(2),
                outcome,
            });
        });
        with_segment(&memory, 8 * WORDS as u64, |gaspi| {
            refuses(&memory, WORDS as u64, (1, 5), |outcome| {
                gaspi_stencil(Stencil {
                    gaspi,
                    cells,
                    steps: 1,
                    outcome,
                });
            });
        });
    }
    // What is there is worked on: the second block's strips are not.
    run(2, 5, || {
        stencil_step(StencilStep {
            strips: strips(20),
            step: 0,
        });
    });
    assert_eq!(memory.changed(), (23..43).collect::<Vec<_>>());
}

#[test]
fn jacobi_goes_to_all_rows_or_none() {
    let memory = Guarded::new();
    // 10 rows of 8 cells, twice: 80 words.
    for (side, rows) in [(8, 8), (1, 70), (u32::MAX, 1), (0, u32::MAX)] {
        let cells = Cells {
            start: memory.place(WORDS),
            side,
            rows,
        };
        run(1, 5, || jacobi_step(JacobiStep { cells, step: 1 }));
        assert_eq!(memory.changed(), UNCHANGED);
        let rank = Jacobi {
            cells,
            path: path(memory.place(WORDS), 2),
            steps: 1,
            arrivals: memory.place(2),
            outcome: &Outcome::new(),
        };
        refuses(&memory, WORDS as u64, (2, 5), |outcome| {
            jacobi_notified(Jacobi { outcome, ..rank });
        });
        refuses(&memory, WORDS as u64, (2, 5), |outcome| {
            jacobi_triggered(JacobiTriggered {
                rank: Jacobi { outcome, ..rank },
                triggers: tags(2),
            });
        });
    }
}

#[test]
fn a_serving_client_has_room_for_its_answers() {
    let memory = Guarded::new();
    let histogram = Guarded::new();
    for (values, pictures, buckets) in [
        (2 * WORDS as u32 + 1, 1, 4096),
        (100, 2, 4096),
        (100, u32::MAX, 4096),
        (100, 1, 9),
    ] {
        let there = if buckets == 9 { 9 } else { WORDS as u64 };
        // SAFETY: the vector outlives the launch, and its words are touched as atomics.
        let histogram = unsafe { Place::new(histogram.0.as_ptr(), buckets) };
        refuses(&memory, there, (1, 64), |outcome| {
            serving_client(ServingClient {
                path: path(memory.place(WORDS), 1),
                request: Message { bytes: 8, piece: 8 },
                pictures,
                answer: memory.place(WORDS),
                expected: memory.place(WORDS),
                kept: memory.place(WORDS),
                values,
                warm_up: 0,
                rounds: 1,
                nanoseconds: 0,
                interval: 0,
                stop: stop(),
                numbers: Slice::new(&[]),
                histogram,
                outcome,
            });
        });
    }
}

#[test]
fn daq_goes_to_slots_that_are_there() {
    let memory = Guarded::new();
    // Four slots of 16 words; the list says the fifth, one far behind, and none at all.
    for number in [4, 1 << 55, u64::MAX] {
        let list = [Word64::new(Entry::new(number & 0xff_ffff_ffff_ffff, 3).0)];
        let list = match number {
            u64::MAX => &[],
            _ => &list[..],
        };
        let batch = DaqBatch {
            events: memory.place(WORDS),
            // SAFETY: the words outlive the launch, and are touched as atomics.
            list: unsafe { Place::new(list.as_ptr(), list.len() as u64) },
            primitives: memory.place(4),
        };
        run(1, 32, || daq_batch(batch));
        assert_eq!(memory.changed(), UNCHANGED);
    }
    for slots in [8, 1 << 31] {
        refuses(&memory, WORDS as u64, (1, 32), |outcome| {
            daq_receiver(DaqReceiver {
                path: path(memory.place(WORDS), 1),
                events: memory.place(WORDS),
                slots,
                outcome,
            });
        });
    }
    let all = Guarded::new();
    let room = |words| {
        // SAFETY: the vector outlives the launch, and its words are touched as atomics.
        unsafe { Place::new(all.0.as_ptr(), words) }
    };
    // The numbers, then which place is too short, and how many words it has.
    for (slots, kinds, short, there) in [
        (128, 32, 0, 64),
        (64, 64, 1, 64),
        (64, 32, 2, 1),
        (64, 32, 3, 63),
    ] {
        let places = [64, 64, 2, 4096];
        let place = |which: usize| room(if which == short { there } else { places[which] });
        refuses(&memory, there, (1, 64), |outcome| {
            daq_detector(DaqDetector {
                path: path(memory.place(WORDS), 1),
                primitives: place(0),
                kinds,
                truths: place(1),
                bound: 0,
                slots,
                interval_ps: 1,
                warm_up: 0,
                events: 1,
                nanoseconds: 1,
                drops: false,
                stop: stop(),
                shared: place(2),
                histogram: place(3),
                numbers: Slice::new(&[]),
                outcome,
            });
        });
        assert_eq!(all.changed(), UNCHANGED);
    }
}

#[test]
fn an_all_reduce_goes_to_the_memory_of_its_plan() {
    let memory = Guarded::new();
    for (doubling, words, rounds) in [
        (false, 20, 1),
        (true, 16, 1),
        (true, 2, 100),
        (false, u32::MAX, u32::MAX),
    ] {
        let plan = Plan {
            doubling,
            floats: false,
            ranks: 2,
            parts: 1,
            words,
            slice: 8,
            rounds,
        };
        let step = AllReduceStep {
            plan,
            memory: memory.place(WORDS - 1),
            rank: 0,
            round: 0,
            step: 0,
        };
        run(1, 5, || allreduce_step(step));
        assert_eq!(memory.changed(), UNCHANGED);
        let ranks = [Rank {
            memory: memory.place(WORDS - 1),
            peers: Slice::new(&[]),
            delay_us: 0,
        }];
        let all = AllReduce {
            plan,
            ranks: Slice::new(&ranks),
            outcome: &Outcome::new(),
        };
        let there = WORDS as u64 - 1;
        refuses(&memory, there, (1, 5), |outcome| {
            allreduce_posted(AllReduce { outcome, ..all })
        });
        refuses(&memory, there, (1, 5), |outcome| {
            allreduce_triggered(AllReduceTriggered {
                all: AllReduce { outcome, ..all },
                triggers: Slice::new(&[]),
            });
        });
    }
}

#[test]
fn triggering_kernels_go_to_words_that_are_there() {
    let memory = Guarded::new();
    let kernels: [fn(Listing<'_>); 3] = [trigger_work_items, trigger_work_groups, trigger_kernel];
    for kernel in kernels {
        refuses(&memory, 4, (1, 5), |outcome| {
            kernel(Listing {
                triggers: tags(1),
                tag_base: 1,
                buffer: memory.place(4),
                limit_us: LIMIT_US,
                outcome,
            });
        });
    }
    let kernels: [fn(TriggerCost<'_>); 3] = [
        trigger_cost_posts,
        trigger_cost_ready,
        trigger_cost_triggers,
    ];
    for kernel in kernels {
        refuses(&memory, 0, (1, 1), |outcome| {
            kernel(TriggerCost {
                triggers: tags(2),
                queue: SendQueueHandle::none(),
                local: LOCAL,
                remote: REMOTE,
                value: memory.place(0),
                warm_up: 0,
                rounds: 1,
                limit_us: LIMIT_US,
                cycles: Slice::new(&[]),
                outcome,
            });
        });
    }
}

/// A lane that nobody opens.
fn lanes() -> ActiveParts<'static> {
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

fn initiator() -> InitiatorHandle<'static> {
    // SAFETY: the kernels here end before they open a lane.
    unsafe { InitiatorHandle::new(lanes(), 64) }
}

fn target() -> TargetHandle<'static> {
    // SAFETY: as above.
    unsafe { TargetHandle::new(lanes(), 0, std::ptr::null()) }
}

#[test]
fn active_messages_go_to_vectors_that_are_there() {
    let memory = Guarded::new();
    for (words, slots) in [(65, 1), (33, 2), (u32::MAX, u32::MAX)] {
        refuses(&memory, WORDS as u64, (1, 5), |outcome| {
            active_contribute(Contribute {
                initiator: initiator(),
                source: LOCAL,
                vectors: memory.place(WORDS),
                words,
                slots,
                messages: 1,
                limit_us: LIMIT_US,
                answers: Slice::new(&[]),
                refusals: Slice::new(&[]),
                outcome,
            });
        });
    }
    for words in [65, u32::MAX] {
        refuses(&memory, WORDS as u64, (1, 5), |outcome| {
            active_reduce(Reduce {
                target: target(),
                sums: memory.place(WORDS),
                words,
                stop: stop(),
                limit_us: LIMIT_US,
                outcome,
            });
        });
    }
}

#[test]
fn inbound_data_have_their_words_at_both_ends() {
    let memory = Guarded::new();
    type Kernel = fn(Inbound<'_>);
    let kernels: [(Kernel, ScopeKind); 3] = [
        (inbound_thread, ScopeKind::Thread),
        (inbound_warp, ScopeKind::Warp),
        (inbound_block, ScopeKind::Block),
    ];
    let queue = SendQueueHandle::none();
    for (kernel, scope) in kernels {
        for way in Way::ALL {
            // A word too few of source, target, between and signal; none for the last, whose cells alone want more.
            for short in 0..5 {
                let cells = matches!(way, Way::Words | Way::Lines | Way::Checksums);
                if (short == 4) & !cells {
                    continue;
                }
                let there = [7, 7, 2, 0, 8][short];
                let place =
                    |which: usize, words| memory.place(if which == short { there } else { words });
                let threads = [1, 32, 40][scope as usize];
                refuses(&memory, there as u64, (2, threads), |outcome| {
                    kernel(Inbound {
                        way,
                        scope,
                        settled: false,
                        reach: FenceReach::Gpu,
                        send: queue,
                        // SAFETY: numbers and null pointers: no handle, as each opening finds.
                        receive: unsafe { std::mem::zeroed() },
                        flush: FlushHandle::new(queue, LOCAL, REMOTE, true),
                        source: LOCAL,
                        source_words: place(0, if cells { WORDS } else { 8 }),
                        target: REMOTE,
                        buffer: LOCAL,
                        target_words: place(
                            if short == 4 { 4 } else { 1 },
                            if cells { WORDS } else { 8 },
                        ),
                        signal: REMOTE,
                        signal_word: place(3, 1),
                        found: LOCAL,
                        between: place(2, 3),
                        bytes: 64,
                        rounds: 0,
                        warm_up: 0,
                        limit_us: LIMIT_US,
                        samples: Slice::new(&[]),
                        stale: Slice::new(&[]),
                        outcome,
                    });
                });
            }
        }
    }
}

#[test]
fn a_key_value_table_has_its_buckets_and_its_clients_room() {
    let memory = Guarded::new();
    let readers: [(fn(GetByReads<'_>), u32); 3] =
        [(kv_read_thread, 1), (kv_read_warp, 32), (kv_read_block, 40)];
    for (kernel, threads) in readers {
        // A stride beyond the room, one without room for a bucket, and one without room for the longest value.
        for (stride, longest, there) in [
            (8 * WORDS as u32 + 8, 8, WORDS as u64),
            (u32::MAX, 8, WORDS as u64),
            (56, 8, 7),
            (128, 65, 16),
        ] {
            refuses(&memory, there, (1, threads), |outcome| {
                kernel(GetByReads {
                    client: Client {
                        keys: Keys {
                            seed: 1,
                            keys: 1,
                            missing: 0,
                            shortest: 1,
                            longest,
                        },
                        gets: 1,
                        mtu: 1024,
                        limit_us: LIMIT_US,
                        counts: Slice::new(&[]),
                        samples: Slice::new(&[]),
                        outcome,
                    },
                    queues: Slice::new(&[]),
                    table: REMOTE,
                    buckets: 1,
                    values: REMOTE,
                    landing: LOCAL,
                    landing_words: memory.place(WORDS),
                    stride,
                });
            });
        }
    }
    let servers: [(fn(ServeGets<'_>), u32); 3] = [
        (kv_serve_thread, 1),
        (kv_serve_warp, 32),
        (kv_serve_block, 40),
    ];
    for (kernel, threads) in servers {
        for buckets in [9, u32::MAX] {
            refuses(&memory, WORDS as u64, (1, threads), |outcome| {
                kernel(ServeGets {
                    target: target(),
                    table: memory.place(WORDS),
                    buckets,
                    values: LOCAL,
                    stop: stop(),
                    limit_us: LIMIT_US,
                    outcome,
                });
            });
        }
    }
}

/// Runs one of the suite's kernels, whose threads all are to refuse its numbers.
#[track_caller]
fn suite_refuses(
    memory: &Guarded,
    there: u64,
    grid: (u32, u32),
    kernel: impl Fn(Output<'_, EndingWords>) + Sync,
) {
    let mut endings = vec![EndingWords::default(); (grid.0 * grid.1) as usize];
    let output = Output::new(&mut endings);
    run(grid.0, grid.1, || kernel(output));
    for words in &endings {
        match words.ending() {
            Some(Ending::Failed(Failure::Outside {
                wanted,
                there: found,
            })) => {
                assert!(wanted > there && found == there, "{wanted} of {found}");
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(memory.changed(), UNCHANGED);
}

#[test]
fn the_suites_storms_go_to_words_that_are_there() {
    let memory = Guarded::new();
    let (there, scope) = (WORDS as u64, ScopeKind::Block);
    // Pieces of 5 words: 13 are more than there are, and so are those of a segment with a part of a word.
    for (slots, size) in [(13, 8 * there), (u32::MAX, 8 * there), (3, 8 * 15 - 1)] {
        with_segment(&memory, size, |gaspi| {
            suite_refuses(&memory, size / 8, (1, 5), |endings| {
                suite_gaspi_storm(GaspiStorm {
                    gaspi,
                    mode: Mode {
                        sharing: SharingKind::Exclusive,
                        scope,
                    },
                    slots,
                    rounds: 0,
                    patience: 1,
                    done: Slice::new(&[]),
                    caught: Output::<Caught>::new(&mut []),
                    endings,
                });
            });
        });
    }
    for tags_there in [65, u32::MAX] {
        suite_refuses(&memory, there, (2, 1), |endings| {
            suite_trigger_storm(TriggerStorm {
                triggers: tags(tags_there),
                scope,
                operations: 0,
                wanted: Slice::new(&[]),
                words: REMOTE,
                order: Slice::new(&[]),
                begun: memory.place(WORDS),
                limit_ms: 1,
                endings,
            });
        });
    }
    for (slots, words) in [(1, 65), (u32::MAX, u32::MAX)] {
        suite_refuses(&memory, there, (1, 5), |endings| {
            suite_active_ask(ActiveAsk {
                initiator: initiator(),
                scope,
                step: AskStep::Storm,
                messages: 1,
                slots,
                words,
                max_result: 0,
                source: LOCAL,
                payloads: memory.place(WORDS),
                limit_ms: 1,
                seen: Output::new(&mut []),
                endings,
            });
        });
        suite_refuses(&memory, there, (1, 5), |endings| {
            suite_active_serve(ActiveServe {
                target: target(),
                scope,
                words: 0,
                max_result: words.saturating_mul(8),
                slots,
                results: LOCAL,
                result_words: memory.place(WORDS),
                limit_ms: 1,
                seen: Output::new(&mut []),
                endings,
            });
        });
    }
}
