//! Numbers that name more memory than a kernel was given: it refuses them by name, or leaves that memory alone.

use warpbell::{Deadline, Slice, Word64};
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::place::Place;
use warpbell_paper_kernels::allreduce::{
    AllReduce, AllReduceStep, AllReduceTriggered, Plan, Rank, allreduce_posted, allreduce_step,
    allreduce_triggered,
};
use warpbell_paper_kernels::daq::{
    DaqBatch, DaqDetector, DaqReceiver, Entry, daq_batch, daq_detector, daq_receiver,
};
use warpbell_paper_kernels::jacobi::{
    Cells, Jacobi, JacobiStep, JacobiTriggered, jacobi_notified, jacobi_step, jacobi_triggered,
};
use warpbell_paper_kernels::kv::{
    Client, GetByReads, Keys, ServeGets, kv_read_block, kv_read_thread, kv_read_warp,
    kv_serve_block, kv_serve_thread, kv_serve_warp,
};
use warpbell_paper_kernels::matvec::{
    MatvecClient, MatvecServer, Multiply, matvec_batch, matvec_client, matvec_server,
};
use warpbell_paper_kernels::meeting::meet;
use warpbell_paper_kernels::overlap::{OverlapEnd, Process, overlap_end, overlap_process};
use warpbell_paper_kernels::path::Path;
use warpbell_paper_kernels::serving::{Message, ServingClient, serving_client};
use warpbell_paper_kernels::stencil::{
    Stencil, StencilStep, StencilTriggered, Strips, gaspi_stencil, stencil_step, stencil_triggered,
};

use crate::guarded::{
    Guarded, LIMIT_US, LOCAL, REMOTE, UNCHANGED, WORDS, refuses, run, stop, tags, target,
    with_segment,
};

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
                over_time: memory.place(0),
                span: 0,
                outcome,
            });
        });
    }
}

#[test]
fn daq_goes_to_slots_that_are_there() {
    let memory = Guarded::new();
    // Slots of 32 words, and three words for the primitives of each. The list says one behind the last slot, one far behind,
    // one without room for its primitives, and none at all.
    let behind = WORDS as u64 / 32;
    for (number, room) in [(behind, WORDS), (1 << 55, WORDS), (1, 5), (u64::MAX, WORDS)] {
        let list = [Word64::new(Entry::new(number & 0xff_ffff_ffff_ffff, 3).0)];
        let list = match number {
            u64::MAX => &[],
            _ => &list[..],
        };
        let batch = DaqBatch {
            events: memory.place(WORDS),
            // SAFETY: the words outlive the launch, and are touched as atomics.
            list: unsafe { Place::new(list.as_ptr(), list.len() as u64) },
            primitives: memory.place(room),
            at_least_ns: 0,
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
                at_least_ns: 0,
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
        (64, 16, 0, 191),
        (64, 16, 1, 63),
        (64, 16, 2, 1),
        (64, 16, 3, 63),
    ] {
        let places = [192, 64, 2, 4096];
        let place = |which: usize| room(if which == short { there } else { places[which] });
        refuses(&memory, there, (1, 64), |outcome| {
            daq_detector(DaqDetector {
                path: path(memory.place(WORDS), 1),
                primitives: place(0),
                kinds,
                truths: place(1),
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
